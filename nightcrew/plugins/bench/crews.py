"""The harness of all benchmarks: a place of their own, generated files, commands as a person types them, a supervisor of their own, and
the processor time of processes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import psutil

from agents import zygote
from agents.tmux import Tmux
from supervisor.client import protocol, start
from supervisor.host import attempt_tokens, cores, processes, scratch, secrets
from supervisor.host.paths import Home
from supervisor.kernel import codec, records
from supervisor.kernel.errors import HostError, NightcrewError, TimedOut, ToolFailed, last_line
from supervisor.kernel.kind import allowed
from supervisor.kernel.names import Identity
from supervisor.kernel.records import Exit, Started, parse_started
from supervisor.kernel.snapshots import Snapshot, SnapshotSpec, SnapshotState
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.sandbox import exec_step
from supervisor.snapshots import rows as snapshots_rows
from supervisor.snapshots.order import Order
from supervisor.store import queries, sqlite
from supervisor.views import status
from worktrees import templates
from worktrees.backends import mounts
from worktrees.git import Git
from worktrees.repository import Repository, discover

T = TypeVar("T")
Say = Callable[[str], None]
MB = 10**6
END_S = 1800.0
_KILL_S = 10.0
GIT_ENV = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER") for what, text in
       (("NAME", "bench"), ("EMAIL", "bench@example.invalid"), ("DATE", "2001-01-01T00:00:00Z"))},
}  # fmt: skip

# The place, and turns
# --------------------


@contextlib.contextmanager
def private_place(under: Path | None) -> Iterator[Path]:
    """Make a private directory with a short path, since sockets lie in it, and remove it at the end."""
    root = Path(tempfile.mkdtemp(prefix="nightcrew-bench-", dir=under)).resolve()
    scratch.spread(root)  # so that neither side works where somebody has just removed files
    try:
        yield root
    finally:
        templates.remove_trees(root)  # also what a template write-protected, and nothing through a mount


def report(suite: ModuleType, options: Any, under: Path | None, say: Say) -> dict[str, Any]:
    """Measure a suite in a private place below `under` (None: the system's temporary directory). Return its figures, with `options` and
    the `machine`. Raises what a tool or a task raises; nothing is left behind then either."""
    before = machine()
    with private_place(under) as root:
        say(f"in {root}: {json.dumps(before)}")
        figures: dict[str, Any] = suite.measure(options, root, say)
        say(f"removing {root}")
    return figures | {"options": asdict(options), "machine": before}


def in_turns(ways: Mapping[str, Callable[[], T]], rounds: int, begin: Callable[[int], None] = lambda _: None) -> dict[str, list[T]]:
    """Return what each way gave, `rounds` times; `begin` is told the number of each round, from 1 on. The ways take turns, forwards and
    backwards, so that a slow minute of the machine hits all."""
    found: dict[str, list[T]] = {name: [] for name in ways}
    for number in range(1, rounds + 1):
        begin(number)
        for name in ways if number % 2 else reversed(list(ways)):
            found[name].append(ways[name]())
    return found


def until(condition: Callable[[], bool], what: str, look_s: float = 0.05) -> None:
    """Wait until `condition` holds, which is asked every `look_s`. Raises TimedOut after half an hour."""
    deadline = time.monotonic() + END_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimedOut("waited in vain for", on=what, why=f"{END_S:.0f} s passed")
        time.sleep(look_s)


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


# Generated files
# ---------------

_WORDS = ("agent", "branch", "commit", "epoch", "fence", "hook", "journal", "kernel", "ledger", "merge", "pane", "queue", "runner", "tree")
_FILE_BYTES = 5400
_IN_A_FOLDER = 20


def make_files(path: Path, seed: int, count: int, size: int, *, text: bool = True) -> int:
    """Write `count` files of together about `size` bytes below the directory `path`: words, or bytes that nobody can compress. Most are
    small, some ten times that, as in a library of source code. The same seed gives the same files. Returns their bytes."""
    draw = random.Random(seed)  # noqa: S311 - text to fill files with, not a secret
    lines = [" ".join(draw.choices(_WORDS, k=draw.randint(1, 14))) + "\n" for _ in range(512)]
    weights = [min(20.0, draw.lognormvariate(0.0, 1.0)) for _ in range(count)]
    line_bytes, written = sum(map(len, lines)) / len(lines), 0
    for number, weight in enumerate(weights):
        wanted = max(1, int(size * weight / sum(weights)))
        data = "".join(draw.choices(lines, k=max(1, round(wanted / line_bytes)))).encode() if text else draw.randbytes(wanted)
        file = path / f"part{number // _IN_A_FOLDER:03d}" / f"file{number:05d}{'.txt' if text else ''}"
        file.parent.mkdir(parents=True, exist_ok=True)
        written += file.write_bytes(data)
    return written


def make_repository(path: Path, seed: int, files: int) -> int:
    """Make a repository of one commit with text files; the same seed gives the same commit. Returns the bytes of its files."""
    size = make_files(path, seed, files, files * _FILE_BYTES)
    commit_all(path)
    return size


def commit_all(path: Path) -> None:
    """Make the directory a repository of one commit with all its files, also those that it ignores, packed as a clone is."""
    for words in ("init -q -b main", "add -A -f", "commit -q -m files", "repack -a -d -q"):
        by_hand(["git", *words.split()], path)


# Commands
# --------


def nightcrew(*words: str) -> list[str]:
    """The command that a person types, as a program of this very installation."""
    return [sys.executable, "-I", "-m", "supervisor.cli.main", *words]


def environ(root: Path) -> dict[str, str]:
    """The environment of a person whose state directory is `root` and whose settings lie beside it."""
    return {**os.environ, "NIGHTCREW_HOME": str(root), "NIGHTCREW_CONFIG": str(settings_of(root))}


def settings_of(root: Path) -> Path:
    """The settings of the state directory `root`."""
    return root.with_name(f"{root.name}.toml")


def timed(root: Path, *words: str, cwd: Path | None = None, judges: bool = False, **more: str) -> tuple[float, str]:
    """Run `nightcrew` with `words` over the state directory `root`; return the seconds from its start to its exit, and what it printed.
    `judges`: its exit code is a verdict when it printed something. `more` are variables. Raises ToolFailed when it failed."""
    began = time.monotonic()
    done = subprocess.run(
        nightcrew(*words), cwd=cwd, env=environ(root) | more, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    took = time.monotonic() - began
    if done.returncode and not (judges and done.stdout):
        raise ToolFailed(f"nightcrew {words[0]} failed", on=" ".join(words[1:3]), why=last_line(done.stderr))
    return took, done.stdout


def by_hand(argv: Sequence[str], cwd: Path) -> None:
    """Run a command as a script would, but with nobody's git configuration. Raises ToolFailed with its last words."""
    own = {name: text for name, text in os.environ.items() if not name.startswith(("GIT_", "TMUX"))}
    done = processes.run(argv, cwd, own | GIT_ENV)
    if done.returncode != 0:
        raise ToolFailed(f"{argv[0]} failed", on=" ".join(argv[1:3]), why=last_line(done.stderr.decode("utf-8", "replace")))


# Processor time
# --------------


def cpu_s(process: psutil.Process, *, children: bool = False) -> float:
    """Return the processor time of a process so far; with `children`, also of those that it has waited for."""
    times = process.cpu_times()
    own = float(times.user + times.system)
    return own + float(times.children_user + times.children_system) if children else own


def children_cpu_s() -> float:
    """Return the processor time of all our children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Busy:
    """How busy a process is, in percent of one core, from now on."""

    def __init__(self, process: psutil.Process, *, children: bool = False) -> None:
        self._process, self._children = process, children
        self._before, self._began = cpu_s(process, children=children), time.monotonic()

    def percent(self) -> float:
        """Return the percentage until now."""
        used = cpu_s(self._process, children=self._children) - self._before
        return round(100 * used / (time.monotonic() - self._began), 2)


# The end of processes
# --------------------


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


# Supervised run
# --------------
# The real path: a supervisor in a state directory of its own, with snapshots and tasks that are submitted through its socket.


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent that writes into its `out/up` when its own code began, then waits for `out/go`. Times are wall-clock seconds."""

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
        """The start record of its runner. Raises ToolFailed when that never claimed the attempt."""
        return started_of(self.directory)


def started_of(attempt: Path) -> Started:
    """The start record in an attempt's directory. Raises ToolFailed when its runner never claimed it."""
    started = parse_started((attempt / "started.json").read_text())
    if started is None:
        raise ToolFailed("no start record", on=str(attempt))
    return started


class SupervisedRun:
    """One supervisor, started as `nightcrew up -d` starts it. Tasks run without a sandbox unless they ask for one, or it is `sandboxed`."""

    def __init__(self, root: Path, slots: int, path: str | None = None, more: str = "", *, sandboxed: bool = False) -> None:
        """`path` replaces PATH for the supervisor alone; `more` is the rest of its settings."""
        self.home = Home(root)
        self.settings = settings_of(root)
        self.settings.write_text(f"slots = {slots}\n{'' if sandboxed else 'sandbox = 0'}\n[limits]\ndisk_free_min = 0\n{more}")
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
        """Have the supervisor run and be ready; return its pid."""
        before = os.environ.get("PATH", os.defpath)
        os.environ["PATH"] = self.path or before
        try:
            return int(start.ensure_running(self.home, self.settings, lambda _: None)["pid"])
        finally:
            os.environ["PATH"] = before

    def ask(self, verb: str, timeout_s: float = 60.0, **args: Any) -> dict[str, Any]:
        """Ask the supervisor over its socket."""
        return protocol.call(self.home.daemon_socket, verb, args, timeout_s=timeout_s)

    def process(self) -> psutil.Process:
        """The supervisor's process."""
        return psutil.Process(self.start())

    def tmux(self) -> psutil.Process:
        """Its tmux server. Raises ToolFailed when there is none."""
        with Tmux(self.home.tmux_socket) as tmux:
            pid = tmux.server_pid()
        if pid is None:
            raise ToolFailed("no tmux server answers", on=str(self.home.tmux_socket))
        return psutil.Process(pid)

    def kill(self) -> None:
        """`kill -9` the supervisor alone; its agents go on."""
        who = processes.identity(int(self.ask("ping")["pid"]))
        if who is not None:
            processes.send(who, signal.SIGKILL)
            until(lambda: not processes.alive(who), "the supervisor to die")

    def end(self) -> None:
        """End every process of this side, and unmount what it mounted."""
        with contextlib.suppress(NightcrewError):  # it need not run any more
            self.ask("down", 10.0, now=True)
        end_server(self.home)
        for mount in mounts(self.home.root.resolve()):
            exec_step.unmount(mount.path, lazy=True)

    def repository(self, path: Path) -> Repository:
        """The repository as this supervisor knows it."""
        return discover(Git(self.home.root / "git"), path)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Any]:
        """Open the ledger for reading."""
        with contextlib.closing(sqlite.connect_readonly(self.home.ledger)) as db:
            yield db

    def snapshot(self, repo: Repository, spec: SnapshotSpec) -> Snapshot:
        """Have a snapshot made. Raises ToolFailed when a command or a check failed."""
        order = Order(repo.project, str(repo.root), str(repo.common_dir), spec, repo.head, {}, (), allowed(os.environ))
        begun = self.ask("snapshot", op="create", order=codec.shape(order), agreed=True)
        row: list[Snapshot] = []

        def is_over() -> bool:
            with self.ledger() as db:
                row[:] = [snapshots_rows.find(db, begun["id"], repo.project)]
            return row[0].state is not SnapshotState.BUILDING

        until(is_over, f"snapshot {spec.name}")
        if row[0].state is not SnapshotState.READY:
            raise ToolFailed("no snapshot was made", on=spec.name, why=row[0].reason)
        return row[0]

    # Tasks -----------------------------------------------------------------------------------------------------------------------

    def submit(self, repo: Repository, tasks: Sequence[TaskSpec]) -> str:
        """Order a run; return its id."""
        submission = Submission(
            key=next(self._keys),
            project=repo.project,
            root=os.fspath(repo.root),
            common_dir=os.fspath(repo.common_dir),
            base_oid=repo.head,
            spec=RunSpec(title="bench", tasks=tuple(tasks)),
            env=allowed(os.environ),
        )
        return str(self.ask("submit", **codec.shape(submission))["run"])

    def living(self, repo: Path, *tasks: TaskSpec) -> list[queries.TaskView]:
        """Order a run in the repository at `repo` and wait until all its tasks run."""
        run = self.submit(self.repository(repo), tasks)
        self.until_running(run)
        return self.views(run)

    def sleeping(self, root: Path, count: int) -> tuple[Repository, list[queries.TaskView], list[str]]:
        """Make a small repository at `root` and have `count` agents sleep in it; return it, the agents, and their tokens at
        `agents.sock`."""
        make_repository(root, 1, files=3)
        views = self.living(root, *(TaskSpec(f"a{number}", f"a{number}", "shell", ("sleep", "36000")) for number in range(count)))
        secret = secrets.own(self.home.secret)
        return self.repository(root), views, [attempt_tokens.derive(secret, view.id, view.epoch) for view in views]

    def until_running(self, run: str) -> None:
        """Wait until the ledger has every task of `run` as running."""
        until(lambda: all(view.attempt_state == "running" for view in self.views(run)), f"every task of {run} to run")

    def agents(self, repo: Repository, task: TaskSpec, count: int = 1) -> list[Agent]:
        """Order `count` of `task` at once and wait until all are up; they wait then."""
        names = [f"{task.name}{number}" for number in range(count)]
        run = self.submit(repo, [replace(task, name=name, title=name) for name in names])
        places = {view.id: self.home.attempt(view.id, 1) for view in self.views(run)}

        def are_up() -> bool:
            self._check([view for view in self.views(run) if view.final])
            return all((place / "out" / "up").exists() for place in places.values())

        until(are_up, f"{count} agents to come up")
        found = []
        for view in self.views(run):
            up, warm = (places[view.id] / "out" / "up").read_text().split()
            found.append(Agent(view.id, places[view.id], view.created or 0.0, float(up), warm == "1"))
        return found

    def finish(self, agents: Sequence[Agent]) -> None:
        """Let agents end, and wait until their work is secured."""
        for agent in agents:
            (agent.directory / "out" / "go").write_text("")
        self.ended(agents[0].task.partition("/")[0])

    def ended(self, run: str) -> list[queries.TaskView]:
        """Wait until every task of `run` has ended, in the plan's order. Raises ToolFailed for one that is not done."""
        views = self.finished(run)
        self._check(views)
        return views

    def finished(self, run: str) -> list[queries.TaskView]:
        """Do the same, however they end."""
        until(lambda: all(view.final for view in self.views(run)), "every task to end")
        return self.views(run)

    def exits(self, views: Sequence[queries.TaskView]) -> list[Exit]:
        """Return the exit record of each task's command."""
        found = [records.parse_exit((self.home.attempt(view.id, view.epoch) / "exit.json").read_text()) for view in views]
        return [record for record in found if record is not None]

    def views(self, run: str) -> list[queries.TaskView]:
        """Return its tasks as they are now."""
        with self.ledger() as db:
            return queries.of_run(db, run)

    def _check(self, views: Sequence[queries.TaskView]) -> None:
        for view in views:
            if view.end != "done":
                words = status.last_line(self.home.attempt(view.id, max(1, view.epoch)) / "stderr.log")
                raise ToolFailed("a task failed", on=view.id, why=": ".join(filter(None, (view.end_cause or view.reason, words))))
