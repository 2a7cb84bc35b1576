"""Another client of the same key: it takes a part of every limit, in irregular bites at random moments. Pure, in the provider's time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

GAP_S = 2.0
"""Mean time between two bites; the times themselves are exponentially distributed."""
PATIENCE_S = 60.0
"""What it could not get it still wants later, but never more than it would take in this time."""


@dataclass(slots=True)
class OutsideUse:
    """Wants `part` of each limit from `since` on. What it takes is decided by the buckets: never more than there is."""

    part: float
    since: float
    rng: random.Random = field(repr=False)
    _last: float = 0.0
    _next: float = 0.0

    def __post_init__(self) -> None:
        self._last = self.since
        self._next = self.since + self._gap()

    def bites(self, now: float) -> Iterator[tuple[float, float]]:
        """(moment, seconds of its part of the limit that it wants more) of every bite until `now`, each once."""
        while self.part > 0 and self._next <= now:
            moment, wanted_s = self._next, (self._next - self._last) * self.rng.uniform(0.5, 1.5)
            self._last, self._next = moment, moment + self._gap()
            yield moment, wanted_s

    def _gap(self) -> float:
        return self.rng.expovariate(1 / GAP_S)
