"""When a path whose file changes again and again is looked at: once it is quiet, and not much later than its first event."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
QUIET_S = 0.05
"""An editor that writes a file in several steps is done within this."""
LATEST_S = 0.1
"""After the first event of a path that never becomes quiet."""


@dataclass(slots=True)
class Debounce(Generic[K]):
    """What waits to be looked at. Moments are monotonic seconds."""

    quiet_s: float = QUIET_S
    latest_s: float = LATEST_S
    _waiting: dict[K, tuple[float, float]] = field(default_factory=dict)
    """When it is looked at, and when at the latest."""

    def add(self, keys: Iterable[K], now: float) -> None:
        """Something happened to these."""
        for key in keys:
            latest = self._waiting[key][1] if key in self._waiting else now + self.latest_s
            self._waiting[key] = (min(now + self.quiet_s, latest), latest)

    def due(self, now: float) -> list[K]:
        """Those whose moment has come; they wait no more."""
        found = [key for key, (at, _) in self._waiting.items() if at <= now]
        for key in found:
            del self._waiting[key]
        return found

    def next_at(self) -> float | None:
        """When the next one is due."""
        return min((at for at, _ in self._waiting.values()), default=None)
