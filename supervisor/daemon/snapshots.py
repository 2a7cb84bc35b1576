"""Making snapshots, lending them to tasks, and taking them away.

A build commits its row before it runs anything and works in a thread of its own; when the supervisor dies meanwhile, the next one calls
the build failed and clears what is left of it. Files lie under `projects/<project>/snapshots/<name>@<key>`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agents.zygote import Wanted
from supervisor.core import records
from supervisor.core.errors import NightcrewError, NotFound, Refused
from supervisor.core.snapshots import Pruned, Snapshot, SnapshotKind, SnapshotState, prune
from supervisor.daemon import setup
from supervisor.daemon.setup import Bench
from supervisor.daemon.snapshot_order import Order
from supervisor.daemon.zygotes import Zygotes
from supervisor.host import disk, files
from supervisor.host.clock import Clock
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.ledger.ledger import Ledger
from supervisor.ledger.snapshots import Built
from worktrees import backends, templates
from worktrees.environments import Warm
from worktrees.git import Git
from worktrees.repository import discover
from worktrees.templates import Template

BUILDERS = 2
"""Builds at once: each is a whole set-up, which uses cores and the network by itself."""


class SnapshotDesk:
    """The snapshots of one supervisor. Methods belong to the loop's thread; what takes time is done in threads of its own."""

    def __init__(self, home: Home, ledger: Ledger, git: Git, clock: Clock, zygotes: Zygotes) -> None:
        self._home = home
        self._ledger = ledger
        self._git = git
        self._zygotes = zygotes
        self._clock = clock
        self.say: Callable[[str], None] = lambda _: None
        """Told what a person should see."""
        self._leaving = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=BUILDERS, thread_name_prefix="snapshot")
        self._builds: dict[str, asyncio.Task[None]] = {}

    def recover(self) -> None:
        """Call the builds of a supervisor that died failed, and clear what is left of them."""
        for row in self._ledger.snapshots.abandoned():
            self.say(f"snapshot {row.spec.name} was not finished: the supervisor ended while it was built")
            try:
                templates.clear(discover(self._git, Path(self._ledger.project_root(row.project))), self._place(row))
            except NightcrewError as error:
                self.say(f"snapshot {row.spec.name}: {error.line()}")

    def close(self) -> None:
        """End what is being built: it is called failed, and nothing of it stays."""
        self._leaving.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    # Make ------------------------------------------------------------------------------------------------------------------------

    def create(self, order: Order) -> tuple[Snapshot, Path]:
        """Begin to make one; its row and the file with what its commands print. Raises Refused when it is there or being made."""
        self._ledger.know_project(order.project, order.root, order.common_dir)
        row = self._ledger.snapshots.begin(order.project, order.spec, order.base_oid, order.digests)
        failpoint("snapshot.committed")
        log = files.private_dir(self._place(row).parent) / f"{self._place(row).name}.log"
        self._builds[row.id] = asyncio.get_running_loop().create_task(self._built(row, order, log))
        return row, log

    async def _built(self, row: Snapshot, order: Order, log: Path) -> None:
        try:
            built = await asyncio.get_running_loop().run_in_executor(self._pool, self._build, row, order, log)
        except NightcrewError as error:
            self._ledger.snapshots.step(row.id, row.epoch, "failed", error.line())
        except OSError as error:
            self._ledger.snapshots.step(row.id, row.epoch, "failed", str(error))
        else:
            self._ledger.snapshots.step(row.id, row.epoch, "verified", built=built)
            self._replace_older(row)
        finally:
            del self._builds[row.id]

    def _build(self, row: Snapshot, order: Order, log: Path) -> Built:
        place, began = self._place(row), time.monotonic()
        ready = began

        def prepare(tree: Path) -> None:
            nonlocal ready
            tag = records.tag(str(self._home.root), f"snapshot/{row.id}", row.epoch)
            bench = Bench(tree, log, place / "tmp", order.env, tag)
            setup.run(bench, (("set-up", order.spec.setup), ("a check", order.spec.verify)), self._leaving)
            ready = time.monotonic()

        repository = discover(self._git, Path(order.root))
        template = templates.build(repository, order.base_oid, place, prepare, order.copies)
        if order.spec.kind is SnapshotKind.MEMORY:
            self._warm_up(row, template)
        return Built(layers="", setup_s=ready - began, freeze_s=time.monotonic() - ready, disk=disk.used([template.files]).bytes)

    def _warm_up(self, row: Snapshot, template: Template) -> None:
        """Start its process; where that refuses, nothing of the snapshot stays. Raises Refused in the zygote's own words, TimedOut."""
        try:
            self._zygotes.ready(*self.zygote(row))
        except NightcrewError:
            templates.remove(template)
            raise

    def _replace_older(self, row: Snapshot) -> None:
        """What had this name before is stale: it was made of something else."""
        for other in self._ledger.snapshots.all(row.project):
            if other.spec.name == row.spec.name and other.id != row.id and other.state is SnapshotState.READY:
                self._ledger.snapshots.step(other.id, other.epoch, "changed", f"{row.id.partition('/')[2]} was made")

    # Lend ------------------------------------------------------------------------------------------------------------------------

    def lend(self, project: str, name: str) -> Snapshot:
        """The snapshot that a task calls `name`. Raises Refused when it cannot be used, with what to do."""
        rows = [row for row in self._ledger.snapshots.all(project) if row.spec.name == name]
        ready = next((row for row in rows if row.state is SnapshotState.READY), None)
        if ready is not None:
            self._ledger.snapshots.used(ready.id)
            return ready
        why = f"it is {rows[0].state}{f': {rows[0].reason}' if rows[0].reason else ''}" if rows else "there is none of this name"
        raise Refused("cannot start from the snapshot", on=name, why=why, kept="the task", hint=f"nightcrew snapshot create {name}")

    def warm(self, row: Snapshot, environments: Path) -> Warm:
        """What an environment below `environments` starts from. For worker threads; raises NotFound or HostError when it is damaged."""
        template = templates.read(self._place(row))
        return Warm(template, backends.best(files.private_dir(environments), template))

    def zygote(self, row: Snapshot) -> tuple[str, Wanted]:
        """The name of its warm process, and what that is: packages of a `.venv` that set-up made come before our own."""
        packages = (self._place(row) / "files").glob(f".venv/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages")
        return row.id, Wanted(row.spec.preload, tuple(str(directory) for directory in packages))

    # Take away -------------------------------------------------------------------------------------------------------------------

    async def remove(self, row: Snapshot, why: str) -> None:
        """Forget it and delete its files. Raises Refused while it is used or being made."""
        self._ledger.snapshots.remove(row.id, why)
        await asyncio.get_running_loop().run_in_executor(self._pool, self._delete, row)

    async def prune(self, *, act: bool) -> tuple[tuple[Snapshot, str], ...]:
        """Which may go and why; with `act` they are gone."""
        rows = {row.id: row for row in self._ledger.snapshots.all()}
        found: tuple[Pruned, ...] = prune(tuple(rows.values()), self._clock.wall())
        if act:
            for one in found:
                await self.remove(rows[one.id], one.why)
        return tuple((rows[one.id], one.why) for one in found)

    def _delete(self, row: Snapshot) -> None:
        place = self._place(row)
        self._zygotes.stop(row.id)
        with contextlib.suppress(NotFound):  # one that failed has no files
            templates.remove(templates.read(place))
        place.with_name(f"{place.name}.log").unlink(missing_ok=True)

    def _place(self, row: Snapshot) -> Path:
        return self._home.root / "projects" / row.project / "snapshots" / row.id.partition("/")[2]
