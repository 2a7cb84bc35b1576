"""The types of `decide`: the crew that it reads, the events that happen to it, and the commands that it gives.

Events come from observation and from people; commands go to the adapters. Neither does anything by itself.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.core.fair_share import FairShare
from supervisor.core.states import FINAL, End, TaskState
from supervisor.core.task import BatchTime, Queue, Rank, Task, TaskClass, alarms, is_startable, queue, rank


@dataclass(frozen=True, slots=True)
class Change:
    """What a decision leaves different."""

    tasks: tuple[Task, ...]
    """As they are from now on, new ones among them."""
    forgotten: frozenset[str]
    admitting: bool
    held_back: frozenset[TaskClass]
    batch_time: BatchTime
    share: FairShare
    passed_over: int


@dataclass(frozen=True, slots=True)
class Order:
    """The settings that decide who starts first."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """A submitter's share beside the others' of its class; 1 for one that is not listed."""
    ageing_s: float = 3600.0
    """A task that has waited for a start this long gets one of `AGED_EVERY` starts, whatever its class and priority."""


class Crew:
    """The whole of what `decide` looks at; only `apply` changes it.

    Beside the tasks it keeps the answers to what each step asks, and brings them up to date by what changed: with 20,000 tasks waiting
    a look at all of them took most of a step.
    """

    def __init__(self, tasks: Iterable[Task] = (), slots: int = 4, order: Order | None = None) -> None:
        self.tasks: dict[str, Task] = {}
        """Every task that has not reached a final state, and every final one that an unfinished task comes after. Read only."""
        self.slots = slots
        """Attempts that may be alive at once. Adoption never needs a slot; only starting does."""
        self.order = order or Order()
        self.admitting = True
        """False while draining, or while the disk is too full to start anything."""
        self.held_back: frozenset[TaskClass] = frozenset()
        """Classes whose tasks do not start beside others, because the models are busy: see `scheduler.held_back`."""
        self.batch_time = BatchTime.ALWAYS
        self.share = FairShare()
        self.passed_over = 0
        """Starts since one was given to a task for its age."""
        self.living: dict[str, Task] = {}
        """Those with an attempt."""
        self.ready: dict[Queue, list[Rank]] = {}
        """Those that could start and whose deadline is not near, sorted, by class and submitter; no list is empty."""
        self.urgent: list[Rank] = []
        """Those that could start and whose deadline is near: deadline, order and id; sorted."""
        self.oldest: dict[TaskClass, list[Rank]] = {name: [] for name in TaskClass}
        """Those that could start: since when, order and id; sorted."""
        self.resting: list[tuple[float, str]] = []
        """Ready ones in a backoff: when it ends, and the task; sorted."""
        self.alarms: list[tuple[float, str]] = []
        """Waiting and ready ones to which something happens by the wall clock: when, and the task; sorted."""
        self.dependents: dict[str, dict[str, None]] = {}
        """Unfinished tasks by each task that they come after."""
        self.groups: dict[str, dict[str, None]] = {}
        """Unfinished tasks by `together`."""
        self.children: dict[str, dict[str, None]] = {}
        """Unfinished tasks by `parent`."""
        self.counts: Counter[TaskState] = Counter()
        """How many unfinished tasks are in each state."""
        for task in tasks:
            self._enter(task)

    def apply(self, change: Change) -> None:
        """Apply a change that `decide` returned. Costs as much as changed, not as much as waits."""
        self.admitting, self.held_back, self.batch_time = change.admitting, change.held_back, change.batch_time
        self.share, self.passed_over = change.share, change.passed_over
        for task in change.tasks:
            self._leave(task.id)
            self._enter(task)
        for name in change.forgotten:
            self._leave(name)

    def _enter(self, task: Task) -> None:
        self.tasks[task.id] = task
        if task.attempt is not None:
            self.living[task.id] = task
        if is_startable(task) and not task.urgent:
            insort(self.ready.setdefault(queue(task), []), rank(task))
        for index, entry in self._entries(task):
            insort(index, entry)
        if task.state not in FINAL:
            self.counts[task.state] += 1
            for keyed, key in self._keys(task):
                keyed.setdefault(key, {})[task.id] = None

    def _leave(self, name: str) -> None:
        task = self.tasks.pop(name, None)
        if task is None:
            return
        self.living.pop(name, None)
        if is_startable(task) and not task.urgent:
            waiting = self.ready[queue(task)]
            del waiting[bisect_left(waiting, rank(task))]
            if not waiting:
                del self.ready[queue(task)]
        for index, entry in self._entries(task):
            del index[bisect_left(index, entry)]
        if task.state not in FINAL:
            self.counts[task.state] -= 1
            for keyed, key in self._keys(task):
                del keyed[key][name]
                if not keyed[key]:
                    del keyed[key]

    def _entries(self, task: Task) -> Iterator[tuple[list[Any], Any]]:
        """Where the task stands in what is kept sorted, beside the queue of its class and submitter."""
        if is_startable(task):
            yield self.oldest[task.task_class], (task.since, task.order, task.id)
            if task.urgent:
                yield self.urgent, (task.deadline, task.order, task.id)
        elif task.state is TaskState.READY:
            yield self.resting, (task.not_before, task.id)
        yield from ((self.alarms, (at, task.id)) for at in alarms(task))

    def _keys(self, task: Task) -> Iterator[tuple[dict[str, dict[str, None]], str]]:
        """Where an unfinished task is found by what it comes after, by its group, and by who added it."""
        yield from ((self.dependents, need) for need in task.after)
        if task.together:
            yield self.groups, task.together
        if task.parent:
            yield self.children, task.parent


# Events -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    """Tasks were committed to the ledger, or read from it at start."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The runner of this epoch has written started.json."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TreeGone:
    """No process of the attempt is left; `end` and `cause` are judged from the exit record or from its absence."""

    task: str
    epoch: int
    end: End
    cause: str


