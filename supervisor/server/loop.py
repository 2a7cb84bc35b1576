"""The supervisor's loop: observe, decide, act, wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import assert_never

from supervisor.contract import Services
from supervisor.gateway.provider_keys import Log
from supervisor.host.clock import Clock, busy_s
from supervisor.host.failpoint import failpoint
from supervisor.kernel.audit import Level, Said
from supervisor.kernel.crew import Attempt, Crew, Order
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
)
from supervisor.kernel.errors import DiskFull, LedgerError, NightcrewError, NotRunning, Refused
from supervisor.kernel.events import AdmissionChanged, Event, Secured, Started, Submitted
from supervisor.kernel.retry import JITTER
from supervisor.kernel.schedule import held_tasks, wakes_at
from supervisor.kernel.settings import Settings
from supervisor.kernel.spec import Submission, TaskSpec
from supervisor.kernel.states import FINAL, AttemptState, End
from supervisor.server.attempts.agents import Agents
from supervisor.server.attempts.jobs import AttemptJobs, Doors, Hooked, Jobs, Key, leave
from supervisor.server.attempts.limits import lent
from supervisor.server.attempts.observe import Seen
from supervisor.server.attempts.pausing import Pausing, Terms
from supervisor.server.gateway import GatewayKeeper
from supervisor.server.hooks import Hooks
from supervisor.server.machine import Machine, why_held
from supervisor.server.wakeups import was_set
from supervisor.store.ledger import Ledger, Settle
from supervisor.store.rows import AttemptRow

# Alerts
# ------
# What a person should see of the supervisor, in its terminal, in `ping` and in the live view; and in a log for programs where one
# is asked for.


_FREE = re.compile(r"\d+ bytes free")
KEPT = 20


class Alerts:
    """The newest ones, the last said at the end."""

    def __init__(self, log: Log | None = None) -> None:
        """`log`: of JSON, which gets them too."""
        self.newest: list[str] = []
        self.log = log

    def say(self, said: Said) -> None:
        """Once while it stays the same but for how much is free on a full disk."""
        text = str(said)
        if _FREE.sub("", text) in [_FREE.sub("", before) for before in self.newest[-3:]]:
            return
        self.newest.append(text)
        del self.newest[:-KEPT]
        with contextlib.suppress(OSError):  # the terminal may be gone; the alert is kept
            self._print(said)
        if self.log is not None:
            self.log.say(said, Level.WARNING)

    def _print(self, said: Said) -> None:
        if self.log is None or sys.stderr.isatty():
            print(f"nightcrew: {said}", file=sys.stderr, flush=True)
        elif not self.log.is_at(2):
            print(self.log.shown(said, Level.WARNING), file=sys.stderr, flush=True)


# Submissions
# -----------
# Submissions that arrive at one moment are one commit: the disk is waited for once, and each is on it before it is answered.


_TURNS = 8
"""Of the event loop: what has arrived at the socket by now is a request after so many."""
Made = tuple[str, bool]
"""As `Ledger.submit` returns it."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    submission: Submission
    run: str
    settle: Settle | None
    made: asyncio.Future[Made]


