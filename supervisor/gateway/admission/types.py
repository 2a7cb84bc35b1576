"""What the gateway's decisions speak of: tokens, agents, lanes, pools and settings; events and commands; one request on its way."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from supervisor.kernel.engines import EngineRecord
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.states import TaskClass

if TYPE_CHECKING:
    from supervisor.gateway.admission.breaker import Refusals
    from supervisor.gateway.admission.bucket import Mark
    from supervisor.gateway.admission.budget import Guess, Pot, Slot


# Types
# -----
# The types of the gateway's decisions. Tokens are whole numbers as the provider counts them; times are monotonic seconds by
# default.


NEVER = float("inf")
"""The time of what does not happen."""


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
    engine_seconds_max: float | None = None
    """Seconds that engines may work for its task over all its attempts."""
    work: str = ""
    """The weight of its work, as its task says."""
    raised: bool = False
    """Its task failed its gate: its requests are routed one weight stronger."""
    size: str = ""
    """As its task says: `small`, `medium`, `large` or nothing."""
    project: str = ""
    """The repository of its task: it sees no kept answer of another."""
    repeatable: bool = False
    """Its task says that a kept answer is as good as a new one."""
    family: str = ""
    """Whose batches it sees, its own among them: a worker of a map those of its repository's maps. Empty: its task's."""
    patient: bool = False
    """Its client was told to wait longer than `Policy.hold_s` for a first byte."""
    night: NightCap | None = None
    """The cap of the night that its task belongs to."""

    @property
    def capped(self) -> bool:
        """Whether its task, or its night, may only take so much in all."""
        return any(cap is not None for cap in (self.cost_max, self.tokens_max, self.night, self.engine_seconds_max))

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
    INTERRUPTED = "interrupted"
    """We cut it for a more urgent request, before its client saw anything; it is sent again."""
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
    waiting: int = 0
    """Requests that could go there, once they may."""
    engine: str = ""
    """What the engine's process does, for the slots of an engine; else empty."""


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


# Settings
# --------
# The gateway's settings, free of file syntax. docs/gateway.md describes each key; `supervisor.config.gateway` reads them.


# Events
# ------
# What the proxy tells `Traffic`, what `Traffic` tells the proxy, and timers.


# Events
# ------
# What the proxy tells `Traffic`. Every ticket arrives once and ends once: by `Ended`, by `Withdrawn`, or by a command that turns it
# away.
#
# Arrived ──> (Send) ──> Responded? ──> Began? ──> Ended
#    │           │ └────> Ended as INTERRUPTED ──> (Send again, or TurnAway)
#    │           └──────> Refused ──> (Send again, or TurnAway)
#    └─> Withdrawn at any moment


@dataclass(frozen=True, slots=True)
class Fallback:
    """Another model of the same API that may answer a batch request, and what `Arrived` says of one for it."""

    lane: LaneKey
    model: str
    upstreams: tuple[str, ...]
    bound_usd: float | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request was read and wants to be sent."""

    ticket: int
    """Unique in the life of the process, rising."""
    agent: Agent
    lane: LaneKey
    model: str
    """As it will be sent."""
    upstreams: tuple[str, ...]
    """Names of the upstreams that could serve it, in the user's order."""
    body_bytes: int
    max_tokens: int | None = None
    body_key: str = ""
    """Agent, and what tells bodies apart: a request that comes again within `Policy.place_kept_s` regains its place."""
    session: str = ""
    """The client's own session id when it sends one: what was cached for it was cached under this."""
    bound_usd: float | None = None
    """The most that it can cost; None when its model has no known price."""
    bound_tokens: int = 0
    """The most that it can take, input and output."""
    fallback: Fallback | None = None
    tools: bool = False
    """It brings tools for the model to call."""
    to_engine: bool = False
    """An engine may serve it."""
    fell_back: bool = False
    """It is the fallback's already: `Traffic` alone says so."""


@dataclass(frozen=True, slots=True)
class Responded:
    """The upstream's response line and headers came, and the request is being served."""

    ticket: int
    observed: Observed


@dataclass(frozen=True, slots=True)
class Began:
    """The exact input is known (message_start); output is what was seen so far. None: the first output came, and the input is not said."""

    ticket: int
    usage: Usage | None