@dataclass(frozen=True, slots=True)
class Secured:
    """The attempt's work is on refs and its records are written."""

    task: str
    epoch: int
    end: End
    cause: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A person wants the task ended."""

    task: str


@dataclass(frozen=True, slots=True)
class LimitPassed:
    """The attempt has used more than it may of something that nobody but us looks at."""

    task: str
    epoch: int
    why: str
    """Which limit, in plain words."""


@dataclass(frozen=True, slots=True)
class SuspendAsked:
    """A person wants the task's agent to stand still."""

    task: str


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """A person wants a suspended agent to go on."""

    task: str


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """A person wants a finished task run again."""

    task: str


@dataclass(frozen=True, slots=True)
class AdmissionChanged:
    """Starting became allowed or forbidden (drain, disk)."""

    admitting: bool


@dataclass(frozen=True, slots=True)
class TrafficChanged:
    """How busy the models are, as the gateway says."""

    delay_s: float
    """How long a request that came now would wait for its turn."""
    parked: bool = False
    """Nothing is served before a limit's reset."""


@dataclass(frozen=True, slots=True)
class BatchTimeChanged:
    """The window of batch tasks opened or closed."""

    batch_time: BatchTime


Event = (
    Submitted
    | BatchTimeChanged
    | Started
    | TreeGone
    | Secured
    | LimitPassed
    | CancelAsked
    | SuspendAsked
    | ResumeAsked
    | RetryAsked
    | AdmissionChanged
    | TrafficChanged
)


# Commands -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Commit the attempt row, then launch it."""

    task: str
    epoch: int
    cause: str


@dataclass(frozen=True, slots=True)
class MarkRunning:
    """Commit that the runner was seen."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Commit it to the history, then let the command of a held attempt begin."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Commit the reason, then stop the whole tree. Of an attempt that is ending already only the reason is new: the attempt keeps
    its state and its end, and its task does not run again."""

    task: str
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Commit that a person wants it to stand still, then stop it there."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Commit that it shall go on, then let it. Until that is done the ledger keeps what the suspend found."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Commit that the tree is gone, then secure its work."""

    task: str
    epoch: int
    end: End
    cause: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Commit the attempt's end and the task's next state together, then release the session."""

    task: str
    epoch: int
    end: End
    cause: str
    state: TaskState
    delay_s: float
    """Backoff before the task may start again; 0 unless `state` is READY."""


@dataclass(frozen=True, slots=True)
class SetState:
    """Commit a change of a task's state that no attempt caused."""

    task: str
    state: TaskState
    reason: str


@dataclass(frozen=True, slots=True)
class Revive:
    """Commit that a finished task waits again, with its failures and losses forgotten."""

    task: str
    cause: str


Command = Start | MarkRunning | Begin | Stop | Suspend | Resume | Collect | Finish | SetState | Revive
