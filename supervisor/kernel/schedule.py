"""Which ready tasks start next, on which free slots. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from supervisor.kernel.crew import Area, Crew, FairShare, PauseState, Queue, Rank, Task, Turn, area, importance, is_startable, queue, rank
from supervisor.kernel.decision import Board, Draft, MoveNight, RanksByNight, is_held_back, waits_for_person
from supervisor.kernel.format import money
from supervisor.kernel.leases import PERSON, STATIC, Wait, WaitKind
from supervisor.kernel.night import CAP_REACHED, CENT, Night, NightSpent, NightState
from supervisor.kernel.path_globs import overlap
from supervisor.kernel.pressure import Decision, Verdict
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


# Path rules
# ----------
# Which tasks may not start beside which, by the files that they write. Pure.
#
# A task waits while another one of its project lives whose paths, or whose agent's leases, overlap its own. Those of one family do
# not wait for each other, nor those that begin together: an agent that waits for a task which it added would wait for ever.
#
# Whatever waits leaves the order of starts (`Task.held_up`) and stands in the line of its area until the task that it was found
# behind lets go; then the first of the line is tried, and the one that has waited longest. So a start and an end cost as much as is
# tried, however many tasks wait for the same files.


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


# Night rules
# -----------
# What the terms of a night do to its tasks. Pure.
#
# While it is open its tasks start within `parallel` and the cap: none starts when what is left is less than a start is expected to
# cost, beside what those that live have still to spend. From `until` on, and once the cap is reached, those that have not started
# expire, and what ends is not run again. What runs has the grace; then it is stopped. What a person holds is left alone.
#
# That the cap is never passed is the gateway's work, which sees each request before it is sent; here is decided what begins.


NIGHT_ENDED = "night ended"
"""`Stop.why` of an attempt that the end of its night stops."""
CAP_STOPPED = "the night's cost cap was reached"
"""The same of one that is stopped at once when the cap is reached."""


def look(board: Board) -> None:
    """Move each night on by what time it is and what was spent, and its tasks with it. Nothing moves while everything is stopped."""
    for night in list(board.draft.nights.values()) if not board.draft.stopped else ():
        _look(board, night)


def _look(board: Board, night: Night) -> None:
    if night.state is NightState.OPEN and (why := _why_closing(board, night)):
        night = _move(board, night, NightState.CLOSING, why)
    if night.state is NightState.CLOSING and night.is_over(board.wall):
        night = _move(board, night, NightState.OVER, night.why)
    if night.state is not NightState.OPEN:
        _close(board, night)
    left, known = board.draft.of_night(night.run), board.draft.known
    if all(waits_for_person(task, known(task.after)) or (night.state is not NightState.OPEN and is_held_back(task)) for task in left):
        _move(board, night, NightState.ENDED, night.why)


def _move(board: Board, night: Night, state: NightState, why: str) -> Night:
    moved = replace(night, state=state, why=why)
    board.draft.nights[night.run] = moved
    if state is NightState.ENDED:
        del board.draft.nights[night.run]
    board.commands.append(MoveNight(night.run, state, why))
    return moved


def _why_closing(board: Board, night: Night) -> str:
    if night.terms.until and board.wall >= night.terms.until:
        return f"the night ended at {night.until_words}"
    return CAP_REACHED if night.terms.cost_max and _is_reached(board.draft, night) else ""


def _is_reached(draft: Draft, night: Night) -> bool:
    """Whether the cap lets nothing start any more, however the requests under way end: a request did not fit, or what no request has spent
    is less than the cheapest start of those that wait."""
    left = night.left()
    if night.spent.refused or left <= CENT:
        return True
    if left + CENT >= max(draft.start_usd.values(), default=0.0):
        return False

    def fits(kind: str) -> bool:
        return draft.start_usd.get(kind, 0.0) <= left + CENT

    kinds = draft.startable_kinds(night.run)  # first, since it costs the same however many wait
    return bool(kinds) and not any(map(fits, kinds)) and not any(fits(task.kind) for task in draft.of_night(night.run) if not task.attempt)


def _close(board: Board, night: Night) -> None:
    """Expire what waits, those that come after others first: so each says the night and not what it waited for. Stop what runs once the
    grace is over. A group of candidates ends as those do."""
    for task in sorted(board.draft.of_night(night.run), key=lambda task: -task.order):
        if task.state in (TaskState.WAITING, TaskState.READY, TaskState.PARKED) and not task.decide:
            board.set_state(task, "expire", night.why)
            board.final(task.id)
        elif night.state is NightState.OVER and not is_held_back(task):
            _stop(board, task, CAP_STOPPED if night.stops_by_cap else NIGHT_ENDED)


def _stop(board: Board, task: Task, why: str) -> None:
    if task.attempt is not None and task.attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING):
        board.stop(task, task.attempt, why)


def ended(board: Board, task: Task) -> None:
    """An attempt of the task has ended: until the gateway speaks again it is taken to have cost what was expected of it."""
    if (night := board.draft.nights.get(task.night)) is not None:
        usd = _ahead(task, board.draft.start_usd, night)
        board.draft.nights[task.night] = replace(night, unheard=night.unheard + usd)


# Starts ---------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Room:
    """What one night has for more starts in this decision."""

    night: Night
    living: int
    """Attempts that count against `parallel`: all but those that a person holds."""
    left: float
    """Dollars that neither requests nor those that live are expected to need."""
    cheapest: float
    """What the cheapest start of those that wait is expected to cost."""

    @property
    def is_full(self) -> bool:
        """Whether so many live as may."""
        return bool(self.night.terms.parallel) and self.living >= self.night.terms.parallel

    @property
    def is_shut(self) -> bool:
        """Whether nothing of it can start, whatever its kind."""
        return self.night.state is not NightState.OPEN or self.is_full or not self.affords(self.cheapest)

    def affords(self, usd: float) -> bool:
        """Whether a start that is expected to cost so much fits."""
        return not self.night.terms.cost_max or usd <= self.left + CENT


class Rooms:
    """Which tasks their nights or the paths of others keep from starting, by the starts that were given so far. Costs as much as lives."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.rooms = {night.run: _room(draft, night) for night in draft.nights.values()}
        self.paths = PathRules(draft)

    def bar(self, name: str) -> bool:
        """Whether its night keeps this task from starting now, or another one that has its paths."""
        return self._is_full(name) or self.paths.bar(name)

    def _is_full(self, name: str) -> bool:
        if not self.rooms or (task := self._draft.get(name)) is None or (room := self.rooms.get(task.night)) is None:
            return False
        return room.is_shut or not room.affords(self._draft.start_usd.get(task.kind, 0.0))

    def is_shut(self, night: str) -> bool:
        """Whether it lets nothing start now, so that none of its tasks need be looked at."""
        return night in self.rooms and self.rooms[night].is_shut

    def in_order(self, found: RanksByNight) -> Iterator[Rank]:
        """The tasks of those nights, and of none, that are not shut: some of them may be barred all the same."""
        return heapq.merge(*(ranks for night, ranks in found.items() if not self.is_shut(night)))

    def started(self, name: str) -> None:
        """The task starts."""
        task = self._draft.get(name)
        self.paths.started(name)
        if task is not None and (room := self.rooms.get(task.night)) is not None:
            room.living += 1
            room.left -= self._draft.start_usd.get(task.kind, 0.0)


