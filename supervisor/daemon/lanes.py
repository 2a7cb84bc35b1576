"""Which lane of the cores each living agent runs in: the one with the fewest agents."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Mapping

from supervisor.core.spec import Settings
from supervisor.host import cores
from supervisor.host.cores import Core

Key = tuple[str, int]


def sets(settings: Settings, found: tuple[Core, ...]) -> tuple[tuple[int, ...], ...]:
    """The lanes of these settings on these cores, as CPU numbers; none where agents share all of their cores. Who says how many agents a
    lane is for, and not how many lanes there are, gets none on a machine that is too small to keep a core from agents."""
    count = settings.lanes
    if not count and settings.per_lane and len(found) >= cores.PINNING_FROM:
        count = math.ceil(settings.slots / settings.per_lane)
    made = cores.lanes(found, settings.cores_reserve, count)
    return made if len(made) > 1 else ()


class Lanes:
    """The lanes of one supervisor. Methods may be called from several threads."""

    def __init__(self, lanes: tuple[tuple[int, ...], ...], per_lane: int) -> None:
        """`per_lane` agents fill a lane; 0: no number does."""
        self._lanes = lanes
        self._per_lane = per_lane
        self._taken: dict[Key, tuple[int, ...]] = {}
        self._guard = threading.Lock()

    def take(self, key: Key) -> tuple[int, ...]:
        """The CPU numbers of its lane, the same each time. Empty: it runs on all of the agents' cores, since there are no lanes or all of
        them are full."""
        if not self._lanes:
            return ()
        with self._guard:
            if key not in self._taken:
                living = Counter(self._taken.values())
                least = min(self._lanes, key=lambda lane: living[lane])
                self._taken[key] = () if 0 < self._per_lane <= living[least] else least
            return self._taken[key]

    def free(self, key: Key) -> None:
        """It has ended; idempotent."""
        with self._guard:
            self._taken.pop(key, None)

    def adopt(self, living: Mapping[Key, tuple[int, ...]]) -> None:
        """Know the agents that another supervisor started, by the cores that they were given."""
        with self._guard:
            self._taken.update({key: given for key, given in living.items() if given in self._lanes})
