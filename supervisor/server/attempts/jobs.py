"""The steps of one attempt, in order, and how often each is tried."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from agents.kinds import of_task, to_run
from agents.tmux import Tmux
from memory.lease_rows import Leases
from supervisor.contract import Briefing
from supervisor.host import cores, files
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.kernel.conversations import How, Origin
from supervisor.kernel.errors import (
    BudgetSpent,
    DiskFull,
    HostError,
    LedgerError,
    NightcrewError,
    NotFound,
    Refused,
    Tampered,
    ToolFailed,
    ToolHung,
)
from supervisor.kernel.events import Event, Question, Secured, TreeGone
from supervisor.kernel.names import attempt_name
from supervisor.kernel.recovery import AGAIN, SERVER_DIED
from supervisor.kernel.result import NOT_SECURED, tampering
from supervisor.kernel.retry import GATE, Missed
from supervisor.kernel.settings import LeaseRule
from supervisor.kernel.states import End
from supervisor.results import comparison
from supervisor.results.verdicts import Reviews
from supervisor.sandbox import homes
from supervisor.server.attempts import continuing, limits, model_usage, sessions
from supervisor.server.attempts.cleaning import Candidate, Cleaner, Cleaning, Decided
from supervisor.server.attempts.collect import Ending, of_tools
from supervisor.server.attempts.launch import Launching, PortBlocks, Source
from supervisor.server.attempts.limits import LimitDesk
from supervisor.server.attempts.observe import Observer
from supervisor.server.attempts.sessions import Session
from supervisor.server.attempts.worktree_records import Environments, facts
from supervisor.snapshots.service import SnapshotDesk
from supervisor.store import conversations, journal, queries, rows
from supervisor.store.conversations import Held
from supervisor.store.ledger import Ledger
from supervisor.store.rows import AttemptRow, LaunchRow

# Job slots
# ---------
# How many jobs run side by side when one of them may take minutes, and it is an agent that decides which.


T = TypeVar("T")


class JobSlots:
    """At most `at_once` jobs have a turn; the others wait in order. A job that takes longer than `slow_s` goes on without one, so whoever
    leaves much to do, or something that hangs, holds up nobody else for longer than that."""

    def __init__(self, at_once: int, slow_s: float) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._slow_s = slow_s

    async def run(self, job: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """What `job(*args)`, begun in its turn, returns or raises."""
        async with self._free:
            running = asyncio.ensure_future(job(*args))
            try:
                await asyncio.wait({running}, timeout=self._slow_s)
            except asyncio.CancelledError:
                running.cancel()
                raise
        return await running


# Jobs
# ----
# The steps of one attempt, in order: launch, begin, stop, collect, release; and after a crash, adopt.
#
# Each job may be repeated: it finds out what an interrupted one left and goes on from there. A job tells the loop what came of it
# by an event; it decides nothing.


SECURE_PAUSES_S = (0.2, 1.0, 3.0)
COLLECTED_AT_ONCE = 8
SLOW_S = 5.0
"""Seconds for which one attempt's collecting may hold up another's."""


@dataclass(frozen=True, slots=True)
class Doors:
    """What jobs act upon."""

    ledger: Ledger
    observer: Observer
    environments: Environments
    launching: Launching
    ending: Ending
    snapshots: SnapshotDesk
    limits: LimitDesk
    home: Home
    tmux: Tmux
    briefing: Briefing


@dataclass(frozen=True, slots=True)
class Hooked:
    """What other parts of the supervisor say of an attempt, by its task and epoch."""

    denied: Callable[[str, int, list[str]], Question | None]
    """What a person should say of an attempt that failed since it was denied these tools."""
    tools: Callable[[str, int], Mapping[str, int]]
    """How often an attempt called which tool, by its hooks."""
    session: Callable[[Key], str]
    """The session of an attempt's agent, by its hooks; empty while it has not spoken."""
    lease_rule: LeaseRule


