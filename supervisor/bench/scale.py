"""Whether work slows with what waits: the same no-op tasks, at the head of a short and of a very long queue.

Half of those that wait are ready, and each of the others comes after one of them. Every size has a supervisor and a state directory of its
own; the sizes take turns, so that a slow minute of the machine hits all of them.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench.figures import milli
from supervisor.bench.status_history import status_once_s
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import in_turns, make_repository
from supervisor.core.spec import TaskSpec
from supervisor.daemon import protocol
from supervisor.ledger import store

FILES = 20
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


def measure(root: Path, seed: int, wanted: Waiting) -> dict[str, Any]:
    """The `scale` of the report; docs/bench.md describes every key. `root` is an empty directory."""
    make_repository(root / "repo.git", seed, files=FILES)
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
    return shape | {"cpu_ms": cpu, "files": FILES, "slots": SLOTS}


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
    with contextlib.closing(store.connect_readonly(ours.home.ledger)) as db:
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
