"""The crew as a decision would leave it: the crew, with all changes so far on top.

Each question of a step is answered from the tasks that it concerns (`Crew` keeps them by question) and from those that changed, so that a
decision costs what happened, however many tasks wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, takewhile

from supervisor.core.crew import ByNight, Change, Crew, Turn
from supervisor.core.states import FINAL, TaskClass, TaskState
from supervisor.core.task import Area, Queue, Rank, Task, alarms, awaited_notes, importance, is_startable, queue, rank

RanksByNight = Mapping[str, Iterator[Rank]]
"""As `ByNight`, each in order."""


class Draft:
    """The working copy of one decision: mutable inside `decide`, never seen outside. The crew itself is left alone."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._changed: dict[str, Task] = {}
        self._dependents: dict[str, list[str]] = {}
        self._children: dict[str, list[str]] = {}
        self.slots = crew.slots
        self.admitting = crew.admitting
        self.traffic, self.pressure, self.held_back = crew.traffic, crew.pressure, crew.held_back
        self.stopped = crew.stopped
        self.batch_time = crew.batch_time
        self.share = crew.share
        self.passed_over = crew.passed_over
        self.health = crew.health
        self.order = crew.order
        self.nights, self.start_usd = dict(crew.nights), crew.start_usd
        self.lines = crew.lines
        """As they are in the crew."""
        self.behind: dict[Area, str] = {}
        """Areas that wait for another task than there."""

    def change(self) -> Change:
        """Everything that differs from the crew. Final tasks that no unfinished task comes after are to be forgotten: a night's history
        stays in the ledger, not in memory."""
        final = [task for task in self._changed.values() if task.state in FINAL]
        looked_at = {name for task in final for name in (task.id, *task.after)}
        forgotten = frozenset(name for name in looked_at if self._is_over(name) and not any(self.unfinished_after(name)))
        tasks = tuple(task for task in self._changed.values() if task.id not in forgotten)
        return Change(
            tasks=tasks,
            forgotten=forgotten,
            admitting=self.admitting,
            slots=self.slots,
            traffic=self.traffic,
            pressure=self.pressure,
            held_back=self.held_back,
            batch_time=self.batch_time,
            share=self.share,
            passed_over=self.passed_over,
            health=self.health,
            stopped=self.stopped,
            nights=self.nights,
            start_usd=self.start_usd,
            behind=self.behind,
        )

    def _is_over(self, name: str) -> bool:
        task = self.get(name)
        return task is not None and task.state in FINAL

    def get(self, name: str) -> Task | None:
        """The task as it is now; None for one that nobody knows."""
        return self._changed.get(name) or self._crew.tasks.get(name)

    def put(self, task: Task) -> None:
        """Add a task, or have it as it is from now on."""
        before = self.get(task.id)
        if task.held_up and task.state is not TaskState.READY:
            task = replace(task, held_up=False)
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

    def changed_names(self) -> list[str]:
        """The tasks that changed."""
        return list(self._changed)

    def readers(self, note: str) -> list[Task]:
        """Every task that waits for a note."""
        names = dict.fromkeys((*self._crew.readers.get(note, ()), *self._changed))
        return [task for task in self.known(names) if note in awaited_notes(task)]

    def living(self) -> list[Task]:
        """The tasks with an attempt that has not ended."""
        return [task for task in {**self._crew.living, **self._changed}.values() if task.attempt is not None]

    def turns(self, task_class: TaskClass) -> Iterator[Turn]:
        """The queues of a class, the one whose turn it is first. Of those of the crew all tasks may have started meanwhile."""
        added = {queue(task) for task in self._startable if task.task_class is task_class and not task.urgent} - self._crew.ready.keys()
        return heapq.merge(self._crew.turns[task_class], sorted((self._crew.share.end(key), key) for key in added))

    def ready(self, key: Queue) -> Iterator[Rank]:
        """The tasks of a queue that could start and whose deadline is not near, first one first."""
        changed = (rank(task) for task in self._startable if not task.urgent and queue(task) == key)
        return self._merged(self._crew.ready.get(key, ()), changed)

    def urgent(self) -> RanksByNight:
        """The tasks that could start and whose deadline is near, the nearest first."""
        return self._merged_by_night(self._crew.urgent, lambda task: (task.deadline, task.order, task.id) if task.urgent else None)

    def oldest(self, task_class: TaskClass) -> RanksByNight:
        """All tasks of a class that could start, the one that has waited longest first."""
        return self._merged_by_night(
            self._crew.oldest[task_class], lambda task: (task.since, task.order, task.id) if task.task_class is task_class else None
        )

    def preempting(self) -> RanksByNight:
        """The tasks that could start and may take another's slot, the most important first."""
        return self._merged_by_night(self._crew.preempting, lambda task: (importance(task), task.order, task.id) if task.preempt else None)

    def startable_kinds(self, night: str) -> list[str]:
        """The kinds of those tasks of a night that could start."""
        changed = (task.kind for task in self._startable if task.night == night)
        return list({*self._crew.night_kinds.get(night, ()), *changed})

    def _merged_by_night(self, unchanged: ByNight, place: Callable[[Task], Rank | None]) -> RanksByNight:
        changed: ByNight = {}
        for task in self._startable:
            if (found := place(task)) is not None:
                changed.setdefault(task.night, []).append(found)
        return {night: self._merged(unchanged.get(night, ()), changed.get(night, ())) for night in {**unchanged, **changed}}

    @property
    def _startable(self) -> Iterator[Task]:
        """Of the tasks that changed."""
        return filter(is_startable, self._changed.values())

    def _merged(self, unchanged: Iterable[Rank], changed: Iterable[Rank]) -> Iterator[Rank]:
        return heapq.merge((found for found in unchanged if found[-1] not in self._changed), sorted(changed))

    def due(self, wall: float) -> Iterator[Task]:
        """The tasks to which something happens by the wall clock, now or earlier, each as it is when it is asked for: what happened to the
        one before may have ended it."""
        names = [name for _, name in takewhile(lambda found: found[0] <= wall, self._crew.alarms)]
        return (task for task in self.known(dict.fromkeys((*names, *self._changed))) if any(at <= wall for at in alarms(task)))

    def rested(self, now: float) -> list[Task]:
        """The tasks whose backoff is over."""
        due = [name for _, name in takewhile(lambda found: found[0] <= now, self._crew.resting)]
        return [task for task in self.known({*due, *self._changed}) if 0 < task.not_before <= now]

    def group(self, together: str) -> Iterator[Task]:
        """The unfinished tasks that begin together under a name."""
        names = {*self._crew.groups.get(together, ()), *self._changed}
        return (task for task in self.known(names) if task.together == together and task.state not in FINAL)

    def of_night(self, run: str) -> Iterator[Task]:
        """The unfinished tasks of a night."""
        known = self._crew.by_night.get(run, {})
        names = chain(known, (name for name in list(self._changed) if name not in known))
        return (task for task in self.known(names) if task.night == run and task.state not in FINAL)

    def unfinished_children(self, name: str) -> Iterator[Task]:
        """The unfinished tasks that the agent of `name` added."""
        names = chain(self._crew.children.get(name, ()), self._children.get(name, ()))
        return (task for task in self.known(names) if task.state not in FINAL)

    def startable_with_children(self) -> list[str]:
        """The tasks that could start and whose agents added some that are unfinished: those that run again."""
        names = {**self._crew.children, **self._children}
        return [task.id for task in self.known(sorted(names)) if is_startable(task) and any(self.unfinished_children(task.id))]
