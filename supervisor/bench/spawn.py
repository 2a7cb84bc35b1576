"""`nightcrew bench spawn`: how fast agents come up, what they cost while they idle, how fast a crew is adopted, and how
fast what it left is cleaned up.

Ours and plain take turns within one run, so that a slow minute of the machine hits both. Everything happens in a directory of its own;
the user's supervisor, state and repositories are not touched.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench import cleaning, figures, scale, status_history
from supervisor.bench.arrivals import Arrivals
from supervisor.bench.bursts import Bursts
from supervisor.bench.figures import Burst
from supervisor.bench.plain_git import PlainGit
from supervisor.bench.scale import Waiting
from supervisor.bench.supervised_run import SupervisedRun
from supervisor.bench.workspace import FILES, busy_s, in_turns, machine, make_repository, private_place
from supervisor.host import files

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
            report["scale"] = scale.measure(files.private_dir(root / "scale"), options.seed, options.waiting)
        say(f"nightcrew status over {options.history_rows} ended tasks")
        report["status_ms"] = figures.milli(status_history.status_s(root / "history", options.history_rows))
        report["clean"] = cleaning.measure(root / "clean", options.clean, options.seed, say)
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