@dataclass(frozen=True, slots=True)
class Shown:
    """The client gets the answer of a `Send.withhold` from now on, so it can no longer be interrupted."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The request is over. `usage` None: the provider never said; then the reservation stands, and never less than what was seen."""

    ticket: int
    end: End
    usage: Usage | None
    cost_usd: float | None = None
    """What counts below the caps on dollars; None: the most that it can cost."""
    tokens: int | None = None
    """Input and output that its task is charged, without what was read from a cache; None: the most that it can take."""
    observed: Observed = NOTHING_OBSERVED
    engine_s: float = 0.0
    """Seconds that an engine worked for it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The upstream did not serve it; nothing was passed to the client yet."""

    ticket: int
    why: Refusal
    observed: Observed = NOTHING_OBSERVED
    detail: str = ""
    """For people: the status, or the system's words; no secret in it."""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The client went away while the request waited. (While it is being served that is `Ended` with CLIENT_GONE.)"""

    ticket: int


@dataclass(slots=True, eq=False)
class BatchHold:
    """What is reserved for a batch of requests while it lives: no tokens of any minute, but the most that it can take and cost in all."""

    agent: Agent
    model: str
    bound: float | None
    """US dollars; None when its model has no known price."""
    bound_tokens: int
    to_engine: bool = False
    pots: tuple[Any, ...] = ()
    """The caps that it shares with others, once it is reserved; its budget's affair."""


@dataclass(frozen=True, slots=True)
class BatchEnded:
    """A batch that was made is over, and its results say what it took. None: nobody can say; it is charged the most."""

    batch: BatchHold
    cost_usd: float | None
    tokens: int | None


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed: `wakes_at` was reached, or nothing happened for a while."""

    slept_s: float = 0.0
    """Seconds for which the machine slept just now: its monotonic clock stood still, and the provider's windows went on."""


@dataclass(frozen=True, slots=True)
class EngineChanged:
    """The record of an engine changed; None: there is none."""

    name: str
    record: EngineRecord | None


Event = Arrived | Responded | Began | Shown | Ended | Refused | Withdrawn | BatchEnded | EngineChanged | Tick


# Commands
# --------
# What `Traffic` tells the proxy to do.


