"""What the benchmarks share: workspaces, supervised runs and bursts of agents."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import psutil

from agents import zygote
from agents.tmux import Tmux
from nightcrew.plugins.bench.figures import Burst, Spawn
from supervisor.client import protocol, start
from supervisor.features.snapshots import rows as snapshots_rows
from supervisor.features.snapshots.order import Order
from supervisor.features.snapshots.rules import Snapshot, SnapshotSpec, SnapshotState
from supervisor.features.snapshots.view import Measured, measured
from supervisor.host import cores, files, processes, scratch
from supervisor.host.paths import Home
from supervisor.kernel import records
from supervisor.kernel.errors import HostError, NightcrewError, TimedOut, ToolFailed, last_line
from supervisor.kernel.kind import allowed
from supervisor.kernel.names import Identity
from supervisor.kernel.records import Exit, Started, parse_started
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.sandbox import exec_step
from supervisor.store import queries, sqlite
from supervisor.views import status
from worktrees import templates
from worktrees.backends.overlay import mounts
from worktrees.git import Git
from worktrees.repository import Repository, discover

# Workspace
# ---------
# What benchmarks share: a directory of their own, a generated repository, turns, and the end of every process that was started
# there.


T = TypeVar("T")

FILES = 500
_WORDS = ("agent", "branch", "commit", "epoch", "fence", "hook", "journal", "kernel", "ledger", "merge", "pane", "queue", "runner", "tree")
_KILL_S = 10.0
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GIT_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in
       (("NAME", "bench"), ("EMAIL", "bench@example.invalid"), ("DATE", "2001-01-01T00:00:00Z"))},
}  # fmt: skip


def nightcrew(*words: str) -> list[str]:
    """The command that a person types, as a program of this very installation."""
    return [sys.executable, "-I", "-m", "supervisor.cli.main", *words]


def by_hand(argv: Sequence[str], cwd: Path) -> None:
    """Run a command as a script would, but with nobody's git configuration. Raises ToolFailed with its last words."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("GIT_", "TMUX"))}
    process = None
    try:
        with _signals_deferred():  # a stop inside Popen would leave a child that nobody knows
            process = subprocess.Popen(
                argv,
                cwd=cwd,
                env=own | GIT_ENV,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,
            )
        _, said = process.communicate()
    except BaseException:  # interrupted: git's own children would go on writing files
        if process is not None:
            _end_group(process)
        raise
    if process.returncode != 0:
        raise ToolFailed(f"{argv[0]} failed", on=" ".join(argv[1:3]), why=last_line(said))


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Signals that end a benchmark are handled when the block is over. For the main thread."""
    came: list[int] = []
    try:
        with contextlib.ExitStack() as stack:
            for stop in _STOPS:
                before = signal.getsignal(stop)
                if callable(before):  # the others end us at once, or are ignored by the tool as well
                    stack.callback(signal.signal, stop, before)
                    signal.signal(stop, lambda number, _: came.append(number))
            yield
    finally:
        for number in came[:1]:
            signal.raise_signal(number)


def _end_group(process: subprocess.Popen[str]) -> None:
    if process.returncode is None:  # not reaped, so the number is still its own
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with contextlib.suppress(ProcessLookupError):
        while True:
            os.killpg(process.pid, 0)
            time.sleep(0.005)


@contextlib.contextmanager
def private_place(under: Path | None) -> Iterator[Path]:
    """A private directory with a short path, since sockets lie in it."""
    root = Path(tempfile.mkdtemp(prefix="nightcrew-bench-", dir=under)).resolve()
    scratch.spread(root)  # so that neither side works where somebody has just removed files
    try:
        yield root
    finally:
        templates.remove_trees(root)  # also what a template write-protected, and nothing through a mount


def in_turns(ways: Mapping[str, Callable[[], T]], rounds: int, begin: Callable[[int], None] = lambda _: None) -> dict[str, list[T]]:
    """What each way gave, `rounds` times; `begin` is told the number of each round, from 1 on. The ways take turns, forwards and backwards,
    so that a slow minute of the machine hits all."""
    found: dict[str, list[T]] = {name: [] for name in ways}
    for number in range(1, rounds + 1):
        begin(number)
        for name in ways if number % 2 else reversed(list(ways)):
            found[name].append(ways[name]())
    return found


def make_repository(path: Path, seed: int, files: int = FILES) -> int:
    """A repository of one commit, packed as a clone is; the same seed gives the same commit. Returns the bytes of its files."""
    draw = random.Random(seed)  # noqa: S311 - text to fill files with, not a secret
    size = 0
    for number in range(files):
        # Sizes as in a library of source code: most are a few kB, some are ten times that.
        lines = min(1000, int(draw.lognormvariate(4.3, 1.0)))
        text = "".join(" ".join(draw.choices(_WORDS, k=draw.randint(1, 14))) + "\n" for _ in range(lines))
        file = path / f"part{number % 25:02d}" / f"file{number:03d}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        size += len(text)
    commit_all(path)
    return size


def commit_all(path: Path) -> None:
    """Make the directory a repository of one commit with all its files, also those that it ignores, packed as a clone is."""
    for words in ("init -q -b main", "add -A -f", "commit -q -m files", "repack -a -d -q"):
        by_hand(["git", *words.split()], path)


def busy_s(process: psutil.Process | None) -> float:
    """Processor time so far; children do not count."""
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


def machine() -> dict[str, Any]:
    """What was measured on."""
    return {
        "cores": len(cores.usable()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "git": _version("git", "version"),
        "tmux": _version("tmux", "-V"),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def _version(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[-1]


def end_server(home: Home) -> None:
    """End the tmux server and the warm processes of `home` and all that runs below them, each by its identity. Raises HostError for what
    will not end."""
    with Tmux(home.tmux_socket) as tmux:
        pid = tmux.server_pid()
    server = processes.identity(pid) if pid is not None else None
    if server is not None:
        _end(server)
    for socket in (home.run_dir / "z").glob("*.z"):  # their agents are not below the server
        record = zygote.find(zygote.Place(socket))
        if record is not None:
            _end(record.identity)
    shutil.rmtree(home.run_dir, ignore_errors=True)  # not below `home` when that path is too long for a socket


def _end(server: Identity) -> None:
    held: list[Identity] = []
    # Frozen first: nobody can fork away from below the server while the others are ended.
    while new := [who for who in [server, *processes.tree(server)] if who not in held]:
        for who in new:
            processes.send(who, signal.SIGSTOP)
        held += new
    for who in held:
        processes.send(who, signal.SIGKILL)
    deadline = time.monotonic() + _KILL_S
    while left := [who.pid for who in held if processes.alive(who)]:
        if time.monotonic() > deadline:
            raise HostError("processes do not end", on=str(left), why=f"they outlived KILL for {_KILL_S:.0f} s")
        time.sleep(0.01)


# Arrivals
# --------
# The agents of a benchmark: each says that it is up, then waits without using anything until it is let go.
#
# Two FIFOs: one in which agents write their name as their first act, and one on which they wait for a line.


UP_S = 300.0
_LAST = b"\0"


class Arrivals:
    """A context that listens inside it."""

    def __init__(self, directory: Path) -> None:
        self._up, self._go = directory / "up", directory / "go"
        self._seen: dict[str, float] = {}
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._listen, name="arrivals")

    def __enter__(self) -> Arrivals:
        for path in (self._up, self._go):
            os.mkfifo(path, 0o600)
        # Both ends by us: nobody's open blocks, and no reader meets an end of file when the last writer leaves.
        self._up_fd = os.open(self._up, os.O_RDWR | os.O_CLOEXEC)
        self._go_fd = os.open(self._go, os.O_RDWR | os.O_CLOEXEC)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.write(self._up_fd, _LAST)
        self._reader.join()
        os.close(self._up_fd)
        os.close(self._go_fd)

    def argv(self, name: str) -> tuple[str, ...]:
        """The agent `name`: a shell that writes its name, then waits in a read."""
        return ("sh", "-c", f"echo {shlex.quote(name)} >{shlex.quote(str(self._up))}; read line <{shlex.quote(str(self._go))}")

    def wait(self, names: Collection[str], trouble: Callable[[], str] = str) -> dict[str, float]:
        """Monotonic seconds at which the line of each of `names` was read.

        Raises HostError with what `trouble` says, asked once a second while some are missing, and TimedOut after 300 s of silence.
        """
        deadline = time.monotonic() + UP_S
        with self._changed:
            while not self._changed.wait_for(lambda: all(name in self._seen for name in names), 1.0):
                missing = [name for name in names if name not in self._seen]
                if why := trouble():
                    raise HostError("agents did not start", on=f"{len(missing)} of {len(names)}", why=why)
                if time.monotonic() > deadline:
                    raise TimedOut("agents did not start", on=f"{len(missing)} of {len(names)}", why=f"nothing of {missing[0]}")
            return {name: self._seen[name] for name in names}

    def let_go(self, count: int) -> None:
        """Let `count` waiting agents end."""
        os.write(self._go_fd, b"\n" * count)

    def _listen(self) -> None:
        held = b""
        while not held.endswith(_LAST):
            data = os.read(self._up_fd, 65536)
            now = time.monotonic()
            *lines, held = (held + data).split(b"\n")
            with self._changed:
                self._seen.update((line.decode(), now) for line in lines)
                self._changed.notify_all()


# Plain git
# ---------
# The same work without nightcrew, as a shell script would do it: `git worktree add`, `tmux new-session`, one agent after the other.


class PlainGit:
    """A tmux server of its own, and worktrees beside each other under `root`."""

    def __init__(self, root: Path, repo: Path, arrivals: Arrivals) -> None:
        self._trees = root / "trees"
        self._home = Home(root)  # for a socket whose path is short enough
        self._repo = repo
        self._arrivals = arrivals
        self._names = (f"plain{number}" for number in itertools.count())

    def start(self) -> None:
        """Have the server run already, as ours does. The worktrees lie as ours do, so that the tools are compared and not places."""
        files.private_dir(self._home.run_dir)
        self._trees.mkdir(parents=True)
        scratch.spread(self._trees)
        self._tmux("start-server", ";", "set-option", "-s", "exit-empty", "off")

    def burst(self, count: int) -> Burst:
        """Start `count` agents, wait until all are up, and end them."""
        names = list(itertools.islice(self._names, count))
        ordered = time.monotonic()
        made = {name: self._spawn(name) for name in names}
        seen = self._arrivals.wait(names)
        self._arrivals.let_go(count)
        return tuple(
            Spawn.between(ordered, tree, min(pane, seen[name]), min(pane, seen[name]), seen[name]) for name, (tree, pane) in made.items()
        )

    def end(self) -> None:
        """End every process of this side."""
        end_server(self._home)

    def _spawn(self, name: str) -> tuple[float, float]:
        tree = self._trees / name
        by_hand(["git", "worktree", "add", "-q", "-b", f"bench/{name}", str(tree), "HEAD"], self._repo)
        has_tree = time.monotonic()
        self._tmux("new-session", "-d", "-s", name, "-c", str(tree), *self._arrivals.argv(name))
        return has_tree, time.monotonic()

    def _tmux(self, *words: str) -> None:
        by_hand(["tmux", "-f", "/dev/null", "-S", str(self._home.tmux_socket), *words], self._trees)


# Supervised run
# --------------
# The real path: a supervisor in a state directory of its own, with snapshots and tasks that are submitted through its socket.


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
            exec_step.unmount(mount.path, lazy=True)

    def repository(self, path: Path) -> Repository:
        """As this supervisor knows it."""
        return discover(Git(self.home.root / "git"), path)

    # Snapshots -------------------------------------------------------------------------------------------------------------------

    def snapshot(self, repo: Repository, spec: SnapshotSpec) -> Snapshot:
        """Have it made. Raises ToolFailed when a command or a check failed."""
        env = allowed(os.environ, {name for name in os.environ if name.startswith(_INSTALLERS) or name.upper() in _NETWORK})
        order = Order(repo.project, str(repo.root), str(repo.common_dir), spec, repo.head, {}, (), env)
        begun = protocol.call(self.home.daemon_socket, "snapshot", {"do": "create", "order": order, "agreed": True})
        row: list[Snapshot] = []

        def is_over() -> bool:
            with contextlib.closing(sqlite.connect_readonly(self.home.ledger)) as db:
                row[:] = [snapshots_rows.find(db, begun["id"], repo.project)]
            return row[0].state is not SnapshotState.BUILDING

        until(is_over, f"snapshot {spec.name}")
        if row[0].state is not SnapshotState.READY:
            raise ToolFailed("no snapshot was made", on=spec.name, why=row[0].reason)
        return row[0]

    def measured(self, snapshot: Snapshot) -> Measured:
        """What tasks took that started from it and have ended."""
        with contextlib.closing(sqlite.connect_readonly(self.home.ledger)) as db:
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
        return str(protocol.call(self.home.daemon_socket, "submit", submission)["run"])

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
        with contextlib.closing(sqlite.connect_readonly(self.home.ledger)) as db:
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


# Bursts
# ------
# Agents that are submitted together to a supervisor, and where the time of each went until its first byte.


class Bursts:
    """One supervisor and the agents that are submitted to it; a crew is known by the id of its run."""

    def __init__(self, run: SupervisedRun, repo: Path, arrivals: Arrivals) -> None:
        self._run = run
        self._repo = run.repository(repo)
        self._arrivals = arrivals
        self._names = (f"ours{number}" for number in itertools.count())

    def burst(self, count: int) -> tuple[Burst, str]:
        """Submit `count` agents as one run and wait until all are up; they are left waiting. Returns their times and the run."""
        names = list(itertools.islice(self._names, count))
        tasks = [TaskSpec(name, name, "shell", self._arrivals.argv(name)) for name in names]
        known = self._alerts()
        ordered, offset = time.monotonic(), time.time() - time.monotonic()
        crew = self._run.submit(self._repo, tasks)
        seen = self._arrivals.wait(names, lambda: "; ".join(self._alerts() - known))
        return tuple(self._spawn(view.id, ordered, offset, seen[view.name]) for view in self._run.views(crew)), crew

    def finish(self, crew: str) -> None:
        """Let the agents end and wait until their work is secured."""
        self._arrivals.let_go(len(self._run.views(crew)))
        self._run.ended(crew)

    def until_running(self, crew: str) -> None:
        """Wait until the ledger has every agent of the crew as running, in its first attempt."""
        until(lambda: all(view.attempt_state == "running" for view in self._run.views(crew)), "every agent to be seen")
        if again := [view.id for view in self._run.views(crew) if view.epoch != 1]:
            raise NightcrewError("an agent was started again", on=again[0], why="it should have been adopted")

    def runners(self, crew: str) -> list[int]:
        """Process ids of the runners of a crew that is up."""
        return [self._started(view.id).identity.pid for view in self._run.views(crew)]

    def _alerts(self) -> set[str]:
        return set(protocol.call(self._run.home.daemon_socket, "ping", {})["alerts"])

    def _started(self, task: str) -> Started:
        started = parse_started((self._run.home.attempt(task, 1) / "started.json").read_text())
        if started is None:
            raise NightcrewError("no start record of", on=task)
        return started

    def _spawn(self, task: str, ordered: float, offset: float, first_byte: float) -> Spawn:
        """Where the time went, from what the attempt left on disk; `offset` is wall clock less monotonic clock, in seconds."""
        started = self._started(task)
        has_spec = (self._run.home.attempt(task, 1) / "launch.spec").stat().st_mtime - offset
        has_pane = Path(f"/proc/{started.identity.pid}/fd/0").stat().st_ctime - offset
        return Spawn.between(ordered, has_spec, has_pane, started.at - offset, first_byte)
