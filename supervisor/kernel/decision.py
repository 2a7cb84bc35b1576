"""The crew as one decision would leave it, and the commands of that decision."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, takewhile

from supervisor.kernel.crew import (
    Area,
    Attempt,
    ByNight,
    Change,
    Conditions,
    Crew,
    PauseState,
    Queue,
    Rank,
    Task,
    Turn,
    alarms,
    awaited_notes,
    importance,
    is_startable,
    queue,
    rank,
)
from supervisor.kernel.night import NightState
from supervisor.kernel.retry import NEW, Tally
from supervisor.kernel.states import FINAL, AttemptState, Choice, Decider, End, TaskClass, TaskState, Until, attempt_after, task_after

# Commands
# --------
# What `decide` wants done: each command is committed to the ledger before anything acts on it.


@dataclass(frozen=True, slots=True)
class _OfAttempt:
    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Start(_OfAttempt):
    """Commit the attempt row, then launch it."""

    cause: str


class MarkRunning(_OfAttempt):
    """Commit that the runner was seen."""


class Begin(_OfAttempt):
    """Commit it to the history, then let the command of a held attempt begin."""


@dataclass(frozen=True, slots=True)
class Stop(_OfAttempt):
    """Commit the reason, then stop the whole tree. Of an attempt that is ending already only the reason is new: the attempt keeps
    its state and its end, and its task does not run again."""

    why: str


@dataclass(frozen=True, slots=True)
class Pause(_OfAttempt):
    """Commit that it shall stand still, and what it then waits for; then stop it there. Of one that is paused already only that is new."""

    until: Until
    made_for: str = ""
    """The task that gets its slot. Then the pause waits, within a bound, for a moment without a request under way."""
    question: str = ""
    """What its agent needs a person for: it is set aside."""


class Resume(_OfAttempt):
    """Commit that it shall go on, then let it. Until that is done the ledger keeps what the pause found."""


@dataclass(frozen=True, slots=True)
class Collect(_OfAttempt):
    """Commit that the tree is gone, then secure its work."""

    end: End
    cause: str


@dataclass(frozen=True, slots=True)
class Finish(_OfAttempt):
    """Commit the attempt's end and the task's next state together, then release the session."""

    end: End
    cause: str
    state: TaskState
    delay_s: float
    """Backoff before the task may start again, or how long it is parked; 0 in any other state."""
    tally: Tally = NEW
    """The task's from now on."""
    reason: str = ""
    """Why the task is as it is now, where that is not how the attempt ended."""
    question: str = ""
    """What a person is to say before it runs again: it is set aside."""


@dataclass(frozen=True, slots=True)
class SetState:
    """Commit a change of a task's state that no attempt caused."""

    task: str
    state: TaskState
    reason: str


@dataclass(frozen=True, slots=True)
class Revive:
    """Commit that a finished task waits again, with its tally forgotten."""

    task: str
    cause: str


@dataclass(frozen=True, slots=True)
class Choose:
    """Commit the choice of a group, together with the state that it gives the group."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class Compare:
    """Rank the candidates of a group, all of which have ended, and say `Chosen` when one of them passed its gate. Nothing is committed:
    the states of its candidates say it."""

    group: str


@dataclass(frozen=True, slots=True)
class LookForNote:
    """Say `NoteAppeared` once the note is there, which it may be already. Nothing is committed: the task's plan says it."""

    note: str
    """As `task.note` names it."""


@dataclass(frozen=True, slots=True)
class MoveNight:
    """Commit how far a night has come, and why it starts nothing any more."""

    run: str
    state: NightState
    why: str


TaskCommand = Start | MarkRunning | Begin | Stop | Pause | Resume | Collect | Finish | SetState | Revive
Command = TaskCommand | Choose | Compare | LookForNote | MoveNight


# Draft
# -----
# The crew as a decision would leave it: the crew, with all changes so far on top.
#
# Each question of a step is answered from the tasks that it concerns (`Crew` keeps them by question) and from those that changed,
# so that a decision costs what happened, however many tasks wait.


