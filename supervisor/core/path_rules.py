"""Which tasks may not start beside which, by the files that they write. Pure.

A task waits while another one of its project lives whose paths, or whose agent's leases, overlap its own. Those of one family do not
wait for each other, nor those that begin together: an agent that waits for a task which it added would wait for ever.

Whatever waits leaves the order of starts (`Task.held_up`) and stands in the line of its area until the task that it was found behind
lets go; then the first of the line is tried, and the one that has waited longest. So a start and an end cost as much as is tried, however
many tasks wait for the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from supervisor.core.draft import Draft
from supervisor.core.path_globs import overlap
from supervisor.core.states import TaskState
from supervisor.core.task import Area, Task, area, is_startable

_FAMILY_MAX = 32


class PathRules:
    """One choice of what starts. Costs as much as lives, and as is asked."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.held_up: dict[str, str] = {}
        """The tasks that were found held up, each with the one that has its paths."""
        self._holding: dict[str, list[tuple[Task, tuple[str, ...]]]] = {}
        for task in draft.living():
            self._hold(task)

    def _hold(self, task: Task) -> None:
        if globs := _globs(task):
            self._holding.setdefault(task.project, []).append((task, globs))

    def started(self, name: str) -> None:
        """The task starts."""
        if (task := self._draft.get(name)) is not None and task.paths:
            self._holding.setdefault(task.project, []).append((task, task.paths))

    def bar(self, name: str) -> bool:
        """Whether another task has its paths."""
        task = self._draft.get(name)
        if task is None or not task.paths or task.project not in self._holding:
            return False
        for holder, globs in self._holding[task.project]:
            if holder.id != name and meet(globs, task.paths) and not self._akin(holder, task):
                self.held_up[name] = holder.id
                return True
        return False

    def _akin(self, one: Task, other: Task) -> bool:
        if one.together and one.together == other.together:
            return True
        return one.id in self._above(other) or other.id in self._above(one)

    def _above(self, task: Task) -> list[str]:
        found: list[str] = []
        while task.parent and len(found) < _FAMILY_MAX:
            found.append(task.parent)
            above = self._draft.get(task.parent)
            if above is None:
                break
            task = above
        return found


def meet(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether two lists of patterns overlap."""
    return any(overlap(one, other) for one in some for other in others)


def _globs(task: Task) -> tuple[str, ...]:
    return (*task.paths, *task.attempt.leases) if task.attempt is not None else ()


def let_go(draft: Draft) -> None:
    """Try again what waited behind tasks that have let go of their paths."""
    for name in draft.changed_names():
        for where in draft.lines.areas_behind(name):
            if not _is_ahead(draft.get(name), where):
                _try_again(draft, where)


def _is_ahead(task: Task | None, where: Area) -> bool:
    """Whether an area still waits for this task: it has the area's paths, or it is the one that is tried."""
    if task is None:
        return False
    if task.attempt is not None:
        return task.project == where[0] and meet(_globs(task), where[1])
    return is_startable(task) and area(task) == where


def _try_again(draft: Draft, where: Area) -> None:
    behind = ""
    for names in draft.lines.names(where):
        found = next((task for task in draft.known(names) if task.state is TaskState.READY), None)
        if found is not None:
            draft.put(replace(found, held_up=False))
            behind = behind or found.id
    draft.behind[where] = behind


def hold_up(draft: Draft, found: Mapping[str, str]) -> None:
    """Take these tasks out of the order of starts, each behind the one that has its paths."""
    for name, ahead in found.items():
        task, holder = draft.get(name), draft.get(ahead)
        if task is not None and task.state is TaskState.READY and holder is not None and holder.attempt is not None:
            draft.put(replace(task, held_up=True))
            draft.behind[area(task)] = ahead
