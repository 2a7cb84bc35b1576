"""Make snapshots, lend them to tasks, take them away."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from agents.zygote import Wanted
from supervisor.host import files, processes, scratch, untrusted_fs, usage
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import FAR, SET_UP, Home
from supervisor.kernel import codec, names
from supervisor.kernel.errors import DiskFull, HostError, LedgerError, NightcrewError, NotFound, Refused, StaleEpoch, TimedOut, ToolFailed
from supervisor.kernel.format import duration
from supervisor.kernel.kind import for_agent
from supervisor.kernel.snapshots import WHOLE, Pruned, Snapshot, SnapshotKind, SnapshotState, changes, chosen, not_agreed, prune
from supervisor.server.attempts.zygotes import Zygotes
from supervisor.snapshots.order import Order
from supervisor.snapshots.rows import Built, Snapshots
from supervisor.store.ledger import Ledger
from worktrees import backends, templates
from worktrees.backends import Backend, Overlay, UserOverlay
from worktrees.environments import Warm
from worktrees.git import Git
from worktrees.repository import discover
from worktrees.templates import Template

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


# Setup
# -----
# Running the commands that prepare and verify a snapshot: one after the other, logged, and nothing of them left behind.


SETUP_S = 3600.0
"""For all the commands of one snapshot: an hour is longer than any set-up that somebody waits for."""
_LOOK_S = 0.1
_GRACE_S = 2.0
_LAST_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Bench:
    """Where set-up commands work."""

    tree: Path
    log: Path
    """Everything that they print; begun anew by `run`."""
    tmp: Path
    """A directory of theirs."""
    env: Mapping[str, str]
    """Allow-listed already."""
    tag: str
    """Carried by all that they start."""


def run(bench: Bench, steps: Sequence[tuple[str, Sequence[str]]], stop: threading.Event) -> None:
    """Run every command of `steps` (what it is for, the commands) by `/bin/sh -c` in the tree.

    Raises ToolFailed for the first that does not end well, TimedOut after `SETUP_S`, NightcrewError when `stop` is set. Whatever the
    commands started is ended first.
    """
    deadline = time.monotonic() + SETUP_S
    with bench.log.open("wb", buffering=0) as log:
        bench.log.chmod(0o600)
        for purpose, commands in steps:
            for command in commands:
                log.write(f"$ {command}\n".encode("utf-8", "backslashreplace"))
                _one(bench, purpose, command, log, _Until(deadline, stop))


@dataclass(frozen=True, slots=True)
class _Until:
    deadline: float
    stop: threading.Event


def _one(bench: Bench, purpose: str, command: str, log: IO[bytes], until: _Until) -> None:
    env = dict(for_agent(bench.env, {}, {"TMPDIR": str(bench.tmp), names.TAG_VARIABLE: bench.tag}))
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], cwd=bench.tree, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    try:
        while process.poll() is None:
            if until.stop.wait(_LOOK_S):
                raise NightcrewError(f"{purpose} was cut off", on=command, why="the supervisor is leaving", kept="nothing of it")
            if time.monotonic() > until.deadline:
                raise TimedOut(f"{purpose} did not end", on=command, why=f"it took more than {duration(SETUP_S)}", kept="nothing of it")
    finally:
        processes.stop(bench.tag, None, _GRACE_S)  # also what a command left in the background: the files are about to be frozen
        process.wait()
    if process.returncode:
        why = f"exit {process.returncode}" if process.returncode > 0 else f"killed by signal {-process.returncode}"
        said = untrusted_fs.last_line(bench.log, _LAST_WORDS)
        why = ": ".join(filter(None, (why, "" if said.startswith("$ ") else said)))  # that is the command itself
        raise ToolFailed(f"{purpose} failed", on=command, why=why, kept="nothing of it", hint=f"less {bench.log}")


# Snapshots
# ---------
# Making snapshots, lending them to tasks, and taking them away.
#
# A build commits its row before it runs anything and works in a thread of its own; when the supervisor dies meanwhile, the next one
# ends what the build had started, calls it failed and clears what is left of it. Files lie under
# `projects/<project>/snapshots/<name>@<key>`; those that no row vouches for are cleared at every start.


BUILDERS = 2
"""Builds at once: each is a whole set-up, which uses cores and the network by itself."""
AGAIN_S = 1.0
GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class Begun:
    """What came of an order."""

    row: Snapshot
    log: Path
    """What its commands print."""
    new: bool
    """False: it was there, or being made, already."""


class SnapshotDesk:
    """The snapshots of one supervisor. Methods belong to the loop's thread; what takes time is done in threads of its own."""

    def __init__(
        self,
        home: Home,
        ledger: Ledger,
        git: Git,
        clock: Clock,
        zygotes: Zygotes,
        say: Callable[[str], None] = lambda _: None,
        without_keys: Callable[[Mapping[str, str]], dict[str, str]] = dict,
    ) -> None:
        """`say` is told what a person should see. `without_keys` returns an environment without the keys that the gateway holds:
        the commands of snapshots get that."""
        self._home = home
        self._ledger = ledger
        self._git = git
        self._zygotes = zygotes
        self._clock = clock
        self._say, self._without_keys = say, without_keys
        self._leaving = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=BUILDERS, thread_name_prefix="snapshot")
        self._builds: set[asyncio.Task[None]] = set()
        self._building: dict[str, Snapshot] = {}
        self._deleting: dict[str, asyncio.Task[None]] = {}
        self._trusted: set[tuple[str, int]] = set()
        self._backends: dict[tuple[Path, bool], Backend] = {}

    def recover(self) -> None:
        """Call the builds of a supervisor that died failed, end what they had started, and clear what is left of them."""
        for lost in self._ledger.of(Snapshots).abandoned():
            self._say(f"snapshot {lost.spec.name} was not finished: the supervisor ended while it was built")
            processes.stop(self._tag(lost), None, GRACE_S)
        scratch.sweep(FAR, self._home.short_tmp_prefix(SET_UP))
        rows = {self._place(row): row for row in self._ledger.of(Snapshots).all()}
        self._zygotes.keep({row.id for row in rows.values() if row.state in WHOLE})
        for found in self._home.root.glob("projects/*/snapshots/*@*"):
            row = rows.get(found.with_suffix("") if found.suffix == ".log" else found)
            if found.is_dir() and (row is None or row.state not in WHOLE):
                with contextlib.suppress(Refused):  # environments stand on what is left: it goes after them
                    self._cleared(found, found.parent.parent.name)
            elif found.suffix == ".log" and row is None:
                found.unlink(missing_ok=True)

    def _cleared(self, place: Path, project: str) -> None:
        try:
            self._clear(place, Path(self._ledger.project_root(project)))
        except Refused:
            raise
        except NightcrewError as error:
            self._say(f"snapshot {place.name}: {error.line()}")

    def _clear(self, place: Path, root: Path) -> None:
        """Remove whatever is left at `place`, git's record of it included. Raises Refused while environments stand on it."""
        (place / "template.json").unlink(missing_ok=True)  # from now on it is half-made
        templates.clear(discover(self._git, root), place)

    def close(self) -> None:
        """End what is being built: it is called failed, and nothing of it stays."""
        self._leaving.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        for row in self._building.values():
            with contextlib.suppress(NightcrewError):  # then the next supervisor says so
                self._ledger.of(Snapshots).step(row.id, row.epoch, "failed", "the supervisor left while it was made")

    # Make ------------------------------------------------------------------------------------------------------------------------

    async def create(self, order: Order, *, agreed: bool) -> Begun:
        """Have it: one that is made of exactly this is looked at and kept, one that is being made is waited for, else a build begins.

        `agreed`: a person agrees to what the build runs. Raises NeedsHuman where nobody does and nobody did before, to exactly this.
        """
        self._ledger.know_project(order.project, order.root, order.common_dir)
        known = self._known(order)
        if known is not None and known.state in WHOLE and (damage := await asyncio.to_thread(self.damage, known)):
            self.damaged(known, damage)
        known = self._known(order)
        if known is not None and known.state is not SnapshotState.FAILED:
            if known.state is SnapshotState.STALE:
                self._mark(order)
            return Begun(self._known(order) or known, self._log(known), new=False)
        if known is None and not agreed and (refusal := not_agreed(order.spec)) is not None:
            raise refusal
        row = self._ledger.of(Snapshots).begin(order.project, order.spec, order.base_oid, order.digests)
        self._building[row.id] = row
        failpoint("snapshot.committed")
        task = asyncio.get_running_loop().create_task(self._built(row, order))
        self._builds.add(task)
        task.add_done_callback(self._builds.discard)
        return Begun(row, self._log(row), new=True)

    def _known(self, order: Order) -> Snapshot | None:
        return self._ledger.of(Snapshots).known(order.project, order.spec, order.base_oid, order.digests)

    async def _built(self, row: Snapshot, order: Order) -> None:
        """Build it and write down what came of that, however long the disk refuses: people wait for the row."""
        built, reason = None, ""
        try:
            if (before := self._deleting.get(row.id)) is not None:  # of the same name and files, in the same place
                await asyncio.wait([before])
            built = await asyncio.get_running_loop().run_in_executor(self._pool, self._build, row, order)
        except NightcrewError as error:
            reason = error.line()
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody may wait for ever for this row
            reason = f"{type(error).__name__}: {error}"
        while not self._written(row, order, built, reason):
            await asyncio.sleep(AGAIN_S)
        del self._building[row.id]

    def _written(self, row: Snapshot, order: Order, built: Built | None, reason: str) -> bool:
        try:
            self._ledger.of(Snapshots).step(row.id, row.epoch, "verified" if built else "failed", reason, built)
            if built:
                self._mark(order)
        except (DiskFull, LedgerError) as error:
            self._say(f"snapshot {row.spec.name}: {error.line()}")
            return False
        return True

    def _build(self, row: Snapshot, order: Order) -> Built:
        place, began = self._place(row), time.monotonic()
        ready = began
        files.private_dir(place.parent)

        def prepare(tree: Path) -> None:
            nonlocal ready
            bench = Bench(
                tree, self._log(row), files.private_dir(self._home.short_tmp(place, SET_UP)), self._without_keys(order.env), self._tag(row)
            )
            try:
                run(bench, (("set-up", order.spec.setup), ("a check", order.spec.verify)), self._leaving)
            finally:
                scratch.remove_own(bench.tmp)
            ready = time.monotonic()
            failpoint("snapshot.prepared")

        self._clear(place, Path(order.root))  # of one that was damaged, or was not cleared
        template = templates.build(discover(self._git, Path(order.root)), order.base_oid, place, prepare, order.copies)
        failpoint("snapshot.frozen")
        if order.spec.kind is SnapshotKind.MEMORY:
            self._warm_up(row, template)
        return Built(setup_s=ready - began, freeze_s=time.monotonic() - ready, disk=usage.used([template.files]).bytes)

    def _warm_up(self, row: Snapshot, template: Template) -> None:
        """Start its process; where that refuses, nothing of the snapshot stays. Raises Refused in the zygote's own words, TimedOut."""
        try:
            self._zygotes.stop(row.id)  # of an earlier build
            self._zygotes.ready(*self.zygote(row))
        except NightcrewError:
            templates.remove_template(template)
            raise

    def _mark(self, order: Order) -> None:
        """What has this name and was made of something else is stale; what is made of the same again is not any more."""
        rows = [row for row in self._ledger.of(Snapshots).all(order.project) if row.spec.name == order.spec.name]
        for change in changes(rows, order.spec, order.base_oid, order.digests):
            with contextlib.suppress(StaleEpoch):  # removed, or built again, meanwhile
                self._ledger.of(Snapshots).step(change.id, change.epoch, change.event, change.reason)

    # Lend ------------------------------------------------------------------------------------------------------------------------

    def lend(self, project: str, name: str, *noted: str | None) -> Snapshot:
        """The snapshot that a task calls `name`: the first of the ids `noted` that is still there, else the one that is ready.

        Raises Refused when it cannot be used, with what to do.
        """
        rows = [row for row in self._ledger.of(Snapshots).all(project) if row.spec.name == name]
        lent = chosen(rows, *noted)
        if lent is not None and (lent.state is SnapshotState.READY or (lent.id in noted and lent.state in WHOLE)):
            return lent
        why = f"it is {rows[0].state}{f': {rows[0].reason}' if rows[0].reason else ''}" if rows else "there is none of this name"
        raise Refused("cannot start from the snapshot", on=name, why=why, kept="the task", hint=f"nightcrew snapshot create {name}")

    def warm(self, row: Snapshot, environments: Path, *, shared: bool) -> Warm:
        """What an environment below `environments` starts from; `shared` as for `backends.best`. For worker threads.

        Raises NotFound or HostError when it is damaged: the files are compared the first time in this supervisor's life.
        """
        known = (row.id, row.epoch) in self._trusted
        template = templates.read(self._place(row)) if known else templates.load(self._place(row))
        self._trusted.add((row.id, row.epoch))
        tried = environments, shared
        if tried not in self._backends:
            self._backends[tried] = backends.best(files.private_dir(environments), shared=shared)
            self._tell_of(self._backends[tried], environments)
        if self._backends[tried].refuses(template):
            return Warm(template, backends.best(environments, template, shared=shared))
        return Warm(template, self._backends[tried])

    def _tell_of(self, backend: Backend, environments: Path) -> None:
        """Say what a person should know of the backend: what fails with its files, or why it is slower than an overlay."""
        if backend.caveat:
            self._say(f"environments start from snapshots by '{backend.name}': {backend.caveat}")
        if backend.name in (Overlay.name, UserOverlay.name):
            return
        reasons = [f"{other.name}: {why}" for other in (Overlay(), UserOverlay()) if (why := other.probe(environments))]
        why = "; ".join(reasons) or "a directory of the snapshot can be renamed in it, or its agent is in no sandbox that mounts an overlay"
        self._say(f"environments start from snapshots by '{backend.name}', which is slower than an overlay: {why}")

    def damage(self, row: Snapshot) -> str:
        """What is wrong with its files, or nothing. For worker threads: 0.2 s for 13,000 files."""
        try:
            templates.load(self._place(row))
        except (NotFound, HostError) as error:
            return f"{error.what}: {error.why}" if error.why else error.what
        return ""

    def damaged(self, row: Snapshot, why: str) -> Refused:
        """Write that down; what to tell a task that wanted to start from it."""
        with contextlib.suppress(StaleEpoch, Refused):  # it was, by another task
            self._ledger.of(Snapshots).step(row.id, row.epoch, "damaged", why)
        hint = f"nightcrew snapshot create {row.spec.name}"
        return Refused("cannot start from the snapshot", on=row.spec.name, why=why, kept="the task", hint=hint)

    def zygote(self, row: Snapshot) -> tuple[str, Wanted]:
        """The name of its warm process, and what that is: packages of a `.venv` that set-up made come before our own."""
        packages = (self._place(row) / "files").glob(f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")
        return row.id, Wanted(row.spec.preload, tuple(str(directory) for directory in packages))

    # Take away -------------------------------------------------------------------------------------------------------------------

    async def remove(self, row: Snapshot, why: str) -> None:
        """Forget it and delete its files. Raises Refused while it is used or being made."""
        root = Path(self._ledger.project_root(row.project))
        with contextlib.suppress(NotFound, HostError):  # one that failed, or is damaged
            if not row.uses:
                await asyncio.to_thread(templates.refuse_used, templates.read(self._place(row)))
        self._ledger.of(Snapshots).remove(row.id, why)
        failpoint("snapshot.removed")
        deleting = self._deleting[row.id] = asyncio.get_running_loop().create_task(asyncio.to_thread(self._delete, row, root))
        try:
            await asyncio.shield(deleting)
        finally:
            if self._deleting.get(row.id) is deleting:
                del self._deleting[row.id]

    async def prune(self, *, act: bool) -> tuple[tuple[Snapshot, str], ...]:
        """Which may go and why; with `act` they are gone."""
        rows = {row.id: row for row in self._ledger.of(Snapshots).all()}
        found: tuple[Pruned, ...] = prune(tuple(rows.values()), self._clock.wall())
        if act:
            found = tuple([one for one in found if await self._pruned(rows[one.id], one.why)])
        return tuple((rows[one.id], one.why) for one in found)

    async def _pruned(self, row: Snapshot, why: str) -> bool:
        try:
            await self.remove(row, why)
        except Refused:  # a task began to use it meanwhile
            return False
        return True

    def _delete(self, row: Snapshot, root: Path) -> None:
        self._zygotes.stop(row.id)
        try:
            templates.remove_template(templates.read(self._place(row)))
        except Refused:
            raise
        except (NotFound, HostError):  # one that failed, or is damaged
            self._clear(self._place(row), root)
        self._log(row).unlink(missing_ok=True)

    def _tag(self, row: Snapshot) -> str:
        return names.tag(str(self._home.root), f"snapshot/{row.id}", row.epoch)

    def _log(self, row: Snapshot) -> Path:
        return self._place(row).with_name(f"{self._place(row).name}.log")

    def _place(self, row: Snapshot) -> Path:
        return self._home.root / "projects" / row.project / "snapshots" / row.id.partition("/")[2]


# Snapshot
# --------
# Make snapshots and take them away.


async def create(loop: Loop, *, order: Order, agreed: bool = False) -> dict[str, Any]:
    """Make a snapshot; `agreed`: a person agrees to what it runs. Returns `id`, `epoch`, `log` and whether a build begins (`new`)."""
    begun = await loop.doors.snapshots.create(order, agreed=agreed)
    return {"id": begun.row.id, "epoch": begun.row.epoch, "log": str(begun.log), "new": begun.new}


async def remove_unneeded(loop: Loop, *, remove: bool) -> dict[str, Any]:
    """Remove what nothing needs, or only look. Returns what is `prunable`."""
    found = await loop.doors.snapshots.prune(act=remove)
    return {"prunable": [{"id": row.id, "name": row.spec.name, "disk": row.disk, "why": why} for row, why in found]}


async def remove(loop: Loop, *, project: str, names: list[str]) -> dict[str, Any]:
    """Remove snapshots. Returns which were `removed` and `kept`, with `why`."""
    answer: dict[str, Any] = {"removed": [], "kept": []}
    for row in [loop.ledger.of(Snapshots).find(name, project) for name in names]:
        try:
            await loop.doors.snapshots.remove(row, "removed by hand")
            answer["removed"].append({"id": row.id, "name": row.spec.name, "disk": row.disk})
        except Refused as error:
            answer["kept"].append({"id": row.id, "name": row.spec.name, "why": error.why or error.line()})
    return answer


OPS: Mapping[str, codec.Handler] = {"create": create, "prune": remove_unneeded, "remove": remove}
"""The verb `snapshot`."""