RanksByNight = Mapping[str, Iterator[Rank]]
"""As `ByNight`, each in order."""


class Draft(Conditions):
    """The working copy of one decision: mutable inside `decide`, never seen outside. The crew itself is left alone."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._changed: dict[str, Task] = {}
        self._dependents: dict[str, list[str]] = {}
        self._children: dict[str, list[str]] = {}
        super().__init__(**crew.conditions())
        self.nights = dict(crew.nights)
        self.order = crew.order
        self.lines = crew.lines
        """As they are in the crew."""
        self.behind: dict[Area, str] = {}
        """Areas that wait for another task than there."""

    def change(self) -> Change:
        """Everything that differs from the crew. Final tasks that no unfinished task comes after are to be forgotten: a night's history
        stays in the ledger, not in memory."""
        final = [task for task in self._changed.values() if task.state in FINAL]
        looked_at = {name for task in final for name in (task.id, *task.after)}
        forgotten = frozenset(name for name in looked_at if self._is_over(name) and not any(self.unfinished_after(name)))
        tasks = tuple(task for task in self._changed.values() if task.id not in forgotten)
        return Change(tasks, forgotten, self.conditions(), self.behind)

    def _is_over(self, name: str) -> bool:
        task = self.get(name)
        return task is not None and task.state in FINAL

    def get(self, name: str) -> Task | None:
        """The task as it is now; None for one that nobody knows."""
        return self._changed.get(name) or self._crew.tasks.get(name)

    def put(self, task: Task) -> None:
        """Add a task, or have it as it is from now on."""
        before = self.get(task.id)
        if task.held_up and task.state is not TaskState.READY:
            task = replace(task, held_up=False)
        self._changed[task.id] = task
        if task.state not in FINAL and (before is None or before.state in FINAL):
            for need in task.after:
                self._dependents.setdefault(need, []).append(task.id)
            self._children.setdefault(task.parent, []).append(task.id)

    def known(self, names: Iterable[str]) -> Iterator[Task]:
        """Those of the tasks that are known."""
        return (task for task in map(self.get, names) if task is not None)

    def unfinished_after(self, name: str) -> Iterator[Task]:
        """Every unfinished task that comes after this one, in the order in which they came."""
        names = chain(self._crew.dependents.get(name, ()), self._dependents.get(name, ()))
        return (task for task in self.known(names) if task.state not in FINAL)

    def changed_names(self) -> list[str]:
        """The tasks that changed."""
        return list(self._changed)

    def readers(self, note: str) -> list[Task]:
        """Every task that waits for a note."""
        names = dict.fromkeys((*self._crew.readers.get(note, ()), *self._changed))
        return [task for task in self.known(names) if note in awaited_notes(task)]

    def living(self) -> list[Task]:
        """The tasks with an attempt that has not ended."""
        return [task for task in {**self._crew.living, **self._changed}.values() if task.attempt is not None]

    def turns(self, task_class: TaskClass) -> Iterator[Turn]:
        """The queues of a class, the one whose turn it is first. Of those of the crew all tasks may have started meanwhile."""
        added = {queue(task) for task in self._startable if task.task_class is task_class and not task.urgent} - self._crew.ready.keys()
        return heapq.merge(self._crew.turns[task_class], sorted((self._crew.share.end(key), key) for key in added))

    def ready(self, key: Queue) -> Iterator[Rank]:
        """The tasks of a queue that could start and whose deadline is not near, first one first."""
        changed = (rank(task) for task in self._startable if not task.urgent and queue(task) == key)
        return self._merged(self._crew.ready.get(key, ()), changed)

    def urgent(self) -> RanksByNight:
        """The tasks that could start and whose deadline is near, the nearest first."""
        return self._merged_by_night(self._crew.urgent, lambda task: (task.deadline, task.order, task.id) if task.urgent else None)

    def oldest(self, task_class: TaskClass) -> RanksByNight:
        """All tasks of a class that could start, the one that has waited longest first."""
        return self._merged_by_night(
            self._crew.oldest[task_class], lambda task: (task.since, task.order, task.id) if task.task_class is task_class else None
        )

    def preempting(self) -> RanksByNight:
        """The tasks that could start and may take another's slot, the most important first."""
        return self._merged_by_night(self._crew.preempting, lambda task: (importance(task), task.order, task.id) if task.preempt else None)

    def startable_kinds(self, night: str) -> list[str]:
        """The kinds of those tasks of a night that could start."""
        changed = (task.kind for task in self._startable if task.night == night)
        return list({*self._crew.night_kinds.get(night, ()), *changed})

    def _merged_by_night(self, unchanged: ByNight, place: Callable[[Task], Rank | None]) -> RanksByNight:
        changed: ByNight = {}
        for task in self._startable:
            if (found := place(task)) is not None:
                changed.setdefault(task.night, []).append(found)
        return {night: self._merged(unchanged.get(night, ()), changed.get(night, ())) for night in {**unchanged, **changed}}

    @property
    def _startable(self) -> Iterator[Task]:
        """Of the tasks that changed."""
        return filter(is_startable, self._changed.values())

    def _merged(self, unchanged: Iterable[Rank], changed: Iterable[Rank]) -> Iterator[Rank]:
        return heapq.merge((found for found in unchanged if found[-1] not in self._changed), sorted(changed))

    def due(self, wall: float) -> Iterator[Task]:
        """The tasks to which something happens by the wall clock, now or earlier, each as it is when it is asked for: what happened to the
        one before may have ended it."""
        names = [name for _, name in takewhile(lambda found: found[0] <= wall, self._crew.alarms)]
        return (task for task in self.known(dict.fromkeys((*names, *self._changed))) if any(at <= wall for at in alarms(task)))

    def rested(self, now: float) -> list[Task]:
        """The tasks whose backoff is over."""
        due = [name for _, name in takewhile(lambda found: found[0] <= now, self._crew.resting)]
        return [task for task in self.known({*due, *self._changed}) if 0 < task.not_before <= now]

    def group(self, together: str) -> Iterator[Task]:
        """The unfinished tasks that begin together under a name."""
        names = {*self._crew.groups.get(together, ()), *self._changed}
        return (task for task in self.known(names) if task.together == together and task.state not in FINAL)

    def of_night(self, run: str) -> Iterator[Task]:
        """The unfinished tasks of a night."""
        known = self._crew.by_night.get(run, {})
        names = chain(known, (name for name in list(self._changed) if name not in known))
        return (task for task in self.known(names) if task.night == run and task.state not in FINAL)

    def unfinished_children(self, name: str) -> Iterator[Task]:
        """The unfinished tasks that the agent of `name` added."""
        names = chain(self._crew.children.get(name, ()), self._children.get(name, ()))
        return (task for task in self.known(names) if task.state not in FINAL)

    def startable_with_children(self) -> list[str]:
        """The tasks that could start and whose agents added some that are unfinished: those that run again."""
        names = {**self._crew.children, **self._children}
        return [task.id for task in self.known(sorted(names)) if is_startable(task) and any(self.unfinished_children(task.id))]


