"""decide(crew, events, now) -> (crew, commands): everything that changes a task's fate is in this file.

Events of an epoch that is not the task's live attempt are stale and change nothing: they come from a crash, a race or a late
writer. A task's dependents are looked at when it reaches a final state, never by polling.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import assert_never

from supervisor.core.backoff import backoff_s
from supervisor.core.crew import (
    AdmissionChanged,
    BatchTimeChanged,
    Begin,
    CancelAsked,
    Change,
    Collect,
    Command,
    Crew,
    Event,
    Finish,
    LimitPassed,
    MarkRunning,
    Resume,
    ResumeAsked,
    RetryAsked,
    Revive,
    Secured,
    SetState,
    Start,
    Started,
    Stop,
    Submitted,
    Suspend,
    SuspendAsked,
    TrafficChanged,
    TreeGone,
)
from supervisor.core.draft import Draft
from supervisor.core.recovery import LIMIT
from supervisor.core.scheduler import held_back, pick
from supervisor.core.states import FINAL, AttemptState, End, TaskState, after_end, attempt_after, task_after
from supervisor.core.task import Attempt, Task

CANCELLED = "cancelled"
"""`Stop.why` when a person asked."""

TIMEOUT_BACKSTOP_S = 30.0
"""The runner keeps the deadline itself, since the daemon may be dead. This long after it, a live attempt's runner is taken to be
stuck (stopped by a signal, for example) and the daemon stops the tree."""


def decide(crew: Crew, events: Iterable[Event], now: float, wall: float = 0.0) -> tuple[Change, list[Command]]:
    """Apply `events` to the crew, then check deadlines and what can start. `now` is monotonic seconds; `wall` is seconds since 1970, by
    which a task expires or becomes urgent.

    Returns what changes, for `Crew.apply` once the commands are committed, and the commands in the order in which they must be. The
    crew itself is left alone. Raises nothing: what cannot be is ignored as stale, and what a person asks in vain is refused before it
    becomes an event.
    """
    board = _Board(crew, now, wall)
    for event in events:
        board.apply(event)
    board.enforce_deadlines()
    board.look_at_the_clock()
    board.end_backoffs()
    board.start_ready()
    board.begin_together()
    return board.draft.change(), board.commands


TOGETHER_MAX_S = 60.0
"""How long the first of a group waits in its pane for the others. A group that has more tasks than slots is refused when it is
submitted; this is for one whose slots others took meanwhile."""


class _Board:
    """The state of one call of `decide`: the crew as it becomes, and the commands so far."""

    def __init__(self, crew: Crew, now: float, wall: float) -> None:
        self.draft = Draft(crew)
        self.now = now
        self.wall = wall
        self.commands: list[Command] = []

    def apply(self, event: Event) -> None:
        match event:
            case Submitted(tasks):
                self._submitted(tasks)
            case Started(task, epoch):
                self._with_attempt(task, epoch, self._started)
            case TreeGone(task, epoch, end, cause):
                self._with_attempt(task, epoch, lambda found, attempt: self._tree_gone(found, attempt, end, cause))
            case Secured(task, epoch, end, cause):
                self._with_attempt(task, epoch, lambda found, attempt: self._secured(found, attempt, end, cause))
            case LimitPassed(task, epoch, why):
                self._with_attempt(task, epoch, lambda found, attempt: self._limit_passed(found, attempt, why))
            case CancelAsked(task):
                self._cancel_with_children(task)
            case SuspendAsked(task):
                self._suspend(task)
            case ResumeAsked(task):
                self._resume(task)
            case RetryAsked(task):
                self._retry(task)
            case AdmissionChanged(admitting):
                self.draft.admitting = admitting
            case BatchTimeChanged(batch_time):
                self.draft.batch_time = batch_time
            case TrafficChanged(delay_s, parked):
                self.draft.held_back = held_back(self.draft.held_back, delay_s, parked=parked)
            case _:
                assert_never(event)

    # Tasks and what they come after ----------------------------------------------------------------------------------------------

    def _submitted(self, tasks: tuple[Task, ...]) -> None:
        new = [task for task in tasks if self.draft.get(task.id) is None]
        for task in new:
            self.draft.put(task)
        for task in new:
            self._look_at_needs(task.id)

    def _look_at_needs(self, task_id: str) -> None:
        """Judge a task by the state of everything that it comes after."""
        task = self.draft.get(task_id)
        if task is not None and self._moved_on(task, list(self.draft.known(sorted(task.after)))):
            self._final(task_id)

    def _final(self, task_id: str) -> None:
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
        lost_hope = next(filter(None, (self._lost_hope(task, need) for need in news)), "")
        if lost_hope:
            self._set_state(task, "blocked for ever", lost_hope)
            return True
        if all(need.state in FINAL for need in self.draft.known(task.after - task.after_any)) and self._one_is_enough(task):
            self._set_state(task, "unblocked", "")
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

    def _set_state(self, task: Task, event: str, reason: str) -> None:
        state = task_after(task.state, event)
        self.draft.put(replace(task, state=state, since=self.now if state is TaskState.READY else task.since))
        self.commands.append(SetState(task.id, state, reason))

    # Attempts --------------------------------------------------------------------------------------------------------------------

    def _with_attempt(self, task_id: str, epoch: int, act: Callable[[Task, Attempt], None]) -> None:
        task = self.draft.get(task_id)
        if task is not None and task.attempt is not None and task.attempt.epoch == epoch:
            act(task, task.attempt)

    def _move(self, task: Task, attempt: Attempt, event: str, stop_why: str | None = None) -> None:
        state = attempt_after(attempt.state, event)
        moved = replace(attempt, state=state, since=self.now, stop_why=attempt.stop_why if stop_why is None else stop_why)
        self.draft.put(replace(task, attempt=moved))

    def _started(self, task: Task, attempt: Attempt) -> None:
        if attempt.state is AttemptState.LAUNCHING:
            self._move(task, attempt, "started")
            self.commands.append(MarkRunning(task.id, attempt.epoch))

    def _tree_gone(self, task: Task, attempt: Attempt, end: End, cause: str) -> None:
        if attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING, AttemptState.STOPPING):
            self._move(task, attempt, "tree gone")
            self.commands.append(Collect(task.id, attempt.epoch, end, cause))

    def _secured(self, task: Task, attempt: Attempt, end: End, cause: str) -> None:
        if attempt.state is not AttemptState.COLLECTING:
            return
        failures = task.failures + (end in (End.FAILED, End.TIMEOUT))
        losses = task.losses + (end is End.LOST)
        unwanted = attempt.stop_why == CANCELLED
        state = task_after(task.state, after_end(end, failures=failures, losses=losses, retries=task.retries, unwanted=unwanted))
        delay = backoff_s(losses if end is End.LOST else failures) if state is TaskState.READY else 0.0
        ended = replace(
            task,
            state=state,
            failures=failures,
            losses=losses,
            not_before=self.now + delay if delay else 0.0,
            since=self.now,
            cause=f"{end}: {cause}" if cause else str(end),
            attempt=None,
        )
        self.draft.put(ended)
        self.commands.append(Finish(task.id, attempt.epoch, end, cause, state, delay))
        if state in FINAL:
            self._final(task.id)

    def _limit_passed(self, task: Task, attempt: Attempt, why: str) -> None:
        if attempt.state is AttemptState.RUNNING:
            self._stop(task, attempt, f"{LIMIT}{why}")

    # People ----------------------------------------------------------------------------------------------------------------------

    def _cancel_with_children(self, task_id: str) -> None:
        """The task, and all that its agent added and theirs: nobody is left who would take what they come to."""
        queue = deque([task_id])
        while queue:
            children = [child.id for child in self.draft.unfinished_children(queue[0])]
            self._cancel(queue.popleft())
            queue.extend(children)

    def _cancel(self, task_id: str) -> None:
        task = self.draft.get(task_id)
        if task is None or task.state in FINAL:
            return
        if task.attempt is None:
            self._set_state(task, "cancel", "cancelled before it started" if not task.epoch else CANCELLED)
            self._final(task_id)
        elif task.attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING):
            self._stop(task, task.attempt, CANCELLED)
        elif task.attempt.stop_why != CANCELLED:
            # It is ending for a reason of its own, and that stays its end; but whatever that is, it shall not run again.
            self.draft.put(replace(task, attempt=replace(task.attempt, stop_why=CANCELLED)))
            self.commands.append(Stop(task_id, task.attempt.epoch, CANCELLED))

    def _suspend(self, task_id: str) -> None:
        task = self.draft.get(task_id)
        if task is not None and may_suspend(task) and task.attempt is not None:
            self.draft.put(replace(task, attempt=replace(task.attempt, suspended=True)))
            self.commands.append(Suspend(task_id, task.attempt.epoch))

    def _resume(self, task_id: str) -> None:
        task = self.draft.get(task_id)
        if task is not None and task.attempt is not None and task.attempt.suspended and task.attempt.state is AttemptState.RUNNING:
            # Its runner knows what is left of its time; the backstop counts anew, as after a restart.
            self.draft.put(replace(task, attempt=replace(task.attempt, suspended=False, since=self.now)))
            self.commands.append(Resume(task_id, task.attempt.epoch))

    def _retry(self, task_id: str) -> None:
        task = self.draft.get(task_id)
        if task is None or task.state not in FINAL:
            return
        cause = f"retry asked; was {task.state}"
        state = task_after(task.state, "retry")
        again = replace(task, state=state, failures=0, losses=0, not_before=0.0, start_by=0.0, cause=cause)
        self.draft.put(again)
        self.commands.append(Revive(task_id, cause))
        self._look_at_needs(task_id)

    def _stop(self, task: Task, attempt: Attempt, why: str) -> None:
        self._move(task, attempt, "stop", why)
        self.commands.append(Stop(task.id, attempt.epoch, why))

    # Time ------------------------------------------------------------------------------------------------------------------------

    def enforce_deadlines(self) -> None:
        for task in self.draft.living():
            attempt = task.attempt
            if attempt is None or attempt.state is not AttemptState.RUNNING or not task.timeout_s or attempt.held or attempt.suspended:
                continue
            if self.now - attempt.since > task.timeout_s + TIMEOUT_BACKSTOP_S:
                self._stop(task, attempt, "timeout")

    def look_at_the_clock(self) -> None:
        """End what has not started in time, and let what must soon be done go before others."""
        for task in self.draft.due(self.wall):
            if task.start_by and task.start_by <= self.wall and not task.epoch:
                self._set_state(task, "expire", "did not start in time (not_after)")
                self._final(task.id)
            else:
                self.draft.put(replace(task, urgent=True))

    def end_backoffs(self) -> None:
        """Drop backoffs that are over: the loop sleeps until the earliest left, and a task that only waits for a slot needs none."""
        for task in self.draft.rested(self.now):
            self.draft.put(replace(task, not_before=0.0))

    def start_ready(self) -> None:
        picked = pick(self.draft, self.now)
        self.draft.share, self.draft.passed_over = picked.share, picked.passed_over
        for task in self.draft.known(picked.tasks):
            epoch = task.epoch + 1
            attempt = Attempt(epoch, AttemptState.LAUNCHING, self.now, held=bool(task.together))
            self.draft.put(replace(task, state=task_after(task.state, "start"), epoch=epoch, attempt=attempt))
            self.commands.append(Start(task.id, epoch, task.cause))

    def begin_together(self) -> None:
        """Let the held attempts of each group begin once nobody of it is still on its way, or the first one has waited long enough."""
        up: dict[str, list[tuple[Task, Attempt]]] = {}
        for task in self.draft.living():
            if task.attempt is not None and task.attempt.held and task.attempt.state is AttemptState.RUNNING:
                up.setdefault(task.together, []).append((task, task.attempt))
        for name, group in up.items():
            waited = self.now - min(attempt.since for _, attempt in group)
            if waited < TOGETHER_MAX_S and any(map(_on_its_way, self.draft.group(name))):
                continue
            for task, attempt in group:
                self.draft.put(replace(task, attempt=replace(attempt, held=False, since=self.now)))
                self.commands.append(Begin(task.id, attempt.epoch))


def may_suspend(task: Task) -> bool:
    """Whether its agent runs and does not stand still already. One that is held has not begun, so there is nothing to hold."""
    attempt = task.attempt
    return attempt is not None and attempt.state is AttemptState.RUNNING and not attempt.held and not attempt.suspended


def _on_its_way(task: Task) -> bool:
    """Whether its runner may still come up in this round."""
    if task.attempt is not None:
        return task.attempt.state is AttemptState.LAUNCHING
    return task.state not in FINAL
