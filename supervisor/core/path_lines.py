"""The lines in which tasks stand that are held up by the paths of others; see `path_rules`."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from supervisor.core.task import Area, Task, area, importance


@dataclass
class Lines:
    """The tasks that are held up, by area, and behind which task each area is. Part of the crew."""

    first: dict[Area, list[tuple[bool, int, int, str]]] = field(default_factory=dict)
    oldest: dict[Area, list[tuple[float, int, str]]] = field(default_factory=dict)
    behind: dict[Area, str] = field(default_factory=dict)
    areas: dict[str, dict[Area, None]] = field(default_factory=dict)

    def enter(self, task: Task) -> None:
        """Take in a task that is held up."""
        insort(self.first.setdefault(area(task), []), _rank(task))
        insort(self.oldest.setdefault(area(task), []), (task.since, task.order, task.id))

    def leave(self, task: Task) -> None:
        """Let go of one, as it was when it entered."""
        where = area(task)
        first, oldest = self.first[where], self.oldest[where]
        del first[bisect_left(first, _rank(task))], oldest[bisect_left(oldest, (task.since, task.order, task.id))]
        if not first:
            del self.first[where], self.oldest[where]

    def names(self, where: Area) -> Iterator[Iterator[str]]:
        """Those of an area in the order of their importance, then in that of their waiting."""
        yield (entry[-1] for entry in self.first.get(where, ()))
        yield (entry[-1] for entry in self.oldest.get(where, ()))

    def areas_behind(self, name: str) -> list[Area]:
        """The areas that wait for a task."""
        return list(self.areas.get(name, ()))

    def apply(self, behind: Mapping[Area, str]) -> None:
        """Behind which task these areas are from now on; empty: behind none."""
        for where, name in behind.items():
            before = self.behind.pop(where, "")
            if before:
                del self.areas[before][where]
                if not self.areas[before]:
                    del self.areas[before]
            if name:
                self.behind[where] = name
                self.areas.setdefault(name, {})[where] = None


def _rank(task: Task) -> tuple[bool, int, int, str]:
    return (not task.urgent, importance(task), task.order, task.id)