# Group rules
# -----------
# What becomes of groups of candidates, and of the tasks that judge them, when candidates end and when one is chosen.
#
# A group is looked at when something that it comes after reaches a final state, never by polling. A choice is made once: of a group
# that has a final state nothing is chosen any more.


JUDGED_MIN = 2
"""Candidates below which there is nothing to judge."""


def looked_at(board: Board, task: Task) -> bool:
    """Judge a waiting group, or a waiting judge of one, by its candidates. Whether it reached a final state."""
    return _group(board, task) if task.decide else _judge(board, task)


def _group(board: Board, task: Task) -> bool:
    if any(need.state not in FINAL for need in board.draft.known(task.after)):
        return False
    ends = [candidate.state for candidate in board.draft.known(sorted(task.candidates))]
    if TaskState.DONE not in ends:
        skipped = all(end is TaskState.SKIPPED for end in ends)
        event = "blocked for ever" if skipped else "none is left"
        board.set_state(task, event, f"none of its {len(ends)} candidates is done: {', '.join(sorted(set(ends)))}")
        return True
    if task.decide == "gate":
        board.commands.append(Compare(task.id))
    return False


def _judge(board: Board, task: Task) -> bool:
    ends = [candidate.state for candidate in board.draft.known(task.candidates)]
    if any(end not in FINAL for end in ends):
        return False
    if (done := ends.count(TaskState.DONE)) < JUDGED_MIN:
        board.set_state(task, "blocked for ever", f"{done} of {len(ends)} candidates is done: there is nothing to judge")
        return True
    board.set_state(task, "unblocked", "")
    return False


