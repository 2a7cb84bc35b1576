"""The types of the gateway's decisions. Tokens are whole numbers as the provider counts them; times are monotonic seconds by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.core.states import TaskClass


class Api(StrEnum):
    """The language that an upstream speaks."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a provider says that one request took. `input` counts only what was neither read from nor written to its cache."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    """The part of `cache_write` that is kept for an hour, which costs more."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cache_write_1h + other.cache_write_1h,
        )

    @property
    def limited_input(self) -> int:
        """What counts against an input limit: cache reads do not (Anthropic's and most others' rule)."""
        return self.input + self.cache_write

    @property
    def uncached(self) -> int:
        """What a task is charged against `tokens_max`."""
        return self.limited_input + self.output

    @property
    def total(self) -> int:
        """Every token, however it was counted."""
        return self.input + self.output + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True)
class NightCap:
    """What the requests of all tasks of a night may cost together."""

    run: str
    cost_max: float
    """US dollars."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Who asks: one attempt of one task, as its token and the ledger say."""

    name: str
    """The task's id: what a share, a cap and an account belong to."""
    epoch: int
    task_class: TaskClass = TaskClass.NORMAL
    weight: float = 1.0
    """Its part of the limit beside the others' weights."""
    tpm_max: float | None = None
    """Tokens per minute that it takes at most over time, whatever is idle; see `budget`."""
    cost_max: float | None = None
    """US dollars that its task may cost over all its attempts."""
    cost_assumed: bool = False
    """Nobody said so but its kind: it holds for models of a known price alone."""
    tokens_max: int | None = None
    """Tokens that its task may take over all its attempts: input and output, without what is read from a cache."""
    size: str = ""
    """As its task says: `small`, `medium`, `large` or nothing."""
    family: str = ""
    """Whose batches it sees, its own among them: a worker of a map those of its repository's maps. Empty: its task's."""
    patient: bool = False
    """Its client was told to wait longer than `Policy.hold_s` for a first byte."""
    night: NightCap | None = None
    """The cap of the night that its task belongs to."""

    @property
    def capped(self) -> bool:
        """Whether its task, or its night, may only take so much in all."""
        return self.cost_max is not None or self.tokens_max is not None or self.night is not None

    @property
    def strict(self) -> bool:
        """Whether somebody said so: then what cannot be bounded is refused."""
        return (self.cost_max is not None and not self.cost_assumed) or self.tokens_max is not None or self.night is not None


@dataclass(frozen=True, slots=True)
class LaneKey:
    """What shares one queue: requests that the same accounts could serve."""

    api: Api
    model_class: str
    """Models that share a provider's limit, for example `opus-4`; see `models.model_class`."""
    long_context: bool = False

    def __str__(self) -> str:
        return f"{self.api}/{self.model_class}{'/long' if self.long_context else ''}"


@dataclass(frozen=True, slots=True)
class PoolKey:
    """What shares one limit: an account's part of a lane."""

    account: str
    lane: LaneKey

    def __str__(self) -> str:
        return f"{self.account}/{self.lane}"


@dataclass(frozen=True, slots=True)
class Window:
    """One rolling window of a subscription (`5h`, `7d`)."""

    name: str
    utilization: float
    """0 to 1, or above."""
    resets_in_s: float
    spent: bool
    """The provider refuses until the reset."""


@dataclass(frozen=True, slots=True)
class Level:
    """What a response's headers say of one dimension of the limit; None where they say nothing (or nonsense: negative, text)."""

    limit: float | None = None
    remaining: float | None = None
    full_in_s: float | None = None
    """Until it is full again, counted by the provider's own clock."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What a response's headers say of the limits. Keys of `levels`: `requests`, `input`, `output`, `tokens`."""

    levels: Mapping[str, Level] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    retry_after_s: float | None = None
    """As the provider said it, in seconds from now; absurd values are left out by the reader."""
    rounding: float = 0.0
    """`remaining` of tokens is rounded to this step (Anthropic: 1000)."""


NOTHING_OBSERVED = Observed()


class Refusal(StrEnum):
    """Why an upstream did not serve a request. All are known before its first byte reaches the client."""

    RATE_LIMITED = "rate limited"
    ACCELERATION = "too sharp a rise"
    SPEND_CAP = "spend cap reached"
    WINDOW_SPENT = "subscription window spent"
    OVERLOADED = "overloaded"
    """529: the provider's capacity, not our limit."""
    SERVER_ERROR = "server error"
    UNREACHABLE = "unreachable"
    """DNS, refused, TLS, reset, time-out: no response line came."""
    KEY_REFUSED = "key refused"
    """401 or 403 for a key that is ours."""


class End(StrEnum):
    """How a request that an upstream began to serve ended."""

    SERVED = "served"
    CUT = "cut"
    """The upstream broke off, or its stream carried an error."""
    CLIENT_GONE = "client gone"
    REJECTED = "rejected"
    """An answer of the 400s that is the client's own affair: passed on, nothing charged."""


class BreakerState(StrEnum):
    """Whether a pool lets requests through."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    OPEN = "open"


# What is shown --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DimensionView:
    """One dimension of a pool's limit. `saturation` is the part of the bucket that is spent or reserved, 0 to 1 and above."""

    name: str
    limit_per_minute: float | None
    level: float
    capacity: float
    reserved: float
    outside_per_minute: float
    saturation: float


@dataclass(frozen=True, slots=True)
class PoolView:
    """One pool now."""

    key: PoolKey
    breaker: BreakerState
    breaker_why: str
    exhausted_in_s: float | None
    """By the forecast, seconds until the upstream's level is 0; None when it is not falling, or nothing is in flight or waits."""
    opens_in_s: float | None
    """Until a parked or open pool tries again; None when it is open for business, or no time decides it (`breaker_why` says what)."""
    in_flight: int
    dimensions: tuple[DimensionView, ...]
    windows: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class AgentView:
    """One agent now. `used_tpm` is what it was charged in the last 60 s, `share_tpm` what its weight gives it while all others ask."""

    name: str
    task_class: TaskClass
    used_tpm: float
    share_tpm: float | None
    cap_tpm: float | None
    cost_usd: float | None
    in_flight: int
    queued: int
    place: int | None
    """Place of its first request in the queue, 1 is next; None when it has none."""
    waiting_s: float
    turn_wait_s: float = 0.0
    """How long its turns waited of late, see `latency`; of several queues the longest."""
    raised: float = 1.0
    """By what its weight is multiplied because they waited much longer than the others' of its class."""


@dataclass(frozen=True, slots=True)
class TrafficView:
    """Everything at one moment. `delay_s`: how long a normal request that came now would wait, by the queue and the rate, per lane."""

    pools: tuple[PoolView, ...]
    agents: tuple[AgentView, ...]
    queued: Mapping[LaneKey, int]
    delay_s: Mapping[LaneKey, float]
