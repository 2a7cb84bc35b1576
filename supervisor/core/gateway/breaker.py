"""The breaker of one pool, twice: `limit` (the provider's limit is spent, or will be within the horizon) and `failures` (it is broken).

    state      event    next        means
    closed     trip     open        nothing is sent
    open       trip     open        it lasts longer
    open       probe    half-open   its time is over, and exactly one request was sent to try
    open       clear    closed      its time is over, and it was open by the forecast alone: nobody was refused
    half-open  well     closed      that one was answered; the ramp begins at its bottom
    half-open  trip     open        that one was refused
    half-open  lost     open        that one went away before anybody answered; the next may try at once
    half-open  probe    half-open   that one was silent for `patience_s`: one more tries, and whichever is answered first decides

Half-open *is* a probe on its way: its ticket is the state's own data. A full queue is no event here: the pool's buckets hold requests back
by themselves. Rules that do not fit the table:

1. A refusal that does not come from the probe, of a request sent before the breaker opened, only makes it last longer.
2. Whoever waits longest is the probe, and it must fit the bucket like any other: after a 429 the bucket begins at 0.
3. While it is half-open or open, answers to requests that were sent before say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.gateway.bucket import NEVER
from supervisor.core.gateway.types import BreakerState

TRANSITIONS: Final[Mapping[tuple[BreakerState, str], BreakerState]] = {
    (BreakerState.CLOSED, "trip"): BreakerState.OPEN,
    (BreakerState.OPEN, "trip"): BreakerState.OPEN,
    (BreakerState.OPEN, "probe"): BreakerState.HALF_OPEN,
    (BreakerState.OPEN, "clear"): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, "well"): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, "trip"): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, "lost"): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, "probe"): BreakerState.HALF_OPEN,
}
BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
WINDOW: Final = 10
FAILURES: Final = 5
"""The failure breaker opens when so many of the last `WINDOW` requests failed."""


def backoff_s(times: int) -> float:
    """Seconds to wait after that many failures in a row (at least 1)."""
    return BACKOFF_S[min(times, len(BACKOFF_S)) - 1]


class Breaker:
    """One of the two. `until` is when it may be tried (monotonic seconds), if only once more; `probes` are the tickets that try."""

    __slots__ = ("_patience_s", "by_forecast", "name", "opened_at", "probes", "said_at", "state", "trips", "until", "why")

    def __init__(self, name: str, patience_s: float = NEVER) -> None:
        self.name = name
        self._patience_s = patience_s
        self.state = BreakerState.CLOSED
        self.why = ""
        self.said_at = 0.0
        """When `why` was told."""
        self.opened_at = 0.0
        self.until = 0.0
        self.by_forecast = False
        """It is open because of what was forecast, and for nothing that happened."""
        self.probes: frozenset[int] = frozenset()
        self.trips = 0
        """How often it opened since it was last closed."""

    def lets(self, now: float) -> bool:
        """Whether a request may be sent now, if only as the probe."""
        return self.state is BreakerState.CLOSED or now >= self.until

    def trip(self, why: str, now: float, until: float, *, by_forecast: bool = False) -> None:
        """Open it, or keep it open for longer."""
        self.by_forecast = by_forecast and (self.by_forecast or self.state is not BreakerState.OPEN)
        if self.state is not BreakerState.OPEN:
            self.opened_at = now
            self.until = until
            self.trips += 1
        self.until = max(self.until, until)
        self.why, self.said_at = why, now
        self._go("trip", frozenset())

    def try_with(self, ticket: int, now: float) -> None:
        """Its time is over, and this request is its probe."""
        self.until = now + self._patience_s
        self._go("probe", self.probes | {ticket})

    def clear(self) -> None:
        """Close it: what was forecast did not happen."""
        self.trips = 0
        self.why = ""
        self._go("clear", frozenset())

    def well(self) -> None:
        """The probe was answered."""
        self.trips = 0
        self.why = ""
        self._go("well", frozenset())

    def lost(self, ticket: int, now: float, why: str = "") -> None:
        """That probe went away unanswered, or failed for another reason, which is the newest one that is known."""
        if why:
            self.why, self.said_at = why, now
        if self.probes == {ticket}:
            self.until = now
            self._go("lost", frozenset())
        else:
            self.probes -= {ticket}

    def _go(self, event: str, probes: frozenset[int]) -> None:
        self.state = TRANSITIONS[self.state, event]
        self.probes = probes


class Outcomes:
    """The last ten answers of a pool: served or failed."""

    __slots__ = ("_last", "in_a_row")

    def __init__(self) -> None:
        self._last = 0
        self.in_a_row = 0

    @property
    def failed(self) -> int:
        """How many of them failed."""
        return self._last.bit_count()

    @property
    def bad(self) -> bool:
        """Whether these are too many."""
        return self.failed >= FAILURES

    def add(self, *, failed: bool) -> None:
        """One more."""
        if self._last or failed:
            self._last = (self._last << 1 | failed) & ((1 << WINDOW) - 1)
        self.in_a_row = self.in_a_row + 1 if failed else 0

    def clear(self) -> None:
        """Begin anew."""
        self._last = self.in_a_row = 0
