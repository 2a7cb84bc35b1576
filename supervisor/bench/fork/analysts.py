"""The analysts, split by files: cold and warm, one after another and at once, beside a pool of this Python's own."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agents.kinds import kinds
from supervisor.bench import analyst_pool
from supervisor.bench.fork import fixtures
from supervisor.bench.supervised_run import SupervisedRun
from supervisor.bench.workspace import in_turns
from supervisor.core.analysis.analysis_tasks import Wanted, crew, shards
from supervisor.core.analysis.types import Perspective
from supervisor.core.snapshots import SnapshotSpec
from supervisor.core.spec import Settings, TaskSpec
from supervisor.host import cores
from worktrees.repository import Repository

FILES = "files"
_AT_ONCE = {"cold": "cold_par_s", "fork": "fork_par_s", "pool": "pool_s"}


def measure(side: SupervisedRun, files: int, analysts: int, rounds: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The figures of so many `analysts` over `files` Python files, medians of `rounds`; and how much there was, in how many pieces, and the
    seconds of each round.

    A crew's seconds count from the first one's admission to the last one's end: worktrees, starts and all but the securing of the last. Its
    processor time is that of the analysts alone.
    """
    source = side.home.root.parent / "corpus"
    size = fixtures.corpus(source, files)
    usable = cores.for_agents(None)
    tasks = _tasks(tuple(Perspective)[:analysts], files, size, len(usable))
    repo = side.repository(source)
    side.snapshot(repo, SnapshotSpec(FILES))
    cold = tuple(replace(task, kind="shell", snapshot="") for task in tasks)
    for first in (cold[-1], tasks[-1]):  # not counted: it starts the warm process, and reads everything from the disk
        _crew(side, repo, (first,))
    jobs = [{name: text for name, text in task.params.items() if name.startswith("ANALYST")} for task in tasks]
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        "cold_seq_s": lambda: _crew(side, repo, _chain(cold)),
        "cold_par_s": lambda: _crew(side, repo, cold),
        "fork_seq_s": lambda: _crew(side, repo, _chain(tasks)),
        "fork_par_s": lambda: _crew(side, repo, tasks),
        "pool_s": lambda: analyst_pool.run(source, jobs, len(usable)),
    }
    found = in_turns(ways, rounds)
    p50 = {key: statistics.median(took for took, _ in times) for key, times in found.items()}
    cpu = {f"{way}_cpu_s": statistics.median(cpu for _, cpu in found[key]) for way, key in _AT_ONCE.items()}
    figures = {"files": files, **{key: round(took, 3) for key, took in (p50 | cpu).items()}}
    figures["efficiency"] = round(p50["pool_s"] / p50["fork_par_s"], 3)
    return figures, {
        "bytes": size,
        "pieces": len(tasks),
        "cores": len(usable),
        "rounds": {key: [took for took, _ in times] for key, times in found.items()},
    }


def _tasks(perspectives: tuple[Perspective, ...], files: int, size: int, usable: int) -> tuple[TaskSpec, ...]:
    """As `nightcrew analyze` splits them, the lead left out; what takes longest comes first. Warm: their kind has a warm process, and their
    files come from a snapshot."""
    command = kinds()["analyst"].program
    pieces = shards(perspectives, files, size, usable, Settings().slots)
    analysts = crew(Wanted(tuple(pieces)), pieces, usable, {"analyst": command, "lead": command})[:-1]
    return tuple(replace(task, snapshot=FILES) for task in analysts)


def _chain(tasks: Sequence[TaskSpec]) -> tuple[TaskSpec, ...]:
    return tuple(replace(task, after=tuple(before.name for before in tasks[max(0, at - 1) : at])) for at, task in enumerate(tasks))


def _crew(side: SupervisedRun, repo: Repository, tasks: Sequence[TaskSpec]) -> tuple[float, float]:
    """Return the seconds that `tasks` take, and their processor time."""
    views = side.ended(side.submit(repo, tasks))
    exits = side.exits(views)
    return max(one.ended for one in exits) - min(view.created or 0.0 for view in views), sum(one.cpu_s for one in exits)
