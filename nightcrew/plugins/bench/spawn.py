"""`nightcrew bench spawn`: how fast agents come up and what idle agents cost."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from nightcrew.plugins.bench import figures, verbs
from nightcrew.plugins.bench.crews import (
    FILES,
    Arrivals,
    Bursts,
    PlainGit,
    SupervisedRun,
    busy_s,
    in_turns,
    machine,
    make_repository,
    private_place,
    until,
)
from nightcrew.plugins.bench.figures import Burst, milli
from nightcrew.plugins.bench.verbs import status_once_s
from supervisor.client import protocol
from supervisor.host import files
from supervisor.kernel.spec import TaskSpec
from supervisor.store import sqlite

# Scale
# -----
# Whether work slows with what waits: the same no-op tasks, at the head of a short and of a very long queue.
#
# Half of those that wait are ready, and each of the others comes after one of them. Every size has a supervisor and a state
# directory of its own; the sizes take turns, so that a slow minute of the machine hits all of them.


SCALE_FILES = 20
SLOTS = 8
STATUS_REPEATS = 11
MORE_IS_BETTER = "tasks_per_s"
PROCESSES = ("supervisor", "git", "tmux", "runner")


@dataclass(frozen=True, slots=True)
class Waiting:
    """How much is measured."""

    sizes: tuple[int, ...] = (600, 12_000, 20_000)
    """Tasks that are submitted at once."""
    tasks: int = 200
    """Of these, how many are timed."""
    rounds: int = 2
    warm_up: int = 20
    """How many end before; with `tasks` fewer than half of the smallest size."""


@dataclass(frozen=True, slots=True)
class _Round:
    tasks_per_s: float
    cpu_s: Mapping[str, float]
    """For one task, of each of PROCESSES."""
    tick_ms_p99: float


def measure_scale(root: Path, seed: int, wanted: Waiting) -> dict[str, Any]:
    """The `scale` of the report; docs/bench.md describes every key. `root` is an empty directory."""
    make_repository(root / "repo.git", seed, files=SCALE_FILES)
    numbers = {size: itertools.count() for size in wanted.sizes}

    def one_round(size: int) -> _Round:
        return _round(root / f"{size}-{next(numbers[size])}", root / "repo.git", size, wanted)

    rounds = in_turns({str(size): partial(one_round, size) for size in wanted.sizes}, wanted.rounds)
    last = {size: root / f"{size}-{wanted.rounds - 1}" for size in rounds}  # they have no supervisor any more
    status = in_turns({size: partial(status_once_s, home) for size, home in last.items()}, STATUS_REPEATS)
    waiting = {size: _summary(found, statistics.median(status[size])) for size, found in rounds.items()}
    least, most = waiting[str(wanted.sizes[0])], waiting[str(wanted.sizes[-1])]
    shape = {"waiting": waiting, "ratio": _ratios(least, most), "ms_per_task": round(1000 / least["tasks_per_s"], 2)}
    fewest = rounds[str(wanted.sizes[0])]
    cpu = {name: milli(statistics.median(found.cpu_s[name] for found in fewest)) for name in PROCESSES}
    return shape | {"cpu_ms": cpu, "files": SCALE_FILES, "slots": SLOTS}


def _round(home: Path, repo: Path, size: int, wanted: Waiting) -> _Round:
    with SupervisedRun(home, slots=SLOTS) as ours:
        supervisor, tmux = psutil.Process(ours.start()), ours.tmux()
        ours.submit(ours.repository(repo), _tasks(size))
        _until_ended(ours, wanted.warm_up)
        before, cpu_before = _ended(ours), _busy_by_kind_s(supervisor, tmux)
        _until_ended(ours, len(before) + wanted.tasks)
        after, cpu_after = _ended(ours), _busy_by_kind_s(supervisor, tmux)
        tick_ms_p99 = protocol.call(ours.home.daemon_socket, "ping", {})["tick_ms_p99"]
    passed = after[-1] - after[len(before) - 1]  # by rank: one that ended earlier may be collected later
    count = len(after) - len(before)
    cpu_s = {name: (cpu_after[name] - cpu_before[name]) / count for name in PROCESSES}
    return _Round(count / passed, cpu_s, tick_ms_p99)


def _tasks(count: int) -> list[TaskSpec]:
    """No-op tasks in pairs: the second of each comes after the first."""
    first = [TaskSpec(f"a{number}", "waits", "shell", ("true",)) for number in range(count // 2)]
    return [*first, *(TaskSpec(f"b{number}", "waits", "shell", ("true",), after=(f"a{number}",)) for number in range(count - len(first)))]


def _ended(ours: SupervisedRun) -> list[float]:
    """When each attempt that has ended did, in order."""
    with contextlib.closing(sqlite.connect_readonly(ours.home.ledger)) as db:
        return [float(row[0]) for row in db.execute("SELECT ended FROM attempt WHERE ended IS NOT NULL ORDER BY ended")]


def _until_ended(ours: SupervisedRun, count: int) -> None:
    until(lambda: len(_ended(ours)) >= count, f"{count} tasks to end")


def _busy_by_kind_s(supervisor: psutil.Process, tmux: psutil.Process) -> dict[str, float]:
    """Processor time so far of a supervisor, of what it waited for, of its tmux server, and of the processes of panes."""
    own, server = supervisor.cpu_times(), tmux.cpu_times()
    return {
        "supervisor": own.user + own.system,
        "git": own.children_user + own.children_system,
        "tmux": server.user + server.system,
        "runner": server.children_user + server.children_system,
    }


def _summary(rounds: Sequence[_Round], status_s: float) -> dict[str, float]:
    """Medians over the rounds."""
    return {
        "tasks_per_s": round(statistics.median(found.tasks_per_s for found in rounds), 2),
        "daemon_cpu_ms_per_task": milli(statistics.median(found.cpu_s["supervisor"] for found in rounds)),
        "status_ms": milli(status_s),
        "tick_ms_p99": round(statistics.median(found.tick_ms_p99 for found in rounds), 2),
    }


def _ratios(least: Mapping[str, float], most: Mapping[str, float]) -> dict[str, float]:
    """How many times as much each figure costs with most tasks waiting as with least: above 1 is worse, also for the rate."""
    return {name: round(least[name] / most[name] if name == MORE_IS_BETTER else most[name] / least[name], 3) for name in least}


# Spawn
# -----
# `nightcrew bench spawn`: how fast agents come up, what they cost while they idle, how fast a crew is adopted, and how fast what it
# left is cleaned up.
#
# Ours and plain take turns within one run, so that a slow minute of the machine hits both. Everything happens in a directory of its
# own; the user's supervisor, state and repositories are not touched.


MB = 10**6
Say = Callable[[str], None]


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
    files: int = FILES
    """In the repository of the agents."""
    seed: int = 1


QUICK = Options(
    rounds={1: 5, 10: 2}, crew=20, idle_s=5.0, history_rows=10_000, waiting=Waiting(sizes=(300, 2000), tasks=110, rounds=1), clean=90
)


def measure(options: Options, under: Path | None, say: Say) -> dict[str, Any]:
    """Measure and return the report that `nightcrew bench spawn --json` prints; docs/bench.md describes every key.

    `under` is where the directory for it all is made (None: the system's temporary directory) and removed again. Raises what a tool
    raises, and TimedOut when agents do not start; nothing is left running then either.
    """
    with private_place(under) as root:
        say(f"seed {options.seed}, in {root}")
        size = make_repository(root / "ours.git", options.seed, options.files)
        shutil.copytree(root / "ours.git", root / "plain.git")
        with Arrivals(root) as arrivals, contextlib.ExitStack() as stack:
            plain = PlainGit(root / "plain", root / "plain.git", arrivals)
            stack.callback(plain.end)
            with SupervisedRun(root / "ours", slots=max(options.crew, *options.rounds)) as run:
                ours = Bursts(run, root / "ours.git", arrivals)
                spawns, crew = _spawns(ours, plain, options, say)
                report = spawns | _idle_and_adopt(run, ours, crew, options, say)
            say(f"no-op tasks, with {', '.join(map(str, options.waiting.sizes))} waiting")
            report["scale"] = measure_scale(files.private_dir(root / "scale"), options.seed, options.waiting)
        say(f"nightcrew status over {options.history_rows} ended tasks")
        report["status_ms"] = figures.milli(verbs.status_s(root / "history", options.history_rows))
        report["clean"] = verbs.measure_cleaning(root / "clean", options.clean, options.seed, say)
        say(f"removing {root}; its files are many")
    return report | {"options": asdict(options), "machine": machine(), "repository": {"files": options.files, "bytes": size}}


def _spawns(ours: Bursts, plain: PlainGit, options: Options, say: Say) -> tuple[dict[str, Any], str]:
    """The figures of both sides, and the run of the crew that is left waiting."""
    plain.start()
    _once(ours, 1)  # not counted: on both sides the first one reads everything from the disk
    plain.burst(1)
    report: dict[str, Any] = {"spawn": {}, "plain": {}}
    for size, rounds in options.rounds.items():
        ways = {"spawn": partial(_once, ours, size), "plain": partial(plain.burst, size)}
        for side, bursts in in_turns(ways, rounds, partial(_say_round, say, size, rounds)).items():
            report[side][str(size)] = figures.summary(bursts)
    say(f"{options.crew} agents at once")
    report["plain"][str(options.crew)] = figures.summary([plain.burst(options.crew)])
    burst, crew = ours.burst(options.crew)
    report["spawn"][str(options.crew)] = figures.summary([burst])
    smallest = str(min(options.rounds))
    report["ratio"] = round(report["spawn"][smallest]["ms_p50"] / report["plain"][smallest]["ms_p50"], 3)
    return report, crew


def _say_round(say: Say, size: int, rounds: int, number: int) -> None:
    say(f"{size} agent{'s' if size > 1 else ''} at once, round {number} of {rounds}")


def _once(ours: Bursts, size: int) -> Burst:
    burst, crew = ours.burst(size)
    ours.finish(crew)
    return burst


def _idle_and_adopt(run: SupervisedRun, ours: Bursts, crew: str, options: Options, say: Say) -> dict[str, Any]:
    ours.until_running(crew)
    say(f"{options.crew} agents idle for {options.idle_s:g} s")
    idle = _idle(psutil.Process(run.start()), run.tmux(), ours.runners(crew), options.idle_s)
    say(f"kill -9 of the supervisor; a new one adopts {options.crew} agents")
    run.kill()
    began = time.monotonic()
    run.start()
    adopt_s = time.monotonic() - began
    ours.until_running(crew)
    return {"idle": idle, "adopt_s": round(adopt_s, 3)}


def _idle(supervisor: psutil.Process, tmux: psutil.Process, runners: Sequence[int], seconds: float) -> dict[str, Any]:
    processes = {"cpu_percent": supervisor, "tmux_cpu_percent": tmux}
    before, began = {name: busy_s(process) for name, process in processes.items()}, time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    unshared = [psutil.Process(pid).memory_full_info().uss for pid in runners]
    return {
        **{name: round(100 * (busy_s(process) - before[name]) / passed, 2) for name, process in processes.items()},
        "rss_mb": round(supervisor.memory_info().rss / MB, 2),
        "runner_unshared_mb": round(statistics.median(unshared) / MB, 2),
        "agents": len(runners),
        "seconds": round(passed, 1),
    }