class Submissions:
    """One supervisor's. It belongs to one event loop."""

    def __init__(self, ledger: Ledger, clock: Clock, hooks: Hooks, offer: Callable[[Iterable[Event]], None]) -> None:
        """`offer` gets the events of each new run as soon as it is committed, also when its client has left meanwhile."""
        self._ledger, self._clock, self._hooks, self._offer = ledger, clock, hooks, offer
        self._waiting: list[_Waiting] = []
        self._committing: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> int:
        """That wait for their commit."""
        return sum(len(one.submission.spec.tasks) for one in self._waiting)

    def has(self, run: str) -> bool:
        """Whether a run of this id waits for its commit."""
        return any(one.run == run for one in self._waiting)

    async def commit(self, submission: Submission, run: str, settle: Settle | None = None) -> Made:
        """Commit as `Ledger.submit` does, together with all others that wait now. `settle` has the last word, see `Ledger.submit_all`."""
        loop = asyncio.get_running_loop()
        one = _Waiting(submission, run, settle, loop.create_future())
        self._waiting.append(one)
        if self._committing is None or self._committing.done():
            self._committing = loop.create_task(self._commit())
        return await one.made

    async def _commit(self) -> None:
        while self._waiting:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            batch, self._waiting = self._waiting, []
            for one, made in zip(batch, self._made(batch), strict=True):
                if not isinstance(made, NightcrewError) and made[1]:
                    failpoint("submit.committed")
                    self._taken(made[0], one.submission.spec.tasks if one.settle is None else ())
                if one.made.done():  # the client left
                    continue
                if isinstance(made, NightcrewError):
                    one.made.set_exception(made)
                else:
                    one.made.set_result(made)

    def _taken(self, run: str, known: tuple[TaskSpec, ...]) -> None:
        """Offer the tasks of a committed run, after those of earlier runs that they come after: the loop forgets tasks that have ended."""
        now = self._clock.monotonic()
        tasks = self._ledger.tasks_of_run(run, now, known)
        needed = sorted({need for task in tasks for need in task.after} - {task.id for task in tasks})
        before = [self._ledger.task(need, now) for need in needed]
        self._offer([*self._hooks.begins(self._ledger, run), Submitted((*before, *tasks))])

    def _made(self, batch: list[_Waiting]) -> list[Made | NightcrewError]:
        try:
            settle = {one.run: one.settle for one in batch if one.settle is not None}
            return self._ledger.submit_all([(one.submission, one.run) for one in batch], settle)
        except LedgerError as error:
            if len(batch) == 1:
                return [error]
            return [made for one in batch for made in self._made([one])]  # one of them cannot be written: the others can
        except NightcrewError as error:  # a full disk, for all of them
            return [error] * len(batch)


# Loop
# ----
# The loop: observe, decide, act, wait. Everything it knows can be read again from the ledger and the machine, so it may die at any
# moment; everything it does to the outside is done by jobs in threads, so a hung tmux or git never stops it.
#
# Rules: 1. A decision is committed before it is acted upon; a failed commit leaves the crew as it was and the events are offered
# again. 2. One job a time for one attempt. While an attempt has a job, observation leaves it alone: the job knows better. 3. A look
# that failed is no evidence. Only a look that succeeded and saw nothing says that nothing is there.


TICK_S = 1.0
"""How often the truth is looked at when no hint came. A dead agent is seen at the latest after this."""
SETTLE_S = 0.02
"""Hints that come together are looked at together: 200 agents that end at once cost a few looks, not 200."""
GATHER_S = 0.005
"""A slot that became free is given on after this long, without waiting for a step: what ends meanwhile is one commit with it."""
EAGER_S = 0.5
"""After a hint, look again for this long: a runner hints just before it exits, so the first look may still see it alive. Each wait is as
long as all the time since the hint, so an end is seen after at most twice the time that it took, and few looks see nothing new."""
DRAIN_S = 30.0
TICKS = 256


@dataclass(slots=True)
class _Pace:
    """When the loop rested and was hinted at last, in monotonic seconds, and what ends a rest."""

    rested_from: float = 0.0
    hinted_at: float = -EAGER_S
    drain_s: float = DRAIN_S
    gives_slots: bool = False
    """A decision that gives on free slots is due."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to end the rest."""


