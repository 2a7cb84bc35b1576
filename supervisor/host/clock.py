"""The door to time. Everything that waits, ages or expires is given a `Clock`, so a test moves time instead of waiting for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def wall(self) -> float:
        """Seconds since 1970, as a person's clock shows them: for records only, it can jump either way."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, from an arbitrary start: for every duration and deadline. It stands still during suspend."""
        ...


class SystemClock:
    """The machine's own clock."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def busy_s() -> float:
    """Seconds of processor time that the calling thread has used."""
    return time.thread_time()
