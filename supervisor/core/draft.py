"""The crew as a decision would leave it: the crew, with all changes so far on top.

Each question of a step is answered from the tasks that it concerns (`Crew` keeps them by question) and from those that changed, so that a
decision costs what happened, however many tasks wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile

from supervisor.core.crew import Change, Crew, Rank, Task, TaskClass, rank
from supervisor.core.states import FINAL, TaskState


class Draft:
    """The working copy of one decision: mutable inside `decide`, never seen outside. The crew itself is left alone."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._changed: dict[str, Task] = {}
        self._dependents: dict[str, list[str]] = {}
        self.slots = crew.slots
        self.admitting = crew.admitting
        self.held_back = crew.held_back

    def change(self) -> Change:
        """Everything that differs from the crew. Final tasks that no unfinished task comes after are to be forgotten: a night's history
        stays in the ledger, not in memory."""
        final = [task for task in self._changed.values() if task.state in FINAL]
        looked_at = {name for task in final for name in (task.id, *task.after)}
        forgotten = frozenset(name for name in looked_at if self._is_over(name) and not any(self.unfinished_after(name)))
        tasks = tuple(task for task in self._changed.values() if task.id not in forgotten)
        return Change(tasks, forgotten, self.admitting, self.held_back)

    def _is_over(self, name: str) -> bool:
        task = self.get(name)
        return task is not None and task.state in FINAL

    def get(self, name: str) -> Task | None:
        """The task as it is now; None for one that nobody knows."""
        return self._changed.get(name) or self._crew.tasks.get(name)

    def put(self, task: Task) -> None:
        """Add a task, or have it as it is from now on."""
        before = self.get(task.id)
        self._changed[task.id] = task
        if task.state not in FINAL and (before is None or before.state in FINAL):
            for need in task.after:
                self._dependents.setdefault(need, []).append(task.id)

    def known(self, names: Iterable[str]) -> Iterator[Task]:
        """Those of the tasks that are known."""
        return (task for task in map(self.get, names) if task is not None)

    def unfinished_after(self, name: str) -> Iterator[Task]:
        """Every unfinished task that comes after this one, in the order in which they came."""
        names = chain(self._crew.dependents.get(name, ()), self._dependents.get(name, ()))
        return (task for task in self.known(names) if task.state not in FINAL)

    def living(self) -> list[Task]:
        """The tasks with an attempt that has not ended."""
        return [task for task in {**self._crew.living, **self._changed}.values() if task.attempt is not None]

    def ready(self, task_class: TaskClass) -> Iterator[Rank]:
        """The tasks of a class that could start, first one first."""
        unchanged = (found for found in self._crew.ready[task_class] if found[-1] not in self._changed)
        changed = (task for task in self._changed.values() if task.task_class is task_class and _is_ready(task))
        return heapq.merge(unchanged, sorted(map(rank, changed)))

    def rested(self, now: float) -> list[Task]:
        """The tasks whose backoff is over."""
        due = [name for _, name in takewhile(lambda found: found[0] <= now, self._crew.resting)]
        return [task for task in self.known({*due, *self._changed}) if 0 < task.not_before <= now]

    def group(self, together: str) -> Iterator[Task]:
        """The unfinished tasks that begin together under a name."""
        names = {*self._crew.groups.get(together, ()), *self._changed}
        return (task for task in self.known(names) if task.together == together and task.state not in FINAL)


def _is_ready(task: Task) -> bool:
    return task.state is TaskState.READY and not task.not_before