def choose(board: Board, choice: Choice) -> list[str]:
    """Make `choice`, and have what comes after the group look at it. Returns the candidates and judges that have not ended: nobody waits
    for them any more. Nothing happens where the group has ended, or what was chosen is no result of it (any more)."""
    group, winner = board.draft.get(choice.group), board.draft.get(choice.winner)
    if group is None or winner is None or not may_choose(group, winner) or winner.epoch != choice.epoch:
        return []
    board.set_state(group, "chosen", f"{choice.winner} was chosen by {choice.by}: {choice.why}")
    board.commands.append(Choose(choice))
    board.final(group.id)
    return [task.id for task in board.draft.known(sorted(group.after)) if task.state not in FINAL]


def waits_for_person(group: Task, needs: Iterable[Task]) -> bool:
    """Whether it is a group of which a person is to choose a candidate, and nothing else is to come. `needs`: what it comes after."""
    return group.decide == Decider.PERSON and group.state is TaskState.WAITING and all(need.state in FINAL for need in needs)


def to_choose(crew: Crew) -> list[str]:
    """The groups of which a person is to choose now. Costs as much as there are groups of theirs that have not ended."""
    groups = (crew.tasks[name] for name in crew.deciding.get(Decider.PERSON, ()))
    return [group.id for group in groups if waits_for_person(group, (crew.tasks[need] for need in group.after if need in crew.tasks))]


def may_choose(group: Task, winner: Task) -> bool:
    """Whether `winner` can be chosen of `group` now."""
    return group.state is TaskState.WAITING and winner.id in group.candidates and winner.state is TaskState.DONE


# Board
# -----
# The crew as it becomes during one call of `decide`, and the commands so far.
#
# A task's dependents are looked at when it reaches a final state, never by polling.


