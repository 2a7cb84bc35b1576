"""One task and its newest attempt, as the scheduler sees them. What to run is not here: that is the ledger's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from supervisor.core.states import AttemptState, TaskState

NEAR_S = 1800.0
"""A deadline is near at least this long before it: half an hour is what an agent's task of ordinary size takes."""


class TaskClass(StrEnum):
    """How urgent a task is: a person waits for it, normal work, or batch work. Tasks start in this order."""

    INTERACTIVE = "interactive"
    NORMAL = "normal"
    BATCH = "batch"


class BatchTime(StrEnum):
    """Whether batch tasks may start now, as `[batch]` of config.toml says."""

    ALWAYS = "always"
    IDLE = "idle"
    """Only while no other task lives or could start."""
    NEVER = "never"
    """Until their window opens."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The newest attempt of a task while it has no end."""

    epoch: int
    state: AttemptState
    since: float
    """Monotonic seconds when it entered `state`."""
    stop_why: str = ""
    """Why it is being stopped: `cancelled` (a person asked), `timeout`, or empty."""
    held: bool = False
    """Its runner is up, or will be, and waits for `Begin` before it starts the command."""
    suspended: bool = False
    """A person had its tree stand still: it keeps its slot, and has no deadline meanwhile."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task as the scheduler sees it. What to run is not here: that is the ledger's."""

    id: str
    order: int
    """Submission order over all runs; equal priorities start in this order."""
    priority: int = 50
    task_class: TaskClass = TaskClass.NORMAL
    after: frozenset[str] = frozenset()
    """Every task that it comes after."""
    after_any: frozenset[str] = frozenset()
    """Those of them of which one is enough."""
    any_end: bool = False
    """However the tasks of `after` ended is good enough; otherwise they must be done."""
    submitter: str = ""
    """Whose fair share of its class's starts it counts for."""
    since: float = 0.0
    """Monotonic seconds since when it waits for a start."""
    start_by: float = 0.0
    """Wall-clock seconds after which it does not start any more, unless it has before; 0: no such time."""
    urgent_from: float = 0.0
    """Wall-clock seconds from which its deadline is near; 0: it has none."""
    deadline: float = 0.0
    """Wall-clock seconds at which it should be done; 0: no such time."""
    urgent: bool = False
    """Its deadline is near."""
    together: str = ""
    """Tasks with the same text begin at the same moment, once all of them are up; empty: each begins by itself."""
    timeout_s: float = 0.0
    retries: int = 0
    state: TaskState = TaskState.WAITING
    epoch: int = 0
    """Epoch of the newest attempt ever made; 0 when there was none."""
    failures: int = 0
    losses: int = 0
    not_before: float = 0.0
    """Monotonic seconds before which it must not start (backoff)."""
    cause: str = ""
    """Why the next attempt is a re-run; empty for the first."""
    attempt: Attempt | None = None
    parent: str = ""
    """The task whose agent added this one; empty: a person did."""


Rank = tuple[float, int, str]
"""Of the ready tasks of one queue the one with the least starts first; the last is its id."""

Queue = tuple[str, str]
"""Which queue: class and submitter."""


def rank(task: Task) -> Rank:
    """Where it stands among the ready tasks of its class and submitter: higher priority first, then older."""
    return (-task.priority, task.order, task.id)


def queue(task: Task) -> Queue:
    """The queue in which it waits for its start."""
    return (task.task_class, task.submitter)


def urgent_from(deadline: float, timeout_s: float) -> float:
    """When a deadline is near: twice the time that the task may take, and at least `NEAR_S`, before it. 0 without a deadline."""
    return max(1.0, deadline - max(NEAR_S, 2 * timeout_s)) if deadline else 0.0


def is_startable(task: Task) -> bool:
    """Whether it only waits for its turn: it is ready, and in no backoff."""
    return task.state is TaskState.READY and not task.not_before


def alarms(task: Task) -> tuple[float, ...]:
    """The wall-clock times at which a task that waits for its start has to be looked at."""
    if task.state not in (TaskState.WAITING, TaskState.READY):
        return ()
    start_by = 0.0 if task.epoch else task.start_by
    urgent_from = 0.0 if task.urgent or task.task_class is TaskClass.INTERACTIVE else task.urgent_from
    return tuple(at for at in (start_by, urgent_from) if at)