@dataclass(frozen=True, slots=True)
class Send:
    """Send it to this upstream now; its reservation is made."""

    ticket: int
    upstream: str
    attempt: int
    """1 for the first time, one more for each retry."""
    probe: bool = False
    """It is the one request by which a half-open breaker tries."""
    fallback: bool = False
    """As its `Arrived.fallback` says, and not as it came."""
    withhold: bool = False
    """It may be interrupted: keep its answer from its client, and tell `Shown` when that ends."""
    expected: Usage = field(default=Usage(), compare=False)
    """What requests like it took: with no margin, unlike what is reserved."""


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Answer it ourselves; the ticket has ended.

    `status` is 429 (come back after `retry_after_s`, which is 1 to 60; the place is kept), 402 (a cost cap: no retry helps), 503 (the
    upstream's key was refused, its engine does not run, or nobody serves the model), 400 (its engine cannot serve such a request).
    """

    ticket: int
    status: int
    why: str
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Cut its upstream stream, and tell `Ended` with INTERRUPTED: a more urgent request needs its slot."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Journal:
    """Record a change of a breaker's state, with its numbers."""

    pool: PoolKey
    breaker: str
    """`limit` or `failures`."""
    before: BreakerState
    after: BreakerState
    why: str
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Alert:
    """Tell a person, once: a key was refused, a spend cap reached."""

    about: str
    """Alerts with the same text are one alert."""
    text: str


Command = Send | TurnAway | Interrupt | Journal | Alert


# Models
# ------
# Which models share a provider's limit.


LONG_CONTEXT_BYTES = 720_000
"""A body above this is taken for more than 200,000 tokens, where Anthropic's separate limit for long contexts begins: a token is about
3.6 bytes of a request's JSON (where the estimators begin, too)."""

_LONGEST = 80
_CLAUDE = re.compile(
    r"claude-(?:(?P<family>opus|sonnet|haiku)-(?P<new>\d+)|(?P<old>[23](?:[.-]\d)?)-(?P<old_family>opus|sonnet|haiku))(?!\d)"
)
_SNAPSHOT = re.compile(r"(?:-latest|-\d{4}-\d{2}-\d{2}|-\d{8}|-\d{4}|-\d{3}|-\d{2}-\d{2}|-\d{2}-\d{4})$")
_STRANGE = re.compile(r"[^a-z0-9._:-]+")


def model_class(api: Api, model: str) -> str:
    """The name of what `model` shares its limit with, the key of `Upstream.classes`: lower case, at most 80 characters.

    Anthropic counts the Opus 4 models in one pool and the Sonnet 4 models in another: `opus-4`, `sonnet-4`, `haiku-4`; before that each
    release alone: `sonnet-3.7`. Everything else is its own class, without the date of its snapshot: `gpt-5.1`, `gemini-2.5-flash`.
    """
    name = model.lower().removesuffix("[1m]").rpartition("/")[2]
    if api is Api.ANTHROPIC and (claude := _CLAUDE.search(name)):
        if claude["family"]:
            return f"{claude['family']}-{claude['new']}"
        return f"{claude['old_family']}-{claude['old'].replace('-', '.')}"
    plain = _STRANGE.sub("-", _SNAPSHOT.sub("", name)).strip("-")[:_LONGEST]
    return plain or "unnamed"


# Timers
# ------
# What is due when, and the one moment at which to look next.


EARLY_S = 1e-6
"""A timer that fires this much before its time is on time: a moment that a float cannot reach must not be waited for."""

Due = TypeVar("Due")


class Timers(Generic[Due]):
    """Things that are due at moments, soonest first. What is no longer wanted is passed over when it comes up."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._count = 0

    def at(self, when: float, what: Due) -> None:
        """Have `what` due at `when`."""
        self._count += 1
        heappush(self._heap, (when, self._count, what))

    def due(self, now: float) -> Iterator[Due]:
        """All that is due by now, taken out."""
        while self._heap and self._heap[0][0] <= now + EARLY_S:
            yield heappop(self._heap)[2]

    def next(self) -> float:
        """When the first one is due; infinite when there is none."""
        return self._heap[0][0] if self._heap else NEVER


# Ticket
# ------
# One request on its way through the gateway, as the decisions see it.


QUEUED, LATER, SENT, GONE = range(4)
"""Where a ticket is. LATER: it failed, and waits for its next attempt before it queues again at its old place. GONE: it ended; heaps that
still hold it pass over it. Numbers and no enum: Python 3.11 needs 90 ns to look up a member."""


class Ticket:
    """Mutable, and changed by its lane, fair queue, pool and budget alone, which `model_queue.RoutedTicket` names. Amounts are tokens."""

    __slots__ = (
        "answered", "answered_at", "api", "arrived_at", "attempt", "bound", "cost", "counted", "deadline", "decodes_since", "deviation",
        "doubt", "event", "guess", "id", "input", "input_known", "interrupted", "interrupts", "marks", "observed", "order", "output",
        "pots", "probe", "refusals", "route", "sent_at", "serial", "slot", "start", "upstream", "weight", "where", "withheld",
    )  # fmt: skip

    def __init__(self, event: Arrived, api: Api, route: Hashable, weight: float, guess: Guess, now: float) -> None:
        self.id = event.ticket
        self.event = event
        self.api = api
        self.route = route
        """Requests of one agent with the same route go one after another."""
        self.weight = weight
        """Of its agent."""
        self.guess = guess
        self.arrived_at = now
        self.bound = event.bound_usd
        self.attempt = 0
        self.refusals: Refusals | None = None
        self.where = QUEUED
        self.start: float
        """Start tag of its class's virtual clock: smaller goes first."""
        self.order = event.ticket
        """Of two with the same tag the smaller goes first."""
        self.cost: float
        """What its agent's finish tag was raised by (before the weight)."""
        self.deadline: float
        self.interrupts = 0
        """How often it was interrupted for a more urgent request."""
        # From here on only while it is sent.
        self.withheld = False
        """Its client sees nothing yet, so it may be interrupted."""
        self.decodes_since: float | None = None
        """When its first output came; of one that is withheld."""
        self.interrupted = False
        """It is being interrupted now."""
        self.pots: tuple[Pot, ...]
        """What it was reserved in, beside its agent's own caps."""
        self.upstream: str
        self.serial: int
        self.sent_at: float
        self.marks: dict[int, Mark | None]
        """By each dimension that it was charged to the mark of the provider's level when it was sent; None: it was charged later, when the
        limit became known."""
        self.input: float
        """Limited input that is charged for it."""
        self.doubt: float
        """How much more its input may be, while the provider has not said it."""
        self.deviation: float
        """The part of its reserved output that is caution."""
        self.answered_at: float | None
        self.output: float
        self.input_known: bool
        self.answered: bool
        self.probe: bool
        self.observed: Observed | None
        self.slot: Slot
        self.counted: float
        """Tokens that its agent's last minutes hold for it, up from `slot`."""

    @property
    def bound_tokens(self) -> int:
        """The most that it can take."""
        return self.event.bound_tokens

    @property
    def model(self) -> str:
        """As it is sent."""
        return self.event.model

    @property
    def to_engine(self) -> bool:
        """Whether an engine may serve it."""
        return self.event.to_engine
