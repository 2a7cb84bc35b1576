"""What a night and the files of others keep from starting."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from supervisor.kernel.admission import Decision, Verdict
from supervisor.kernel.crew import Area, Crew, Rank, Task, area, is_startable
from supervisor.kernel.decision import Board, Draft, MoveNight, RanksByNight, is_held_back, waits_for_person
from supervisor.kernel.format import money
from supervisor.kernel.night import CAP_REACHED, CENT, Night, NightSpent, NightState
from supervisor.kernel.path_globs import overlap
from supervisor.kernel.states import AttemptState, TaskState

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
