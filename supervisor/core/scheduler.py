"""Which ready tasks start next, on which free slots. Pure: the same crew gives the same answer.

The order of starts:

1. A task that has waited for `ageing_s` gets one of `AGED_EVERY` starts, the one that has waited longest first. So nothing starves, and a
   mass of old tasks still leaves most starts to the others.
2. Interactive tasks.
3. Tasks whose deadline is near, the nearest first.
4. Normal tasks, then batch tasks.

Within a class the submitters take turns by their weights (`fair_share`); of one submitter's tasks the one with the higher priority goes
first, then the older one.

Starting more agents than the models can serve only makes all of them wait, so while requests queue in the gateway some classes are held
back: batch first, then normal, interactive never, nor a task whose deadline is near. A task that is held back starts all the same when
nothing else lives: whatever a delay comes from, it must not stop the crew for good. And once it has waited for `ageing_s` it starts when
no other task of its class lives, so that the class goes on, one task at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass

from supervisor.core.crew import Crew
from supervisor.core.draft import Draft
from supervisor.core.fair_share import FairShare
from supervisor.core.task import BatchTime, Queue, Rank, TaskClass, queue

HOLDS_FROM_S: Mapping[TaskClass, float] = {TaskClass.BATCH: 30.0, TaskClass.NORMAL: 120.0}
"""A class is held back when a request would wait this long, and until it would wait less than half of it, so that one request more or
less does not start and stop the crew. 120 s is half of what a request is held for by default (`hold`, 240 s): beyond it, one more agent
brings those at work close to the answer 429. Who works for nobody until morning gives way at a quarter of that."""
AGED_EVERY = 4
"""One of so many starts goes to a task that has waited for too long, while there is one."""


@dataclass(frozen=True, slots=True)
class Picked:
    """The tasks to start now, first one first, and what the next choice has to know of this one."""

    tasks: tuple[str, ...]
    share: FairShare
    passed_over: int


def pick(crew: Draft, now: float) -> Picked:
    """Choose what starts on the slots that are free. `now` is monotonic.

    A task with unfinished children takes no slot: it may wait for them, and they for its slot. So beside `slots` attempts there live at
    most as many more as have such children, and one that runs again need not wait for those.
    """
    living = [task for task in crew.living() if not any(crew.unfinished_children(task.id))]
    turns = _Turns(crew, now, Counter(task.task_class for task in living))
    if crew.admitting:
        turns.tasks.update(dict.fromkeys(crew.startable_with_children()))
        turns.give(crew.slots - len(living), frozenset(TaskClass) - crew.held_back)
        if not living and not turns.tasks:
            turns.give(min(1, crew.slots), frozenset(TaskClass))
    return Picked(tuple(turns.tasks), turns.share, turns.passed_over)


class _Turns:
    """Gives one start after another."""

    def __init__(self, crew: Draft, now: float, living: Counter[TaskClass]) -> None:
        self._crew, self._now, self._living = crew, now, living
        self.tasks: dict[str, None] = {}
        self.share, self.passed_over = crew.share, crew.passed_over
        self._queues = {name: {key: _Waiting(found) for key, found in crew.ready(name).items()} for name in TaskClass}
        self._oldest = {name: _Waiting(crew.oldest(name)) for name in TaskClass}
        self._urgent = _Waiting(crew.urgent())
        self._open = frozenset(TaskClass) if self._batch_may_start() else frozenset(TaskClass) - {TaskClass.BATCH}

    def _batch_may_start(self) -> bool:
        if self._crew.batch_time is BatchTime.IDLE:
            return not any(self._living[name] or self._oldest[name].first(()) for name in TaskClass if name is not TaskClass.BATCH)
        return self._crew.batch_time is BatchTime.ALWAYS

    def give(self, slots: int, welcome: Set[TaskClass]) -> None:
        """Give up to `slots` starts to tasks of these classes, as far as they may start at this time."""
        for _ in range(slots):
            if not any(self._tries(welcome)):
                return

    def _tries(self, welcome: Set[TaskClass]) -> Iterator[bool]:
        """Tries in the order of starts; each is True when it gave one."""
        yield self.passed_over >= AGED_EVERY - 1 and self._aged(self._open & welcome)
        yield self._in_turn(TaskClass.INTERACTIVE)
        yield self._out_of_turn(self._urgent.first(self.tasks))
        yield from (self._in_turn(name) for name in (TaskClass.NORMAL, TaskClass.BATCH) if name in self._open & welcome)
        yield from (self._aged({name}) for name in self._open.difference(welcome) if not self._living[name])

    def _aged(self, classes: Collection[TaskClass]) -> bool:
        found = min(filter(None, (self._oldest[name].first(self.tasks) for name in classes)), default=None)
        if found is None or self._now - found[0] < self._crew.order.ageing_s:
            return False
        self._out_of_turn(found)
        self.passed_over = 0
        return True

    def _in_turn(self, task_class: TaskClass) -> bool:
        queues = self._queues[task_class]
        for key in self.share.first(key for key, waiting in queues.items() if waiting.first(self.tasks)):
            self._start(queues[key].first(self.tasks), key, in_turn=True)
            return True
        return False

    def _out_of_turn(self, found: Rank | None) -> bool:
        task = self._crew.get(found[-1]) if found is not None else None
        if task is not None:
            self._start(found, queue(task), in_turn=False)
        return task is not None

    def _start(self, found: Rank | None, key: Queue, *, in_turn: bool) -> None:
        if found is not None:
            self.tasks[found[-1]] = None
            self._living[TaskClass(key[0])] += 1
            self.share = self.share.started(key, self._crew.order.weights.get(key[1], 1.0), in_turn=in_turn)
            self.passed_over = min(self.passed_over + 1, AGED_EVERY)


class _Waiting:
    """Tasks in the order of their start, of which some are started meanwhile."""

    def __init__(self, found: Iterator[Rank]) -> None:
        self._found = found
        self._head = next(found, None)

    def first(self, started: Collection[str]) -> Rank | None:
        """The first that has not started; None when there is none."""
        while self._head is not None and self._head[-1] in started:
            self._head = next(self._found, None)
        return self._head


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
    """How many tasks could start and do not because the models are busy."""
    return sum(len(crew.oldest[name]) for name in crew.held_back)


def wakes_at(crew: Crew) -> float | None:
    """The earliest monotonic time at which a backoff ends, or None: the loop need not wake before it for the scheduler's sake."""
    return crew.resting[0][0] if crew.resting else None
