"""The real path: a supervisor in a state directory of its own, with snapshots and tasks that are submitted through its socket."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from agents.tmux import Tmux
from supervisor.bench.workspace import end_server
from supervisor.core import records
from supervisor.core.environment import allowed
from supervisor.core.errors import NightcrewError, TimedOut, ToolFailed
from supervisor.core.records import Exit, Started
from supervisor.core.snapshots import Snapshot, SnapshotSpec, SnapshotState
from supervisor.core.spec import RunSpec, Submission, TaskSpec
from supervisor.daemon import protocol, start
from supervisor.daemon.handlers.submit import to_wire
from supervisor.daemon.snapshot_order import Order
from supervisor.faces import status
from supervisor.faces.snapshots import Measured, measured
from supervisor.host import processes
from supervisor.host.paths import Home
from supervisor.host.sandbox import syscalls
from supervisor.ledger import queries, snapshots, store
from worktrees.backends.mounts import mounts
from worktrees.git import Git
from worktrees.repository import Repository, discover

END_S = 1800.0
_LOOK_S = 0.05
_INSTALLERS = ("PIP_", "UV_")
_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that writes down when its own code began, then waits (`fork/fixtures.py`). Times are wall-clock seconds."""

    task: str
    directory: Path
    admitted: float
    """When its attempt's row was written."""
    up: float
    """After its first line."""
    warm: bool
    """Its modules were in memory before it imported them."""

    @property
    def started(self) -> Started:
        """Of its runner. Raises ToolFailed when that never claimed the attempt."""
        started = records.parse_started((self.directory / "started.json").read_text())
        if started is None:
            raise ToolFailed("no start record of", on=self.task)
        return started

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of the parts of its way, which follow each other: until its orders were written, until its runner had claimed the
        attempt, until its first line. The first two meet at a file's time, which moves in steps of the kernel's tick."""
        ordered, claimed = (self.directory / "launch.spec").stat().st_mtime, self.started.at
        return {"prepare": ordered - self.admitted, "start": claimed - ordered, "first_line": self.up - claimed}

    def let_go(self) -> None:
        """Let it end."""
        (self.directory / "out" / "go").write_text("")


class SupervisedRun:
    """One supervisor, started as `nightcrew up -d` starts it. Tasks run without a sandbox unless they ask for one."""

    def __init__(self, root: Path, slots: int, path: str | None = None, more: str = "") -> None:
        """`path` replaces PATH for the supervisor alone; `more` is the rest of its settings."""
        self.home = Home(root)
        self.settings = root.with_name(f"{root.name}.toml")
        self.settings.write_text(f"slots = {slots}\nsandbox = 0\n[limits]\ndisk_free_min = 0\n{more}")
        self._keys = (f"{root.name}{number}" for number in itertools.count())
        self.path = path

    def __enter__(self) -> SupervisedRun:
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def start(self) -> int:
        """Have the supervisor run and be ready; its pid."""
        with _environ({"PATH": self.path} if self.path else {}):
            return int(start.ensure_running(self.home, self.settings, lambda _: None)["pid"])

    def tmux(self) -> psutil.Process:
        """Its tmux server. Raises ToolFailed when there is none."""
        with Tmux(self.home.tmux_socket) as tmux:
            pid = tmux.server_pid()
        if pid is None:
            raise ToolFailed("no tmux server answers", on=str(self.home.tmux_socket))
        return psutil.Process(pid)

    def kill(self) -> None:
        """`kill -9` of the supervisor alone; its agents go on."""
        pid = int(protocol.call(self.home.daemon_socket, "ping", {})["pid"])
        who = processes.identity(pid)
        if who is not None:
            processes.send(who, signal.SIGKILL)
            until(lambda: not processes.alive(who), "the supervisor to die")

    def end(self) -> None:
        """End every process of this side, and unmount what it mounted."""
        with contextlib.suppress(NightcrewError):  # it need not run any more
            protocol.call(self.home.daemon_socket, "down", {"now": True}, timeout_s=10.0)
        end_server(self.home)
        for mount in mounts(self.home.root.resolve()):
            syscalls.unmount(mount.path, lazy=True)

    def repository(self, path: Path) -> Repository:
        """As this supervisor knows it."""
        return discover(Git(self.home.root / "git"), path)

    # Snapshots -------------------------------------------------------------------------------------------------------------------

    def snapshot(self, repo: Repository, spec: SnapshotSpec) -> Snapshot:
        """Have it made. Raises ToolFailed when a command or a check failed."""
        env = allowed(os.environ, {name for name in os.environ if name.startswith(_INSTALLERS) or name.upper() in _NETWORK})
        order = Order(repo.project, str(repo.root), str(repo.common_dir), spec, repo.head, {}, (), env)
        begun = protocol.call(self.home.daemon_socket, "snapshot", {"do": "create", "order": order.to_wire(), "agreed": True})
        row: list[Snapshot] = []

        def is_over() -> bool:
            with contextlib.closing(store.connect_readonly(self.home.ledger)) as db:
                row[:] = [snapshots.find(db, begun["id"], repo.project)]
            return row[0].state is not SnapshotState.BUILDING

        until(is_over, f"snapshot {spec.name}")
        if row[0].state is not SnapshotState.READY:
            raise ToolFailed("no snapshot was made", on=spec.name, why=row[0].reason)
        return row[0]

    def measured(self, snapshot: Snapshot) -> Measured:
        """What tasks took that started from it and have ended."""
        with contextlib.closing(store.connect_readonly(self.home.ledger)) as db:
            return measured(db, snapshot.id)

    # Tasks -----------------------------------------------------------------------------------------------------------------------

    def submit(self, repo: Repository, tasks: Sequence[TaskSpec]) -> str:
        """Order a run; its id."""
        submission = Submission(
            key=next(self._keys),
            project=repo.project,
            root=os.fspath(repo.root),
            common_dir=os.fspath(repo.common_dir),
            base_oid=repo.head,
            spec=RunSpec(title="bench", tasks=tuple(tasks)),
            env=allowed(os.environ),
        )
        return str(protocol.call(self.home.daemon_socket, "submit", to_wire(submission))["run"])

    def agents(self, repo: Repository, task: TaskSpec, count: int = 1) -> list[Agent]:
        """Order `count` of `task` at once and wait until all are up; they wait then."""
        names = [f"{task.name}{number}" for number in range(count)]
        run = self.submit(repo, [replace(task, name=name, title=name) for name in names])
        ids = [view.id for view in self.views(run)]
        places = [self.home.attempt(one, 1) for one in ids]

        def are_up() -> bool:
            self._check([view for view in self.views(run) if view.final])
            return all((place / "out" / "up").exists() for place in places)

        until(are_up, f"{count} agents to come up")
        admitted = {view.id: view.created or 0.0 for view in self.views(run)}
        said = [(place / "out" / "up").read_text().split() for place in places]
        return [Agent(one, place, admitted[one], float(up), warm == "1") for one, place, (up, warm) in zip(ids, places, said, strict=True)]

    def finish(self, agents: Sequence[Agent]) -> None:
        """Let them end, and wait until their work is secured."""
        for agent in agents:
            agent.let_go()
        self.ended(agents[0].task.partition("/")[0])

    def ended(self, run: str) -> list[queries.TaskView]:
        """Wait until every task of `run` has ended, in the plan's order. Raises ToolFailed for one that is not done."""
        views = self.finished(run)
        self._check(views)
        return views

    def finished(self, run: str) -> list[queries.TaskView]:
        """The same, however they end."""
        until(lambda: all(view.final for view in self.views(run)), "every task to end")
        return self.views(run)

    def exits(self, views: Sequence[queries.TaskView]) -> list[Exit]:
        """Return the exit record of each task's command."""
        found = [records.parse_exit((self.home.attempt(view.id, view.epoch) / "exit.json").read_text()) for view in views]
        return [record for record in found if record is not None]

    def views(self, run: str) -> list[queries.TaskView]:
        """Its tasks now."""
        with contextlib.closing(store.connect_readonly(self.home.ledger)) as db:
            return queries.of_run(db, run)

    def _check(self, views: Sequence[queries.TaskView]) -> None:
        for view in views:
            if view.end != "done":
                words = status.last_line(self.home.attempt(view.id, max(1, view.epoch)) / "stderr.log")
                raise ToolFailed("a task failed", on=view.id, why=": ".join(filter(None, (view.end_cause or view.reason, words))))


def until(condition: Callable[[], bool], what: str, look_s: float = _LOOK_S) -> None:
    """Wait until it holds, which is asked every `look_s`. Raises TimedOut after half an hour."""
    deadline = time.monotonic() + END_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimedOut("waited in vain for", on=what, why=f"{END_S:.0f} s passed")
        time.sleep(look_s)


@contextlib.contextmanager
def _environ(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
