"""A script for `decide`: what happens on the left of `>>`, what must be commanded on the left of `<<`.

    assert (
        Playbook(slots=1)
        >> submitted(task("a"), task("b"))
        << SetState("a", TaskState.READY, "")
        << SetState("b", TaskState.READY, "")
        << Start("a", 1, "")
        >> After(5)                        # nothing is commanded
    )

`Books` stand for the ledger: they take each command as the ledger does, and refuse what must never be commanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from supervisor.kernel.crew import Attempt, Crew, PauseState, Task
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import (
    Begin,
    Choose,
    Collect,
    Command,
    Compare,
    Finish,
    LookForNote,
    MarkRunning,
    MoveNight,
    Pause,
    Resume,
    Revive,
    SetState,
    Start,
    Stop,
    TaskCommand,
)
from supervisor.kernel.events import Event, Submitted
from supervisor.kernel.night import NightState
from supervisor.kernel.retry import Tally
from supervisor.kernel.states import FINAL, TASK_TRANSITIONS, AttemptState, Choice, TaskState, attempt_after


def task(task_id: str, order: int = 0, *, after: Iterable[str] = (), **facts: Any) -> Task:
    """A waiting task."""
    return Task(task_id, order, after=frozenset(after), **facts)


def submitted(*tasks: Task) -> Submitted:
    return Submitted(tasks)


@dataclass(frozen=True)
class After:
    """Time passes, in seconds, and `decide` looks at the clock."""

    seconds: float


class Playbook:
    """One crew and the script that it goes through. Each command that is given must be expected, in order."""

    def __init__(self, slots: int = 4, now: float = 1000.0) -> None:
        self.crew = Crew(slots=slots)
        self.now, self.wall = now, 0.0
        self.books = Books()
        self._unread: list[Command] = []
        self.commanded: list[Command] = []
        """All of them, read or not."""

    def __rshift__(self, event: Event | After | Sequence[Event]) -> Playbook:
        assert self
        if isinstance(event, After):
            self.now += event.seconds
            return self._decide(())
        return self._decide(event if isinstance(event, Sequence) else (event,))

    def __lshift__(self, expected: Command) -> Playbook:
        """A `Finish` that says nothing of its tally stands for one with any."""
        assert self._unread, f"expected {expected}, and nothing more was commanded"
        found = self._unread.pop(0)
        if isinstance(found, Finish) and isinstance(expected, Finish) and expected.tally == Tally():
            found = replace(found, tally=Tally(), reason="")
        assert found == expected
        return self

    def __bool__(self) -> bool:
        assert self._unread == [], "this was commanded and not expected"
        return True

    def happens(self, *events: Event) -> None:
        """As `>>`, whatever is commanded."""
        self._decide(events)
        self._unread.clear()

    def _decide(self, events: Sequence[Event]) -> Playbook:
        for event in events:
            if isinstance(event, Submitted):
                self.books.submit(event.tasks)
        self.books.wall = self.wall
        change, self._unread = decide(self.crew, events, self.now, self.wall)
        self.commanded += self._unread
        self.books.commit(self._unread, self.now)
        self.crew.apply(change)
        return self


@dataclass
class Books:
    """Every task that was ever submitted, as the commands left it."""

    tasks: dict[str, Task] = field(default_factory=dict)
    slots: int | None = None
    """When given, no start may make more attempts than this alive."""
    wall: float = 0.0
    nights: dict[str, NightState] = field(default_factory=dict)
    """Of those that moved."""
    choices: dict[str, Choice] = field(default_factory=dict)
    """By group."""

    def submit(self, tasks: Iterable[Task]) -> None:
        for new in tasks:
            self.tasks.setdefault(new.id, new)

    def commit(self, commands: Iterable[Command], now: float) -> None:
        for command in commands:
            if isinstance(command, LookForNote | Compare):
                continue
            if isinstance(command, Choose):
                chosen = command.choice
                assert chosen.group not in self.choices, f"a second choice of {chosen.group}"
                assert self.tasks[chosen.group].state is TaskState.DONE, f"{chosen.group} is not done"
                self.choices[chosen.group] = chosen
                continue
            if isinstance(command, MoveNight):
                states = list(NightState)
                before = self.nights.get(command.run, NightState.OPEN)
                assert states.index(command.state) > states.index(before), f"{command} after {before}"
                self.nights[command.run] = command.state
                continue
            self.tasks[command.task] = self._after(self.tasks[command.task], command, now)

    @staticmethod
    def restarted(held: Task, now: float) -> Task:
        """The same task by a new monotonic clock, its backoff over. Whether a held attempt had begun is not kept: it may begin again."""
        attempt = held.attempt
        again = replace(attempt, since=now, held=bool(held.together)) if attempt is not None else None
        return replace(held, not_before=0.0, attempt=again)

    def unfinished(self) -> tuple[Task, ...]:
        """What a restarted supervisor reads: the open tasks and what they come after."""
        open_ones = [held for held in self.tasks.values() if held.state not in FINAL]
        needed = {need for held in open_ones for need in held.after}
        return tuple(held for held in self.tasks.values() if held.state not in FINAL or held.id in needed)

    def _after(self, held: Task, command: TaskCommand, now: float) -> Task:
        match command:
            case Start(_, epoch, cause):
                return self._started(held, epoch, cause, now)
            case MarkRunning(_, epoch):
                return self._stepped(held, epoch, "started", now)
            case Begin(_, epoch):
                return self._begun(held, epoch, now)
            case Stop(_, epoch, why):
                return self._stopped(held, epoch, why, now)
            case Pause(_, epoch, until, made_for, question):
                return self._paused(held, epoch, PauseState(until, now, made_for=made_for, question=question))
            case Resume(_, epoch):
                return self._resumed(held, epoch, now)
            case Collect(_, epoch, _, _):
                return self._stepped(held, epoch, "tree gone", now)
            case Finish():
                return self._finished(held, command, now)
            case SetState(_, state, reason):
                assert held.attempt is None, f"{command} while an attempt lives"
                self._check_move(held, state)
                late = (0 < held.start_by <= self.wall and not held.epoch) or held.night in self.nights
                assert state is not TaskState.EXPIRED or late, f"{held.id} expires too early"
                return replace(held, state=state, cause=reason or held.cause)
            case Revive(_, cause):
                assert held.state in FINAL, f"{command} of a task that is {held.state}"
                return replace(held, state=TaskState.WAITING, tally=Tally(), not_before=0.0, start_by=0.0, cause=cause)

    def _started(self, held: Task, epoch: int, cause: str, now: float) -> Task:
        assert held.state is TaskState.READY, f"{held.id} starts while it is {held.state}"
        assert held.attempt is None, f"{held.id} has a live attempt already"
        assert self.nights.get(held.night, NightState.ENDED) is NightState.ENDED, f"{held.id} starts in a night that closed"
        assert epoch == held.epoch + 1, f"{held.id}: epoch {epoch} after {held.epoch}"
        assert cause or epoch == 1, f"{held.id}:{epoch} is a re-run without a cause"
        assert held.not_before <= now, f"{held.id} starts inside its backoff"
        assert held.epoch or not held.start_by or held.start_by > self.wall, f"{held.id} starts too late"
        alive = sum(other.attempt is not None and other.attempt.holds_slot for other in self.tasks.values())
        made = any(other.attempt and other.attempt.paused and other.attempt.paused.made_for == held.id for other in self.tasks.values())
        assert self.slots is None or alive < self.slots or made, f"{held.id} starts beyond {self.slots} slots"
        return replace(
            held,
            state=TaskState.RUNNING,
            epoch=epoch,
            cause="",
            attempt=Attempt(epoch, AttemptState.LAUNCHING, now, held=bool(held.together)),
        )

    def _stepped(self, held: Task, epoch: int, event: str, now: float) -> Task:
        attempt = self._live(held, epoch)
        return replace(held, attempt=replace(attempt, state=attempt_after(attempt.state, event), since=now))

    def _begun(self, held: Task, epoch: int, now: float) -> Task:
        attempt = self._live(held, epoch)
        assert attempt.held and attempt.state is AttemptState.RUNNING, f"{held.id}:{epoch} begins and was not held"
        return replace(held, attempt=replace(attempt, held=False, since=now))

    def _stopped(self, held: Task, epoch: int, why: str, now: float) -> Task:
        attempt = self._live(held, epoch)
        if attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING):
            return replace(held, attempt=replace(attempt, state=AttemptState.STOPPING, since=now, stop_why=why))
        assert attempt.stop_why != why, f"{held.id}:{epoch} is stopped twice for the same reason"
        return replace(held, attempt=replace(attempt, stop_why=why))

    def _paused(self, held: Task, epoch: int, paused: PauseState) -> Task:
        attempt = self._live(held, epoch)
        assert attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING), f"{held.id}:{epoch} is paused while it is {attempt.state}"
        if attempt.paused is not None:
            before = attempt.paused
            paused = replace(paused, since=before.since, still=before.still, question=paused.question or before.question)
        return replace(held, attempt=replace(attempt, paused=paused))

    def _resumed(self, held: Task, epoch: int, now: float) -> Task:
        attempt = self._live(held, epoch)
        assert attempt.paused is not None, f"{held.id}:{epoch} goes on and was not paused"
        since = now if attempt.state is AttemptState.RUNNING else attempt.since
        return replace(held, attempt=replace(attempt, paused=None, since=since))

    def stood_still(self, name: str) -> None:
        """The job of a pause has done its work, and noted it."""
        held = self.tasks[name]
        if held.attempt is not None and held.attempt.paused is not None and held.attempt.state is AttemptState.RUNNING:
            self.tasks[name] = replace(held, attempt=replace(held.attempt, paused=replace(held.attempt.paused, still=True)))

    def _finished(self, held: Task, done: Finish, now: float) -> Task:
        attempt = self._live(held, done.epoch)
        assert attempt.state is AttemptState.COLLECTING, f"{held.id}:{done.epoch} ends while it is {attempt.state}"
        self._check_move(held, done.state)
        return replace(
            held,
            state=done.state,
            tally=done.tally,
            not_before=now + done.delay_s if done.delay_s and done.state is TaskState.READY else 0.0,
            unpark_at=self.wall + done.delay_s if done.state is TaskState.PARKED else 0.0,
            cause=f"{done.end}: {done.cause}" if done.cause else str(done.end),
            attempt=None,
        )

    def _live(self, held: Task, epoch: int) -> Attempt:
        assert held.attempt is not None and held.attempt.epoch == epoch, f"{held.id}:{epoch} is not its live attempt"
        return held.attempt

    def _check_move(self, held: Task, state: TaskState) -> None:
        assert held.state not in FINAL, f"{held.id} is {held.state}, which is final, and becomes {state}"
        assert state in TASK_TRANSITIONS[held.state].values(), f"{held.id}: {held.state} cannot become {state}"
        if held.state is TaskState.WAITING and state is TaskState.READY:
            enough = FINAL if held.any_end else {TaskState.DONE}
            early = [need for need in held.after - held.after_any if self.tasks[need].state not in enough]
            assert early == [], f"{held.id} is unblocked before {early}"
            one = any(self.tasks[need].state in enough for need in held.after_any)
            assert one or not held.after_any, f"{held.id} is unblocked before any of {sorted(held.after_any)}"
