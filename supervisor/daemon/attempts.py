"""What is done to one attempt, step by step, through the doors: prepare, spawn, look, stop, collect, release.

Everything here runs in worker threads and may be repeated: each step finds out what an interrupted one left and goes on from there.
Nothing here touches the ledger; results are handed back.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from agents import runner
from agents.kinds import kinds
from agents.tmux import PaneView, ServerGone, SessionExists, Tmux
from agents.zygote import Place, Wanted
from supervisor.core import records, recovery, result
from supervisor.core.errors import DiskFull, NightcrewError
from supervisor.core.records import Exit, Started
from supervisor.core.recovery import Life, Verdict
from supervisor.core.snapshots import Snapshot, SnapshotKind, SnapshotSpec
from supervisor.core.spec import Settings
from supervisor.core.states import End
from supervisor.daemon import isolation, kind_protocol, launch_files, spent
from supervisor.daemon.access import Access
from supervisor.daemon.isolation import Isolation
from supervisor.daemon.limits import LimitDesk
from supervisor.daemon.snapshots import SnapshotDesk
from supervisor.daemon.zygotes import Zygotes
from supervisor.host import files, processes
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.freezing import Tree
from supervisor.host.sandbox import places
from supervisor.ledger.ledger import AttemptRow, LaunchRow
from worktrees import environments, guard, merge, removal, rescue
from worktrees.backends.layers import Layers
from worktrees.environments import Environment
from worktrees.git import Git
from worktrees.repository import Repository, discover

Key = tuple[str, int]
TAIL = 64 * 1024
PATCH_LINES, PATCH_BYTES = 100_000, 16 * 2**20
HOME_OPTION, ATTEMPT_OPTION = "home", "attempt"


class Seen(Enum):
    """What a look at one attempt found."""

    STARTING = "a pane is there, the runner has not written started.json"
    LIVE = "the runner lives"
    ENDED = "the runner wrote how it ended"
    GONE = "neither record nor life"


@dataclass(frozen=True, slots=True)
class Spawned:
    """Where an attempt runs."""

    session_id: str
    pane_id: str
    server_pid: int


@dataclass(frozen=True, slots=True)
class Cleaning:
    """What a person allows `clean` to do."""

    remove: bool
    """Act, or only look."""
    ignored: bool
    """Ignored files (caches, build output) are no reason to stay."""
    discard: bool
    """Nor is work that only its rescue ref would keep."""

    def overrules(self, verdict: removal.Keep) -> bool:
        """Whether this is enough to remove the worktree all the same. What is alive, locked or not ours always stays."""
        if self.discard:
            return not verdict.hard
        return self.ignored and all(reason.why is removal.Why.IGNORED for reason in verdict.reasons)


def facts(made: Environment) -> dict[str, str | None]:
    """What the ledger keeps of a worktree."""
    layers = json.dumps(asdict(made.layers)) if made.layers is not None else None
    return {
        "worktree": str(made.path), "admin_dir": str(made.admin_dir), "branch": made.branch, "base_oid": made.base, "layers": layers,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Warmth:
    """What lets an attempt start warm, confined, and inside its limits."""

    snapshots: SnapshotDesk
    zygotes: Zygotes
    isolation: Isolation
    limits: LimitDesk


@dataclass(frozen=True, slots=True)
class Source:
    """What an attempt starts in."""

    made: Environment
    lent: Snapshot | None
    """The snapshot that it was made from."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """How its runner is started."""

    argv: list[str]
    tier: int
    limits: str
    """What holds each limit that its task asks for, in words."""


class Attempts:
    """The doors of one supervisor, and the steps through them. Methods are safe to call from several threads."""

    def __init__(self, access: Access, settings: Settings, tmux: Tmux, git: Git, clock: Clock, warmth: Warmth) -> None:
        self._access = access
        self._home = access.home
        self._settings = settings
        self._tmux = tmux
        self._git = git
        self._clock = clock
        self._warmth = warmth
        self._tag_home = records.tag(str(access.home.root), "", 0).partition(":")[0]
        self._started: dict[Key, Started] = {}
        self._repositories: dict[str, Repository] = {}
        self._turns = itertools.count()  # so that tasks which want one core get different ones

    # Launch --------------------------------------------------------------------------------------------------------------------------

    def prepare(self, task: str, epoch: int, launch: LaunchRow, lent: Snapshot | None) -> Environment:
        """Its worktree at the run's base commit, made from the snapshot `lent` if there is one. Raises Refused when the branch belongs to
        somebody else, HostError when the snapshot is damaged, ToolFailed or DiskFull."""
        root = self._home.worktrees / launch.project
        attended = kinds()[launch.spec.kind].mode == "terminal"
        shared = not self._warmth.isolation.mounts_overlays(launch.spec, attended=attended)
        warm = self._warmth.snapshots.warm(lent, root, shared=shared) if lent is not None else None
        made = environments.create(self._repository(launch), task, epoch, launch.base_oid, root, warm=warm)
        failpoint("launch.environment")
        return made

    def order(self, task: str, epoch: int, launch: LaunchRow, source: Source, needs: list[dict[str, Any]]) -> Ordered:
        """What its runner is to do, on disk, and how the runner is started. Raises Refused when this host has no sandbox as the task asks,
        ToolFailed when the agent could not reach the gateway, HostError."""
        key, directory = (task, epoch), self._home.attempt(task, epoch)
        inputs = launch_files.write_inputs(self._home, key, launch, needs)
        place = self._zygote(launch, source.lent)
        home = Path(launch.spec.params.get("HOME") or launch.env.get("HOME") or "/")
        attended = kinds()[launch.spec.kind].mode == "terminal"
        who = isolation.Attempt(launch.spec, directory, source.made, home, attended)
        confined = self._warmth.isolation.confine(who, self._access.gateway_port(), warm=place is not None)
        asked = self._warmth.limits.asked(launch.spec, source.lent.spec if source.lent is not None else None)
        bounds = self._warmth.limits.bind(key, asked, confined)
        terms = launch_files.Terms(inputs, confined, bounds, place is not None, next(self._turns))
        launch_files.write(self._access, self._settings, key, launch, source.made, terms)
        failpoint("launch.spec")
        cold = [sys.executable, "-I", "-S", str(Path(runner.__file__).parent / "main.py"), str(directory)]
        return Ordered(self._warmth.zygotes.pane(place, directory) if place is not None else cold, int(confined.tier), bounds.words)

    def _zygote(self, launch: LaunchRow, lent: Snapshot | None) -> Place | None:
        """The warm process that forks its runner, if its snapshot or its kind has one."""
        if lent is not None and lent.spec.kind is SnapshotKind.MEMORY:
            return self._warmth.zygotes.warm_or_cold(*self._warmth.snapshots.zygote(lent))
        preload = kinds()[launch.spec.kind].preload
        return self._warmth.zygotes.warm_or_cold(f"kind {launch.spec.kind}", Wanted(preload)) if preload else None

    def spawn(self, task: str, epoch: int, made: Environment, ordered: Ordered) -> Spawned | None:
        """Its session, whose pane runs the runner. None when a session of that name is there already: then it is this attempt's own,
        made before a crash, and a look will find it."""
        tags = {HOME_OPTION: self._tag_home, ATTEMPT_OPTION: records.attempt_name(task, epoch)}
        server = self._tmux.ensure_server()
        try:
            pane = self._tmux.spawn(
                records.session_name(task, epoch),
                ordered.argv,
                made.path,
                tags,
            )
        except SessionExists:
            found = self._panes().get((task, epoch))
            return Spawned(found.session_id, found.pane_id, server) if found is not None else None
        failpoint("launch.spawned")
        return Spawned(pane.session_id, pane.pane_id, server)

    def _repository(self, launch: LaunchRow) -> Repository:
        """Looked at once: what a launch needs of it (where its common directory is) does not change while the supervisor runs."""
        if launch.root not in self._repositories:
            self._repositories[launch.root] = discover(self._git, Path(launch.root))
        return self._repositories[launch.root]

    def begin(self, task: str, epoch: int) -> None:
        """Let the command of a held attempt begin; idempotent."""
        launch_files.begin(self._home, (task, epoch))

    def _tag(self, task: str, epoch: int) -> str:
        return records.tag(str(self._home.root), task, epoch)

    # Look ----------------------------------------------------------------------------------------------------------------------------

    def look(self, keys: Iterable[Key]) -> dict[Key, Seen]:
        """What is there of each attempt now: life first, the record last. Raises ToolFailed when tmux cannot be asked."""
        panes = self._panes()
        return {key: self._seen(key, panes.get(key)) for key in keys}

    def recover(self, rows: Iterable[AttemptRow]) -> dict[Key, Seen | None]:
        """As `look`, for every attempt that the ledger holds; None for one that never started. Sessions of ours that belong to no
        such attempt are closed."""
        self._tmux.ensure_server()
        panes = self._panes()
        found: dict[Key, Seen | None] = {}
        for row in rows:
            key = (row.task, row.epoch)
            verdict = self._verdict(key, panes.get(key))[0]
            found[key] = None if verdict is Verdict.NEVER_STARTED else self._as_seen(key, verdict)
        for key in panes.keys() - found.keys():
            self._tmux.kill_session(panes[key].session_id)
        self._warmth.limits.sweep(found.keys())
        return found

    def _panes(self) -> dict[Key, PaneView]:
        """The pane that each attempt's runner was given. Panes that a person split off carry no pane tag and are left out."""
        try:
            panes = self._tmux.panes()
        except ServerGone:
            return {}  # a look that succeeded: no server, so no pane
        found: dict[Key, PaneView] = {}
        for pane in panes:
            task, _, epoch = pane.tags.get(ATTEMPT_OPTION, "").rpartition(":")
            if pane.tags.get(HOME_OPTION) == self._tag_home and epoch.isdigit():
                found[(task, int(epoch))] = pane
        return found

    def _seen(self, key: Key, pane: PaneView | None) -> Seen:
        return self._as_seen(key, self._verdict(key, pane)[0])

    def _as_seen(self, key: Key, verdict: Verdict) -> Seen:
        match verdict:
            case Verdict.RECORDED:
                record = self._record(key)
                return Seen.ENDED if record is not None and not record.survivors else Seen.GONE
            case Verdict.LIVE:
                return Seen.LIVE if key in self._started else Seen.STARTING
            case Verdict.LOST | Verdict.NEVER_STARTED:
                return Seen.GONE

    def _verdict(self, key: Key, pane: PaneView | None) -> tuple[Verdict, Exit | None]:
        started = self._read_started(key)
        life = Life(
            pane=pane is not None and not pane.dead and processes.identity(pane.pid) is not None,
            runner=started is not None and processes.alive(started.identity),
            started=started is not None,
        )
        record = None if life.runner and pane is not None and not pane.dead else self._record(key)
        return recovery.verdict(life, record), record

    def _read_started(self, key: Key) -> Started | None:
        if key not in self._started:
            text = self._text(key, "started.json")
            started = records.parse_started(text) if text is not None else None
            if started is not None and not self._is_forged(key, started):
                self._started[key] = started
        return self._started.get(key)

    def _is_forged(self, key: Key, started: Started) -> bool:
        """It names a living process that is no runner of this attempt: without a sandbox an agent can write that, and `stop` would
        kill whom it names."""
        who = started.identity
        return processes.alive(who) and not processes.runs_with(who.pid, str(self._home.attempt(*key)))

    def _record(self, key: Key) -> Exit | None:
        text = self._text(key, "exit.json")
        return records.parse_exit(text) if text is not None else None

    def _text(self, key: Key, name: str) -> str | None:
        data = files.read_plain(self._home.attempt(*key) / name, TAIL)
        return data.decode("utf-8", "replace") if data is not None else None

    def server_of(self, task: str, epoch: int) -> int | None:
        """The tmux server that holds its pane; None when that died, even if another one runs by now."""
        server = self._tmux.server_pid()
        return server if (task, epoch) in self._panes() else None

    # End -----------------------------------------------------------------------------------------------------------------------------

    def stop(self, task: str, epoch: int) -> processes.StopReport:
        """Freeze, TERM, KILL the whole tree, and look again that nobody survived."""
        started = self._read_started((task, epoch))
        runner = started.identity if started is not None else None
        return self._warmth.limits.stop((task, epoch), runner, self._settings.grace_s)

    def tree(self, task: str, epoch: int) -> Tree:
        """Everything of it that can stand still."""
        started = self._read_started((task, epoch))
        runner = started.identity if started is not None else None
        return Tree(self._tag(task, epoch), runner, self._warmth.limits.group((task, epoch)))

    def judged(self, row: AttemptRow, launch: LaunchRow, lent: SnapshotSpec | None) -> tuple[End, str]:
        """How it ended and why, once no life is left. `lent`: the snapshot that it started from."""
        record = self._record((row.task, row.epoch))
        if record is not None:
            end, cause = recovery.judge(record, stop_why=row.stop_why, server_died=row.server_pid != self._tmux.server_pid())
            asked = self._warmth.limits.asked(launch.spec, lent)
            if end is End.FAILED and not row.stop_why and (met := self._warmth.limits.met((row.task, row.epoch), asked, record)):
                cause = f"{met}; {cause}"
            return kind_protocol.judge(kinds()[launch.spec.kind], self._home.attempt(row.task, row.epoch), end, cause)
        if row.stop_why:
            return recovery.stopped(row.stop_why)
        return End.LOST, "its runner died" if (row.task, row.epoch) in self._started else "its runner never began"

    def _up(self, key: Key) -> float | None:
        started = self._read_started(key)
        return started.at if started is not None else None

    def collect(self, row: AttemptRow, launch: LaunchRow, end: End, cause: str) -> dict[str, Any]:
        """Secure its work on refs and write its records. Returns what the ledger keeps (`result`, `rescue_oid`)."""
        key = (row.task, row.epoch)
        directory = self._home.attempt(*key)
        work = self._secure(row, launch, end)  # before any of our own records: an agent can be in their way, not in git's
        failpoint("finish.secured")
        shape = result.build(
            task=row.task,
            epoch=row.epoch,
            end=end,
            cause=cause,
            record=self._record(key),
            times=result.Times(launch.created, row.created, ended=self._clock.wall(), up=self._up(key)),
            work=work,
            spent=spent.of_attempt(self._home, *key, expected=bool(self._access.settings.upstreams)),
            output=result.last_json_object(files.read_plain(directory / "stdout.log", TAIL, tail=True) or b""),
        )
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
        return {"result": json.dumps(shape), "rescue_oid": work.rescue}

    def clean(self, row: AttemptRow, launch: LaunchRow, how: Cleaning) -> str:
        """Remove the worktree of an ended attempt, or only look. Returns why it stays, or nothing."""
        made = self._environment(row, launch)
        if made is None:
            return "it was never finished"
        try:
            verdict = removal.inspect(made, _alive_inside)
            if isinstance(verdict, removal.Keep) and not how.overrules(verdict):
                return str(verdict)
            if how.remove:
                removal.remove(made, _alive_inside, discard=isinstance(verdict, removal.Keep))
        except NightcrewError as error:
            return error.why or error.line()
        return ""

    def sweep(self, row: AttemptRow, launch: LaunchRow) -> bool:
        """Remove the worktree and the branch of an attempt that left nothing, where its kind says so. Whether they were removed; what
        could not be is left to `clean`."""
        made = self._environment(row, launch) if row.end == End.DONE and kinds()[launch.spec.kind].sweep else None
        if made is None:
            return False
        try:
            return removal.sweep(made, _alive_inside)
        except NightcrewError:
            return False

    def _environment(self, row: AttemptRow, launch: LaunchRow) -> Environment | None:
        """The worktree as the ledger knows it; None when the launch did not come so far."""
        if row.worktree is None or row.admin_dir is None or row.branch is None or row.base_oid is None:
            return None
        layers = Layers(**json.loads(row.layers)) if row.layers else None
        worktree, admin = Path(row.worktree), Path(row.admin_dir)
        return Environment(self._repository(launch), row.task, row.epoch, worktree, admin, row.branch, row.base_oid, layers)

    def _secure(self, row: AttemptRow, launch: LaunchRow, end: End) -> result.Work:
        made = self._environment(row, launch)
        if made is None:
            return result.Work(branch=None, tip=None, commits=0, files=0, plus=0, minus=0, rescue=None)
        sweeps = end is End.DONE and kinds()[launch.spec.kind].sweep
        notes = self._guard_notes(made.repo, self._home.attempt(row.task, row.epoch) / launch_files.GUARD)
        secured = rescue.secure(
            made, f"nightcrew: work left by {row.task}", {"Nightcrew-Task": row.task, "Nightcrew-End": str(end)}, always=not sweeps
        )
        environments.release(made)
        places.forget_branch(str(made.repo.common_dir), made.branch)
        return result.Work(
            branch=None if sweeps and secured.tip == made.base else row.branch,
            tip=secured.tip,
            commits=secured.commits,
            files=secured.files,
            plus=secured.plus,
            minus=secured.minus,
            rescue=secured.rescue,
            notes=(*secured.notes, *notes),
        )

    def _save_patch(self, row: AttemptRow, launch: LaunchRow, work: result.Work, directory: Path) -> None:
        """The change as a patch, for who has no git at hand. A large one is left to git: the branch has it."""
        if work.tip is None or row.base_oid is None or work.tip == row.base_oid or work.plus + work.minus > PATCH_LINES:
            return
        patch = merge.patch(self._repository(launch), row.base_oid, work.tip, PATCH_BYTES)
        if patch is not None:
            files.atomic_write(directory / "diff.patch", patch)

    def _guard_notes(self, repository: Repository, file: Path) -> tuple[str, ...]:
        """Whether `.git/config`, hooks or attributes changed while the attempt ran; without a sandbox an agent can reach them."""
        try:
            before = json.loads(files.read_plain(file, 2**20) or b"{}")
        except (ValueError, RecursionError):
            before = None
        if not isinstance(before, dict):
            return (f"{launch_files.GUARD} was changed while it ran, so nobody knows whether .git was",)
        names = guard.changed(before, guard.config_guard(repository)) if before else ()
        return (f"changed while it ran, by it or by somebody else: {', '.join(f'.git/{name}' for name in names)}",) if names else ()

    def _save_screen(self, row: AttemptRow, directory: Path) -> None:
        """The pane as a person last saw it. A screen that is gone is no reason to hold a result back."""
        pane = next((pane for key, pane in self._panes_or_none().items() if key == (row.task, row.epoch)), None)
        if pane is None:
            return
        try:
            files.atomic_write(directory / "screen.txt", self._tmux.capture(pane.pane_id).encode("utf-8", "surrogateescape"))
        except NightcrewError as error:
            files.atomic_write(directory / "screen.txt", f"not captured: {error.line()}\n".encode())

    def _panes_or_none(self) -> dict[Key, PaneView]:
        try:
            return self._panes()
        except NightcrewError:
            return {}

    def release(self, task: str, epoch: int) -> None:
        """Close its session, if there still is one, and forget it."""
        pane = self._panes().get((task, epoch))
        if pane is not None:
            self._tmux.kill_session(pane.session_id)
        self._warmth.limits.free((task, epoch))
        self._started.pop((task, epoch), None)

    # Host ----------------------------------------------------------------------------------------------------------------------------

    def disk_free(self) -> int:
        """Free bytes where the state lies."""
        return files.free_bytes(self._home.root)


def _alive_inside(path: Path) -> list[int]:
    return [who.pid for who in processes.inside(path)]