class Jobs:
    """The steps of attempts, run in threads so that a hung tmux or git never stops the loop."""

    def __init__(self, doors: Doors, clock: Clock, tell: Callable[[Event], None], say: Callable[[str], None], hooked: Hooked) -> None:
        self._ledger = doors.ledger
        self._observer = doors.observer
        self._briefing = doors.briefing
        self._launching = doors.launching
        self._ending = doors.ending
        self._home = doors.home
        self._cleaner = Cleaner(doors.environments)
        self._snapshots = doors.snapshots
        self._ports = PortBlocks(doors.ledger)
        self._clock = clock
        self._tell = tell
        self.say = say
        self._hooked = hooked
        self.doubtful = False
        """tmux failed to open a session, or to answer: nothing more should start before a look succeeded."""
        self.waiting: dict[tuple[str, int], str] = {}
        """Attempts one of whose jobs waits for room on a disk, and what it said."""
        # Launches are bound by git and the disk: more than a few at once only wait for one another. Stops mostly sleep.
        self.launchers = ThreadPoolExecutor(max_workers=4, thread_name_prefix="launch")
        # What an agent left can take minutes to secure: that keeps no launch waiting, nor the work of others.
        self.collectors = ThreadPoolExecutor(max_workers=64, thread_name_prefix="collect")
        self._turns = JobSlots(COLLECTED_AT_ONCE, SLOW_S)
        self.stoppers = ThreadPoolExecutor(max_workers=32, thread_name_prefix="stop")
        # git and a sandbox for each worktree: more than a few at once only wait for one another.
        self._cleans = JobSlots(len(cores.usable()) + 1, SLOW_S)
        self.cleaning = asyncio.Lock()
        """Held by who removes worktrees, from reading which are left until they are noted as removed: so none is removed twice."""

    async def within(self, pool: ThreadPoolExecutor, work: Callable[..., Any], *args: Any) -> Any:
        """Run a function in a thread. An OSError there, or an error that an agent's data causes, becomes an error of ours."""
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work, *args)
        except OSError as error:
            what, why = f"the system refused to {work.__name__}", error.strerror or str(error)
            if files.is_no_space(error):
                raise files.disk_full(what, Path(str(error.filename or self._home.root)), why) from error
            raise ToolFailed(what, on=str(error.filename or ""), why=why) from error
        except ValueError as error:
            raise ToolFailed(f"could not {work.__name__}", why=str(error)) from error

    async def _collecting(self, work: Callable[..., Any], *args: Any) -> Any:
        return await self._turns.run(self.within, self.collectors, work, *args)

    async def launch(self, task: str, epoch: int) -> None:
        row = self._ledger.launch_row(task)
        asking_tmux = False
        try:
            await self._refuse_launch(task, epoch, row)
            row = await self._judging(row)
            source = await self._prepared_or_again(task, epoch, row)
            known: dict[str, str | int | None] = {**facts(source.made), "port": source.port}
            needs = queries.needs(self._ledger.db, task) if row.after else []
            source = replace(source, brief=await self._brief(task, epoch, row, source))
            try:
                ordered = await self.within(self.launchers, self._launching.order, task, epoch, row, source, needs)
                known["tier"] = ordered.tier
            finally:
                self._ledger.note(task, epoch, durable=True, **known)  # where to look for the work of an agent that a power cut ended
            failpoint("launch.noted")
            if ordered.limits:
                self._ledger.journal(task, epoch, "limits", {"why": ordered.limits})
            asking_tmux = True
            pane = await self.within(self.launchers, self._launching.spawn, task, epoch, source.made, ordered)
        except (DiskFull, LedgerError):
            raise  # says nothing about the agent, which may live already; the next try finds it
        except NightcrewError as error:
            self.doubtful = self.doubtful or (asking_tmux and not isinstance(error, Refused))
            # What we were told failed may still have happened: nothing of it may live when the attempt is called gone.
            await self.within(self.stoppers, self._ending.stop, task, epoch)
            # A refusal is about this task and will be the same next time, and so is a git that hung twice: it held the repository's lock
            # meanwhile. Anything else is the machine's doing and is re-run.
            end = End.FAILED if isinstance(error, BudgetSpent | Refused | ToolHung) else End.LOST
            self._tell(TreeGone(task, epoch, end, f"could not start: {error.line()}"))
            return
        if pane is not None:
            self._ledger.note(task, epoch, session_id=pane.session_id, pane_id=pane.pane_id, server_pid=pane.server_pid)

    async def refuse_used_up(self, tasks: Iterable[str], what: str) -> None:
        """Raise BudgetSpent, with the words `what`, where one of these tasks has used up a cap past the gateway. Unknown tasks pass."""
        for task in tasks:
            with contextlib.suppress(KeyError):
                spec = self._ledger.launch_row(task).spec
                await self.within(self.launchers, model_usage.refuse_used_up, self._home, task, spec.cost_max, spec.tokens_max, what)

    async def _refuse_launch(self, task: str, epoch: int, row: LaunchRow) -> None:
        """As `refuse_used_up`, for an attempt of which nothing is made yet, and for the task whose conversation it continues."""
        before = self._ledger.attempt(task, epoch)
        if before is None or not before.worktree:
            origin = [conversations.in_full(self._ledger.db, row)] if row.spec.continue_from else []
            await self.refuse_used_up([task, *origin], "its budget is spent")

    async def _judging(self, row: LaunchRow) -> LaunchRow:
        """With what it is to judge, of one that judges candidates."""
        if not row.spec.judge_round:
            return row
        told: LaunchRow = await self.within(self.launchers, self._launching.judging, row, comparison.judged(self._ledger, row))
        return told

    async def _brief(self, task: str, epoch: int, row: LaunchRow, source: Source) -> str:
        """What its agent is told before its prompt. One that goes on with a conversation was told already."""
        told = row.spec.judge_round or source.origin is not None or not row.spec.prompt
        if told or not to_run(row.spec.kind).is_agent:
            return ""
        return await self._briefing.before(task, epoch, row)

    async def _prepared_or_again(self, task: str, epoch: int, row: LaunchRow) -> Source:
        try:
            return await self._prepared(task, epoch, row)
        except ToolHung as error:
            self.say(f"{attempt_name(task, epoch)}: {error.line()}; tried once more")
            return await self._prepared(task, epoch, row)

    async def _prepared(self, task: str, epoch: int, row: LaunchRow) -> Source:
        """Its environment. The snapshot is noted first, so that nobody removes it meanwhile. Raises Refused for one that is damaged."""
        before = self._ledger.attempt(task, epoch)
        missed = self._missed(task, epoch, before)
        port, origin = self._ports.take((task, epoch)), await self._conversation(task, epoch, row, missed is not None)
        start = origin.start if origin is not None else self._left(task, epoch, row, missed)
        memory = before.cause.partition(AGAIN)[2] if before is not None else ""
        if not row.spec.snapshot:
            made = await self.within(self.launchers, self._launching.prepare, task, epoch, row, None, start)
            return Source(made, None, port, origin, missed, start, memory)
        interrupted = before.snapshot if before is not None else None
        lent = self._snapshots.lend(row.project, row.spec.snapshot, interrupted, row.spec.snapshot_id)
        self._ledger.lent(task, epoch, lent.id)
        try:
            made = await self.within(self.launchers, self._launching.prepare, task, epoch, row, lent, start)
            return Source(made, lent, port, origin, missed, start, memory)
        except DiskFull:
            raise
        except (NotFound, HostError):
            damage = await self.within(self.launchers, self._snapshots.damage, lent)
            if not damage:
                raise
            raise self._snapshots.damaged(lent, damage) from None

    def _missed(self, task: str, epoch: int, row: AttemptRow | None) -> Missed | None:
        """The gate for whose sake it runs again; None when it does for another reason, or for a person who asked."""
        again = row is not None and f"{End.FAILED}: {GATE}" in row.cause
        return Missed.of(rows.result(self._ledger.db, task, epoch - 1) or {}) if again else None

    def _left(self, task: str, epoch: int, row: LaunchRow, missed: Missed | None) -> str:
        """The commit of the attempt before that this one begins with; empty: with the task's own base."""
        if missed is not None and to_run(row.spec.kind).is_agent:
            return missed.tip
        return journal.left_by(self._ledger.db, task, epoch - 1)

    async def _conversation(self, task: str, epoch: int, row: LaunchRow, missed: bool) -> Origin | None:
        """The conversation that its agent continues: committed once, before anything of the attempt is made. Raises Refused."""
        kind, held = to_run(row.spec.kind), self._ledger.conversations
        if not kind.is_agent:
            return None
        if (known := held.of(task, epoch)) is not None:
            return known.origin
        before, origin, why_not = held.before(task, epoch, row), None, ""
        for how, had in continuing.wanted(row, kind, before, missed=missed):
            try:
                origin = await self.within(self.launchers, continuing.origin, self._home, row, how, had)
                break
            except Refused as error:
                if had is not before.mine:
                    raise
                why_not = error.why
        session = origin.session if origin is not None and origin.how is How.RESUME else continuing.session_of(self._home, task, epoch)
        held.begin(task, epoch, session if kind.chooses_session(origin.how if origin is not None else None) else "", origin, why_not)
        failpoint("conversation.begun")
        return origin

    async def secure_for_gate(self, task: str, epoch: int) -> None:
        """Secure what the agent left, then let its gate begin: what the gate changes is not the agent's work."""
        row = self._ledger.attempt(task, epoch)
        if row is not None:
            await self._patiently(self._ending.secure_for_gate, row, self._ledger.launch_row(task))

    async def begin_gate(self, task: str, epoch: int, why: str) -> None:
        """Let a gate begin on work that could not be secured first: the end tries once more, and says so."""
        self.say(f"{attempt_name(task, epoch)}: its gate begins before its work is secured: {why}")
        await self.within(self.launchers, self._ending.begin_gate, task, epoch)

    async def begin(self, task: str, epoch: int) -> None:
        """Let the command of a held attempt begin."""
        await self.within(self.launchers, self._launching.begin, task, epoch)

    async def stop(self, task: str, epoch: int, *, why: str) -> None:
        report = await self.within(self.stoppers, self._ending.stop, task, epoch)
        failpoint("stop.stopped")
        if report.survivors:
            self.say(f"{attempt_name(task, epoch)}: {len(report.survivors)} processes survived the stop: {list(report.survivors)}")
        row = self._ledger.attempt(task, epoch)
        if row is not None:
            self._ended(replace(row, stop_why=why))

    async def collect(self, task: str, epoch: int, *, end: End, cause: str) -> None:
        row = self._ledger.attempt(task, epoch)
        launch = self._ledger.launch_row(task)
        if row is None:
            return
        try:
            kept = await self._secured(row, launch, end, cause)
        except DiskFull:  # space comes back; until then the attempt waits here with its work in its worktree
            if row.ended is None:
                self._ledger.note(task, epoch, **self._ending.lived(row))
            raise
        except NightcrewError as error:
            self._tampered(task, epoch, [error.line()] if isinstance(error, Tampered) else [])
            await self.not_secured(task, epoch, error.line(), end=end, cause=cause)
            return
        self._ledger.note(task, epoch, **kept)
        shape = json.loads(kept["result"])
        if session := (shape["agent"] or {}).get("session"):
            self._ledger.conversations.learned(task, epoch, session)
        for note in shape["notes"]:
            self.say(f"{attempt_name(task, epoch)}: {note}")
        self._tampered(task, epoch, tampering(shape))
        self._reported(task, epoch, shape)
        failpoint("finish.noted")
        denials = list((shape["agent"] or {}).get("denials") or ()) if end is End.FAILED else []
        self._tell(Secured(task, epoch, end, cause, self._hooked.denied(task, epoch, denials)))

    def _tampered(self, task: str, epoch: int, found: Sequence[str]) -> None:
        for why in found:
            self._ledger.journal(task, epoch, "tampering", {"why": why})

    def _reported(self, task: str, epoch: int, shape: Mapping[str, Any]) -> None:
        """Keep in the history which tools its agent called, as it says on its stdout or by hooks, and which it was not allowed to."""
        called = shape["tools"] or of_tools(self._hooked.tools(task, epoch))
        if called["calls"]:
            self._ledger.journal(task, epoch, "tool calls", called)
        if denials := (shape["agent"] or {}).get("denials"):
            self._ledger.journal(task, epoch, "permission denied", {"why": "; ".join(denials)})

    async def not_secured(self, task: str, epoch: int, why: str, *, end: End, cause: str) -> None:
        """Set it aside: its work stays where it is. Saying so is better than holding the task, and its slot, for ever."""
        row = self._ledger.attempt(task, epoch)
        why = f"{NOT_SECURED}{why}"
        if row is not None and row.worktree:
            why += f"; its work lies in {row.worktree}, branch {row.branch}"
        self.say(f"{attempt_name(task, epoch)}: {why}")
        failpoint("finish.noted")
        self._tell(Secured(task, epoch, End.FAILED if end is End.DONE else end, f"{cause}; {why}" if cause else why))

    async def _secured(self, row: AttemptRow, launch: LaunchRow, end: End, cause: str) -> dict[str, Any]:
        ready = journal.ready_since(self._ledger.db, row.task, row.created) or launch.created
        held = self._ledger.of(Leases).around(row, launch.project, self._hooked.lease_rule)
        with contextlib.closing(Session(of_task(launch.spec.kind).protocol)) as session:
            counting = self.within(self.collectors, self._ending.count_session, row, launch, self.conversation(row, launch), session)
            self.tell_session(row, session, await counting)
        return dict(await self._patiently(self._ending.collect, row, launch, (end, cause), ready, held))

    def conversation(self, row: AttemptRow, launch: LaunchRow) -> Held | None:
        """Return the conversation of an attempt's agent. An id that its program chooses is learned from its hooks here, where the session
        is one whose tokens we count."""
        held = self._ledger.conversations.of(row.task, row.epoch)
        if held is None or held.session or not sessions.has(of_task(launch.spec.kind), interactive=launch.spec.interactive):
            return held
        if not (session := self._hooked.session((row.task, row.epoch))):
            return held
        self._ledger.conversations.learned(row.task, row.epoch, session)
        return self._ledger.conversations.of(row.task, row.epoch)

    def tell_session(self, row: AttemptRow, session: Session, uncounted: str) -> None:
        """Say what is wrong with the count of a session's tokens."""
        if uncounted:
            self.say(f"{attempt_name(row.task, row.epoch)}: {uncounted}")
        if session.kept is not None and session.kept.shrank and not session.told:
            session.told = True
            self._ledger.journal(row.task, row.epoch, "its session file shrank", {"why": "what was counted of it stays counted"})

    async def _patiently(self, work: Callable[..., Any], *args: Any) -> Any:
        """Secure work. A git or a system call that failed gets more chances, since what it failed on (a lock, a fork, a directory that a
        person's gc removed) is mostly gone a moment later. A git that hung gets a single one: it held a thread for all its time."""
        for pause in SECURE_PAUSES_S:
            try:
                return await self._collecting(work, *args)
            except ToolHung:
                break
            except (ToolFailed, HostError):
                await asyncio.sleep(pause)
        return await self._collecting(work, *args)

    async def release(self, task: str, epoch: int) -> None:
        await self._collecting(self._ending.release, task, epoch)
        failpoint("finish.session-killed")
        row = self._ledger.attempt(task, epoch)
        if row is not None and await self._collecting(self._ending.sweep, row, self._ledger.launch_row(task)):
            await self._forget_homes(row)
            self._ledger.note(task, epoch, removed=self._clock.wall(), branch=None)
        self._ledger.release(task, epoch)
        self._ports.give_back((task, epoch))

    async def clean(self, rows: Sequence[AttemptRow], how: Cleaning) -> list[Decided]:
        """Remove worktrees side by side, or only look whether they can be."""
        ended = [row for row in rows if row.end is not None]
        asked = [(row, self._ledger.launch_row(row.task)) for row in ended]
        claims = self._ledger.of(Reviews).claims({row.task for row in ended})
        candidates = await self.within(self.collectors, self._cleaner.candidates, asked, claims)
        decided = await asyncio.gather(*(self._clean(row, candidate, how) for row, candidate in zip(ended, candidates, strict=True)))
        found = {(row.task, row.epoch): each for row, each in zip(ended, decided, strict=True)}
        return [found[row.task, row.epoch] if row.end is not None else self._unended((row.task, row.epoch)) for row in rows]

    def _unended(self, key: tuple[str, int]) -> Decided:
        waits = self.waiting.get(key)
        return Decided(stays=True, why=f"its work waits to be secured: {waits}" if waits else "its task has not ended")

    async def _clean(self, row: AttemptRow, candidate: Candidate, how: Cleaning) -> Decided:
        try:
            decided: Decided = await self._cleans.run(self.within, self.collectors, self._cleaner.clean, candidate, how)
        except NightcrewError as error:  # of one worktree: it keeps no other
            return Decided(stays=True, why=error.line())
        if how.remove and not decided.stays:
            failpoint("clean.removed")
            await self._forget_homes(row)
            self._ledger.note(row.task, row.epoch, removed=self._clock.wall())
            self._ledger.journal(row.task, row.epoch, "worktree removed", {"path": row.worktree, "why": decided.why})
        return decided

    async def _forget_homes(self, row: AttemptRow) -> None:
        """Remove its copies of what command lines keep in the home, now that nobody opens a shell in its worktree any more."""
        try:
            await self.within(self.collectors, homes.forget, self._home.attempt(row.task, row.epoch))
        except NightcrewError as error:  # they go with its records
            self.say(f"{attempt_name(row.task, row.epoch)}: {error.line()}")

    async def give_up(self, task: str, epoch: int, why: str) -> None:
        """Set an attempt aside that can neither begin nor be judged. Whatever lives of it is ended first."""
        await self.within(self.stoppers, self._ending.stop, task, epoch)
        self._tell(TreeGone(task, epoch, End.FAILED, f"given up: {why}"))

    async def gone(self, task: str, epoch: int, *, swept: bool) -> None:
        """No life is left. Unless the runner said that it swept its tree itself, do it for it; then say how the attempt ended."""
        failpoint("finish.tree-gone")
        if not swept:
            await self.stop(task, epoch, why="")
        elif (row := self._ledger.attempt(task, epoch)) is not None:
            self._ended(row)

    def _ended(self, row: AttemptRow) -> None:
        held = self._ledger.conversations.of(row.task, row.epoch)
        end, cause = self._ending.judged(row, self._ledger.launch_row(row.task), limits.lent(self._ledger, row), held)
        if cause == SERVER_DIED:
            self.say(f"{cause}; what ran in it is run again")
        self._tell(TreeGone(row.task, row.epoch, end, cause))

    async def adopt(self, task: str, epoch: int) -> None:
        """The supervisor before us died between the spawn and its note: without it a closed session would look like a dead server."""
        server = await self.within(self.launchers, self._observer.server_of, task, epoch)
        self._ledger.note(task, epoch, server_pid=server)


