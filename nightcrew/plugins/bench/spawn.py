"""`nightcrew bench spawn`: how fast agents come up, what they cost while they idle, how fast a crew is adopted, whether work slows with
what waits, and how fast what a crew left is cleaned up.

Ours and plain take turns within one run, so that a slow minute of the machine hits both.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import shutil
import sqlite3
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from nightcrew.plugins.bench.crews import (
    MB,
    Busy,
    Say,
    SupervisedRun,
    by_hand,
    cpu_s,
    end_server,
    environ,
    in_turns,
    make_repository,
    nightcrew,
    started_of,
    timed,
    until,
)
from nightcrew.plugins.bench.figures import Aim, grid, median_ms, milli, quantile, rows
from supervisor.host import cores, files, scratch
from supervisor.host.paths import Home
from supervisor.kernel import codec, result
from supervisor.kernel.errors import HostError, NightcrewError, TimedOut, one_line
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import End
from supervisor.sandbox import executors
from supervisor.server.attempts.worktree_records import facts
from supervisor.store import sqlite
from worktrees import collect_work, environments
from worktrees.environments import Confined, Environment
from worktrees.git import Git
from worktrees.repository import Repository, discover

RUN = "0101-bench"
FILES = 100
"""In each worktree that is cleaned."""
REMOVED = 100
"""At most so many of them are removed: one after the other, since git changes a repository's list of worktrees."""
RUN_TASKS = 200
REPEATS = 11

# A ledger without agents
# -----------------------


