"""`nightcrew bench spawn`: how fast agents come up, what they cost while they idle, how fast a crew is adopted, and how
fast what it left is cleaned up.

Ours and plain take turns within one run, so that a slow minute of the machine hits both. Everything happens in a directory of its own;
the user's supervisor, state and repositories are not touched.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench import cleaning, figures, scale, status_history
from supervisor.bench.arrivals import Arrivals
from supervisor.bench.figures import Burst
from supervisor.bench.plain_git import PlainGit
from supervisor.bench.scale import Waiting
from supervisor.bench.supervised_run import Crew, SupervisedRun
from supervisor.bench.workspace import FILES, make_repository
from supervisor.host import cores, files, placement
from worktrees import trees

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
        size = make_repository(root / "ours.git", options.seed)
        shutil.copytree(root / "ours.git", root / "plain.git")
        with Arrivals(root) as arrivals, contextlib.ExitStack() as stack:
            ours = SupervisedRun(root / "ours", root / "ours.git", arrivals, slots=max(options.crew, *options.rounds))
            stack.callback(ours.end)
            plain = PlainGit(root / "plain", root / "plain.git", arrivals)
            stack.callback(plain.end)
            spawns, crew = _spawns(ours, plain, options, say)
            report = spawns | _idle_and_adopt(ours, crew, options, say)
            ours.end()
            say(f"no-op tasks, with {', '.join(map(str, options.waiting.sizes))} waiting")
            report["scale"] = scale.measure(files.private_dir(root / "scale"), options.seed, options.waiting, arrivals)
        say(f"nightcrew status over {options.history_rows} ended tasks")
        report["status_ms"] = figures.milli(status_history.status_s(root / "history", options.history_rows))
        report["clean"] = cleaning.measure(root / "clean", options.clean, options.seed, say)
        say(f"removing {root}; its files are many")
    return report | {"options": asdict(options), "machine": machine(), "repository": {"files": FILES, "bytes": size}}


@contextlib.contextmanager
def private_place(under: Path | None) -> Iterator[Path]:
    """A private directory with a short path, since sockets lie in it."""
    root = Path(tempfile.mkdtemp(prefix="nightcrew-bench-", dir=under)).resolve()
    placement.spread(root)  # so that neither side works where somebody has just removed files
    try:
        yield root
    finally:
        trees.remove(root)  # also what a template write-protected, and nothing through a mount


def _spawns(ours: SupervisedRun, plain: PlainGit, options: Options, say: Say) -> tuple[dict[str, Any], Crew]:
    ours.start()
    plain.start()
    _once(ours, 1)  # not counted: on both sides the first one reads everything from the disk
    plain.burst(1)
    report: dict[str, Any] = {"spawn": {}, "plain": {}}
    for size, rounds in options.rounds.items():
        found: dict[str, list[Burst]] = {"spawn": [], "plain": []}
        for number in range(rounds):
            say(f"{size} agent{'s' if size > 1 else ''} at once, round {number + 1} of {rounds}")
            turns = [("spawn", lambda size=size: _once(ours, size)), ("plain", lambda size=size: plain.burst(size))]
            for side, turn in turns if number % 2 == 0 else reversed(turns):
                found[side].append(turn())
        for side, bursts in found.items():
            report[side][str(size)] = figures.summary(bursts)
    say(f"{options.crew} agents at once")
    report["plain"][str(options.crew)] = figures.summary([plain.burst(options.crew)])
    burst, crew = ours.burst(options.crew)
    report["spawn"][str(options.crew)] = figures.summary([burst])
    smallest = str(min(options.rounds))
    report["ratio"] = round(report["spawn"][smallest]["ms_p50"] / report["plain"][smallest]["ms_p50"], 3)
    return report, crew


def _once(ours: SupervisedRun, size: int) -> Burst:
    burst, crew = ours.burst(size)
    ours.finish(crew)
    return burst


def _idle_and_adopt(ours: SupervisedRun, crew: Crew, options: Options, say: Say) -> dict[str, Any]:
    ours.until_running(crew)
    say(f"{options.crew} agents idle for {options.idle_s:g} s")
    idle = _idle(ours, crew, options.idle_s)
    say(f"kill -9 of the supervisor; a new one adopts {options.crew} agents")
    ours.kill()
    began = time.monotonic()
    ours.start()
    adopt_s = time.monotonic() - began
    ours.until_running(crew)
    return {"idle": idle, "adopt_s": round(adopt_s, 3)}


def _idle(ours: SupervisedRun, crew: Crew, seconds: float) -> dict[str, Any]:
    supervisor = psutil.Process(ours.start())
    server = supervisor.parent()
    before = _busy_s(supervisor), _busy_s(server), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - before[2]
    runners = [psutil.Process(who.pid).memory_full_info().uss for who in ours.runners(crew)]
    return {
        "cpu_percent": round(100 * (_busy_s(supervisor) - before[0]) / passed, 2),
        "tmux_cpu_percent": round(100 * (_busy_s(server) - before[1]) / passed, 2),
        "rss_mb": round(supervisor.memory_info().rss / MB, 2),
        "runner_unshared_mb": round(statistics.median(runners) / MB, 2),
        "agents": len(runners),
        "seconds": round(passed, 1),
    }


def _busy_s(process: psutil.Process | None) -> float:
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