# Job retries
# -----------
# How often a job of an attempt is tried, and what becomes of the attempt when that was not enough.
#
# | Job | What can go wrong and pass | After five tries |
# | --- | --- | --- |
# | launch | a tool: the attempt is lost, and runs again six times at most; a git hangs: one try more, then `failed` | ended, `failed` |
# | begin, stop and the judging of an end | | ended, `failed` |
# | ending an attempt for that | | tried for ever: nothing that may live is called gone |
# | securing before a gate | git, a disk | the gate begins all the same; the end secures once more |
# | collect | git: three tries more, one more when it hangs, then `failed` | `failed`, its work where it lies |
# | release | tmux | tried for ever: it has no slot, no thread and no lock meanwhile |
# | pause, resume, adopt | | left as it is, and said; its end is seen again |
# | clean | | not tried again: the person who asked is told |
#
# A full disk and a ledger that cannot be written are waited for by every job: space comes back, and nothing can be committed
# without. Between two tries a job has no thread. The pauses double from a second to a minute; one for a full disk ends when there
# is more room.


TRIES = 5
FIRST_S = 1.0
LONGEST_S = 60.0
STEP_S = 1.0
"""A pause is slept in pieces of this length, so that a supervisor can leave at once."""

Key = tuple[str, int]
Job = Callable[[str, int], Awaitable[None]]
Aside = Callable[[str, int, str], Awaitable[None]]
"""Sets an attempt aside; the last argument says why."""


