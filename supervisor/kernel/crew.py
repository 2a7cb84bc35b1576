"""The crew that `decide` looks at."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.kernel.night import Night
from supervisor.kernel.pressure import WELL, Health, Held, Limits, Pressure, Traffic
from supervisor.kernel.retry import NEW, Tally
from supervisor.kernel.states import FINAL, AttemptState, BatchTime, End, TaskClass, TaskState, Until

# Task
# ----
# One task and its newest attempt, as the scheduler sees them. What to run is not here: that is the ledger's.


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


# Fair share
# ----------
# Fair share of starts between submitters: start-time fair queueing (Goyal, Vin, Cheng 1996), each start costing 1.
#
# A submitter's next start has a tag: the end of its last one (a start takes 1 / weight of its virtual time), or the virtual clock
# when that is later; the clock is the tag of the newest start. The smallest tag goes first. So who has had many starts waits for
# who has had few, and who comes anew begins at the clock: time without tasks is no credit.


FairShareQueue = tuple[str, str, str]
"""Class of the tasks, submitter, and night."""


@dataclass(frozen=True, slots=True)
class FairShare:
    """How many starts each submitter has had, as far as it still counts."""

    clocks: Mapping[str, float] = field(default_factory=dict)
    """Virtual time of each class."""
    ends: Mapping[FairShareQueue, float] = field(default_factory=dict)
    """Where each submitter's last start ends. One that is not listed has had none, or none that still counts."""
    moved: Mapping[FairShareQueue, float] = field(default_factory=dict)
    """What goes before `ends`: those that started since. Copied at each start, which `ends` are too many for."""

    def end(self, queue: FairShareQueue) -> float:
        """Where the queue's last start ends; 0 for none. The queue with the least of a class has the smallest tag."""
        return self.moved.get(queue, self.ends.get(queue, 0.0))

    def is_over(self, queue: FairShareQueue) -> bool:
        """Whether its past starts count no more: its next one's tag is the clock."""
        return self.end(queue) <= self.clocks.get(queue[0], 0.0)

    def started(self, queue: FairShareQueue, weight: float, *, in_turn: bool) -> FairShare:
        """After a start of the queue. `in_turn` is False for one that did not go by its tag: it counts, and leaves the clock alone."""
        tag = max(self.end(queue), self.clocks.get(queue[0], 0.0))
        clocks = {**self.clocks, queue[0]: tag} if in_turn else self.clocks
        return FairShare(clocks, self.ends, {**self.moved, queue: tag + 1.0 / weight})


# Path lines
# ----------
# The lines in which tasks stand that are held up by the paths of others; see `path_rules`.


@dataclass
class Lines:
    """The tasks that are held up, by area, and behind which task each area is. Part of the crew."""

    first: dict[Area, list[tuple[bool, int, int, str]]] = field(default_factory=dict)
    oldest: dict[Area, list[tuple[float, int, str]]] = field(default_factory=dict)
    behind: dict[Area, str] = field(default_factory=dict)
    areas: dict[str, dict[Area, None]] = field(default_factory=dict)

    def enter(self, task: Task) -> None:
        """Take in a task that is held up."""
        insort(self.first.setdefault(area(task), []), _rank(task))
        insort(self.oldest.setdefault(area(task), []), (task.since, task.order, task.id))

    def leave(self, task: Task) -> None:
        """Let go of one, as it was when it entered."""
        where = area(task)
        first, oldest = self.first[where], self.oldest[where]
        del first[bisect_left(first, _rank(task))], oldest[bisect_left(oldest, (task.since, task.order, task.id))]
        if not first:
            del self.first[where], self.oldest[where]

    def names(self, where: Area) -> Iterator[Iterator[str]]:
        """Those of an area in the order of their importance, then in that of their waiting."""
        yield (entry[-1] for entry in self.first.get(where, ()))
        yield (entry[-1] for entry in self.oldest.get(where, ()))

    def areas_behind(self, name: str) -> list[Area]:
        """The areas that wait for a task."""
        return list(self.areas.get(name, ()))

    def apply(self, behind: Mapping[Area, str]) -> None:
        """Behind which task these areas are from now on; empty: behind none."""
        for where, name in behind.items():
            before = self.behind.pop(where, "")
            if before:
                del self.areas[before][where]
                if not self.areas[before]:
                    del self.areas[before]
            if name:
                self.behind[where] = name
                self.areas.setdefault(name, {})[where] = None


def _rank(task: Task) -> tuple[bool, int, int, str]:
    return (not task.urgent, importance(task), task.order, task.id)


# Crew
# ----
# The crew: what `decide` looks at, kept up to date by what it changed.


FORGOTTEN_FROM = 64
"""Submitters without a task that are kept in any case, so that they need not be looked through after each start."""