class Board:
    """What every rule of `decide` writes on. Commands are in the order in which they must be committed."""

    def __init__(self, crew: Crew, now: float, wall: float) -> None:
        self.draft = Draft(crew)
        self.now = now
        self.wall = wall
        self.commands: list[Command] = []
        self._looked_for: set[str] = set()
        self.resumed: list[str] = []
        """Paused tasks that a person has just resumed."""

    def submitted(self, tasks: tuple[Task, ...]) -> None:
        """Take in new tasks; those that are known already stay as they are."""
        new = [task for task in tasks if self.draft.get(task.id) is None]
        for task in new:
            self.draft.put(task)
        for task in new:
            self.look_at_needs(task.id)

    def look_at_needs(self, task_id: str) -> None:
        """Judge a task by the state of everything that it comes after."""
        task = self.draft.get(task_id)
        if task is not None and self._moved_on(task, list(self.draft.known(sorted(task.after)))):
            self.final(task_id)
        elif task is not None:
            self._look_for_notes(task_id)

    def _look_for_notes(self, task_id: str) -> None:
        """Have somebody look for the notes that a task waits for, once for all tasks of this decision."""
        for task in self.draft.known([task_id]):
            for name in sorted(awaited_notes(task) - self._looked_for):
                self._looked_for.add(name)
                self.commands.append(LookForNote(name))

    def note_appeared(self, name: str) -> None:
        """Judge every task that waits for a note which is there."""
        for task in self.draft.readers(name):
            seen = replace(task, notes_seen=task.notes_seen | {name})
            self.draft.put(seen)
            self._moved_on(seen, ())

    def final(self, task_id: str) -> None:
        """Judge what comes after a task that reached a final state, and so on down the chain.

        A queue and not recursion: a plan may be a chain of thousands, and all of them are skipped when its first task fails.
        """
        queue = deque([task_id])
        while queue:
            ended = list(self.draft.known([queue.popleft()]))
            queue.extend(task.id for task in list(self.draft.unfinished_after(ended[0].id)) if self._moved_on(task, ended))

    def _moved_on(self, task: Task, news: Iterable[Task]) -> bool:
        """Whether a task reached a final state because of `news`: the tasks it comes after that ended since it was last judged."""
        if task.state is not TaskState.WAITING:
            return False
        if task.candidates:
            return looked_at(self, task)
        lost_hope = next(filter(None, (self._lost_hope(task, need) for need in news)), "")
        if lost_hope:
            self.set_state(task, "blocked for ever", lost_hope)
            return True
        if (
            not awaited_notes(task)
            and all(need.state in FINAL for need in self.draft.known(task.after - task.after_any))
            and self._one_is_enough(task)
        ):
            self.set_state(task, "unblocked", "")
        return False

    def _lost_hope(self, task: Task, need: Task) -> str:
        """Why the task can never start now that `need` is as it is; empty while it can."""
        if need.state not in FINAL or need.state is TaskState.DONE or task.any_end:
            return ""
        if need.id not in task.after_any:
            return f"{need.id} is {need.state}"
        others = list(self.draft.known(task.after_any))
        if all(other.state in FINAL and other.state is not TaskState.DONE for other in others):
            return (
                f"{need.id} is {need.state}" if len(others) == 1 else f"none of {len(others)} tasks is done, the last one is {need.state}"
            )
        return ""

    def _one_is_enough(self, task: Task) -> bool:
        enough = FINAL if task.any_end else (TaskState.DONE,)
        return not task.after_any or any(need.state in enough for need in self.draft.known(task.after_any))

    def set_state(self, task: Task, event: str, reason: str) -> None:
        """Change the state of a task that has no attempt, for `event` of its table."""
        state = task_after(task.state, event)
        self.draft.put(replace(task, state=state, since=self.now if state is TaskState.READY else task.since))
        self.commands.append(SetState(task.id, state, reason))

    # Attempts --------------------------------------------------------------------------------------------------------------------

    def move(self, task: Task, attempt: Attempt, event: str, stop_why: str | None = None) -> None:
        """Change the state of a living attempt, for `event` of its table."""
        state = attempt_after(attempt.state, event)
        moved = replace(attempt, state=state, since=self.now, stop_why=attempt.stop_why if stop_why is None else stop_why)
        self.draft.put(replace(task, attempt=moved))

    def stop(self, task: Task, attempt: Attempt, why: str) -> None:
        """Have its whole tree stopped."""
        self.move(task, attempt, "stop", why)
        self.commands.append(Stop(task.id, attempt.epoch, why))

    def pause(self, task: Task, attempt: Attempt, until: Until, made_for: str = "", *, question: str = "") -> None:
        """Have its tree stand still, or change what it waits for. `made_for`: the task that gets its slot; `question`: what its agent
        asks."""
        before = attempt.paused or PauseState(until, self.now)
        now = replace(before, until=until, made_for=made_for, question=question or before.question)
        self.draft.put(replace(task, attempt=replace(attempt, paused=now)))
        self.commands.append(Pause(task.id, attempt.epoch, until, made_for, question))

    def await_slot(self, task: Task, attempt: Attempt) -> None:
        """From now on it goes on as soon as it may: at once while it holds its slot. `decide` commits what comes of it."""
        if attempt.paused is not None and attempt.holds_slot:
            self.go_on(task, attempt)
        elif attempt.paused is not None:
            self.draft.put(replace(task, attempt=replace(attempt, paused=replace(attempt.paused, until=Until.SLOT))))
            self.resumed.append(task.id)

    def go_on(self, task: Task, attempt: Attempt) -> None:
        """Let its tree go on. Its runner knows what is left of its time; the backstop counts anew, as after a restart."""
        since = self.now if attempt.state is AttemptState.RUNNING else attempt.since
        self.draft.put(replace(task, attempt=replace(attempt, paused=None, since=since)))
        self.commands.append(Resume(task.id, attempt.epoch))


