"""What is due when, and the one moment at which to look next."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

from supervisor.core.gateway.bucket import NEVER

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
