"""Which ready tasks start next, on which free slots. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice

from supervisor.kernel.crew import Crew, FairShare, PauseState, Queue, Rank, Task, Turn, area, importance, is_startable, queue, rank
from supervisor.kernel.decision import Draft, RanksByNight
from supervisor.kernel.leases import PERSON, STATIC, Wait, WaitKind
from supervisor.kernel.night_rules import Rooms
from supervisor.kernel.states import FINAL, AttemptState, BatchTime, TaskClass, TaskState, Until

# Preemption
# ----------
# Which attempt is paused so that a more important task can start, and which paused attempts wait for a slot. Pure.
#
# A task that says `preempt`, and an interactive one while the means are short, takes the slot of the least important attempt that
# is less important than itself. That attempt is paused at a moment without a request under way, or after a bounded wait; then the
# task starts on its slot, whoever else waits. The paused one goes on when a slot is free.


def waiting_for_a_slot(crew: Draft) -> list[str]:
    """The attempts that stand still and go on when a slot is free, the most important first, then the one that has waited longest."""
    found = [(importance(task), paused.since, task.id) for task, paused in _paused(crew) if paused.still and paused.until is Until.SLOT]
    return [name for _, _, name in sorted(found)]


def places_freed_by_pausing(crew: Draft) -> list[str]:
    """The tasks that could start on a slot that was made free for them."""
    names = {paused.made_for for _, paused in _paused(crew) if paused.still and paused.until is Until.SLOT}
    return [task.id for task in crew.known(sorted(names)) if is_startable(task)]


def choose_attempts_to_pause(
    crew: Draft, passed: Container[str], in_order: Callable[[RanksByNight], Iterator[Rank]], *, under_pressure: bool
) -> dict[str, str]:
    """The attempts to pause, each with the task that it makes room for. `passed`: tasks that start anyway, or may not."""
    expected = {paused.made_for for _, paused in _paused(crew) if paused.until is Until.SLOT}
    lowest: list[Task] | None = None
    found: dict[str, str] = {}
    for pressing in (crew.preempting(), crew.oldest(TaskClass.INTERACTIVE) if under_pressure else {}):
        for task in crew.known(name for *_, name in in_order(pressing)):
            if task.id in passed or task.id in expected or task.id in found.values():
                continue
            lowest = _lowest_last(crew) if lowest is None else lowest
            if not lowest or importance(lowest[-1]) <= importance(task):
                break
            found[lowest.pop().id] = task.id
    return found


def _lowest_last(crew: Draft) -> list[Task]:
    return sorted((task for task in crew.living() if _may_be_paused(crew, task)), key=lambda task: (importance(task), task.order))


def _may_be_paused(crew: Draft, task: Task) -> bool:
    """Whether pausing it frees a slot: it runs by itself, and holds one."""
    attempt = task.attempt
    runs = attempt is not None and attempt.state is AttemptState.RUNNING and not attempt.held and attempt.paused is None
    return runs and not any(crew.unfinished_children(task.id))


def _paused(crew: Draft) -> Iterator[tuple[Task, PauseState]]:
    for task in crew.living():
        if task.attempt is not None and task.attempt.paused is not None and task.attempt.state is AttemptState.RUNNING:
            yield task, task.attempt.paused


# Scheduler
# ---------
# Which ready tasks start next, on which free slots. Pure: the same crew gives the same answer.
#
# The order of starts:
#
# 1. A task that has waited for `ageing_s` gets one of `AGED_EVERY` starts, the one that has waited longest first. So nothing
# starves, and a mass of old tasks still leaves most starts to the others. 2. Interactive tasks. 3. Paused tasks that wait for a
# slot, the most important first. 4. Tasks whose deadline is near, the nearest first. 5. Normal tasks, then batch tasks.
#
# Within a class the submitters take turns by their weights (`fair_share`); of one submitter's tasks the one with the higher
# priority goes first, then the older one.
#
# Starting more agents than the models or the machine can serve only makes all of them wait, so while they are busy some classes are
# held back (`admission.held`): batch first, then normal, interactive never, nor a task whose deadline is near. A task that is held
# back starts all the same when nothing else lives: whatever a delay comes from, it must not stop the crew for good. And once it has
# waited for `ageing_s` it starts when no other task of its class lives, so that the class goes on, one task at a time.


AGED_EVERY = 4
"""One of so many starts goes to a task that has waited for too long, while there is one."""


@dataclass(frozen=True, slots=True)
class Picked:
    """The tasks to start now, first one first, and what the next choice has to know of this one."""

    tasks: tuple[str, ...]
    share: FairShare
    passed_over: int
    resumed: tuple[str, ...] = ()
    """Paused tasks that go on now."""
    preempted: Mapping[str, str] = field(default_factory=dict)
    """Tasks to pause, each with the one that it makes room for."""
    held_up: Mapping[str, str] = field(default_factory=dict)
    """Tasks that were passed over, each for the one that has its paths."""


def pick(crew: Draft, now: float) -> Picked:
    """Choose what starts on the slots that are free. `now` is monotonic.

    A task with unfinished children takes no slot: it may wait for them, and they for its slot. So beside `slots` attempts there live at
    most as many more as have such children, and one that runs again need not wait for those.
    """
    living = [task for task in crew.living() if task.attempt and task.attempt.holds_slot and not any(crew.unfinished_children(task.id))]
    free, nobody = crew.slots - len(living), Picked((), crew.share, crew.passed_over)
    if crew.stopped:
        return nobody
    if not crew.admitting:
        return replace(nobody, resumed=tuple(waiting_for_a_slot(crew)[: max(0, free)]))
    rooms = Rooms(crew)
    again = list(_one_by_one(crew.startable_with_children(), rooms))
    places = [name for name in places_freed_by_pausing(crew) if not rooms.bar(name)]
    picked = nobody
    if free > 0 or again or places:
        turns = _Turns(crew, now, Counter(task.task_class for task in living), rooms)
        turns.tasks.update(dict.fromkeys(again))
        turns.give(free - turns.take_places(places), frozenset(TaskClass) - crew.held_back.keys())
        if not living and not turns.tasks and not turns.resumed:
            turns.give(min(1, crew.slots), frozenset(TaskClass))
        picked = turns.picked()
    under_pressure = bool(crew.held_back) or free < 0
    preempted = choose_attempts_to_pause(crew, Passed(picked.tasks, rooms), rooms.in_order, under_pressure=under_pressure)
    return replace(picked, preempted=preempted, held_up=rooms.paths.held_up)


def _one_by_one(names: Iterable[str], rooms: Rooms) -> Iterator[str]:
    """Those that may start, each beside those before it."""
    for name in names:
        if not rooms.bar(name):
            rooms.paths.started(name)
            yield name


class Passed:
    """The tasks that are passed over: they start anyway, or their nights keep them from it."""

    def __init__(self, started: Collection[str], rooms: Rooms) -> None:
        self._started, self._rooms = started, rooms

    def __contains__(self, name: object) -> bool:
        return name in self._started or self._rooms.bar(str(name))


class _Turns:
    """Gives one start after another."""

    def __init__(self, crew: Draft, now: float, living: Counter[TaskClass], rooms: Rooms) -> None:
        self._crew, self._now, self._living = crew, now, living
        self.tasks: dict[str, None] = {}
        self._rooms, self._passed = rooms, Passed(self.tasks, rooms)
        self.resumed: dict[str, None] = {}
        self._paused = waiting_for_a_slot(crew)
        self.share, self.passed_over = crew.share, crew.passed_over
        self._by_turn = {name: _ByTurn(crew, name, rooms) for name in TaskClass}
        self._oldest = {name: _Waiting(crew.oldest(name), rooms) for name in TaskClass}
        self._urgent = _Waiting(crew.urgent(), rooms)
        self._open = frozenset(TaskClass) if self._batch_may_start() else frozenset(TaskClass) - {TaskClass.BATCH}

    def _batch_may_start(self) -> bool:
        if self._crew.batch_time is BatchTime.IDLE:
            others = [name for name in TaskClass if name is not TaskClass.BATCH]
            return not any(self._living[name] or self._oldest[name].first(self._passed) for name in others)
        return self._crew.batch_time is BatchTime.ALWAYS

    def picked(self) -> Picked:
        """What was given."""
        return Picked(tuple(self.tasks), self.share, self.passed_over, tuple(self.resumed))

    def take_places(self, places: Collection[str]) -> int:
        """Start the tasks for which room was made; how many."""
        given = 0
        for name in places:
            task = self._crew.get(name)
            given += name not in self._passed and self._out_of_turn(rank(task) if task is not None else None)
        return given

    def _goes_on(self) -> bool:
        name = next((name for name in self._paused if name not in self.resumed), None)
        if name is not None:
            self.resumed[name] = None
        return name is not None

    def give(self, slots: int, welcome: Set[TaskClass]) -> None:
        """Give up to `slots` starts to tasks of these classes, as far as they may start at this time."""
        for _ in range(slots):
            if not any(self._tries(welcome)):
                return

    def _tries(self, welcome: Set[TaskClass]) -> Iterator[bool]:
        """Tries in the order of starts; each is True when it gave one."""
        yield self.passed_over >= AGED_EVERY - 1 and self._aged(self._open & welcome)
        yield self._in_turn(TaskClass.INTERACTIVE)
        yield self._goes_on()
        yield self._out_of_turn(self._urgent.first(self._passed))
        yield from (self._in_turn(name) for name in (TaskClass.NORMAL, TaskClass.BATCH) if name in self._open & welcome)
        yield from (self._aged({name}) for name in self._open.difference(welcome) if not self._living[name])

    def _aged(self, classes: Collection[TaskClass]) -> bool:
        found = min(filter(None, (self._oldest[name].first(self._passed) for name in classes)), default=None)
        if found is None or self._now - found[0] < self._crew.order.ageing_s:
            return False
        self._out_of_turn(found)
        self.passed_over = 0
        return True

    def _in_turn(self, task_class: TaskClass) -> bool:
        found = self._by_turn[task_class].first(self.share, self._passed)
        if found is not None:
            self._start(*found, in_turn=True)
        return found is not None

    def _out_of_turn(self, found: Rank | None) -> bool:
        task = self._crew.get(found[-1]) if found is not None else None
        if task is not None:
            self._start(queue(task), task.id, in_turn=False)
        return task is not None

    def _start(self, key: Queue, name: str, *, in_turn: bool) -> None:
        self.tasks[name] = None
        self._rooms.started(name)
        self._living[TaskClass(key[0])] += 1
        self.share = self.share.started(key, self._crew.order.weights.get(key[1], 1.0), in_turn=in_turn)
        self.passed_over = min(self.passed_over + 1, AGED_EVERY)


class _ByTurn:
    """The queues of a class, by whose turn it is. Looks at no more of them than have a turn, however many wait."""

    def __init__(self, crew: Draft, task_class: TaskClass, rooms: Rooms) -> None:
        self._crew, self._rooms = crew, rooms
        self._sorted = crew.turns(task_class)
        self._heap: list[Turn] = list(islice(self._sorted, 1))
        """Those that were looked at, and always the next one: so its first is the first of all. Starts only move a queue back, so an
        entry that is no longer true comes too early, and is put right then."""
        self._waiting: dict[Queue, _Waiting] = {}

    def first(self, share: FairShare, passed: Container[str]) -> tuple[Queue, str] | None:
        """The queue whose turn it is, and its first task that is not passed over; None when all are."""
        while self._heap:
            end, key = self._heap[0]
            if key not in self._waiting:
                self._waiting[key] = _Waiting({key[2]: self._crew.ready(key)}, self._rooms)
            found = self._waiting[key].first(passed)
            if found is not None and end == share.end(key):
                return key, found[-1]
            heapq.heappop(self._heap)
            if found is not None:
                heapq.heappush(self._heap, (share.end(key), key))
            for turn in islice(self._sorted, 1):
                heapq.heappush(self._heap, turn)
        return None


class _Waiting:
    """Tasks in the order of their start, by night, of which some are passed over. Who is stays so for this decision: a night's room only
    shrinks."""

    def __init__(self, found: RanksByNight, rooms: Rooms) -> None:
        self._found, self._rooms = found, rooms
        self._heads = {night: next(ranks, None) for night, ranks in found.items()}

    def first(self, passed: Container[str]) -> Rank | None:
        """The first that is not passed over; None when there is none."""
        heads = (self._head(night, passed) for night in self._found if not self._rooms.is_shut(night))
        return min(filter(None, heads), default=None)

    def _head(self, night: str, passed: Container[str]) -> Rank | None:
        while (head := self._heads[night]) is not None and head[-1] in passed:
            self._heads[night] = next(self._found[night], None)
        return head


def held_tasks(crew: Crew) -> int:
    """How many tasks could start and do not because their class is held back."""
    return sum(len(found) for name in crew.held_back for found in crew.oldest[name].values())


def wakes_at(crew: Crew) -> float | None:
    """The earliest monotonic time at which a backoff ends, or None: the loop need not wake before it for the scheduler's sake."""
    return crew.resting[0][0] if crew.resting else None


# Plan waits
# ----------
# What tasks wait for that nobody registered, since it follows from the crew: what a task comes after, and whose paths it needs.
# Pure.


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
