"""The five analysts, split by files: cold and warm, one after another and at once, beside a pool of this Python's own."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.kinds import kinds
from supervisor.bench.fork import fixtures
from supervisor.bench.fork.supervised_run import SupervisedRun
from supervisor.core.analysis.analysis_tasks import Wanted, crew, shards
from supervisor.core.analysis.types import Perspective
from supervisor.core.errors import ToolFailed
from supervisor.core.snapshots import SnapshotSpec
from supervisor.core.spec import Settings, TaskSpec
from supervisor.host import cores
from worktrees.repository import Repository

FILES = "files"


def measure(side: SupervisedRun, files: int, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of `analysts` over `files` Python files, medians of `rounds`; and how much there was, in how many pieces, and the seconds
    of each round.

    A crew's seconds count from the first one's admission to the last one's end: worktrees, starts and all but the securing of the last.
    """
    source = side.home.root.parent / "corpus"
    size = fixtures.corpus(source, files)
    usable = cores.choose(0, None, cores.usable()) or cores.usable()
    tasks = _tasks(files, size, len(usable))
    repo = side.repository(source)
    side.snapshot(repo, SnapshotSpec(FILES))
    cold = tuple(replace(task, kind="shell", snapshot="") for task in tasks)
    for first in (cold[-1], tasks[-1]):  # not counted: it starts the warm process, and reads everything from the disk
        _crew(side, repo, (first,))
    ways: dict[str, Callable[[], float]] = {
        "cold_seq_s": lambda: _crew(side, repo, _chain(cold)),
        "cold_par_s": lambda: _crew(side, repo, cold),
        "fork_seq_s": lambda: _crew(side, repo, _chain(tasks)),
        "fork_par_s": lambda: _crew(side, repo, tasks),
        "pool_s": lambda: _pool(source, tasks, len(usable)),
    }
    found: dict[str, list[float]] = {key: [] for key in ways}
    for number in range(rounds):
        for key in ways if number % 2 == 0 else reversed(ways):
            found[key].append(ways[key]())
    p50 = {key: statistics.median(times) for key, times in found.items()}
    figures = {"files": files, **{key: round(took, 3) for key, took in p50.items()}}
    figures["efficiency"] = round(p50["pool_s"] / p50["fork_par_s"], 3)
    return figures, {"bytes": size, "pieces": len(tasks), "cores": len(usable), "rounds": found}


def _tasks(files: int, size: int, usable: int) -> tuple[TaskSpec, ...]:
    """As `nightcrew analyze` splits them, the lead left out; what takes longest comes first. Warm: their kind has a warm process, and their
    files come from a snapshot."""
    command = kinds()["analyst"].command()
    pieces = shards(tuple(Perspective), files, size, usable, Settings().slots)
    analysts = crew(Wanted(), pieces, usable, {"analyst": command, "lead": command})[:-1]
    return tuple(replace(task, snapshot=FILES) for task in analysts)


def _chain(tasks: Sequence[TaskSpec]) -> tuple[TaskSpec, ...]:
    return tuple(replace(task, after=tuple(before.name for before in tasks[max(0, at - 1) : at])) for at, task in enumerate(tasks))


def _crew(side: SupervisedRun, repo: Repository, tasks: Sequence[TaskSpec]) -> float:
    views = side.ended(side.submit(repo, tasks))
    return max(side.ends(views)) - min(view.created or 0.0 for view in views)


def _pool(source: Path, tasks: Sequence[TaskSpec], workers: int) -> float:
    """Seconds of the same pieces in a `multiprocessing.Pool`, on the same cores and as nice, see `pool.py`."""
    jobs = [{name: text for name, text in task.params.items() if name.startswith("ANALYST")} for task in tasks]
    order = {"jobs": jobs, "workers": workers, "nice": Settings().nice, "cores": cores.choose(0, None, cores.usable())}
    argv = [sys.executable, "-I", "-m", "supervisor.bench.fork.pool", os.fspath(source)]
    done = subprocess.run(argv, input=json.dumps(order), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolFailed("the pool failed", on=str(source), why=done.stderr.strip().rpartition("\n")[2])
    return float(done.stdout)