Turn = tuple[float, Queue]
"""Where the last start of a queue ends: of one class, the least of them has its turn."""


ByNight = dict[str, list[Rank]]
"""Sorted, by `Task.night`; no list is empty. A night that lets nothing start is passed over, however many of its tasks wait."""


@dataclass(eq=False)
class Conditions:
    """What decides who starts, beside the tasks."""

    slots: int = 4
    """Attempts that may be alive at once, at this moment. Adoption never needs a slot; only starting does."""
    admitting: bool = True
    """False while draining, or while the disk is too full to start anything."""
    stopped: bool = False
    """Everything stands still: nothing starts or goes on, and no deadline passes."""
    traffic: Traffic = field(default_factory=Traffic)
    pressure: Pressure = field(default_factory=Pressure)
    held_back: Held = field(default_factory=dict)
    """Classes whose tasks do not start beside others, because the models or the machine are busy: see `admission.held`."""
    batch_time: BatchTime = BatchTime.ALWAYS
    share: FairShare = field(default_factory=FairShare)
    passed_over: int = 0
    """Starts since one was given to a task for its age."""
    health: Health = WELL
    nights: dict[str, Night] = field(default_factory=dict)
    """Those that have not ended, by run."""
    start_usd: Mapping[str, float] = field(default_factory=dict)
    """By kind: what an attempt is expected to cost, US dollars; 0 for one that is not listed."""

    def conditions(self) -> dict[str, Any]:
        """All of these, by their names."""
        return {name: getattr(self, name) for name in Conditions.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Change:
    """What a decision leaves different."""

    tasks: tuple[Task, ...]
    """As they are from now on, new ones among them."""
    forgotten: frozenset[str]
    conditions: Mapping[str, Any]
    """As `Conditions.conditions` gives them."""
    behind: Mapping[Area, str]
    """Areas that wait for another task than before; see `path_lines.Lines`."""


@dataclass(frozen=True, slots=True)
class Order:
    """The settings that decide who starts first."""

    weights: Mapping[str, float] = field(default_factory=dict)
    """A submitter's share beside the others' of its class; 1 for one that is not listed."""
    ageing_s: float = 3600.0
    """A task that has waited for a start this long gets one of `AGED_EVERY` starts, whatever its class and priority."""
    limits: Limits = field(default_factory=Limits)
    jitter: float = 0.0
    """The share by which a backoff may be shorter, so that a crew which died together does not come back together."""


class Crew(Conditions):
    """The whole of what `decide` looks at; only `apply` changes it.

    Beside the tasks it keeps the answers to what each step asks, and brings them up to date by what changed: with 20,000 tasks waiting
    a look at all of them took most of a step.
    """

    def __init__(self, tasks: Iterable[Task] = (), slots: int = 4, order: Order | None = None) -> None:
        self._ends: dict[Queue, float] = {}
        super().__init__(slots, share=FairShare(ends=self._ends))
        self.tasks: dict[str, Task] = {}
        """Every task that has not reached a final state, and every final one that an unfinished task comes after. Read only."""
        self.order = order or Order()
        self.living: dict[str, Task] = {}
        """Those with an attempt."""
        self.ready: dict[Queue, list[Rank]] = {}
        """Those that could start and whose deadline is not near, sorted, by class and submitter; no list is empty."""
        self.turns: dict[str, list[Turn]] = {name: [] for name in TaskClass}
        """The queues of `ready` of each class, and where the last start of each ends; sorted."""
        self.urgent: ByNight = {}
        """Those that could start and whose deadline is near: deadline, order and id."""
        self.oldest: dict[TaskClass, ByNight] = {name: {} for name in TaskClass}
        """Those that could start: since when, order and id."""
        self.preempting: ByNight = {}
        """Those that could start and may take the slot of a less important one: importance, order and id."""
        self.night_kinds: dict[str, Counter[str]] = {}
        """How many tasks of each kind could start, by night."""
        self.resting: list[tuple[float, str]] = []
        """Ready ones in a backoff: when it ends, and the task; sorted."""
        self.alarms: list[tuple[float, str]] = []
        """Waiting and ready ones to which something happens by the wall clock: when, and the task; sorted."""
        self.dependents: dict[str, dict[str, None]] = {}
        """Unfinished tasks by each task that they come after."""
        self.readers: dict[str, dict[str, None]] = {}
        """Waiting tasks by each note that they wait for."""
        self.by_night: dict[str, dict[str, None]] = {}
        """Unfinished tasks by `night`."""
        self.groups: dict[str, dict[str, None]] = {}
        """Unfinished tasks by `together`."""
        self.deciding: dict[str, dict[str, None]] = {}
        """Unfinished groups of candidates by who chooses."""
        self.children: dict[str, dict[str, None]] = {}
        """Unfinished tasks by `parent`."""
        self.lines = Lines()
        self.counts: Counter[TaskState] = Counter()
        """How many unfinished tasks are in each state."""
        self.waiting: Counter[str] = Counter()
        """How many tasks of each kind could start."""
        for task in tasks:
            self._enter(task)

    def apply(self, change: Change) -> None:
        """Apply a change that `decide` returned. Costs as much as changed, not as much as waits."""
        before = self.share
        for name, value in change.conditions.items():
            setattr(self, name, value)
        self._count(before, self.share.moved)
        self.lines.apply(change.behind)
        for task in change.tasks:
            self._leave(task.id)
            self._enter(task)
        for name in change.forgotten:
            self._leave(name)

    def _count(self, before: FairShare, moved: Mapping[Queue, float]) -> None:
        """Take over the starts of a change."""
        for key, end in moved.items():
            if key in self.ready:
                turns = self.turns[key[0]]
                del turns[bisect_left(turns, (before.end(key), key))]
                insort(turns, (end, key))
            self._ends[key] = end
        self.share = FairShare(self.share.clocks, self._ends)
        if len(self._ends) > 2 * len(self.ready) + FORGOTTEN_FROM:
            for key in [key for key in self._ends if key not in self.ready and self.share.is_over(key)]:
                del self._ends[key]

    def _enter(self, task: Task) -> None:
        self.tasks[task.id] = task
        if task.attempt is not None:
            self.living[task.id] = task
        self._count_startable(task, 1)
        if is_startable(task) and not task.urgent:
            self._queue(queue(task), rank(task))
        for by_night, entry in self._entries(task):
            insort(by_night.setdefault(task.night, []), entry)
        for index, timed in self._timed(task):
            insort(index, timed)
        if task.held_up:
            self.lines.enter(task)
        if task.state not in FINAL:
            self.counts[task.state] += 1
            for keyed, key in self._keys(task):
                keyed.setdefault(key, {})[task.id] = None

    def _leave(self, name: str) -> None:
        task = self.tasks.pop(name, None)
        if task is None:
            return
        self.living.pop(name, None)
        self._count_startable(task, -1)
        if is_startable(task) and not task.urgent:
            self._unqueue(queue(task), rank(task))
        for by_night, entry in self._entries(task):
            found = by_night[task.night]
            del found[bisect_left(found, entry)]
            if not found:
                del by_night[task.night]
        for index, timed in self._timed(task):
            del index[bisect_left(index, timed)]
        if task.held_up:
            self.lines.leave(task)
        if task.state not in FINAL:
            self.counts[task.state] -= 1
            for keyed, key in self._keys(task):
                del keyed[key][name]
                if not keyed[key]:
                    del keyed[key]

    def _count_startable(self, task: Task, more: int) -> None:
        if not is_startable(task):
            return
        self.waiting[task.kind] += more
        if task.night:
            kinds = self.night_kinds.setdefault(task.night, Counter())
            kinds[task.kind] += more
            self.night_kinds[task.night] = +kinds
            if not +kinds:
                del self.night_kinds[task.night]

    def _queue(self, key: Queue, found: Rank) -> None:
        if key not in self.ready:
            self.ready[key] = []
            insort(self.turns[key[0]], (self.share.end(key), key))
        insort(self.ready[key], found)

    def _unqueue(self, key: Queue, found: Rank) -> None:
        waiting, turns = self.ready[key], self.turns[key[0]]
        del waiting[bisect_left(waiting, found)]
        if not waiting:
            del self.ready[key], turns[bisect_left(turns, (self.share.end(key), key))]

    def _entries(self, task: Task) -> Iterator[tuple[ByNight, Rank]]:
        """Where a task that could start stands, beside the queue of its class and submitter."""
        if is_startable(task):
            yield self.oldest[task.task_class], (task.since, task.order, task.id)
            if task.preempt:
                yield self.preempting, (importance(task), task.order, task.id)
            if task.urgent:
                yield self.urgent, (task.deadline, task.order, task.id)

    def _timed(self, task: Task) -> Iterator[tuple[list[Any], Any]]:
        """Where it stands by what happens to it at some time."""
        if task.state is TaskState.READY and task.not_before:
            yield self.resting, (task.not_before, task.id)
        yield from ((self.alarms, (at, task.id)) for at in alarms(task))

    def _keys(self, task: Task) -> Iterator[tuple[dict[str, dict[str, None]], str]]:
        """Where an unfinished task is found by what it comes after, by notes, group, who chooses, who added it, and night."""
        yield from ((self.dependents, need) for need in task.after)
        yield from ((self.readers, awaited) for awaited in awaited_notes(task))
        if task.together:
            yield self.groups, task.together
        if task.decide:
            yield self.deciding, task.decide
        if task.parent:
            yield self.children, task.parent
        if task.night:
            yield self.by_night, task.night
