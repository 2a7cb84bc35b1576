"""How an attempt ends: stop, judge, collect, release."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agents import protocols
from agents.kinds import Kind, of_task
from agents.protocols import lines
from agents.tmux import Tmux
from supervisor.gateway import pages
from supervisor.host import files, processes, scratch, untrusted_fs
from supervisor.host.cgroups import Tree
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import ATTEMPT, FAR, Home
from supervisor.kernel import account, leases, names, records, recovery, result, retry
from supervisor.kernel.account import Life, Measured, Used
from supervisor.kernel.conversations import is_limited
from supervisor.kernel.errors import DiskFull, HostError, NightcrewError, NotFound, ToolFailed, one_line
from supervisor.kernel.format import listed
from supervisor.kernel.leases import Beside
from supervisor.kernel.records import Exit
from supervisor.kernel.result import Spent
from supervisor.kernel.settings import Settings
from supervisor.kernel.snapshots import SnapshotSpec
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import End
from supervisor.results import comparison
from supervisor.sandbox import homes
from supervisor.sandbox.policy import Tier
from supervisor.server.attempts import continuing, kind_protocol, launch, model_usage, observe, sessions
from supervisor.server.attempts.agent_environment import AgentAccess
from supervisor.server.attempts.cleaning import alive_inside
from supervisor.server.attempts.limits import LimitDesk
from supervisor.server.attempts.observe import Key, Observer
from supervisor.server.attempts.sessions import Session
from supervisor.server.attempts.worktree_records import Environments, facts
from supervisor.store.conversations import Held
from supervisor.store.rows import AttemptRow, LaunchRow
from worktrees import collect_work, commit_work, environments, merge, private_repository, removal
from worktrees.commit_work import Secured
from worktrees.environments import Environment
from worktrees.private_repository import RefGuard
from worktrees.repository import Repository

# Attempt account
# ---------------
# The account of an attempt that has ended: what was measured while it lived, what its runner and the gateway say, and how long it
# waited for a person or stood still.


def closed(home: Home, row: AttemptRow, spec: TaskSpec, known: tuple[Exit | None, Spent], times: Mapping[str, float]) -> dict[str, Any]:
    """`known`: what its runner recorded and what the gateway counted. `times`: when it was `ready`, `started` and `ended`, wall
    clock, and what the monotonic clock says `now`."""
    record, spent = known
    directory = home.attempt(row.task, row.epoch)
    still_s, since = records.parse_stood_still(untrusted_fs.read_plain(directory / records.PAUSED, 100) or b"")
    kind = of_task(spec.kind)
    attended = kind.owns_terminal(interactive=spec.interactive)
    life = Life(
        queued=times["ready"],
        spawned=row.created,
        started=times.get("started") or row.started,
        ended=times["ended"],
        model=spent.busy,
        waited=spent.queued,
        human_s=observe.waited_for_person(directory, times["ended"], interactive=attended),
        paused_s=still_s + (max(0.0, times["now"] - since) if since else 0.0),
    )
    used = Used(
        cpu_s=record.cpu_s if record is not None else None,
        process_memory=record.max_rss if record is not None else 0,
        tokens=_limited(spent),
        all_tools=not kind.is_agent,
    )
    return account.closed(Measured.of(row.account), used, life)


def _limited(spent: Spent) -> int | None:
    known = [count for count in (spent.input, spent.cache_write, spent.output) if count is not None]
    return sum(known) if known else None


# Spent limits
# ------------
# Whether an agent gave up because a limit of its account was spent, and until when it had better wait: its protocol says it, or the
# gateway.


AFTER_S = 60.0
"""It begins again so long after the moment that was said: clocks differ, and both CLIs say whole minutes."""
UNKNOWN_S = 900.0
"""One that says no moment is tried again after this."""
LONGEST_S = 8 * 86400.0
"""No window is longer than a week; a moment beyond this is nonsense."""
_ASK_S = 1.0


def limit_opens_at(home: Home, kind: Kind, directory: Path, cause: str, now: float) -> float:
    """Until when the agent should not begin again, in seconds since 1970; 0 when no limit is to blame. `directory` has the records of an
    attempt that failed by `cause`; `now` is wall-clock seconds. Blocks for at most a second, while it asks the gateway."""
    said = kind_protocol.heard(kind, directory)
    if said is not None and said.spent:
        return _after(said.resets_at or lines.resets_at(said.spent, now), now)
    if not is_limited(cause):
        return 0.0
    opens_in_s = parked_s(_status(home))
    return _after(now + opens_in_s, now) if opens_in_s else 0.0


def _after(moment: float, now: float) -> float:
    known = 0.0 < moment <= now + LONGEST_S
    return max(moment, now) + AFTER_S if known else now + UNKNOWN_S


def _status(home: Home) -> dict[str, Any]:
    try:
        return pages.ask(home, pages.NOW, timeout_s=_ASK_S)
    except NightcrewError:  # no gateway, or none that answers: then nobody says that a window is spent
        return {"pools": []}


def parked_s(status: dict[str, Any]) -> float:
    """In how many seconds the first pool opens, by the gateway's status page, when a window of each is spent; 0 when one is not."""
    pools = [pool for pool in status["pools"] if pool["breaker"] is not None]
    spent_s = [max((window["resets_in_s"] for window in pool["windows"] if window["spent"]), default=0.0) for pool in pools]
    return min(spent_s, default=0.0)


