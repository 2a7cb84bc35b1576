"""What tasks wait for that nobody registered, since it follows from the crew: what a task comes after, and whose paths it needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from supervisor.core.crew import Crew
from supervisor.core.states import FINAL, TaskState
from supervisor.core.task import Task, area
from supervisor.core.wait_graph import PERSON, STATIC, Wait, WaitKind


class PlanWaits:
    """Of one crew, as it is when it is asked: `wait_graph.PlanEdges`."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def of(self, name: str) -> Sequence[Wait]:
        """What a task waits for before it starts; nothing for one that runs, has ended or is not known."""
        task = self._crew.tasks.get(name)
        if task is None:
            return ()
        match task.state:
            case TaskState.WAITING:
                return self._after(task)
            case TaskState.READY if holder := self._ahead_of(task):
                return (of_plan(task, WaitKind.LEASE, " ".join(task.paths), (holder,)),)
            case TaskState.PAUSED:
                return (of_plan(task, WaitKind.HUMAN, "resume", (PERSON,)),)
            case _:
                return ()

    def ahead(self, name: str) -> Collection[str]:
        """What an unfinished task comes after, ended or not; or who has its paths."""
        task = self._crew.tasks.get(name)
        if task is None or task.state is TaskState.RUNNING:
            return ()
        if task.state is TaskState.WAITING:
            return task.after
        holder = self._ahead_of(task)
        return (holder,) if holder else ()

    def behind(self, holder: str) -> Collection[str]:
        """The unfinished tasks that come after `holder`, whether they wait for it or not, and those whose paths it has."""
        after = self._crew.dependents.get(holder, ())
        if not (areas := self._crew.lines.areas_behind(holder)):
            return after
        return [*after, *(name for where in areas for name in next(self._crew.lines.names(where)))]

    def _ahead_of(self, task: Task) -> str:
        """Who has the paths of a task that is held up, or is tried before it."""
        found = self._crew.lines.behind.get(area(task), "") if task.held_up else ""
        return found if found != task.id else ""

    def _after(self, task: Task) -> list[Wait]:
        found = []
        for needs, any_of in ((task.after - task.after_any, False), (task.after_any, True)):
            left = [name for name in sorted(needs) if (need := self._crew.tasks.get(name)) is not None and need.state not in FINAL]
            if left and (not any_of or len(left) == len(needs)):
                found.append(of_plan(task, WaitKind.TASK, "after", left, any_of=any_of))
        return found


def of_plan(task: Task, kind: WaitKind, what: str, holders: Iterable[str], *, any_of: bool = False) -> Wait:
    """A wait that nobody registered. Since when it waits is the task's own, so its moments are 0."""
    return Wait(STATIC, task.id, task.epoch, kind, what, tuple(holders), 0.0, 0.0, any_of)
