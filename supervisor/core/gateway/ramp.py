"""How fast the number of requests in flight may rise: providers refuse a sharp rise even below the limit ("acceleration limits").

In each period at most twice as many as the most that were in flight in the period before. From idle:

             at once   a period
    easy     16        7 s        never refused so far: fifty agents that start together are all sent within 14 s
    careful  2         30 s       for an hour after a 429; 1 h is a guess, the doubling in 30 s is the field notes' 6.3

Sixteen at once are less than a minute's worth of any crew's usual prompts, and what the bucket holds is the stricter rule for most.
"""

from __future__ import annotations

EASY = (16, 7.0)
CAREFUL = (2, 30.0)
CAREFUL_FOR_S = 3600.0
AFTER_TROUBLE = 2


class Ramp:
    """One pool's ramp. Times are monotonic seconds."""

    __slots__ = ("_careful_until", "_peak", "_period_end", "ceiling")

    def __init__(self, now: float) -> None:
        self._careful_until = now
        self._peak = 0
        self._period_end = now
        self.ceiling = EASY[0]

    def allows(self, in_flight: int, now: float) -> bool:
        """Whether one more may be sent."""
        if now >= self._period_end:
            self._turn(in_flight, now)
        return in_flight < self.ceiling

    def sent(self, in_flight: int) -> None:
        """So many are in flight now."""
        if in_flight > self._peak:
            self._peak = in_flight

    def rises_at(self) -> float:
        """When the ceiling may be higher."""
        return self._period_end

    def restart(self, now: float, *, careful: bool) -> None:
        """After trouble: begin again from the bottom, carefully when the provider refused for a limit."""
        if careful:
            self._careful_until = now + CAREFUL_FOR_S
        self.ceiling, self._peak = AFTER_TROUBLE, 0
        self._period_end = now + self._pace(now)[1]

    def _turn(self, in_flight: int, now: float) -> None:
        first, period = self._pace(now)
        idle = now >= self._period_end + period
        self.ceiling = max(first if idle or self.ceiling >= first else AFTER_TROUBLE, 0 if idle else 2 * self._peak)
        self._peak = in_flight
        self._period_end = now + period

    def _pace(self, now: float) -> tuple[int, float]:
        return CAREFUL if now < self._careful_until else EASY