# Attempt proof
# -------------
# What proves the outputs of an attempt, and what its kind reports of its tools: for `result.json` and the journal.


_NAMES_MAX = 50
"""Tools that are named; an agent can make up any number."""
_NAME_MAX = 80


def proof(kind: Kind, directory: Path) -> dict[str, Any]:
    """Of an attempt whose records are in `directory`: `sha256` of its logs as they are, and `tools` as `of_tools` gives it, null for a kind
    that does not report them on its stdout. Raises ToolFailed."""
    logs = {name: untrusted_fs.sha256(directory / name) for name in ("stdout.log", "stderr.log")}
    stdout = kind_protocol.printed(kind, directory)
    called = None if stdout is None else of_tools(_called(kind, stdout))
    return {"sha256": {name: digest for name, digest in logs.items() if digest is not None}, "tools": called}


def of_tools(called: Mapping[str, int]) -> dict[str, Any]:
    """How often tools were called, and which, the most called first."""
    first = sorted(called.items(), key=lambda one: (-one[1], one[0]))[:_NAMES_MAX]
    return {"calls": sum(called.values()), "by": {one_line(name)[:_NAME_MAX]: times for name, times in first}}


def _called(kind: Kind, stdout: bytes) -> Counter[str]:
    return Counter(entry.tool for entry in protocols.transcript(kind.protocol, [stdout]) if entry.kind == "tool")


# Ending
# ------
# How an attempt ends, step by step, through the doors: stop, judge, collect, release.
#
# Everything here runs in worker threads and may be repeated: each step finds out what an interrupted one left and goes on from
# there. Nothing here touches the ledger; results are handed back.


TAIL = 64 * 1024
GATE_LOG = "gate.log"
SECURED_MAX = 2**20
"""Bytes of `secured.json`."""
REFS_SHOWN = 5
PATCH_LINES, PATCH_BYTES = 100_000, 16 * 2**20


@dataclass(frozen=True, slots=True)
class EndingDoors:
    """What is looked at and acted upon."""

    observer: Observer
    environments: Environments
    tmux: Tmux
    limits: LimitDesk
    refs: RefGuard


