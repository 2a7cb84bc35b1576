"""decide(crew, events, now) -> (crew, commands): what happens to the crew and what time does to it. What people ask is in `requests`.

Events of an epoch that is not the task's live attempt are stale and change nothing: they come from a crash, a race or a late
writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import assert_never

from supervisor.kernel import decision, events, pressure, retry, schedule
from supervisor.kernel.crew import Attempt, Change, Crew, Task
from supervisor.kernel.decision import Begin, Board, Collect, Command, Finish, MarkRunning, Start
from supervisor.kernel.events import (
    AdmissionChanged,
    BatchTimeChanged,
    CancelAsked,
    Chosen,
    CrewEvent,
    EmergencyChanged,
    Event,
    LeasesChanged,
    LimitPassed,
    NightBegan,
    NightsSpent,
    NoteAppeared,
    ParkAsked,
    PauseAsked,
    PersonNeeded,
    PressureChanged,
    ProviderChanged,
    Question,
    ResumeAsked,
    RetryAsked,
    Secured,
    SlotsChanged,
    StartCostLearned,
    Started,
    StoodStill,
    Submitted,
    TrafficChanged,
    TreeGone,
)
from supervisor.kernel.recovery import AGAIN, LIMIT, PARKED
from supervisor.kernel.retry import Ended, Next
from supervisor.kernel.schedule import Picked, pick
from supervisor.kernel.states import FINAL, NEEDS_YOU, AttemptState, End, TaskState, Until, task_after

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
    board = _Decision(crew, now, wall)
    for event in events:
        board.apply(event)
    board.look_at_health()
    board.enforce_deadlines()
    board.look_at_the_clock()
    schedule.look(board)
    board.end_backoffs()
    board.start_ready()
    board.begin_together()
    return board.draft.change(), board.commands


TOGETHER_MAX_S = 60.0
"""How long the first of a group waits in its pane for the others. A group that has more tasks than slots is refused when it is
submitted; this is for one whose slots others took meanwhile."""


class _Decision(Board):
    """One call of `decide`."""

    def apply(self, event: Event) -> None:
        match event:
            case Submitted(tasks):
                self.submitted(tasks)
            case Started(task, epoch):
                self._with_attempt(task, epoch, self._started)
            case TreeGone(task, epoch, end, cause):
                self._with_attempt(task, epoch, lambda found, attempt: self._tree_gone(found, attempt, end, cause))
            case Secured(task, epoch, end, cause, question):
                self._with_attempt(task, epoch, lambda found, attempt: self._secured(found, attempt, end, cause, question))
            case PersonNeeded(task, epoch, needed):
                self._with_attempt(task, epoch, lambda found, attempt: events.set_aside(self, found, attempt, needed))
            case LimitPassed(task, epoch, why, again):
                said = f"{AGAIN if again else LIMIT}{why}"
                self._with_attempt(task, epoch, lambda found, attempt: self._limit_passed(found, attempt, said))
            case CancelAsked(task):
                decision.cancel(self, task)
            case PauseAsked(task):
                decision.pause(self, task)
            case ResumeAsked(task):
                decision.resume(self, task)
            case RetryAsked(task):
                decision.retry(self, task)
            case Chosen(choice, end_others):
                left = decision.choose(self, choice)
                for name in left if end_others else ():
                    decision.cancel(self, name)
            case LeasesChanged(task, epoch, globs):
                self._with_attempt(task, epoch, lambda found, at: self.draft.put(replace(found, attempt=replace(at, leases=globs))))
            case StoodStill(task, epoch):
                self._with_attempt(task, epoch, self._stood_still)
            case NoteAppeared(note):
                self.note_appeared(note)
            case ParkAsked(task, epoch):
                self._with_attempt(task, epoch, self._park)
            case _:
                self._apply_to_all(event)

    def _apply_to_all(self, event: CrewEvent) -> None:
        match event:
            case AdmissionChanged(admitting):
                self.draft.admitting = admitting
            case EmergencyChanged(stopped):
                self._stopped(stopped)
            case BatchTimeChanged(batch_time):
                self.draft.batch_time = batch_time
            case SlotsChanged(slots):
                self.draft.slots = slots
            case TrafficChanged():
                self.draft.traffic = event
                self._judge_classes()
            case PressureChanged():
                self.draft.pressure = event
                self._judge_classes()
            case ProviderChanged(why):
                events.provider_said(self, why)
            case NightBegan(night):
                self.draft.nights[night.run] = night
            case NightsSpent(spent):
                known = self.draft.nights
                known |= {run: replace(known[run], spent=usd, unheard=0.0) for run, usd in spent.items() if run in known}
            case StartCostLearned(usd):
                self.draft.start_usd = usd
            case _:
                assert_never(event)

    def _judge_classes(self) -> None:
        now = self.draft
        now.held_back = pressure.held(now.held_back, now.traffic, now.pressure, now.order.limits, self.wall)

    # Attempts --------------------------------------------------------------------------------------------------------------------

    def _with_attempt(self, task_id: str, epoch: int, act: Callable[[Task, Attempt], None]) -> None:
        task = self.draft.get(task_id)
        if task is not None and task.attempt is not None and task.attempt.epoch == epoch:
            act(task, task.attempt)

    def _started(self, task: Task, attempt: Attempt) -> None:
        if attempt.state is AttemptState.LAUNCHING:
            self.move(task, attempt, "started")
            self.commands.append(MarkRunning(task.id, attempt.epoch))
            if not attempt.held:
                self._pause_again(task.id)

    def _pause_again(self, task_id: str) -> None:
        """What was paused before its command began stands still from its first step."""
        task = self.draft.get(task_id)
        if task is not None and task.attempt is not None and task.attempt.paused is not None:
            self.pause(task, task.attempt, task.attempt.paused.until, task.attempt.paused.made_for)

    def _stood_still(self, task: Task, attempt: Attempt) -> None:
        if attempt.state is AttemptState.RUNNING and attempt.paused is not None and not attempt.held:
            self.draft.put(replace(task, attempt=replace(attempt, paused=replace(attempt.paused, still=True))))

    def _park(self, task: Task, attempt: Attempt) -> None:
        if attempt.state is AttemptState.RUNNING and attempt.paused is not None and attempt.paused.still:
            self.stop(task, attempt, PARKED)

    def _tree_gone(self, task: Task, attempt: Attempt, end: End, cause: str) -> None:
        if attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING, AttemptState.STOPPING):
            self.move(task, attempt, "tree gone")
            self.commands.append(Collect(task.id, attempt.epoch, end, cause))
            if attempt.state is not AttemptState.STOPPING or task.id == self._probe:
                events.died(self, task, attempt, end, cause)

    def _secured(self, task: Task, attempt: Attempt, end: End, cause: str, question: Question | None = None) -> None:
        if attempt.state is not AttemptState.COLLECTING:
            return
        if question is None and events.waits(self, task, attempt):
            self.draft.put(replace(task, attempt=replace(attempt, secured=(end, cause))))
            return
        unwanted = attempt.stop_why == decision.CANCELLED
        if parked := end is End.LOST and attempt.stop_why == PARKED:
            then = Next("run again", task.tally)
        else:
            less = self.draft.order.jitter * retry.luck(task.id, attempt.epoch)
            then = retry.after(task.tally, task.retries, Ended(end, cause, self.wall, unwanted, attempt.free, attempt.no_provider), less)
            then = events.instead(then, question)
        if then.event in ("run again", "park") and attempt.paused is not None and attempt.paused.until is Until.PERSON:
            asked = f"{NEEDS_YOU}{attempt.paused.question}" if attempt.paused.question else then.reason
            then = replace(then, event="pause", delay_s=0.0, reason=asked)  # what a person holds stays held, whatever became of the attempt
        state = task_after(task.state, then.event)
        ended = replace(
            task,
            state=state,
            tally=then.tally,
            not_before=self.now + then.delay_s if then.delay_s and state is TaskState.READY else 0.0,
            unpark_at=self.wall + then.delay_s if state is TaskState.PARKED else 0.0,
            since=task.since if parked else self.now,
            cause=f"{end}: {cause}" if cause else str(end),
            attempt=None,
        )
        self.draft.put(ended)
        self.commands.append(Finish(task.id, attempt.epoch, end, cause, state, then.delay_s, then.tally, then.reason, then.question))
        schedule.ended(self, task)
        if state in FINAL:
            self.final(task.id)

    def _limit_passed(self, task: Task, attempt: Attempt, why: str) -> None:
        if attempt.state is AttemptState.RUNNING:
            self.stop(task, attempt, why)

    @property
    def _probe(self) -> str:
        return self.draft.health.outage.probe if self.draft.health.outage is not None else ""

    def look_at_health(self) -> None:
        """Finish what waited to learn whether it died in an outage, and see whether one is over."""
        for task, attempt, end, cause in list(events.settled(self)):
            self._secured(task, attempt, end, cause)
        events.look_at_probe(self)

    # Time ------------------------------------------------------------------------------------------------------------------------

    def _stopped(self, stopped: bool) -> None:
        """Nothing moves, or all of it goes on: then the backstop counts anew, as after a restart."""
        self.draft.stopped = stopped
        for task, attempt in self._with_attempts(task.id for task in self.draft.living()):
            if attempt.state is AttemptState.RUNNING:
                self.draft.put(replace(task, attempt=replace(attempt, since=self.now)))

    def enforce_deadlines(self) -> None:
        for task in self.draft.living() if not self.draft.stopped else ():
            attempt = task.attempt
            if (
                attempt is None
                or attempt.state is not AttemptState.RUNNING
                or attempt.held
                or attempt.paused is not None
                or self.draft.stopped
            ):
                continue
            if task.timeout_s and self.now - attempt.since > task.timeout_s + TIMEOUT_BACKSTOP_S:
                self.stop(task, attempt, "timeout")

    def look_at_the_clock(self) -> None:
        """End what has not started in time, let what must soon be done go before others, and what was parked wait for its start again."""
        for task in self.draft.due(self.wall):
            if task.state is TaskState.PARKED:
                self.set_state(task, "unpark", "")
            elif task.start_by and task.start_by <= self.wall and not task.epoch:
                self.set_state(task, "expire", "did not start in time (not_after)")
                self.final(task.id)
            else:
                self.draft.put(replace(task, urgent=True))

    def end_backoffs(self) -> None:
        """Drop backoffs that are over: the loop sleeps until the earliest left, and a task that only waits for a slot needs none."""
        for task in self.draft.rested(self.now):
            self.draft.put(replace(task, not_before=0.0))

    def start_ready(self) -> None:
        schedule.let_go(self.draft)
        picked = pick(self.draft, self.now)
        tasks = picked.tasks
        if self.draft.health.outage is not None:
            tasks = events.probe(self)
        else:
            self.draft.share, self.draft.passed_over = picked.share, picked.passed_over
        for task in self.draft.known(tasks):
            epoch = task.epoch + 1
            attempt = Attempt(epoch, AttemptState.LAUNCHING, self.now, held=bool(task.together))
            self.draft.put(replace(task, state=task_after(task.state, "start"), epoch=epoch, attempt=attempt))
            self.commands.append(Start(task.id, epoch, task.cause))
        schedule.hold_up(self.draft, picked.held_up)
        self._make_room(picked)

    def _make_room(self, picked: Picked) -> None:
        """Let paused attempts go on, and pause others for what shall start on their slots."""
        for task, attempt in self._with_attempts(picked.resumed):
            self.go_on(task, attempt)
        for task, attempt in self._with_attempts(name for name in self.resumed if name not in picked.resumed):
            self.pause(task, attempt, Until.SLOT)
        for task, attempt in self._with_attempts(picked.preempted if self.draft.health.outage is None else ()):
            self.pause(task, attempt, Until.SLOT, picked.preempted[task.id])

    def _with_attempts(self, names: Iterable[str]) -> list[tuple[Task, Attempt]]:
        return [(task, task.attempt) for task in self.draft.known(names) if task.attempt is not None]

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
                self._pause_again(task.id)


def _on_its_way(task: Task) -> bool:
    """Whether its runner may still come up in this round."""
    if task.attempt is not None:
        return task.attempt.state is AttemptState.LAUNCHING
    return task.state not in FINAL
