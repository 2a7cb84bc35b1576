"""Which ready tasks start next, on which free slots. Pure: the same crew gives the same answer.

Starting more agents than the models can serve only makes all of them wait, so while requests queue in the gateway some classes are held
back: batch first, then normal, interactive never. A task that is held back starts all the same when nothing else lives: whatever a delay
comes from, it must not stop the crew for good.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping

from supervisor.core.crew import Crew, Task, TaskClass
from supervisor.core.states import TaskState

_CLASS_RANK = {TaskClass.INTERACTIVE: 0, TaskClass.NORMAL: 1, TaskClass.BATCH: 2}

HOLDS_FROM_S: Mapping[TaskClass, float] = {TaskClass.BATCH: 30.0, TaskClass.NORMAL: 120.0}
"""A class is held back when a request would wait this long, and until it would wait less than half of it, so that one request more or
less does not start and stop the crew. 120 s is half of what a request is held for by default (`hold`, 240 s): beyond it, one more agent
brings those at work close to the answer 429. Who works for nobody until morning gives way at a quarter of that."""


def pick(crew: Crew, now: float) -> list[Task]:
    """The tasks to start now, first one first: interactive before normal before batch, then higher priority, then older."""
    if not crew.admitting:
        return []
    living = sum(task.attempt is not None for task in crew.tasks.values())
    free = crew.slots - living
    if free <= 0:
        return []
    ready = [task for task in crew.tasks.values() if task.state is TaskState.READY and task.not_before <= now]
    welcome = [task for task in ready if task.task_class not in crew.held_back]
    if not welcome and not living:
        return heapq.nsmallest(1, ready, key=_rank)
    return heapq.nsmallest(free, welcome, key=_rank)


def held_back(before: Collection[TaskClass], delay_s: float, *, parked: bool) -> frozenset[TaskClass]:
    """The classes to hold back now, given those `before`. `parked`: nothing is served until some limit's reset."""
    return frozenset(
        name for name, limit in HOLDS_FROM_S.items() if parked or delay_s >= limit or (name in before and delay_s >= limit / 2)
    )


def why_held(delay_s: float, *, parked: bool) -> str:
    """Why a task of a class that is held back waits, in a person's words."""
    if parked:
        return "waits for the model limit (nothing is served before its reset)"
    if delay_s < 1.0:
        return "waits for the model limit"
    return f"waits for the model limit (a request waits {f'{delay_s:.0f}s' if delay_s < 120 else f'{delay_s / 60:.0f}m'})"


def waiting_for_traffic(crew: Crew) -> int:
    """How many tasks are ready and do not start because the models are busy."""
    return bool(crew.held_back) and sum(task.state is TaskState.READY and task.task_class in crew.held_back for task in crew.tasks.values())


def wakes_at(tasks: Iterable[Task]) -> float | None:
    """The earliest monotonic time at which a backoff ends, or None: the loop need not wake before it for the scheduler's sake."""
    return min((task.not_before for task in tasks if task.state is TaskState.READY and task.not_before > 0), default=None)


def _rank(task: Task) -> tuple[int, int, int]:
    return (_CLASS_RANK[task.task_class], -task.priority, task.order)
