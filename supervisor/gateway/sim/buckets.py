"""The provider's own account: continuously refilled token buckets, pure and in virtual time.

This is the other side of the limit. It shares no code with the gateway's admission, so that neither can hide a mistake of the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.core.gateway.settings import Limits
from supervisor.gateway.sim.outside_use import PATIENCE_S, OutsideUse


class Bucket:
    """Holds up to `capacity`, gains `per_minute / 60` a second. Below zero it is in debt, and grants nothing until that is paid."""

    __slots__ = ("_at", "_level", "_wanted_outside", "capacity", "drawn", "offered", "outside", "per_minute")

    def __init__(self, per_minute: float, capacity: float, now: float) -> None:
        self.per_minute = per_minute
        self.capacity = capacity
        self.offered = 0.0
        """Of refill since it was made, whether there was room for it or not."""
        self.drawn = 0.0
        """By this provider's customers, less what was given back."""
        self.outside = 0.0
        """Taken by the other client of the same key."""
        self._level = capacity
        self._at = now
        self._wanted_outside = 0.0

    def level(self, now: float) -> float:
        """What it holds at `now`. A clock that went back adds nothing."""
        gained = max(0.0, now - self._at) * self.per_minute / 60
        self.offered += gained
        self._level = min(self.capacity, self._level + gained)
        self._at = max(self._at, now)
        return self._level

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until it holds `amount`, or is full when that is less; 0 when it does now."""
        lacking = min(amount, self.capacity) - self.level(now)
        return max(0.0, lacking) * 60 / self.per_minute

    def full_in_s(self, now: float) -> float:
        """Seconds until it is full."""
        return self.wait_s(self.capacity, now)

    def draw(self, amount: float, now: float) -> None:
        """Take `amount`, which may be more than it holds; a negative one gives back, never above the capacity."""
        self.drawn += amount
        self._level = min(self.capacity, self.level(now) - amount)

    def draw_outside(self, wanted: float, most: float, now: float) -> None:
        """The other client wants so much more, and takes whole tokens (or requests) as far as there are any; the rest it wants later,
        but never more than `most`."""
        self._wanted_outside = min(most, self._wanted_outside + wanted)
        taken = math.floor(max(0.0, min(self._wanted_outside, self.level(now))))
        self._wanted_outside -= taken
        self.outside += taken
        self._level -= taken

    def change(self, per_minute: float, capacity: float, now: float) -> None:
        """Another limit from now on; what is above the new capacity is lost."""
        self.level(now)  # what was gained until now was gained at the old rate
        self.per_minute, self.capacity = per_minute, capacity


@dataclass(frozen=True, slots=True)
class Short:
    """A request does not fit: which dimension holds it back longest, and for how many seconds (infinite: for ever)."""

    dimension: str
    wait_s: float


class Meter:
    """The buckets of one key and model class. Dimensions are `requests`, `input`, `output`, `tokens`; only limited ones exist."""

    def __init__(self, limits: Limits, burst_s: float, now: float, *, oversize: bool = True, outside: OutsideUse | None = None) -> None:
        self._burst_s = burst_s
        self._oversize = oversize
        self._outside = outside
        self.buckets: dict[str, Bucket] = {name: Bucket(limit, self._capacity(limit), now) for name, limit in limits.known().items()}

    def _capacity(self, limit: float) -> float:
        return limit / 60 * self._burst_s

    def catch_up(self, now: float) -> None:
        """Let the other client take what it takes until `now`. Whoever reads levels calls this first."""
        if self._outside is None:
            return
        for moment, wanted_s in self._outside.bites(now):
            for bucket in self.buckets.values():
                rate = self._outside.part * bucket.per_minute / 60
                bucket.draw_outside(rate * wanted_s, rate * PATIENCE_S, moment)

    def ask(self, cost: Mapping[str, float], now: float) -> Short | None:
        """Draw `cost` from every limited dimension and give None, or draw nothing and say what is short."""
        self.catch_up(now)
        wanted = {name: amount for name, amount in cost.items() if name in self.buckets and amount > 0}
        shortage = [Short(name, wait) for name, amount in wanted.items() if (wait := self._wait_s(name, amount, now)) > 0]
        if shortage:
            return max(shortage, key=lambda short: short.wait_s)
        for name, amount in wanted.items():
            self.buckets[name].draw(amount, now)
        return None

    def _wait_s(self, name: str, amount: float, now: float) -> float:
        bucket = self.buckets[name]
        if amount > bucket.capacity and not self._oversize:
            return float("inf")
        return bucket.wait_s(amount, now)

    def charge(self, cost: Mapping[str, float], now: float) -> None:
        """Draw what was used already, whether it fits or not."""
        self.catch_up(now)
        for name, amount in cost.items():
            if name in self.buckets:
                self.buckets[name].draw(amount, now)

    def change(self, limits: Limits, now: float) -> None:
        """Other limits from now on. Dimensions that were not limited begin full; those that are no longer named are not limited."""
        self.catch_up(now)
        wanted = limits.known()
        self.buckets = {name: bucket for name, bucket in self.buckets.items() if name in wanted}
        for name, limit in wanted.items():
            if name in self.buckets:
                self.buckets[name].change(limit, self._capacity(limit), now)
            else:
                self.buckets[name] = Bucket(limit, self._capacity(limit), now)


class Window:
    """A subscription's window: opens with the first use after it closed, and is spent when its tokens are."""

    def __init__(self, name: str, tokens: float, seconds: float) -> None:
        self.name = name
        self._tokens = tokens
        self._seconds = seconds
        self._used = 0.0
        self._opened: float | None = None

    def use(self, tokens: float, now: float) -> None:
        """Count `tokens`."""
        if self.resets_in_s(now) == 0:
            self._opened, self._used = now, 0.0
        self._used += tokens

    def resets_in_s(self, now: float) -> float:
        """Seconds until it closes; 0 when it is not open."""
        return 0.0 if self._opened is None else max(0.0, self._opened + self._seconds - now)

    def utilization(self, now: float) -> float:
        """The part that is used, 0 to 1 and above."""
        return self._used / self._tokens if self.resets_in_s(now) > 0 else 0.0
