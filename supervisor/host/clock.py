"""The door to time. Everything that waits, ages or expires is given a `Clock`, so a test moves time instead of waiting for it."""

from __future__ import annotations

import sys
import time
from typing import Protocol

from supervisor.kernel.pressure import Moment


class Clock(Protocol):
    def wall(self) -> float:
        """Seconds since 1970, as a person's clock shows them: for records only, it can jump either way."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, from an arbitrary start: for every duration and deadline. It stands still during suspend."""
        ...

    def boottime(self) -> float:
        """The same, but it goes on during suspend: only to notice one."""
        ...


class SystemClock:
    """The machine's own clock."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        # Linux alone tells the two apart; elsewhere a sleep is not noticed.
        return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()


def busy_s() -> float:
    """Seconds of processor time that the calling thread has used."""
    return time.thread_time()


_APART_S = 0.05
_READS = 5


def moment(clock: Clock) -> Moment:
    """All three clocks at one moment. They are read again when something came between the reads, such as a suspend: that would look like a
    jump."""
    for _ in range(_READS):
        before = clock.monotonic()
        found = Moment(clock.wall(), before, clock.boottime())
        if clock.monotonic() - before < _APART_S:
            break
    return found
