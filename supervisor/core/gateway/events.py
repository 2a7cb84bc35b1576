"""What the proxy tells `Traffic`. Every ticket arrives once and ends once: by `Ended`, by `Withdrawn`, or by a command that turns it away.

Arrived ──> (Send) ──> Responded? ──> Began? ──> Ended
   │           └─────> Refused ──> (Send again, or TurnAway)
   └─> Withdrawn at any moment
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.core.gateway.types import NOTHING_OBSERVED, Agent, End, LaneKey, Observed, Refusal, Usage


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