# Requests
# --------
# What people ask of a task: to end it, to let it stand still and go on, and to run it again. What is asked in vain changes nothing.


CANCELLED = "cancelled"
"""`Stop.why` when a person asked."""


def cancel(board: Board, task_id: str) -> None:
    """End the task, and all that its agent added and theirs, and the candidates of a group: nobody is left who would take what they come
    to."""
    waiting = deque([task_id])
    while waiting:
        children = [child.id for child in board.draft.unfinished_children(waiting[0])] + _candidates(board, waiting[0])
        _cancel(board, waiting.popleft())
        waiting.extend(children)


def _candidates(board: Board, task_id: str) -> list[str]:
    """What a group waits for, and has not ended."""
    group = board.draft.get(task_id)
    if group is None or not group.decide:
        return []
    return [task.id for task in board.draft.known(sorted(group.after)) if task.state not in FINAL]


def _cancel(board: Board, task_id: str) -> None:
    task = board.draft.get(task_id)
    if task is None or task.state in FINAL:
        return
    if task.attempt is None:
        board.set_state(task, "cancel", "cancelled before it started" if not task.epoch else CANCELLED)
        board.final(task_id)
    elif task.attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING):
        board.stop(task, task.attempt, CANCELLED)
    elif task.attempt.stop_why != CANCELLED:
        # It is ending for a reason of its own, and that stays its end; but whatever that is, it shall not run again.
        board.draft.put(replace(task, attempt=replace(task.attempt, stop_why=CANCELLED)))
        board.commands.append(Stop(task_id, task.attempt.epoch, CANCELLED))


def pause(board: Board, task_id: str) -> None:
    """Hold it back until a person resumes it: its agent stands still, or it does not start."""
    task = board.draft.get(task_id)
    if task is None or not may_pause(task):
        return
    if task.attempt is not None:
        board.pause(task, task.attempt, Until.PERSON)
    else:
        board.set_state(task, "pause", "")


def resume(board: Board, task_id: str) -> None:
    """Let it wait for its start again, or for a slot on which its agent goes on."""
    task = board.draft.get(task_id)
    if task is None:
        return
    if task.state is TaskState.PAUSED:
        board.set_state(task, "resume", "")
        board.look_at_needs(task_id)
    elif task.state is TaskState.PARKED:
        board.set_state(task, "unpark", "")
    elif task.attempt is not None and is_held_back(task):
        board.await_slot(task, task.attempt)


def retry(board: Board, task_id: str) -> None:
    """Let a task that has ended run again, with its tally forgotten."""
    task = board.draft.get(task_id)
    if task is None or task.state not in FINAL:
        return
    cause = f"retry asked; was {task.state}"
    state = task_after(task.state, "retry")
    again = replace(task, state=state, tally=NEW, not_before=0.0, start_by=0.0, cause=cause, notes_seen=frozenset())
    board.draft.put(again)
    board.commands.append(Revive(task_id, cause))
    board.look_at_needs(task_id)


def may_pause(task: Task) -> bool:
    """Whether a person's pause would change anything: it has not ended, it is not ending, and no person has paused it."""
    if task.attempt is None:
        return task.state in (TaskState.WAITING, TaskState.READY) and not task.decide
    return task.attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING) and not is_held_back(task)


def is_held_back(task: Task) -> bool:
    """Whether a person has paused it, and not resumed it since."""
    if task.attempt is None:
        return task.state is TaskState.PAUSED
    paused = task.attempt.paused
    return (
        paused is not None
        and paused.until is Until.PERSON
        and task.attempt.state
        in (
            AttemptState.LAUNCHING,
            AttemptState.RUNNING,
        )
    )