def _room(draft: Draft, night: Night) -> Room:
    living = [task for task in draft.living() if task.night == night.run]
    ahead = sum(_ahead(task, draft.start_usd, night) for task in living)
    left = night.left() - night.spent.reserved - night.unheard - ahead
    cheapest = min((draft.start_usd.get(kind, 0.0) for kind in draft.startable_kinds(night.run)), default=0.0)
    return Room(night, sum(not is_held_back(task) for task in living), left, cheapest)


def _ahead(task: Task, start_usd: Mapping[str, float], night: Night) -> float:
    """What an attempt is expected to spend beyond what the gateway has said of it."""
    return max(0.0, start_usd.get(task.kind, 0.0) - night.spent.tasks.get(task.id, 0.0))


def why_wait(rooms: Rooms, start_usd: Mapping[str, float]) -> Iterator[tuple[str, str, str]]:
    """(run, kind, words) of what waits for its night; without a kind for all of its tasks."""
    for run, room in rooms.rooms.items():
        terms = room.night.terms
        if room.is_full:
            yield run, "", f"waits for its night ({room.living} of {terms.parallel} agents)"
        for kind, usd in start_usd.items():
            if not room.affords(usd):
                part = f"{money(terms.cost_max - room.left)} of {money(terms.cost_max)}"
                yield run, kind, f"waits for its night ({part} is spent or expected, a start takes {money(usd)})"


def waits(crew: Crew) -> dict[str, Verdict]:
    """Return why tasks wait for their nights: by run, or by `run kind` where the cost of that kind is the reason."""
    found = why_wait(Rooms(Draft(crew)), crew.start_usd) if crew.nights else ()
    return {f"{run} {kind}".strip(): Verdict(Decision.DEFER, "night", words) for run, kind, words in found}


def spent_by_nights(caps: Mapping[str, Any]) -> dict[str, NightSpent]:
    """Return what each night has spent, by run, from the part `caps` of the gateway's status. A gateway of another version may leave out
    nights."""
    return {
        str(run): NightSpent(float(said["usd"]), float(said["reserved"]), bool(said["refused"]), dict(said["tasks"]))
        for run, said in caps.get("nights", {}).items()
    }
