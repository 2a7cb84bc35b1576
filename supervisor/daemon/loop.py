"""The loop: observe, decide, act, wait. Everything it knows can be read again from the ledger and the machine, so it may die at any
moment; everything it does to the outside is done by jobs in threads, so a hung tmux or git never stops it.

Rules:
1. A decision is committed before it is acted upon; a failed commit leaves the crew as it was and the events are offered again.
2. One job a time for one attempt. While an attempt has a job, observation leaves it alone: the job knows better.
3. A look that failed is no evidence. Only a look that succeeded and saw nothing says that nothing is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, assert_never

from supervisor.core.crew import (
    AdmissionChanged,
    Collect,
    Command,
    Crew,
    Event,
    Finish,
    MarkRunning,
    Revive,
    Secured,
    SetState,
    Start,
    Started,
    Stop,
    Submitted,
    TreeGone,
)
from supervisor.core.decide import decide
from supervisor.core.errors import DiskFull, LedgerError, NightcrewError, NotRunning, Refused, ToolFailed
from supervisor.core.records import attempt_name
from supervisor.core.recovery import SERVER_DIED
from supervisor.core.scheduler import wakes_at
from supervisor.core.spec import Settings
from supervisor.core.states import AttemptState, End
from supervisor.daemon.attempts import Attempts, Cleaning, Seen, facts
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.ledger.ledger import AttemptRow, LaunchRow, Ledger

TICK_S = 1.0
"""How often the truth is looked at when no hint came. A dead agent is seen at the latest after this."""
SETTLE_S = 0.02
"""Hints that come together are looked at together: 200 agents that end at once cost a few looks, not 200."""
DRAIN_S = 30.0
SECURE_PAUSES_S = (0.2, 1.0, 3.0)

Key = tuple[str, int]
Job = Callable[[str, int], Awaitable[None]]


class Loop:
    """One supervisor's life. Build it with `wiring.build`, run it with `run`."""

    def __init__(self, ledger: Ledger, attempts: Attempts, settings: Settings, clock: Clock) -> None:
        self.ledger = ledger
        self.attempts = attempts
        self.settings = settings
        self.clock = clock
        self.crew = Crew(slots=settings.slots)
        self.stopping = False
        self.ready = False
        """Recovery is over: every attempt of the ledger is adopted, or has the job that it needs."""
        self.alerts: list[str] = []
        self.after_step: Callable[[], None] = lambda: None
        self.on_hangup: Callable[[], bool] = lambda: False
        self._pending: list[Event] = []
        self._jobs: dict[Key, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._rested_from = 0.0
        self._drain_s = DRAIN_S
        # Launches are bound by git and the disk: more than a few at once only wait for one another. Stops mostly sleep.
        self._launchers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="launch")
        self._stoppers = ThreadPoolExecutor(max_workers=32, thread_name_prefix="stop")

    # The loop ------------------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Recover, then step until told to stop; then let the jobs under way finish. Agents go on without us."""
        await self._recover()
        self.ready = True
        while not self.stopping:
            await self._step()
            self._rested_from = self.clock.monotonic()
            await self._wait()
        await self._drain()

    async def _step(self) -> None:
        self._watch_disk()
        if self._pending:
            self._offer()
        await self._observe()
        self._offer()
        self.after_step()

    async def _wait(self) -> None:
        timeout = TICK_S
        if (soonest := wakes_at(self.crew.tasks.values())) is not None:
            timeout = min(timeout, max(SETTLE_S, soonest - self.clock.monotonic()))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout)
            await asyncio.sleep(max(0.0, self._rested_from + SETTLE_S - self.clock.monotonic()))
        self._wake.clear()

    def wake(self) -> None:
        """Step soon: a hint arrived, a job ended, or a person asked."""
        self._wake.set()

    def stop(self, *, now: bool = False) -> None:
        """Leave after this step; `now` does not wait for jobs under way. For signal handlers and `down`."""
        self.stopping = True
        self._drain_s = 0.0 if now else DRAIN_S
        self.wake()

    def hangup(self) -> None:
        """The terminal is gone. When the tmux server took it along, `on_hangup` finds another place to talk to and work goes on."""
        if not self.on_hangup():
            self.stop()

    async def _drain(self) -> None:
        """Give the launches and finishes under way their time, then leave; what is cut off is found by recovery."""
        self._pending.append(AdmissionChanged(False))
        deadline = self.clock.monotonic() + self._drain_s
        while self._jobs and (left := deadline - self.clock.monotonic()) > 0:
            await asyncio.wait(self._jobs.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)
            self._offer()
        if self._jobs:
            # Their threads would go on acting after the lock is given back. Dying with them is safe, it is what recovery is for.
            self.alert(f"left {len(self._jobs)} jobs under way; the next supervisor finds them")
            os._exit(0)

    # Decide ----------------------------------------------------------------------------------------------------------------------------

    def feed(self, *events: Event) -> list[Command]:
        """Decide on these events, commit, act. Raises what the commit raises, and then nothing has changed."""
        crew, commands = decide(self.crew, events, self.clock.monotonic())
        self.ledger.commit(commands)
        self.crew = crew
        for command in commands:
            self._act(command)
        return commands

    def ask(self, *events: Event) -> list[Command]:
        """As `feed`, for what a person asks: together with all that is pending, which may be what makes the task known.

        Raises NotRunning before recovery is over: until then no task is known, and a request about one would be lost.
        """
        if not self.ready:
            raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")
        commands = self.feed(*self._pending, *events)
        self._pending.clear()
        return commands

    def _offer(self) -> None:
        """Feed what was observed; keep it for the next step when the disk or the ledger refuses."""
        events, self._pending = self._pending, []
        try:
            self.feed(*events)
        except (DiskFull, LedgerError, Refused) as error:
            # Once each: what was observed is observed again in every tick until the commit succeeds.
            self._pending = list(dict.fromkeys([*events, *self._pending]))
            self.alert(error.line())

    def alert(self, text: str) -> None:
        """Say something a person should see, once while it stays the same."""
        if text not in self.alerts[-3:]:
            self.alerts.append(text)
            del self.alerts[:-20]
            with contextlib.suppress(OSError):  # the terminal may be gone; the alert is kept for `ping` and the live view
                print(f"nightcrew: {text}", file=sys.stderr, flush=True)

    # Act -------------------------------------------------------------------------------------------------------------------------------

    def _act(self, command: Command) -> None:
        match command:
            case Start(task, epoch, _):
                failpoint("launch.committed")
                self._begin((task, epoch), self._launch)
            case Stop(task, epoch, why):
                failpoint("stop.committed")
                if self._is_stopping(task):
                    self._begin((task, epoch), functools.partial(self._stop, why=why))
            case Collect(task, epoch, end, cause):
                failpoint("finish.collect-committed")
                self._begin((task, epoch), functools.partial(self._collect, end=end, cause=cause))
            case Finish(task, epoch):
                failpoint("finish.committed")
                self._begin((task, epoch), self._release)
            case MarkRunning() | SetState() | Revive():
                pass
            case _:
                assert_never(command)

    def _is_stopping(self, task: str) -> bool:
        """Not so when the attempt was ending already as the stop was asked: then its own end goes on."""
        found = self.crew.tasks.get(task)
        return found is not None and found.attempt is not None and found.attempt.state is AttemptState.STOPPING

    def _begin(self, key: Key, job: Job) -> None:
        """Run a job for an attempt, after the one that it may still have."""
        before = self._jobs.get(key)
        self._jobs[key] = asyncio.get_running_loop().create_task(self._until_done(key, job, before))

    async def _until_done(self, key: Key, job: Job, before: asyncio.Task[None] | None) -> None:
        """Jobs may be repeated, so one that failed is tried again: a full disk or a hung tmux must not leave an attempt half-way."""
        if before is not None:
            await asyncio.wait([before])
        try:
            while not await self._tried(key, job) and not self.stopping:
                await asyncio.sleep(TICK_S)
        finally:
            if self._jobs.get(key) is asyncio.current_task():
                del self._jobs[key]
            self.wake()

    async def _tried(self, key: Key, job: Job) -> bool:
        try:
            await job(*key)
        except NightcrewError as error:
            self.alert(f"{attempt_name(*key)}: {error.line()}")
        except Exception as error:  # noqa: BLE001 - a fault in one attempt's job must not end the others; it is shown and tried again
            self.alert(f"{attempt_name(*key)}: {type(error).__name__}: {error}")
        else:
            return True
        return False

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[..., Any], *args: Any) -> Any:
        """Do it in a thread. What the system refuses there, or an agent's data makes impossible, is an error of ours like any other."""
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, *args)
        except OSError as error:
            kind = DiskFull if error.errno in (errno.ENOSPC, errno.EDQUOT) else ToolFailed
            raise kind(f"the system refused to {work.__name__}", on=str(error.filename or ""), why=error.strerror or str(error)) from error
        except ValueError as error:
            raise ToolFailed(f"could not {work.__name__}", why=str(error)) from error

    async def _launch(self, task: str, epoch: int) -> None:
        row = self.ledger.launch_row(task)
        try:
            environment = await self._in(self._launchers, self.attempts.prepare, task, epoch, row)
            self.ledger.note(task, epoch, **facts(environment))
            failpoint("launch.noted")
            pane = await self._in(self._launchers, self.attempts.spawn, task, epoch, row, environment)
        except (DiskFull, LedgerError):
            raise  # says nothing about the agent, which may live already; the next try finds it
        except NightcrewError as error:
            # What we were told failed may still have happened: nothing of it may live when the attempt is called gone.
            await self._in(self._stoppers, self.attempts.stop, task, epoch)
            # A refusal is about this task and will be the same next time; anything else is the machine's doing and is re-run.
            end = End.FAILED if isinstance(error, Refused) else End.LOST
            self._pending.append(TreeGone(task, epoch, end, f"could not start: {error.line()}"))
            return
        if pane is not None:
            self.ledger.note(task, epoch, session_id=pane.session_id, pane_id=pane.pane_id, server_pid=pane.server_pid)

    async def _stop(self, task: str, epoch: int, *, why: str) -> None:
        report = await self._in(self._stoppers, self.attempts.stop, task, epoch)
        failpoint("stop.stopped")
        if report.survivors:
            self.alert(f"{attempt_name(task, epoch)}: {len(report.survivors)} processes survived the stop: {list(report.survivors)}")
        row = self.ledger.attempt(task, epoch)
        if row is not None:
            self._ended(replace(row, stop_why=why))

    async def _collect(self, task: str, epoch: int, *, end: End, cause: str) -> None:
        row = self.ledger.attempt(task, epoch)
        launch = self.ledger.launch_row(task)
        if row is None:
            return
        try:
            kept = await self._secured(row, launch, end, cause)
        except DiskFull:
            raise  # space comes back; until then the attempt waits here with its work in its worktree
        except NightcrewError as error:
            # The work stays where it is; saying so is better than holding the task, and its slot, for ever.
            self.alert(f"{attempt_name(task, epoch)}: {error.line()}")
            kept = {}
            cause = f"{cause}; not secured: {error.line()}" if cause else f"not secured: {error.line()}"
            end = End.FAILED if end is End.DONE else end
        if kept:
            self.ledger.note(task, epoch, **kept)
            for note in json.loads(kept["result"])["notes"]:
                self.alert(f"{attempt_name(task, epoch)}: {note}")
        failpoint("finish.noted")
        self._pending.append(Secured(task, epoch, end, cause))

    async def _secured(self, row: AttemptRow, launch: LaunchRow, end: End, cause: str) -> dict[str, Any]:
        """Collect; a git that failed gets more chances, since what it failed on (a lock, a fork) is mostly gone a moment later."""
        for pause in SECURE_PAUSES_S:
            try:
                return dict(await self._in(self._launchers, self.attempts.collect, row, launch, end, cause))
            except ToolFailed:
                await asyncio.sleep(pause)
        return dict(await self._in(self._launchers, self.attempts.collect, row, launch, end, cause))

    async def _release(self, task: str, epoch: int) -> None:
        await self._in(self._launchers, self.attempts.release, task, epoch)
        failpoint("finish.session-killed")
        self.ledger.release(task, epoch)

    async def clean_one(self, row: AttemptRow, how: Cleaning) -> str:
        """Remove one worktree, or only look whether it can be. Returns why it stays, or nothing."""
        if row.end is None:
            return "its task has not ended"
        launch = self.ledger.launch_row(row.task)
        why = str(await self._in(self._launchers, self.attempts.clean, row, launch, how))
        if how.remove and not why:
            self.ledger.note(row.task, row.epoch, removed=self.clock.wall())
            self.ledger.journal(row.task, row.epoch, "worktree removed", {"path": row.worktree})
        return why

    # Observe ---------------------------------------------------------------------------------------------------------------------------

    def _watch_disk(self) -> None:
        try:
            enough = self.attempts.disk_free() >= self.settings.disk_free_min
        except OSError as error:
            self.alert(f"nothing new starts: the state directory cannot be looked at: {error}")
            enough = False
        if enough != self.crew.admitting:
            if not enough:
                self.alert("nothing new starts: less free disk than disk_free_min; running agents go on")
            self._pending.append(AdmissionChanged(enough))

    async def _observe(self) -> None:
        watched = [
            (task.id, task.attempt.epoch)
            for task in self.crew.tasks.values()
            if task.attempt is not None
            and task.attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING)
            and (task.id, task.attempt.epoch) not in self._jobs
        ]
        if not watched:
            return
        try:
            seen = await self._in(self._stoppers, self.attempts.look, watched)
        except NightcrewError as error:
            self.alert(error.line())
            return
        for key, what in seen.items():
            self._interpret(key, what)

    def _interpret(self, key: Key, what: Seen) -> None:
        task = self.crew.tasks.get(key[0])
        if key in self._jobs or task is None or task.attempt is None or task.attempt.epoch != key[1]:
            return
        match what:
            case Seen.STARTING | Seen.LIVE:
                if what is Seen.LIVE and task.attempt.state is AttemptState.LAUNCHING:
                    self._pending.append(Started(*key))
            case Seen.ENDED | Seen.GONE:
                self._begin(key, functools.partial(self._gone, swept=what is Seen.ENDED))
            case _:
                assert_never(what)

    async def _gone(self, task: str, epoch: int, *, swept: bool) -> None:
        """No life is left. Unless the runner said that it swept its tree itself, do it for it; then say how the attempt ended."""
        failpoint("finish.tree-gone")
        if not swept:
            await self._stop(task, epoch, why="")
        elif (row := self.ledger.attempt(task, epoch)) is not None:
            self._ended(row)

    def _ended(self, row: AttemptRow) -> None:
        end, cause = self.attempts.judged(row)
        if cause == SERVER_DIED:
            self.alert(f"{cause}; what ran in it is run again")
        self._pending.append(TreeGone(row.task, row.epoch, end, cause))

    # Recover ---------------------------------------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """Read the ledger and give every attempt that has no end, or whose session may be left, the job that it needs next."""
        rows = self.ledger.unreleased()
        while True:
            try:
                seen = await self._in(self._stoppers, self.attempts.recover, rows)
                break
            except NightcrewError as error:
                # Without a look nothing may be called lost; tmux gets another chance.
                self.alert(error.line())
                if self.stopping:
                    return
                await asyncio.sleep(TICK_S)
        live = {(row.task, row.epoch): row for row in rows}
        for key, row in live.items():
            self._resume(key, row, seen[key])
        # First of all, so that whatever the jobs above observe meets a known task; the first step looks at the disk before it starts any.
        self._pending.insert(0, Submitted(self.ledger.unfinished(self.clock.monotonic())))

    def _resume(self, key: Key, row: AttemptRow, what: Seen | None) -> None:
        match row.state:
            case AttemptState.ENDED:
                self._begin(key, self._release)
            case AttemptState.COLLECTING:
                self._begin(key, functools.partial(self._collect, end=End(row.judged or End.LOST), cause=row.end_cause))
            case AttemptState.STOPPING:
                self._begin(key, functools.partial(self._stop, why=row.stop_why))
            case AttemptState.LAUNCHING if what is None:
                self._begin(key, self._launch)
            case _ if what in (None, Seen.ENDED, Seen.GONE):
                self._begin(key, functools.partial(self._gone, swept=what is Seen.ENDED))
            case _ if row.server_pid is None:
                self._begin(key, self._adopt)

    async def _adopt(self, task: str, epoch: int) -> None:
        """The supervisor before us died between the spawn and its note: without it a closed session would look like a dead server."""
        server = await self._in(self._launchers, self.attempts.server_of, task, epoch)
        self.ledger.note(task, epoch, server_pid=server)

    def events(self, events: Iterable[Event]) -> None:
        """Offer events at the next step."""
        self._pending.extend(events)
        self.wake()