class Loop:
    """One supervisor's main loop. Build it with `wiring.build`, run it with `run`."""

    def __init__(self, doors: Doors, settings: Settings, hooks: Hooks, clock: Clock, alerts: Alerts | None = None) -> None:
        self.alerts = alerts or Alerts()
        self.doors, self.hooks, self.services = doors, hooks, Services()
        self.ledger, self.home = doors.ledger, doors.home
        self.submissions = Submissions(doors.ledger, clock, hooks, self.events)
        self.settings, self.clock = settings, clock
        self.crew = Crew(slots=settings.slots, order=Order(settings.weights, settings.ageing_s, settings.admission, JITTER))
        self.stopping = False
        self.ready = False
        """Recovery is over: every attempt of the ledger is adopted, or has the job that it needs."""
        self.ticks: deque[float] = deque(maxlen=TICKS)
        """Seconds of processor time that the newest steps took of this thread, with what jobs did on it meanwhile."""
        self._pending: list[Event] = []
        self._pace = _Pace()
        denied = functools.partial(hooks.denied, self)
        hooked = Hooked(
            denied,
            lambda task, epoch: self.agents.evidence.called(task, epoch),
            lambda key: self.agents.evidence.of(key)[0],
            settings.memory.leases,
        )
        self.jobs = Jobs(doors, clock, self._told, self.alert, hooked)
        self._under_way = AttemptJobs(self.alert, lambda: self.stopping, self.jobs.waiting, self.wake)
        self.machine = Machine(doors, self.jobs, settings, clock, self.alert)
        self.machine.admission.quiet_sources.append(self.no_gateway)
        self.machine.admission.codes[self.no_gateway] = "gateway"
        self.agents = Agents(doors, self.jobs, clock, settings, lambda event: self.events([event]))
        terms = Terms(settings, self._told, lambda: self.stopping)
        self.pausing = Pausing(doors, self.jobs, clock, self.machine.emergency, terms)

    def alert(self, said: Said) -> None:
        """Show a person a sentence, once while it stays the same."""
        self.alerts.say(said)

    async def settled(self, key: Key) -> None:
        """Wait until no job of an attempt is under way."""
        await self._under_way.settled(key)

    # The loop ------------------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Recover, then step until told to stop; then let the jobs under way finish. Agents go on without us."""
        gc.set_threshold(50_000)  # tasks are no garbage: by default, 700 new objects, accepting 10,000 of them is a fifth slower
        await self._recover()
        self.ready = True
        while not self.stopping:
            began = busy_s()
            await self._step()
            self.ticks.append(busy_s() - began)
            self._pace.rested_from = self.clock.monotonic()
            await self._wait()
        await self._drain()

    async def _step(self) -> None:
        self._pending += self.machine.look(self.crew)
        if self._pending:
            self._offer()
        await self._observe()
        self._offer()
        self.machine.note(self.crew)
        if not self.crew.stopped:
            self.agents.sending.step(self.crew)
            self.pausing.step(self.crew)
        if held_tasks(self.crew):
            self.alert(why_held(self.crew.held_back))
        self.hooks.step(self)

    async def _wait(self) -> None:
        timeout = TICK_S
        if (soonest := wakes_at(self.crew)) is not None:
            timeout = min(timeout, max(SETTLE_S, soonest - self.clock.monotonic()))
        if (since := self.clock.monotonic() - self._pace.hinted_at) < EAGER_S:
            timeout = min(timeout, max(2 * SETTLE_S, since))
        if await was_set(self._pace.wake, timeout):
            await asyncio.sleep(max(0.0, self._pace.rested_from + SETTLE_S - self.clock.monotonic()))
        self._pace.wake.clear()

    def wake(self) -> None:
        """Step soon: a job ended, or a person asked."""
        self._pace.wake.set()

    def hint(self) -> None:
        """Something happened to an attempt. What the hint says is not read: looking is the only truth."""
        self._pace.hinted_at = self.clock.monotonic()
        self.wake()

    def stop(self, *, now: bool = False) -> None:
        """Leave after this step; `now` does not wait for jobs under way. For signal handlers and `down`."""
        self.stopping = True
        self._pace.drain_s = 0.0 if now else DRAIN_S
        self.wake()

    async def _drain(self) -> None:
        """Give the launches and finishes under way their time, then leave; what is cut off is found by recovery."""
        self._pending.append(AdmissionChanged(False))
        deadline = self.clock.monotonic() + self._pace.drain_s
        while self._under_way and (left := deadline - self.clock.monotonic()) > 0:
            await self._under_way.one_ended(left)
            await asyncio.sleep(0)
            self._offer()
        if self._under_way:
            # Their threads would go on acting after the lock is given back. Dying with them is safe, it is what recovery is for.
            self.alert(f"left {len(self._under_way)} jobs under way; the next supervisor finds them")
            os._exit(0)

    # Decide ----------------------------------------------------------------------------------------------------------------------------

    def feed(self, *events: Event) -> list[Command]:
        """Decide on these events, commit, act. Raises what the commit raises, and then nothing has changed."""
        events = (*self.machine.emergency.news(self.crew), *events)
        change, commands = decide(self.crew, events, self.clock.monotonic(), self.clock.wall())
        self.ledger.commit(commands)
        self.crew.apply(change)
        for command in commands:
            self._act(command)
        return commands

    def refuse_early(self) -> None:
        """Raises NotRunning before recovery is over."""
        if not self.ready:
            raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")

    def ask(self, *events: Event) -> list[Command]:
        """As `feed`, for what a person asks: together with all that is pending, which may be what makes the task known.

        Raises NotRunning before recovery is over: until then no task is known, and a request about one would be lost.
        """
        self.refuse_early()
        pending, self._pending = self._pending, []  # what acting offers comes with the next step
        try:
            return self.feed(*pending, *events)
        except Exception:  # of any kind: nothing has changed
            self._pending[:0] = pending
            raise

    def _offer(self) -> None:
        """Feed what was observed; keep it for the next step when the disk or the ledger refuses."""
        events, self._pending = self._pending, []
        try:
            self.feed(*events)
        except (DiskFull, LedgerError, Refused) as error:
            # Once each: what was observed is observed again in every tick until the commit succeeds.
            self._pending = list(dict.fromkeys([*events, *self._pending]))
            self.alert(error)

    def _told(self, event: Event) -> None:
        """Take what a job tells. A step can take as long as tmux needs to answer: no free slot waits for that."""
        self._pending.append(event)
        if isinstance(event, Secured) and not self._pace.gives_slots:
            self._pace.gives_slots = True
            asyncio.get_running_loop().call_later(GATHER_S, self._give_slots)

    def _give_slots(self) -> None:
        self._pace.gives_slots = False
        if self._pending and self.ready and not self.stopping:
            self._pending += self.machine.look(self.crew)
            self._offer()

    # Act -------------------------------------------------------------------------------------------------------------------------------

    def _act(self, command: Command) -> None:
        match command:
            case Start(task, epoch, _):
                failpoint("launch.committed")
                self._under_way.start((task, epoch), self.jobs.launch, self.jobs.give_up)
            case Begin(task, epoch):
                failpoint("begin.committed")
                self._under_way.start((task, epoch), self.jobs.begin, self.jobs.give_up)
            case Stop(task, epoch, why):
                failpoint("stop.committed")
                # Of one that was ending already as the stop was asked its own end goes on.
                if (living := self._attempt(task)) is not None and living.state is AttemptState.STOPPING:
                    self._under_way.start((task, epoch), functools.partial(self.jobs.stop, why=why), self.jobs.give_up)
            case Pause(task, epoch, _, _):
                failpoint("pause.committed")
                # One whose command waits for others to begin is paused as it begins.
                if (living := self._attempt(task)) is None or not living.held:
                    self._under_way.start((task, epoch), self.pausing.pause, leave)
            case Resume(task, epoch):
                failpoint("resume.committed")
                self._under_way.start((task, epoch), self.pausing.resume, leave)
            case Collect(task, epoch, end, cause):
                failpoint("finish.collect-committed")
                self._collect((task, epoch), end, cause)
            case Finish(task, epoch):
                failpoint("finish.committed")
                self.machine.capacity.ended((task, epoch))
                self._under_way.start((task, epoch), self.jobs.release, None)
            case Choose():
                failpoint("choice.committed")
            case MarkRunning() | SetState() | Revive() | MoveNight() | LookForNote() | Compare():
                pass
            case _:
                assert_never(command)
        self.hooks.act(self, command)

    def no_gateway(self) -> str:
        """Return why no agent can reach a model now, '' when an agent can. A person has been told already."""
        keeper = self.services.find(GatewayKeeper)
        return keeper.why_not() if keeper is not None else ""

    def _collect(self, key: Key, end: End, cause: str) -> None:
        collect = functools.partial(self.jobs.collect, end=end, cause=cause)
        self._under_way.start(key, collect, functools.partial(self.jobs.not_secured, end=end, cause=cause))

    def _attempt(self, task: str) -> Attempt | None:
        found = self.crew.tasks.get(task)
        return None if found is None else found.attempt

    # Observe ---------------------------------------------------------------------------------------------------------------------------

    async def _observe(self) -> None:
        watched = [
            (task.id, task.attempt.epoch)
            for task in self.crew.living.values()
            if task.attempt is not None
            and task.attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING)
            and (task.id, task.attempt.epoch) not in self._under_way
        ]
        if not watched and not self.jobs.doubtful:
            return
        try:
            seen = await self.jobs.within(self.jobs.stoppers, self.doors.observer.look, watched)
        except NightcrewError as error:
            self.alert(error)
            self.jobs.doubtful = True
            return
        self.jobs.doubtful = False
        live = [key for key, what in seen.items() if what is Seen.LIVE]
        self.agents.step(live)
        for key, what in seen.items():
            self._interpret(key, what)

    def _interpret(self, key: Key, what: Seen) -> None:
        task = self.crew.tasks.get(key[0])
        if key in self._under_way or task is None or task.attempt is None or task.attempt.epoch != key[1]:
            return
        match what:
            case Seen.STARTING:
                pass
            case Seen.LIVE | Seen.WORKED if task.attempt.state is AttemptState.LAUNCHING:
                self._pending.append(Started(*key))
            case Seen.LIVE:
                pass
            case Seen.WORKED:
                self._under_way.start(key, self.jobs.secure_for_gate, self.jobs.begin_gate)
            case Seen.ENDED | Seen.GONE:
                self._under_way.start(key, functools.partial(self.jobs.gone, swept=what is Seen.ENDED), self.jobs.give_up)
            case _:
                assert_never(what)

    # Recover ---------------------------------------------------------------------------------------------------------------------------

    def _unpinned(self, rows: Iterable[AttemptRow]) -> list[Key]:
        """The attempts that ask for no cores of their own."""
        free = (row for row in rows if not self.ledger.launch_row(row.task).spec.cores)
        return [(row.task, row.epoch) for row in free if (spec := lent(self.ledger, row)) is None or not spec.cores]

    async def _recover(self) -> None:
        """Read the ledger and give every attempt that has no end, or whose session may be left, the job that it needs next."""
        self.machine.timekeeping.note_boot(self.home)
        rows = self.ledger.unreleased()
        while True:
            try:
                seen = await self.jobs.within(self.jobs.stoppers, self.doors.observer.recover, rows)
                await self.jobs.within(self.jobs.stoppers, self.doors.ending.close_strays, list(seen))
                await self.jobs.within(self.jobs.stoppers, self.doors.ending.pin_again, self._unpinned(rows))
                break
            except NightcrewError as error:
                # Without a look nothing may be called lost; tmux gets another chance.
                self.alert(error)
                if self.stopping:
                    return
                await asyncio.sleep(TICK_S)
        for row in rows:
            self._resume((row.task, row.epoch), row, seen[row.task, row.epoch])
        # First of all, so that whatever the jobs above observe meets a known task; the first step looks at the disk before it starts any.
        self._pending[:0] = [*self.hooks.begins(self.ledger), Submitted(self.ledger.unfinished(self.clock.monotonic()))]

    def _resume(self, key: Key, row: AttemptRow, what: Seen | None) -> None:
        match row.state:
            case AttemptState.ENDED:
                self._under_way.start(key, self.jobs.release, None)
            case AttemptState.COLLECTING:
                self._collect(key, End(row.judged or End.LOST), row.end_cause)
            case AttemptState.STOPPING:
                self._under_way.start(key, functools.partial(self.jobs.stop, why=row.stop_why), self.jobs.give_up)
            case AttemptState.LAUNCHING if what is None:
                self._under_way.start(key, self.jobs.launch, self.jobs.give_up)
            case _ if what in (None, Seen.ENDED, Seen.GONE):
                self._under_way.start(key, functools.partial(self.jobs.gone, swept=what is Seen.ENDED), self.jobs.give_up)
            case _ if row.server_pid is None:
                self._under_way.start(key, self.jobs.adopt, leave)
        if what in (Seen.LIVE, Seen.WORKED) and (job := self.pausing.job_of(row)):
            self._under_way.start(key, job, leave)

    def queued(self) -> int:
        """Return how many unfinished tasks there are, with those that are being committed and those that the next step takes in."""
        pending = (event.tasks for event in self._pending if isinstance(event, Submitted))
        coming = {task.id for tasks in pending for task in tasks if task.state not in FINAL} - self.crew.tasks.keys()
        return self.crew.counts.total() + len(coming) + self.submissions.tasks

    def later(self, event: Event) -> None:
        """Take an event with the next decision, which is not made sooner for it."""
        self._pending.append(event)

    def events(self, events: Iterable[Event]) -> None:
        """Offer events at the next step."""
        self._pending.extend(events)
        self.wake()
