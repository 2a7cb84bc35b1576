"""The crew as a decision would leave it: the crew, with all changes so far on top.

Each question of a step is answered from the tasks that it concerns (`Crew` keeps them by question) and from those that changed, so that a
decision costs what happened, however many tasks wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile

from supervisor.core.crew import Change, Crew
from supervisor.core.states import FINAL
from supervisor.core.task import Queue, Rank, Task, TaskClass, alarms, is_startable, queue, rank


class Draft:
    """The working copy of one decision: mutable inside `decide`, never seen outside. The crew itself is left alone."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._changed: dict[str, Task] = {}
        self._dependents: dict[str, list[str]] = {}
        self._children: dict[str, list[str]] = {}
        self.slots = crew.slots
        self.admitting = crew.admitting
        self.held_back = crew.held_back
        self.batch_time = crew.batch_time
        self.share = crew.share
        self.passed_over = crew.passed_over
        self.order = crew.order

    def change(self) -> Change:
        """Everything that differs from the crew. Final tasks that no unfinished task comes after are to be forgotten: a night's history
        stays in the ledger, not in memory."""
        final = [task for task in self._changed.values() if task.state in FINAL]
        looked_at = {name for task in final for name in (task.id, *task.after)}
        forgotten = frozenset(name for name in looked_at if self._is_over(name) and not any(self.unfinished_after(name)))
        tasks = tuple(task for task in self._changed.values() if task.id not in forgotten)
        return Change(tasks, forgotten, self.admitting, self.held_back, self.batch_time, self.share, self.passed_over)

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
            self._children.setdefault(task.parent, []).append(task.id)

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

    def ready(self, task_class: TaskClass) -> dict[Queue, Iterator[Rank]]:
        """The tasks of a class that could start and whose deadline is not near, by submitter, first one first."""
        added: dict[Queue, list[Rank]] = {}
        for task in self._startable:
            if task.task_class is task_class and not task.urgent:
                added.setdefault(queue(task), []).append(rank(task))
        kept = {name: waiting for name, waiting in self._crew.ready.items() if name[0] == task_class}
        return {name: self._merged(kept.get(name, ()), added.get(name, ())) for name in {**kept, **added}}

    def urgent(self) -> Iterator[Rank]:
        """The tasks that could start and whose deadline is near, the nearest first."""
        return self._merged(self._crew.urgent, ((task.deadline, task.order, task.id) for task in self._startable if task.urgent))

    def oldest(self, task_class: TaskClass) -> Iterator[Rank]:
        """All tasks of a class that could start, the one that has waited longest first."""
        changed = ((task.since, task.order, task.id) for task in self._startable if task.task_class is task_class)
        return self._merged(self._crew.oldest[task_class], changed)

    @property
    def _startable(self) -> Iterator[Task]:
        """Of the tasks that changed."""
        return filter(is_startable, self._changed.values())

    def _merged(self, unchanged: Iterable[Rank], changed: Iterable[Rank]) -> Iterator[Rank]:
        return heapq.merge((found for found in unchanged if found[-1] not in self._changed), sorted(changed))

    def due(self, wall: float) -> list[Task]:
        """The tasks to which something happens by the wall clock, now or earlier."""
        names = [name for _, name in takewhile(lambda found: found[0] <= wall, self._crew.alarms)]
        return [task for task in self.known({*names, *self._changed}) if any(at <= wall for at in alarms(task))]

    def rested(self, now: float) -> list[Task]:
        """The tasks whose backoff is over."""
        due = [name for _, name in takewhile(lambda found: found[0] <= now, self._crew.resting)]
        return [task for task in self.known({*due, *self._changed}) if 0 < task.not_before <= now]

    def group(self, together: str) -> Iterator[Task]:
        """The unfinished tasks that begin together under a name."""
        names = {*self._crew.groups.get(together, ()), *self._changed}
        return (task for task in self.known(names) if task.together == together and task.state not in FINAL)

    def unfinished_children(self, name: str) -> Iterator[Task]:
        """The unfinished tasks that the agent of `name` added."""
        names = chain(self._crew.children.get(name, ()), self._children.get(name, ()))
        return (task for task in self.known(names) if task.state not in FINAL)

    def startable_with_children(self) -> list[str]:
        """The tasks that could start and whose agents added some that are unfinished: those that run again."""
        names = {**self._crew.children, **self._children}
        return [task.id for task in self.known(sorted(names)) if is_startable(task) and any(self.unfinished_children(task.id))]
