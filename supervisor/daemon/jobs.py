"""The steps of one attempt, in order: launch, begin, stop, collect, release; and after a crash, adopt.

Each job may be repeated: it finds out what an interrupted one left and goes on from there. A job tells the loop what came of it by an
event; it decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.kinds import to_run
from agents.tmux import Tmux
from supervisor.core.asking import Question
from supervisor.core.conversations import How, Origin
from supervisor.core.errors import (
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
from supervisor.core.events import Event, Secured, TreeGone
from supervisor.core.gates import GATE, Missed
from supervisor.core.notes import LeaseRule
from supervisor.core.records import attempt_name
from supervisor.core.recovery import AGAIN, SERVER_DIED
from supervisor.core.result import NOT_SECURED, tampering
from supervisor.core.states import End
from supervisor.daemon import continuing, judges, limits, model_usage
from supervisor.daemon.attempt_proof import of_tools
from supervisor.daemon.cleaning import Candidate, Cleaner, Cleaning, Decided
from supervisor.daemon.ending import Ending
from supervisor.daemon.environments import Environments, facts
from supervisor.daemon.job_slots import JobSlots
from supervisor.daemon.keeping import Keeping
from supervisor.daemon.launching import Launching, Source
from supervisor.daemon.limits import LimitDesk
from supervisor.daemon.observation import Observer
from supervisor.daemon.port_blocks import PortBlocks
from supervisor.daemon.snapshots import SnapshotDesk
from supervisor.host import cores, files
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.host.sandbox import agent_homes
from supervisor.ledger import attempt_history, conversations, queries, rows
from supervisor.ledger.ledger import Ledger
from supervisor.ledger.rows import AttemptRow, LaunchRow

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


class Jobs:
    """The steps of attempts, run in threads so that a hung tmux or git never stops the loop."""

    def __init__(self, doors: Doors, clock: Clock, tell: Callable[[Event], None], say: Callable[[str], None]) -> None:
        self._ledger = doors.ledger
        self._observer = doors.observer
        self._launching = doors.launching
        self._ending = doors.ending
        self._home = doors.home
        self._cleaner = Cleaner(doors.environments)
        self._snapshots = doors.snapshots
        self._ports = PortBlocks(doors.ledger)
        self._clock = clock
        self._tell = tell
        self.say = say
        self.tools: Callable[[str, int], Mapping[str, int]] = lambda _, __: {}
        """How often an attempt called which tool, by its hooks."""
        self.lease_rule = LeaseRule.WARN
        self.keeping: Keeping | None = None
        """What archives and removes the past; None until it is wired."""
        self.told_before: Callable[[str, int, LaunchRow], Awaitable[str]] | None = None
        """The prompt of an agent that begins anew, with what it is told before; None: the prompt alone."""
        self.denied: Callable[[str, int, list[str]], Question | None] = lambda *_: None
        """What a person should say of an attempt that failed since it was denied these tools; None: nothing is asked."""
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
            row = await self._told(task, epoch, row, source)
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
                await self.within(self.launchers, model_usage.refuse_used_up, self._home, task, spec, what)

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
        told: LaunchRow = await self.within(self.launchers, self._launching.judging, row, judges.judged(self._ledger, row))
        return told

    async def _told(self, task: str, epoch: int, row: LaunchRow, source: Source) -> LaunchRow:
        """With the prompt that its agent gets. One that goes on with a conversation was told already."""
        told = row.spec.judge_round or source.origin is not None or not row.spec.prompt
        if self.told_before is None or told or not to_run(row.spec.kind).is_agent:
            return row
        return replace(row, spec=replace(row.spec, prompt=await self.told_before(task, epoch, row)))

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
        return attempt_history.left_by(self._ledger.db, task, epoch - 1)

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
        self._tell(Secured(task, epoch, end, cause, self.denied(task, epoch, denials)))

    def _tampered(self, task: str, epoch: int, found: Sequence[str]) -> None:
        for why in found:
            self._ledger.journal(task, epoch, "tampering", {"why": why})

    def _reported(self, task: str, epoch: int, shape: Mapping[str, Any]) -> None:
        """Keep in the history which tools its agent called, as it says on its stdout or by hooks, and which it was not allowed to."""
        called = shape["tools"] or of_tools(self.tools(task, epoch))
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
        ready = attempt_history.ready_since(self._ledger.db, row.task, row.created) or launch.created
        held = self._ledger.leases.around(row, launch.project, self.lease_rule)
        talk = self._ledger.conversations.of(row.task, row.epoch)
        if uncounted := await self.within(self.collectors, self._ending.count_session, row, launch, talk):
            self.say(f"{attempt_name(row.task, row.epoch)}: {uncounted}")
        return dict(await self._patiently(self._ending.collect, row, launch, (end, cause), ready, held))

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
        claims = self._ledger.reviews.claims({row.task for row in ended})
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
            await self.within(self.collectors, agent_homes.forget, self._home.attempt(row.task, row.epoch))
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
