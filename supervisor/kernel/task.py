"""One task and its newest attempt, as the scheduler sees them. What to run is not here: that is the ledger's."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.kernel.retry import NEW, Tally
from supervisor.kernel.states import AttemptState, End, TaskClass, TaskState, Until

NEAR_S = 1800.0
"""A deadline is near at least this long before it: half an hour is what an agent's task of ordinary size takes."""


_CLASSES = tuple(TaskClass)


@dataclass(frozen=True, slots=True)
class PauseState:
    """That an attempt is paused, or is about to be."""

    until: Until
    since: float
    """Monotonic seconds when it was decided."""
    still: bool = False
    """Its tree stands still: it holds no slot."""
    made_for: str = ""
    """The task that gets its slot; empty: no particular one."""
    question: str = ""
    """What its agent needs a person for, of one that was set aside."""


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
    paused: PauseState | None = None
    """It has no deadline meanwhile, and no slot once it stands still."""
    free: bool = False
    """It died in an outage: its end costs nothing."""
    no_provider: bool = False
    """It died while no provider served anything: that costs no retry, and is one of the task's restarts."""
    secured: tuple[End, str] | None = None
    """How it ended and why, of one whose work is secured and whose end waits: see `outage.waits`."""

    leases: tuple[str, ...] = ()
    """Patterns that its agent holds beside its paths."""

    @property
    def holds_slot(self) -> bool:
        """Whether it counts among the attempts that live at once."""
        return self.state is not AttemptState.RUNNING or self.paused is None or not self.paused.still


@dataclass(frozen=True, slots=True)
class Task:
    """One task as the scheduler sees it. What to run is not here: that is the ledger's."""

    id: str
    order: int
    """Submission order over all runs; equal priorities start in this order."""
    priority: int = 50
    preempt: bool = False
    """When no slot is free, the least important attempt is paused so that it can start."""
    task_class: TaskClass = TaskClass.NORMAL
    after: frozenset[str] = frozenset()
    """Every task that it comes after."""
    after_any: frozenset[str] = frozenset()
    """Those of them of which one is enough."""
    after_notes: frozenset[str] = frozenset()
    """Every note that must be there first, as `note` names it."""
    notes_seen: frozenset[str] = frozenset()
    """Those of them that were there since it waits."""
    any_end: bool = False
    """However the tasks of `after` ended is good enough; otherwise they must be done."""
    kind: str = ""
    """Kind of its agent, by which is known what one takes."""
    has_command: bool = False
    """It runs a command of its own, and no prompt by its kind's."""
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
    tally: Tally = NEW
    not_before: float = 0.0
    """Monotonic seconds before which it must not start (backoff)."""
    unpark_at: float = 0.0
    """Wall-clock seconds at which a parked one may start again."""
    cause: str = ""
    """Why the next attempt is a re-run; empty for the first."""
    attempt: Attempt | None = None
    parent: str = ""
    """The task whose agent added this one; empty: a person did."""
    night: str = ""
    """The run whose terms hold for it; empty: it belongs to no night."""
    project: str = ""
    paths: tuple[str, ...] = ()
    """Normal forms of patterns, as `core.leases`: it does not run beside another task of its project that has what overlaps."""
    candidates: frozenset[str] = frozenset()
    """Of a group, and of a task that judges one: those of `after` of which one is chosen."""
    decide: str = ""
    """Of a group: who chooses, `person` or `gate`. It starts never."""
    held_up: bool = False
    """Another task has its paths, and it takes no part in the order of starts until that lets them go."""


Rank = tuple[float, int, str]
"""Of the ready tasks of one queue the one with the least starts first; the last is its id."""

Queue = tuple[str, str, str]
"""Which queue: class, submitter and night. A night has its turns beside those of its submitter, so that one which lets nothing start is
passed over as a whole."""


def rank(task: Task) -> Rank:
    """Where it stands among the ready tasks of its class and submitter: higher priority first, then older."""
    return (-task.priority, task.order, task.id)


def queue(task: Task) -> Queue:
    """The queue in which it waits for its start."""
    return (task.task_class, task.submitter, task.night)


def urgent_from(deadline: float, timeout_s: float) -> float:
    """When a deadline is near: twice the time that the task may take, and at least `NEAR_S`, before it. 0 without a deadline."""
    return max(1.0, deadline - max(NEAR_S, 2 * timeout_s)) if deadline else 0.0


def note(project: str, path: str) -> str:
    """What names one note among those of all projects."""
    return f"{project}:{path}"


def awaited_notes(task: Task) -> frozenset[str]:
    """The notes that it waits for."""
    return task.after_notes - task.notes_seen if task.state is TaskState.WAITING else frozenset()


def is_startable(task: Task) -> bool:
    """Whether it only waits for its turn: it is ready, and in no backoff."""
    return task.state is TaskState.READY and not task.not_before and not task.held_up


Area = tuple[str, tuple[str, ...]]
"""A project, and paths of it: tasks of the same area wait in one line."""


def area(task: Task) -> Area:
    """What it works on."""
    return (task.project, task.paths)


def importance(task: Task) -> int:
    """By class, then by priority: of two tasks the one with the smaller number is the more important one."""
    return 101 * _CLASSES.index(task.task_class) + 100 - task.priority


def alarms(task: Task) -> tuple[float, ...]:
    """The wall-clock times at which a task that waits for its start has to be looked at."""
    if task.state is TaskState.PARKED:
        return (task.unpark_at,)
    if task.state not in (TaskState.WAITING, TaskState.READY):
        return ()
    start_by = 0.0 if task.epoch else task.start_by
    urgent_from = 0.0 if task.urgent or task.task_class is TaskClass.INTERACTIVE else task.urgent_from
    return tuple(at for at in (start_by, urgent_from) if at)
