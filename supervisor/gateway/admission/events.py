"""What the proxy tells `Traffic`, what `Traffic` tells the proxy, and timers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

from supervisor.gateway.admission.bucket import NEVER
from supervisor.gateway.admission.types import NOTHING_OBSERVED, Agent, Api, BreakerState, End, LaneKey, Observed, PoolKey, Refusal, Usage

# Events
# ------
# What the proxy tells `Traffic`. Every ticket arrives once and ends once: by `Ended`, by `Withdrawn`, or by a command that turns it
# away.
#
# Arrived ──> (Send) ──> Responded? ──> Began? ──> Ended
#    │           └─────> Refused ──> (Send again, or TurnAway)
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
    fell_back: bool = False
    """It is the fallback's already: `Traffic` alone says so."""


@dataclass(frozen=True, slots=True)
class Responded:
    """The upstream's response line and headers came, and the request is being served."""

    ticket: int
    observed: Observed


@dataclass(frozen=True, slots=True)
class Began:
    """The exact input is known (message_start); output is what was seen so far."""

    ticket: int
    usage: Usage


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


Event = Arrived | Responded | Began | Ended | Refused | Withdrawn | BatchEnded | Tick


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
    expected: Usage = field(default=Usage(), compare=False)
    """What requests like it took: with no margin, unlike what is reserved."""


@dataclass(frozen=True, slots=True)
class TurnAway:
    """Answer it ourselves; the ticket has ended.

    `status` is 429 (come back after `retry_after_s`, which is 1 to 60; the place is kept), 402 (a cost cap: no retry helps), 503 (the
    upstream's key was refused, or nobody serves the model).
    """

    ticket: int
    status: int
    why: str
    retry_after_s: int | None = None


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


Command = Send | TurnAway | Journal | Alert


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
