"""Which ready tasks start next, on which free slots. Pure: the same crew gives the same answer."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from supervisor.core.crew import Crew, Task, TaskClass
from supervisor.core.states import TaskState

_CLASS_RANK = {TaskClass.INTERACTIVE: 0, TaskClass.NORMAL: 1, TaskClass.BATCH: 2}


def pick(crew: Crew, now: float) -> list[Task]:
    """The tasks to start now, first one first: interactive before normal before batch, then higher priority, then older."""
    if not crew.admitting:
        return []
    free = crew.slots - sum(task.attempt is not None for task in crew.tasks.values())
    if free <= 0:
        return []
    ready = (task for task in crew.tasks.values() if task.state is TaskState.READY and task.not_before <= now)
    return heapq.nsmallest(free, ready, key=_rank)


def wakes_at(tasks: Iterable[Task]) -> float | None:
    """The earliest monotonic time at which a backoff ends, or None: the loop need not wake before it for the scheduler's sake."""
    return min((task.not_before for task in tasks if task.state is TaskState.READY and task.not_before > 0), default=None)


def _rank(task: Task) -> tuple[int, int, int]:
    return (_CLASS_RANK[task.task_class], -task.priority, task.order)
