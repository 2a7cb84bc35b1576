"""The settings of the gateway: providers, routes, limits, and how a limit is shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.kernel.engines import Engine
from supervisor.kernel.states import TaskClass


class Api(StrEnum):
    """The language that an upstream speaks."""

    ANTHROPIC = "anthropic"
    OPENAI = "openai"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class Limits:
    """Per minute. None: not limited, or learned from the responses' headers."""

    rpm: float | None = None
    itpm: float | None = None
    otpm: float | None = None
    tpm: float | None = None
    """Input and output in one sum, as OpenAI and Gemini count."""

    def known(self) -> dict[str, float]:
        """`{dimension: per minute}` of what is set; dimensions are `requests`, `input`, `output`, `tokens`."""
        named = {"requests": self.rpm, "input": self.itpm, "output": self.otpm, "tokens": self.tpm}
        return {name: number for name, number in named.items() if number is not None}


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the provider's key comes from; it is read at each start of the gateway and lives in that process alone.

    `file`: a 0600 file, `value` its path (empty: `keys/<upstream>.key` of the state directory). `command`: what `argv` prints (a keyring's
    tool). `none`: the server wants none. `client`: the client's own login is passed on.
    """

    kind: str = "file"
    value: str = ""
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Upstream:
    """One account at one server that speaks one of the three languages."""

    name: str
    api: Api
    url: str
    """Scheme, host, port and an optional path prefix, without a slash at the end."""
    key: KeySource = KeySource()
    account: str = ""
    """Upstreams with the same account share their limits. Given empty, it is the upstream's name."""
    models: tuple[str, ...] = ("*",)
    """Shell patterns of the models it serves."""
    limits: Limits = Limits()
    """For every model class that `classes` does not name."""
    classes: Mapping[str, Limits] = field(default_factory=dict)
    learn: bool = True
    """Take limits, levels and outside use from the responses' headers."""
    burst_s: float = 60.0
    """Seconds of refill that the provider's bucket holds."""
    reserve_max_tokens: bool = False
    """The provider counts `max_tokens` against the output limit up front (Anthropic's rule until 2025)."""
    cached_counts: bool = False
    """Cache reads count against the input limit (OpenAI, Gemini, Claude Haiku 3.5 and older)."""
    engine: Engine | None = None
    """The engine behind it: `url` is empty, and the engine's record says where it answers."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "account", self.account or self.name)

    @property
    def known_as(self) -> str:
        """The name by which a route leads to it: its engine's, where there is one."""
        return self.engine.name if self.engine is not None else self.name

    def limits_of(self, model_class: str) -> Limits:
        """The configured limits of one model class."""
        return self.classes.get(model_class, self.limits)


@dataclass(frozen=True, slots=True)
class Route:
    """Requests for models that match `model` go to `upstream`, with the model's name replaced by `as_model` when that is set."""

    model: str
    upstream: str = ""
    as_model: str = ""
    task_class: TaskClass | None = None
    """Only for tasks of this class."""
    size: str = ""
    """Only for tasks that say this size."""
    fallback: str = ""
    """Model that answers in place of the one that is sent, for batch tasks; see `fallback`."""
    work: str = ""
    """Only for requests of this weight, one of `spec.WORK`."""


@dataclass(frozen=True, slots=True)
class AnswerCache:
    """`[cache]`: answers that are kept and given again to the same request of the same project."""

    ttl_s: float
    """None is given that is older."""
    max: int
    """Bytes of all of them; those that were not used for longest go first."""
    answer_max: int
    """Bytes of one; a larger one is not kept."""


@dataclass(frozen=True, slots=True)
class Quota:
    """A named hard ceiling on something else than tokens: `limit` tickets in `period_s`, `burst` at once."""

    name: str
    limit: float
    period_s: float = 60.0
    burst: float = 1.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How the limit is shared. Numbers without a source are those of the simulation, docs/bench.md."""

    margin: float = 0.985
    """Part of the limit that is used; each 429 lowers it."""
    hold_s: float = 240.0
    """A request waits this long for its turn before it gets 429. Claude Code gives up a silent request after 295 s (measured)."""
    patient_hold_s: float = 1500.0
    """The same for agents whose client was told to wait."""
    queue_max: int = 2000
    """Requests that wait at once; one more is answered 429 at once."""
    headroom: float = 0.25
    """Part of the bucket that only interactive agents may use."""
    batch_share: float = 0.2
    """Part of the rate that the lower classes get, however much the class above asks."""
    place_kept_s: float = 120.0
    """How long a request that was told to come back keeps its place."""
    horizon_s: float = 10.0
    """The breaker opens when the upstream's level would be gone within this time."""
    cost_per_night: float | None = None
    """US dollars that the whole crew may cost in any 12 hours."""
    fallback_at: float = 0.8
    """From this part of `cost_per_night` on, batch requests are answered by their routes' fallbacks."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The whole of it. Without an upstream there is nothing to pass on, and no gateway is started."""

    upstreams: tuple[Upstream, ...] = ()
    routes: tuple[Route, ...] = ()
    quotas: tuple[Quota, ...] = ()
    policy: Policy = Policy()
    cache: AnswerCache | None = None
    """None: no answer is kept."""
    port: int = 0
    """On 127.0.0.1; 0 takes a free one at the first start and keeps it."""
    record: bool = False
    """Keep bodies (zstd, without secrets) for `nightcrew gateway replay`."""
    keep_days: float = 30.0
    """How long settled requests and recordings are kept."""
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The user's own prices, model -> {input, output, cache_read, cache_write, cache_write_1h} in US dollars per million tokens."""
