"""A token bucket with debt. Pure: whoever calls it says what time it is."""

from __future__ import annotations

MAX_STEP_S = 120.0
"""A longer step (a suspended machine, a stopped process) refills as much as this: what others spent meanwhile is not known."""
SLACK = 1e-6
"""Tokens that may be missing and still fit: a timer fires a rounding error before its deadline, and must not find the bucket not ready."""
NEVER = float("inf")


class Bucket:
    """Holds up to `capacity`, gains `rate` a second, may be in debt. `level <= capacity` always; a clock that goes back changes nothing."""

    __slots__ = ("_at", "capacity", "level", "rate")

    def __init__(self, rate: float, capacity: float, now: float) -> None:
        self.rate = rate
        self.capacity = capacity
        self.level = capacity
        self._at = now

    def advance(self, now: float) -> float:
        """Refill up to `now` and give the level."""
        step = now - self._at
        if step > 0:
            self._at = now
            level = self.level + self.rate * (step if step < MAX_STEP_S else MAX_STEP_S)
            self.level = level if level < self.capacity else self.capacity
        return self.level

    def spills(self, now: float) -> float:
        """What of the refill up to `now` does not fit."""
        step = min(max(0.0, now - self._at), MAX_STEP_S)
        return max(0.0, self.level + self.rate * step - self.capacity)

    def take(self, amount: float, now: float) -> None:
        """Take `amount`, whether it is there or not. A negative one gives back; what does not fit under the capacity is lost."""
        level = self.level
        step = now - self._at
        if step > 0:  # `advance`, written out: this runs four times for each request
            self._at = now
            level += self.rate * (step if step < MAX_STEP_S else MAX_STEP_S)
            if level > self.capacity:
                level = self.capacity
        level -= amount
        self.level = level if level < self.capacity else self.capacity

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until it holds `amount`, or is full when that is less; 0 when it does now."""
        lacking = min(amount, self.capacity) - self.advance(now)
        if lacking <= SLACK:
            return 0.0
        return lacking / self.rate if self.rate > 0 else NEVER

    def lower(self, ceiling: float, now: float) -> None:
        """Hold no more than `ceiling` now."""
        self.level = min(self.advance(now), ceiling)

    def fill(self, at: float) -> None:
        """It was full at `at`, which may be in the past."""
        self.level, self._at = self.capacity, at

    def tune(self, rate: float, capacity: float, now: float) -> None:
        """Another rate and capacity from now on; what is above the new capacity is lost."""
        self.level = min(self.advance(now), capacity)
        self.rate, self.capacity = rate, capacity