def insert(db: sqlite3.Connection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert rows of the same columns."""
    made = list(rows)
    columns = ", ".join(made[0])
    marks = ", ".join("?" for _ in made[0])
    db.executemany(f"INSERT INTO {table} ({columns}) VALUES ({marks})", [tuple(row.values()) for row in made])  # noqa: S608 - names of ours


def insert_run(
    db: sqlite3.Connection, run: str, project: str, base_oid: str, state: str, attempts: Mapping[str, Mapping[str, Any]]
) -> None:
    """Insert a run whose tasks are in `state`, with the columns of the first attempt of each, by its name."""
    spec = codec.dumps(TaskSpec("task", "a task", "shell", ("sh", "-c", "true")))
    what = {"project": project, "title": "bench", "base": "HEAD", "base_oid": base_oid, "env": "{}", "created": 0}
    insert(db, "run", [{"id": run, "key": run, **what}])
    ids = {name: {"id": f"{run}/{name}", "name": name} for name in attempts}
    same = {"run": run, "project": project, "title": "a task", "spec": spec, "state": state, "epoch": 1, "changed": 0}
    insert(db, "task", [{**one, **same} for one in ids.values()])
    insert(db, "attempt", [{"task": f"{run}/{name}", "epoch": 1, "created": 0, **known} for name, known in attempts.items()])


def fill(home: Home, repository: Repository, made: list[Environment]) -> None:
    """Make a new ledger, with an ended attempt for each environment."""
    with contextlib.closing(sqlite.connect(home.ledger)) as db, sqlite.transaction(db, home.ledger):
        db.execute("INSERT INTO project VALUES (?, ?, ?, 0)", (repository.project, str(repository.root), str(repository.common_dir)))
        attempts = {env.task.partition("/")[2]: {"state": "released", "end": "done", **facts(env)} for env in made}
        insert_run(db, RUN, repository.project, repository.head, "done", attempts)


# Cleaning
# --------
# The worktrees are made and secured by what the supervisor itself does at the begin and the end of an attempt; only the agents are
# left out. A third of them hold nothing, a third a commit that is on no other branch, and a third an ignored file.


@dataclass(frozen=True, slots=True)
class Took:
    """One call of the command."""

    first_line_s: float
    whole_s: float
    lines: int


def measure_cleaning(root: Path, worktrees: int, seed: int, say: Say) -> dict[str, Any]:
    """`clean{...}` of the report: of agents that had no sandbox; `confined` is of a ninth as many that had one, None where none works."""
    files.private_dir(root)
    shared = _of(root / "shared", worktrees, seed, say, None)
    works = any(executors.known().works.values())
    return {**shared, "confined": _of(root / "confined", max(3, worktrees // 9), seed, say, Confined()) if works else None}


def _of(root: Path, count: int, seed: int, say: Say, confined: Confined | None) -> dict[str, Any]:
    say(f"making {count} worktrees of {FILES} files, in tier {1 if confined else 0}")
    home = Home(files.private_dir(root))
    make_repository(root / "repo", seed, FILES)
    repository = discover(Git(home.root / "git"), root / "repo")
    (repository.common_dir / "info" / "exclude").write_text("*.cache\n")
    with ThreadPoolExecutor(2 * len(cores.usable())) as pool:
        made = list(pool.map(lambda number: ended(repository, home, number, confined), range(count)))
    fill(home, repository, made)
    some = made[:: -(-count // REMOVED)]
    say(f"nightcrew clean of {count} worktrees, then --yes of {len(some)}")
    with SupervisedRun(root, slots=2):
        look = _clean(home)
        removal = _clean(home, "--yes", "--discard", *(env.task for env in some))
    if look.lines != count or any(env.path.exists() for env in some):
        raise NightcrewError("nightcrew clean did not do what it should", why=f"{look.lines} of {count} were looked at")
    return {
        "worktrees": count,
        "ms_each": milli(look.whole_s / count),
        "first_line_s": round(look.first_line_s, 3),
        "removed": len(some),
        "remove_ms_each": milli(removal.whole_s / len(some)),
    }


def ended(repository: Repository, home: Home, number: int, confined: Confined | None) -> Environment:
    """Make the worktree of an attempt that has ended."""
    root = home.worktrees / repository.project
    env = environments.create(repository, f"{RUN}/t{number}", 1, repository.head, root, confined=confined)
    if number % 3 == 1:
        (env.path / "left.txt").write_text(f"{number}\n")
    collect_work.secure(env, "nightcrew: work left", always=True)
    if number % 3 == 2:
        (env.path / "some.cache").touch()
    environments.release(env)
    return env


def _clean(home: Home, *flags: str) -> Took:
    """Run `nightcrew clean`. Raises NightcrewError when it fails."""
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        argv, out = nightcrew("clean", *flags), subprocess.PIPE
        with subprocess.Popen(argv, env=environ(home.root), stdin=subprocess.DEVNULL, stdout=out, stderr=said) as clean:
            assert clean.stdout is not None  # noqa: S101 - for the types: it is a pipe
            first = clean.stdout.readline()
            first_line = time.monotonic()
            lines = bool(first) + sum(1 for _ in clean.stdout)
        if clean.returncode != 0:
            said.seek(0)
            raise NightcrewError("nightcrew clean failed", on=" ".join(flags), why=one_line(said.read().decode()))
    return Took(first_line - began, time.monotonic() - began, lines)


# A long history
# --------------


def status_s(root: Path, rows: int) -> float:
    """Seconds that `nightcrew status` takes with `rows` ended tasks and 200 running ones in the ledger: the median of 11 calls."""
    home = Home(files.private_dir(root))
    _fill_history(home.ledger, rows)
    return statistics.median(status_once_s(root) for _ in range(REPEATS))


def status_once_s(root: Path) -> float:
    """Seconds that one `nightcrew status` takes over the state directory `root`, from its start to its exit."""
    return timed(root, "status")[0]


def _fill_history(path: Path, rows: int) -> None:
    """Make a new ledger: `rows` ended tasks in runs of 200, each with attempt, result and journal; then a run of 200 that work."""
    work = result.Work(branch="nightcrew/work", tip="0" * 40, commits=1, files=2, plus=30, minus=4, rescue=None)
    times = result.Times(queued=0, spawned=0, ended=0)
    shape = result.build(task="task", epoch=1, end=End.DONE, cause="", record=None, times=times, work=work, output=None)
    ended = {"state": "released", "end": str(End.DONE), "result": json.dumps(shape)}
    with contextlib.closing(sqlite.connect(path)) as db, sqlite.transaction(db, path):
        db.execute("INSERT INTO project VALUES ('p', '/nowhere', '/nowhere/.git', 0)")
        for first in range(0, rows, RUN_TASKS):
            _insert_history(db, range(first, min(first + RUN_TASKS, rows)), "done", ended)
        _insert_history(db, range(rows, rows + RUN_TASKS), "running", {"state": "running"})


def _insert_history(db: sqlite3.Connection, numbers: range, state: str, attempt: Mapping[str, Any]) -> None:
    run = f"0101-{numbers[0]}"
    insert_run(db, run, "p", "oid", state, {str(number): attempt for number in numbers})
    events = ("ready", "start", "tree gone", "end done")
    insert(db, "journal", [{"at": 0, "task": f"{run}/{number}", "epoch": 1, "event": event} for number in numbers for event in events])


UP_S = 300.0
_LAST = b"\0"


Burst = tuple[float, ...]
"""Seconds from the order of agents that were ordered together to the first byte of each."""


def summary(bursts: Sequence[Burst]) -> dict[str, Any]:
    """Sum up one size: times of single agents over all bursts together, and the median burst's time until all were up."""
    whole = [seconds for burst in bursts for seconds in burst]
    return {
        "ms_p50": median_ms(whole),
        "ms_p99": milli(quantile(whole, 0.99)),
        "all_up_s": round(statistics.median(map(max, bursts)), 4),
        "rounds": len(bursts),
    }


class Arrivals:
    """Agents that each say that they are up, then wait without using anything until they are let go. A context that listens inside it.

    Two FIFOs: one in which agents write their name as their first act, and one on which they wait for a line.
    """

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
        """Return the monotonic seconds at which the line of each of `names` was read.

        Raises HostError with what `trouble` says, asked once a second while some are missing, and TimedOut after 300 s of silence.
        """
        deadline = time.monotonic() + UP_S
        with self._changed:
            while not self._changed.wait_for(lambda: all(name in self._seen for name in names), 1.0):
                missing = [name for name in names if name not in self._seen]
                which = f"{len(missing)} of {len(names)}"
                if why := trouble():
                    raise HostError("agents did not start", on=which, why=why)
                if time.monotonic() > deadline:
                    raise TimedOut("agents did not start", on=which, why=f"nothing of {missing[0]}")
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


class PlainGit:
    """The same work without nightcrew, as a shell script would do it: `git worktree add`, `tmux new-session`, one agent after the other,
    with a tmux server of its own and worktrees beside each other under `root`."""

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
        for name in names:
            tree = self._trees / name
            by_hand(["git", "worktree", "add", "-q", "-b", f"bench/{name}", str(tree), "HEAD"], self._repo)
            self._tmux("new-session", "-d", "-s", name, "-c", str(tree), *self._arrivals.argv(name))
        seen = self._arrivals.wait(names)
        self._arrivals.let_go(count)
        return tuple(at - ordered for at in seen.values())

    def end(self) -> None:
        """End every process of this side."""
        end_server(self._home)

    def _tmux(self, *words: str) -> None:
        by_hand(["tmux", "-f", "/dev/null", "-S", str(self._home.tmux_socket), *words], self._trees)


class Bursts:
    """One supervisor and the agents that are submitted to it together; a crew is known by the id of its run."""

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
        ordered = time.monotonic()
        crew = self._run.submit(self._repo, tasks)
        seen = self._arrivals.wait(names, lambda: "; ".join(self._alerts() - known))
        return tuple(at - ordered for at in seen.values()), crew

    def once(self, count: int) -> Burst:
        """Submit a burst, let its agents end, and wait until their work is secured."""
        burst, crew = self.burst(count)
        self._arrivals.let_go(count)
        self._run.ended(crew)
        return burst

    def until_running(self, crew: str) -> None:
        """Wait until the ledger has every agent of the crew as running, in its first attempt."""
        self._run.until_running(crew)
        if again := [view.id for view in self._run.views(crew) if view.epoch != 1]:
            raise NightcrewError("an agent was started again", on=again[0], why="it should have been adopted")

    def runners(self, crew: str) -> list[int]:
        """Return the process ids of the runners of a crew that is up."""
        return [started_of(self._run.home.attempt(view.id, 1)).identity.pid for view in self._run.views(crew)]

    def _alerts(self) -> set[str]:
        return set(self._run.ask("ping")["alerts"])


SCALE_FILES = 20
SLOTS = 8
MORE_IS_BETTER = "tasks_per_s"
PROCESSES = ("supervisor", "git", "tmux", "runner")


@dataclass(frozen=True, slots=True)
class Waiting:
    """How much of the work beside waiting tasks is measured."""

    sizes: tuple[int, ...] = (600, 12_000, 20_000)
    """Tasks that are submitted at once."""
    tasks: int = 200
    """Of these, how many are timed."""
    rounds: int = 2
    warm_up: int = 20
    """How many end before; with `tasks` fewer than half of the smallest size."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much is measured. The same seed gives the same repository."""

    rounds: Mapping[int, int] = field(default_factory=lambda: {1: 20, 10: 3, 50: 2})
    """Agents ordered together -> how often."""
    crew: int = 200
    """Agents that are ordered once, then idle and are adopted."""
    idle_s: float = 60.0
    history_rows: int = 100_000
    """Ended tasks in the ledger that `nightcrew status` is timed with."""
    waiting: Waiting = field(default_factory=Waiting)
    clean: int = 2700
    """Worktrees of ended attempts that `nightcrew clean` looks at."""
    files: int = 500
    """In the repository of the agents."""
    seed: int = 1


QUICK = Options(
    rounds={1: 5, 10: 2}, crew=20, idle_s=5.0, history_rows=10_000, waiting=Waiting(sizes=(300, 2000), tasks=110, rounds=1), clean=90
)
AIMS = (
    Aim("spawn.1.ms_p50", 120, name="one agent to its first byte, p50", unit="ms"),
    Aim("spawn.50.all_up_s", 5, name="50 agents up", unit="s"),
    Aim("spawn.200.all_up_s", 20, name="200 agents up", unit="s"),
    Aim("idle.cpu_percent", 3, name="supervisor with idle agents, of one core", unit="%"),
    Aim("idle.rss_mb", 100, name="supervisor's memory", unit="MB"),
    Aim("idle.runner_unshared_mb", 6, name="a runner's own memory", unit="MB"),
    Aim("adopt_s", 5, name="agents adopted after kill -9", unit="s"),
    Aim("clean.ms_each", 30, name="`nightcrew clean`, each worktree looked at", unit="ms"),
    Aim("clean.confined.ms_each", 30, name="the same where agents were confined", unit="ms"),
    Aim("clean.first_line_s", 2, name="its first line", unit="s"),
    Aim("status_ms", 150, name="`nightcrew status` over a long history", unit="ms"),
    Aim("scale.ratio.tasks_per_s", 1.3, name="a no-op task, most waiting over fewest", unit="x"),
    Aim("scale.ratio.daemon_cpu_ms_per_task", 1.3, name="CPU for one, most waiting over fewest", unit="x"),
    Aim("scale.ratio.status_ms", 1.3, name="`status`, most waiting over fewest", unit="x"),
    Aim("scale.ratio.tick_ms_p99", 1.3, name="tick, p99, most waiting over fewest", unit="x"),
    Aim("scale.ms_per_task", 25, name="a no-op task, fewest waiting", unit="ms"),
)
"""The full run's aims; a quick run is smaller and says so."""


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures; docs/bench.md describes every key. Raises what a tool raises, and TimedOut when agents do not start."""
    size = make_repository(root / "ours.git", options.seed, options.files)
    shutil.copytree(root / "ours.git", root / "plain.git")
    with Arrivals(root) as arrivals, contextlib.ExitStack() as stack:
        plain = PlainGit(root / "plain", root / "plain.git", arrivals)
        stack.callback(plain.end)
        with SupervisedRun(root / "ours", slots=max(options.crew, *options.rounds)) as run:
            ours = Bursts(run, root / "ours.git", arrivals)
            report, crew = _spawns(ours, plain, options, say)
            report |= _idle_and_adopt(run, ours, crew, options, say)
        say(f"no-op tasks, with {', '.join(map(str, options.waiting.sizes))} waiting")
        report["scale"] = measure_scale(files.private_dir(root / "scale"), options.seed, options.waiting)
    say(f"nightcrew status over {options.history_rows} ended tasks")
    report["status_ms"] = milli(status_s(root / "history", options.history_rows))
    report["clean"] = measure_cleaning(root / "clean", options.clean, options.seed, say)
    return report | {"repository": {"files": options.files, "bytes": size}}


def _spawns(ours: Bursts, plain: PlainGit, options: Options, say: Say) -> tuple[dict[str, Any], str]:
    """Return the figures of both sides, and the run of the crew that is left waiting."""
    plain.start()
    ours.once(1)  # not counted: on both sides the first one reads everything from the disk
    plain.burst(1)
    report: dict[str, Any] = {"spawn": {}, "plain": {}}
    for size, rounds in options.rounds.items():
        say(f"{size} agents at once, {rounds} rounds")
        ways = {"spawn": partial(ours.once, size), "plain": partial(plain.burst, size)}
        for side, bursts in in_turns(ways, rounds, lambda number: say(f"round {number}")).items():
            report[side][str(size)] = summary(bursts)
    say(f"{options.crew} agents at once")
    report["plain"][str(options.crew)] = summary([plain.burst(options.crew)])
    burst, crew = ours.burst(options.crew)
    report["spawn"][str(options.crew)] = summary([burst])
    smallest = str(min(options.rounds))
    report["ratio"] = round(report["spawn"][smallest]["ms_p50"] / report["plain"][smallest]["ms_p50"], 3)
    return report, crew


def _idle_and_adopt(run: SupervisedRun, ours: Bursts, crew: str, options: Options, say: Say) -> dict[str, Any]:
    ours.until_running(crew)
    say(f"{options.crew} agents idle for {options.idle_s:g} s")
    idle = _idle(run.process(), run.tmux(), ours.runners(crew), options.idle_s)
    say(f"kill -9 of the supervisor; a new one adopts {options.crew} agents")
    run.kill()
    began = time.monotonic()
    run.start()
    adopt_s = time.monotonic() - began
    ours.until_running(crew)
    return {"idle": idle, "adopt_s": round(adopt_s, 3)}


def _idle(supervisor: psutil.Process, tmux: psutil.Process, runners: Sequence[int], seconds: float) -> dict[str, Any]:
    ours, theirs, began = Busy(supervisor), Busy(tmux), time.monotonic()
    time.sleep(seconds)
    unshared = [psutil.Process(pid).memory_full_info().uss for pid in runners]
    return {
        "cpu_percent": ours.percent(),
        "tmux_cpu_percent": theirs.percent(),
        "rss_mb": round(supervisor.memory_info().rss / MB, 2),
        "runner_unshared_mb": round(statistics.median(unshared) / MB, 2),
        "agents": len(runners),
        "seconds": round(time.monotonic() - began, 1),
    }


# While tasks wait
# ----------------
# The same no-op tasks, at the head of a short and of a very long queue. Half of those that wait are ready, and each of the others
# comes after one of them. Every size has a supervisor and a state directory of its own; the sizes take turns.


@dataclass(frozen=True, slots=True)
class _Round:
    tasks_per_s: float
    cpu_s: Mapping[str, float]
    """For one task, of each of PROCESSES."""
    tick_ms_p99: float


def measure_scale(root: Path, seed: int, wanted: Waiting) -> dict[str, Any]:
    """Return the `scale` of the report; docs/bench.md describes every key. `root` is an empty directory."""
    make_repository(root / "repo.git", seed, files=SCALE_FILES)
    numbers = {size: itertools.count() for size in wanted.sizes}

    def one_round(size: int) -> _Round:
        return _round(root / f"{size}-{next(numbers[size])}", root / "repo.git", size, wanted)

    rounds = in_turns({str(size): partial(one_round, size) for size in wanted.sizes}, wanted.rounds)
    last = {size: root / f"{size}-{wanted.rounds - 1}" for size in rounds}  # they have no supervisor any more
    status = in_turns({size: partial(status_once_s, home) for size, home in last.items()}, REPEATS)
    waiting = {size: _summary(found, status[size]) for size, found in rounds.items()}
    least, most = waiting[str(wanted.sizes[0])], waiting[str(wanted.sizes[-1])]
    fewest = rounds[str(wanted.sizes[0])]
    return {
        "waiting": waiting,
        "ratio": _ratios(least, most),
        "ms_per_task": round(1000 / least["tasks_per_s"], 2),
        "cpu_ms": {name: median_ms(found.cpu_s[name] for found in fewest) for name in PROCESSES},
        "files": SCALE_FILES,
        "slots": SLOTS,
    }


def _round(home: Path, repo: Path, size: int, wanted: Waiting) -> _Round:
    with SupervisedRun(home, slots=SLOTS) as ours:
        supervisor, tmux = ours.process(), ours.tmux()
        ours.submit(ours.repository(repo), _tasks(size))
        before, cpu_before = _when_ended(ours, wanted.warm_up), _cpu_by_kind_s(supervisor, tmux)
        after, cpu_after = _when_ended(ours, len(before) + wanted.tasks), _cpu_by_kind_s(supervisor, tmux)
        tick_ms_p99 = ours.ask("ping")["tick_ms_p99"]
    passed = after[-1] - after[len(before) - 1]  # by rank: one that ended earlier may be collected later
    count = len(after) - len(before)
    return _Round(count / passed, {name: (cpu_after[name] - cpu_before[name]) / count for name in PROCESSES}, tick_ms_p99)


def _tasks(count: int) -> list[TaskSpec]:
    """No-op tasks in pairs: the second of each comes after the first."""
    first = [TaskSpec(f"a{number}", "waits", "shell", ("true",)) for number in range(count // 2)]
    return [*first, *(TaskSpec(f"b{number}", "waits", "shell", ("true",), after=(f"a{number}",)) for number in range(count - len(first)))]


def _when_ended(ours: SupervisedRun, count: int) -> list[float]:
    """Wait until `count` attempts have ended; return when each that has did, in order."""
    found: list[float] = []

    def have_ended() -> bool:
        with ours.ledger() as db:
            found[:] = [float(row[0]) for row in db.execute("SELECT ended FROM attempt WHERE ended IS NOT NULL ORDER BY ended")]
        return len(found) >= count

    until(have_ended, f"{count} tasks to end")
    return found


def _cpu_by_kind_s(supervisor: psutil.Process, tmux: psutil.Process) -> dict[str, float]:
    """Return the processor time so far of a supervisor, of what it waited for, of its tmux server, and of the processes of panes."""
    own, server = cpu_s(supervisor), cpu_s(tmux)
    with_git, with_panes = cpu_s(supervisor, children=True), cpu_s(tmux, children=True)
    return {"supervisor": own, "git": with_git - own, "tmux": server, "runner": with_panes - server}


def _summary(rounds: Sequence[_Round], status_s: Sequence[float]) -> dict[str, float]:
    """Return the medians over the rounds."""
    return {
        "tasks_per_s": round(statistics.median(found.tasks_per_s for found in rounds), 2),
        "daemon_cpu_ms_per_task": median_ms(found.cpu_s["supervisor"] for found in rounds),
        "status_ms": median_ms(status_s),
        "tick_ms_p99": round(statistics.median(found.tick_ms_p99 for found in rounds), 2),
    }


def _ratios(least: Mapping[str, float], most: Mapping[str, float]) -> dict[str, float]:
    """Return how many times as much each figure costs with most tasks waiting as with least: above 1 is worse, also for the rate."""
    costs = {name: most[name] / least[name] for name in least}
    costs[MORE_IS_BETTER] = 1 / costs[MORE_IS_BETTER]
    return {name: round(cost, 3) for name, cost in costs.items()}


def table(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    lines = [f"{'agents':>10}  {'':6}{'p50 ms':>9}{'p99 ms':>9}{'all up s':>10}"]
    for size, ours in report["spawn"].items():
        for who, found in (("ours", ours), ("plain", report["plain"][size])):
            lines.append(f"{size:>10}  {who:6}{found['ms_p50']:>9.1f}{found['ms_p99']:>9.1f}{found['all_up_s']:>10.2f}")
    lines += ["", f"one agent, ours over plain: {report['ratio']:.2f}", ""]
    if "scale" in report:
        lines += [*grid(report["scale"]["waiting"]), ""]
    return "\n".join([*lines, *rows((aim for aim in AIMS if aim.value(report) is not None), report)])