async def leave(task: str, epoch: int, why: str) -> None:
    """The `aside` that leaves the attempt as it is."""


async def until_done(
    key: Key, job: Job, aside: Aside | None, say: Callable[[str], None], leaving: Callable[[], bool], waiting: dict[Key, str]
) -> None:
    """Try `job` until it succeeds, or until `leaving()`, but once at least. With `aside` at most `TRIES` times, then that, until it
    succeeds. As long as it waits for a disk, `waiting` says for which. Raises nothing."""
    try:
        await _until_done(key, job, aside, say, leaving, waiting)
    finally:
        waiting.pop(key, None)


async def _until_done(
    key: Key, job: Job, aside: Aside | None, say: Callable[[str], None], leaving: Callable[[], bool], waiting: dict[Key, str]
) -> None:
    failed, waited = 0, _Waited()
    while True:
        try:
            await job(*key)
        except DiskFull as error:
            if waited.again(error):
                waiting[key] = error.line()
                say(f"{attempt_name(*key)}: {waiting[key]}")
            if leaving():
                return
            await _pause(_pause_s(waited.times), lambda: leaving() or waited.has_more_room())
            continue
        except LedgerError as error:
            why = error.line()
        except Exception as error:  # noqa: BLE001 - a fault in one attempt's job must not end the others; it is shown and tried again
            why, failed = reason(error), failed + 1
        else:
            return
        say(f"{attempt_name(*key)}: {why}")
        if leaving():
            return
        if failed >= TRIES and aside is not None:
            say(f"{attempt_name(*key)}: given up after {TRIES} tries")
            job, aside, failed = functools.partial(_set_aside, aside=aside, why=why), None, 0
        else:
            await _pause(_pause_s(failed), leaving)