class Ending:
    """The doors through which attempts end. Safe to use from several threads."""

    def __init__(self, access: AgentAccess, settings: Settings, doors: EndingDoors, clock: Clock) -> None:
        self._access = access
        self._home = access.home
        self._settings = settings
        self._observer = doors.observer
        self._environments = doors.environments
        self._tmux = doors.tmux
        self._limits = doors.limits
        self._refs = doors.refs
        self._clock = clock

    def stop(self, task: str, epoch: int) -> processes.StopReport:
        """Freeze, TERM, KILL the whole tree, and look again that nobody survived."""
        started = self._observer.started((task, epoch))
        runner = started.identity if started is not None else None
        # Who hears TERM moves again: while everything is stopped there is no grace.
        return self._limits.stop((task, epoch), runner, 0.0 if self._home.sentinel.exists() else self._settings.grace_s)

    def close_strays(self, known: Collection[Key]) -> None:
        """Close the sessions of ours that belong to no attempt of `known`, and take away their groups and temporary files: what a crash
        left."""
        panes = self._observer.panes()
        for key in panes.keys() - set(known):
            self._tmux.kill_session(panes[key].session_id)
        self._limits.sweep(known)
        scratch.sweep(FAR, self._home.short_tmp_prefix(ATTEMPT), {self._home.short_tmp(self._home.attempt(*key)) for key in known})

    def pin_again(self, keys: Collection[Key]) -> None:
        """Move living attempts, with all that they started, into the lanes that there are now. Their runners pinned them as they began."""
        for key, cpus in self._limits.moved(keys).items():
            if (started := self._observer.started(key)) is not None:
                processes.pin(started.identity, cpus)

    def tree(self, task: str, epoch: int) -> Tree:
        """Everything of it that can stand still."""
        started = self._observer.started((task, epoch))
        runner = started.identity if started is not None else None
        return Tree(names.tag(str(self._home.root), task, epoch), runner, self._limits.group((task, epoch)))

    def judged(self, row: AttemptRow, launch: LaunchRow, lent: SnapshotSpec | None, held: Held | None = None) -> tuple[End, str]:
        """How it ended and why, once no life is left. `lent`: the snapshot that it started from; `held`: its agent's conversation."""
        record = self._observer.record((row.task, row.epoch))
        if record is not None:
            end, cause = recovery.judge_traces(record, stop_why=row.stop_why, server_died=row.server_pid != self._tmux.server_pid())
            asked = self._limits.asked(launch.spec, lent)
            met = self._limits.met((row.task, row.epoch), asked, record) if end is End.FAILED and not row.stop_why else ""
            cause = f"{met}; {cause}" if met else cause
            kind = of_task(launch.spec.kind)
            if (
                end is End.FAILED
                and record.signal in recovery.CRASHES
                and not (row.stop_why or met)
                and continuing.can_go_on(launch.spec, kind)
            ):
                return End.LOST, f"its agent was {cause}"
            resumed = held is not None and held.origin is not None and held.origin.task == row.task
            end, cause = kind_protocol.judge(kind, self._home.attempt(row.task, row.epoch), end, cause, resumed=resumed)
            if end is End.FAILED and not (row.stop_why or met) and (theirs := self._providers_fault(row, kind, cause)):
                return End.LOST, theirs
            end, cause = retry.judge_gate(bool(launch.spec.gate), record.gate, end, cause)
            if record.gate is not None and cause.startswith(retry.GATE):
                ended = replace(record, code=record.gate.code, signal=record.gate.signal)
                cause = retry.with_limit(cause, self._limits.met((row.task, row.epoch), asked, ended))
            return end, cause
        if row.stop_why:
            return recovery.stopped(row.stop_why)
        started = self._observer.started((row.task, row.epoch))
        if started is None:
            return End.LOST, "its runner never began"
        return End.LOST, "its runner died" if started.identity.boot_id == processes.boot_id() else recovery.REBOOTED

    def _providers_fault(self, row: AttemptRow, kind: Kind, cause: str) -> str:
        """Why an attempt that failed by `cause` was lost, where a spent limit or its provider is to blame; else empty."""
        if until := limit_opens_at(self._home, kind, self._home.attempt(row.task, row.epoch), cause, self._clock.wall()):
            return recovery.spent(until)
        why = model_usage.unserved(self._home, row.task, row.epoch)
        return f"its provider failed it ({why}): {cause}" if why else ""

    def _up(self, key: Key) -> float | None:
        started = self._observer.started(key)
        return started.at if started is not None else None

    def lived(self, row: AttemptRow) -> dict[str, Any]:
        """From when to when it lived (`started`, `ended`): as its runner says, which an agent without a sandbox can forge, within what is
        possible; else until now, or until it was asked first."""
        now, record = self._clock.wall(), self._observer.record((row.task, row.epoch))
        if record is None:
            return {"ended": row.ended or now}
        ended = min(max(record.ended, row.created), now)
        return {"started": min(max(record.started, row.created), ended), "ended": ended} if record.started else {"ended": ended}

    def collect(self, row: AttemptRow, launch: LaunchRow, how: tuple[End, str], ready: float, held: Beside) -> dict[str, Any]:
        """Secure its work on refs and write its records. Returns what the ledger keeps (`result`, `account`, `rescue_oid`, `started`,
        `ended`). `how` it ended and why; `ready`: since when it could have started, wall clock; `held`: the leases beside it."""
        key = (row.task, row.epoch)
        directory = self._home.attempt(*key)
        notes = self._take_logins_back(directory)
        made = self._environments.of(row, launch.root)
        if made is None:
            repository, root = self._environments.repository(launch.root), self._home.worktrees / launch.project
            made = environments.left(repository, *key, launch.base_oid, root)
        work = self._secure(row, made, launch, how[0])  # before any of our own records: an agent can be in their way, not in git's
        failpoint("finish.secured")
        lived = self.lived(row)
        times = {"ready": ready, "now": self._clock.monotonic(), **lived}
        shape = self._result(row, launch, how, times, (work, self._unleased(row, launch, work, held))) | proof(
            of_task(launch.spec.kind), directory
        )
        shape["notes"] += notes
        for write in (
            lambda: files.private_dir(directory),
            lambda: self._save_screen(row, directory),
            lambda: self._save_patch(row, launch, work, directory),
            lambda: files.atomic_write(directory / "result.json", json.dumps(shape, indent=2).encode() + b"\n"),
        ):
            try:
                write()
            except DiskFull:
                raise
            except NightcrewError as error:  # the ledger keeps the result as well
                shape["notes"].append(error.line())
        failpoint("finish.result")
        return {
            "result": json.dumps(shape),
            "account": json.dumps(shape["account"]),
            "rescue_oid": work.rescue,
            **lived,
            **(facts(made) if made is not None else {}),
        }

    def _take_logins_back(self, directory: Path) -> list[str]:
        """Give the person the logins that its agent renewed last. Returns why that failed, if it did. Raises DiskFull."""
        try:
            homes.take_all_back(directory, self._clock.wall() * 1000)
        except DiskFull:
            raise
        except NightcrewError as error:
            return [error.line()]
        return []

    def _result(
        self,
        row: AttemptRow,
        launch: LaunchRow,
        how: tuple[End, str],
        times: Mapping[str, float],
        left: tuple[result.Work, Mapping[str, Any] | None],
    ) -> dict[str, Any]:
        """`how` it ended and why, its times as `attempt_account` wants them, and what it left in git and wrote without a lease."""
        key = (row.task, row.epoch)
        directory = self._home.attempt(*key)
        expected, uncounted = self._access.reaches_gateway(*key), ""
        spent = model_usage.of_attempt(self._home, *key, expected=expected)
        said = kind_protocol.heard(of_task(launch.spec.kind), directory)
        fresh = row.epoch == 1 and not launch.spec.continue_from
        if expected and said is not None and kind_protocol.beyond_exit_status(said, spent, first=fresh):
            uncounted = sessions.charge(self._home, row, launch, said, first=fresh)
            spent = model_usage.of_attempt(self._home, *key, expected=expected)
        stdout = b"" if said is not None else untrusted_fs.read_plain(directory / "stdout.log", TAIL, tail=True) or b""
        record = self._observer.record(key)
        gate = record.gate if record is not None else None
        printed = untrusted_fs.read_plain(directory / GATE_LOG, TAIL, tail=True) or b"" if gate is not None else b""
        return result.build(
            task=row.task,
            epoch=row.epoch,
            end=how[0],
            cause=how[1],
            record=record,
            times=result.Times(launch.created, row.created, ended=times["ended"], up=self._up(key)),
            work=left[0],
            unleased=left[1],
            spent=spent,
            assigned=launch.spec.assigned,
            account=closed(self._home, row, launch.spec, (record, spent), times),
            output=result.last_json_object(stdout) if said is None else kind_protocol.structured(said),
            agent=None if said is None else kind_protocol.shape(said),
            notes=() if said is None else (*filter(None, (uncounted,)), *kind_protocol.notes(said, spent)),
            gate=None if gate is None else retry.shape(gate, printed),
            measured=self._measured(launch, row.base_oid, left[0]),
        )

    def count_session(self, row: AttemptRow, launch: LaunchRow, held: Held | None, session: Session) -> str:
        """As `session_usage.count`, where the attempt can reach the gateway. Raises nothing; may be repeated."""
        try:
            if not self._access.reaches_gateway(row.task, row.epoch):
                return ""
            return sessions.count(self._home, row, launch, held, session)
        except NightcrewError as error:
            return f"the tokens of its session are not known: {error.line()}"

    def _measured(self, launch: LaunchRow, base: str | None, work: result.Work) -> Mapping[str, Any] | None:
        if not launch.spec.candidate_of:
            return None
        return comparison.measures(self._environments.repository(launch.root), launch.spec, base, work.tip)

    def sweep(self, row: AttemptRow, launch: LaunchRow) -> bool:
        """Remove the worktree and the branch of an attempt that left nothing, where its kind says so. Whether they were removed; what
        could not be is left to `clean`."""
        made = self._environments.of(row, launch.root) if row.end == End.DONE and of_task(launch.spec.kind).sweep else None
        if made is None:
            return False
        try:
            return removal.sweep(made, alive_inside)
        except NightcrewError:
            return False

    def secure_for_gate(self, row: AttemptRow, launch: LaunchRow) -> None:
        """Secure what the agent left, and let its gate begin."""
        made = self._environments.of(row, launch.root)
        if made is None:
            self.begin_gate(row.task, row.epoch)
            return
        secured = self._secured(row, made, End.DONE, sweeps=of_task(launch.spec.kind).sweep)
        failpoint("gate.secured")
        self._let_gate_begin(row.task, row.epoch, secured)

    def begin_gate(self, task: str, epoch: int) -> None:
        """Let the gate begin although nothing was secured."""
        self._let_gate_begin(task, epoch, None)

    def _let_gate_begin(self, task: str, epoch: int, secured: Secured | None) -> None:
        shape = None if secured is None else {"secured": asdict(secured)}
        files.atomic_write(self._home.attempt(task, epoch) / records.SECURED, json.dumps(shape).encode())

    def _secured(self, row: AttemptRow, made: Environment, end: End, *, sweeps: bool) -> Secured:
        trailers = {"Nightcrew-Task": row.task, "Nightcrew-End": str(end)}
        secured = collect_work.secure(made, commit_work.left_message(row.task), trailers, always=not sweeps)
        return replace(secured, notes=(*secured.notes, *self._keep_refused(row, made, secured.refused)), refused=())

    def _without_gate(self, row: AttemptRow, made: Environment) -> Secured | None:
        """Return the agent's work as secured before its gate began, with a note of the gate's changes, which are set apart. None when no
        gate began, or nothing could be secured before it. Raises DiskFull."""
        place = self._home.attempt(row.task, row.epoch)
        try:
            before = collect_work.parsed(json.loads(untrusted_fs.read_plain(place / records.SECURED, SECURED_MAX) or b"null"))
        except (ToolFailed, ValueError, LookupError, TypeError, RecursionError):
            return None
        try:
            apart = collect_work.set_apart(made, f"nightcrew: changed by the gate of {row.task}", {"Nightcrew-Task": row.task}, before)
        except DiskFull:
            raise
        except NightcrewError as error:
            return replace(before, notes=(*before.notes, f"what its gate changed lies in {made.path}: {error.line()}"))
        after = replace(before, notes=tuple(dict.fromkeys((*before.notes, *apart))))
        if after != before:  # repeated after a crash, nothing is found that was set apart already
            self._let_gate_begin(row.task, row.epoch, after)
        return after

    def _secure(self, row: AttemptRow, made: Environment | None, launch: LaunchRow, end: End) -> result.Work:
        if made is None:
            return result.Work(branch=None, tip=None, commits=0, files=0, plus=0, minus=0, rescue=None)
        sweeps = end is End.DONE and of_task(launch.spec.kind).sweep
        found = self._tampering(row, made.repo)
        notes = tuple(f"{result.TAMPERING}{what}" for what in found)
        secured = (self._without_gate(row, made) if launch.spec.gate else None) or self._secured(row, made, end, sweeps=sweeps)
        environments.release(made)
        return result.Work(
            branch=None if sweeps and secured.tip == made.base else made.branch,
            tip=secured.tip,
            commits=secured.commits,
            files=secured.files,
            plus=secured.plus,
            minus=secured.minus,
            rescue=secured.rescue,
            notes=(*secured.notes, *notes),
        )

    def _keep_refused(self, row: AttemptRow, made: Environment, names: Sequence[str]) -> tuple[str, ...]:
        """Files whose names git does not take, beside the records. Raises DiskFull."""
        if not names:
            return ()
        try:
            return tuple(collect_work.keep(made, names, files.private_dir(self._home.attempt(row.task, row.epoch))))
        except DiskFull:
            raise
        except NightcrewError as error:
            return (error.line(),)

    def _save_patch(self, row: AttemptRow, launch: LaunchRow, work: result.Work, directory: Path) -> None:
        """The change as a patch, for who has no git at hand. A large one is left to git: the branch has it."""
        if work.tip is None or row.base_oid is None or work.tip == row.base_oid or work.plus + work.minus > PATCH_LINES:
            return
        patch = merge.patch(self._environments.repository(launch.root), row.base_oid, work.tip, PATCH_BYTES)
        if patch is not None:
            files.atomic_write(directory / "diff.patch", patch)

    def _unleased(self, row: AttemptRow, launch: LaunchRow, work: result.Work, held: Beside) -> Mapping[str, Any] | None:
        """What it wrote without a lease. That a git cannot say is no reason to hold a result back."""
        if work.tip is None or row.base_oid is None or work.tip == row.base_oid or not held.matters:
            return None
        try:
            return leases.unleased(merge.changed(self._environments.repository(launch.root), row.base_oid, work.tip), held)
        except HostError:
            return None

    def _tampering(self, row: AttemptRow, repository: Repository) -> tuple[str, ...]:
        """What changed while the attempt ran that only we or the person may change; without a sandbox an agent can reach it."""
        found = self._guard_notes(repository, self._home.attempt(row.task, row.epoch) / launch.GUARD)
        if row.tier == Tier.NONE and (moved := self._refs.changed(repository)):
            found += (f"moved or removed while it ran, by it or by somebody else: {listed(moved, REFS_SHOWN)}",)
        return found

    def _guard_notes(self, repository: Repository, file: Path) -> tuple[str, ...]:
        """Whether `.git/config`, hooks or attributes changed while the attempt ran."""
        try:
            before = json.loads(untrusted_fs.read_plain(file, 2**20) or b"{}")
        except (ValueError, RecursionError):
            before = None
        if not isinstance(before, dict):
            return (f"{launch.GUARD} was changed while it ran, so nobody knows whether .git was",)
        names = private_repository.changed(before, private_repository.config_guard(repository)) if before else ()
        return (f"changed while it ran, by it or by somebody else: {', '.join(f'.git/{name}' for name in names)}",) if names else ()

    def _save_screen(self, row: AttemptRow, directory: Path) -> None:
        """The pane as a person last saw it. A screen that is gone is no reason to hold a result back."""
        try:
            place = self._observer.place((row.task, row.epoch))
            if place is not None:
                files.atomic_write(directory / "screen.txt", self._tmux.capture(place[1]).encode("utf-8", "surrogateescape"))
        except NotFound:
            return
        except NightcrewError as error:
            files.atomic_write(directory / "screen.txt", f"not captured: {error.line()}\n".encode())

    def release(self, task: str, epoch: int) -> None:
        """Close its session, if there still is one, and forget it."""
        place = self._observer.place((task, epoch))
        if place is not None:
            self._tmux.kill_session(place[0])
        self._limits.free((task, epoch))
        self._observer.forget((task, epoch))
        scratch.remove_own(self._home.short_tmp(self._home.attempt(task, epoch)))
