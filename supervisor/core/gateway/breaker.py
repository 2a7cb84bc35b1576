"""The breaker of one pool, twice: `limit` (the provider's limit is spent, or will be within the horizon) and `failures` (it is broken).

    state      event    next        means
    closed     trip     open        nothing is sent
    open       trip     open        it lasts longer
    open       probe    half-open   its time is over, and exactly one request was sent to try
    half-open  well     closed      that one was answered; the ramp begins at its bottom
    half-open  trip     open        that one was refused
    half-open  lost     open        that one went away before anybody answered; the next may try at once

Half-open *is* one probe on its way: its ticket is the state's own data, so there cannot be two. A full queue is no event here: the pool's
buckets hold requests back by themselves. Rules that do not fit the table:

1. A refusal that does not come from the probe, of a request sent before the breaker opened, only makes it last longer.
2. Whoever waits longest is the probe, and it must fit the bucket like any other: after a 429 the bucket begins at 0.
3. While it is half-open or open, answers to requests that were sent before say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from supervisor.core.gateway.nouns import BreakerState

TRANSITIONS: Final[Mapping[tuple[BreakerState, str], BreakerState]] = {
    (BreakerState.CLOSED, "trip"): BreakerState.OPEN,
    (BreakerState.OPEN, "trip"): BreakerState.OPEN,
    (BreakerState.OPEN, "probe"): BreakerState.HALF_OPEN,
    (BreakerState.HALF_OPEN, "well"): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, "trip"): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, "lost"): BreakerState.OPEN,
}
BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
WINDOW: Final = 10
FAILURES: Final = 5
"""So many of the last `WINDOW` outcomes open the failure breaker."""


def backoff_s(times: int) -> float:
    """Seconds to wait after that many failures in a row (at least 1)."""
    return BACKOFF_S[min(times, len(BACKOFF_S)) - 1]


class Breaker:
    """One of them. `until` is when it may be tried (monotonic seconds); `probe` is the ticket that tries."""

    __slots__ = ("name", "opened_at", "probe", "state", "trips", "until", "why")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = BreakerState.CLOSED
        self.why = ""
        self.opened_at = 0.0
        self.until = 0.0
        self.probe: int | None = None
        self.trips = 0
        """How often it opened since it was last closed."""

    def lets(self, now: float) -> bool:
        """Whether a request may be sent now, if only as the probe."""
        return self.state is BreakerState.CLOSED or (self.state is BreakerState.OPEN and now >= self.until)

    def trip(self, why: str, now: float, until: float) -> None:
        """Open it, or leave it open for longer."""
        if self.state is not BreakerState.OPEN:
            self.opened_at = now
            self.until = until
            self.trips += 1
        self.until = max(self.until, until)
        self.why = why
        self._go("trip", None)

    def try_with(self, ticket: int) -> None:
        """Its time is over and this request goes to try."""
        self._go("probe", ticket)

    def well(self) -> None:
        """The probe was answered."""
        self.trips = 0
        self.why = ""
        self._go("well", None)

    def lost(self, now: float) -> None:
        """The probe went away unanswered."""
        self.until = now
        self._go("lost", None)

    def _go(self, event: str, probe: int | None) -> None:
        self.state = TRANSITIONS[self.state, event]
        self.probe = probe


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