@dataclass(slots=True)
class _Waited:
    """A job's waits for full disks."""

    times: int = 0
    place: Path = Path()
    free: int = 0
    """Bytes that were free there when it was full."""
    said: set[tuple[str, str]] = field(default_factory=set)

    def again(self, error: DiskFull) -> bool:
        """Whether a person was not told of it yet; what is free there changes all the time."""
        self.times, self.place = self.times + 1, Path(error.on)
        self.free = files.free_near(self.place)
        is_new = (error.what, error.on) not in self.said
        self.said.add((error.what, error.on))
        return is_new

    def has_more_room(self) -> bool:
        return files.free_near(self.place) >= self.free + files.HARDLY_ANY


def _pause_s(times: int) -> float:
    return min(LONGEST_S, FIRST_S * 2.0 ** min(max(times - 1, 0), 16))


def reason(error: Exception) -> str:
    """What a person is told of it."""
    return error.line() if isinstance(error, NightcrewError) else f"{type(error).__name__}: {error}"


async def _set_aside(task: str, epoch: int, *, aside: Aside, why: str) -> None:
    await aside(task, epoch, why)


async def _pause(seconds: float, is_over: Callable[[], bool]) -> None:
    until = asyncio.get_running_loop().time() + seconds
    while not is_over() and (left := until - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(min(left, STEP_S))


# Attempt jobs
# ------------
# The jobs that attempts have: one a time for each attempt, and each is tried as `job_retries` says.


class AttemptJobs:
    """Those under way. It belongs to one event loop."""

    def __init__(self, say: Callable[[str], None], leaving: Callable[[], bool], waiting: dict[Key, str], ended: Callable[[], None]) -> None:
        """`say`, `leaving` and `waiting` are for `until_done`; `ended` is called after each job."""
        self._say, self._leaving, self._waiting, self._ended = say, leaving, waiting, ended
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: Key) -> bool:
        return key in self._tasks

    def start(self, key: Key, job: Job, aside: Aside | None) -> None:
        """Run a job for an attempt, after the one that it may still have. What `aside` is for: see `job_retries`."""
        before = self._tasks.get(key)
        self._tasks[key] = asyncio.get_running_loop().create_task(self._until_done(key, job, aside, before))

    async def settled(self, key: Key) -> None:
        """Until no job of an attempt is under way."""
        while (task := self._tasks.get(key)) is not None:
            await asyncio.wait([task])

    async def one_ended(self, within_s: float) -> None:
        """Until any of them ended, or the time is over. There must be one."""
        await asyncio.wait(self._tasks.values(), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)

    async def _until_done(self, key: Key, job: Job, aside: Aside | None, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await until_done(key, job, aside, self._say, self._leaving, self._waiting)
        finally:
            if self._tasks.get(key) is asyncio.current_task():
                del self._tasks[key]
            self._ended()
