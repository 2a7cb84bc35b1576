"""What `Traffic` tells the proxy to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.core.gateway.types import BreakerState, PoolKey, Usage


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
