"""`nightcrew bench map`: a large workload over many workers, beside a pool of processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightcrew.plugins.bench import pool
from nightcrew.plugins.bench.crews import (
    Say,
    SupervisedRun,
    children_cpu_s,
    cpu_s,
    make_repository,
    timed,
)
from nightcrew.plugins.bench.figures import Aim, rows
from supervisor.host import cores
from supervisor.host.paths import Home
from supervisor.kernel.errors import ToolFailed
from supervisor.kernel.snapshots import SnapshotSpec
from supervisor.store import queries, sqlite

# Fixtures
# --------
# What is mapped: a repository of many small files, and what is done with each of them.


MODULE = "benchwork"
_SOURCE = '''"""What the benchmark does with a file. Written by nightcrew bench map."""

import hashlib
import json
import os
import signal

SETTINGS = json.loads({settings!r})


def spin(path, rounds):
    """Read the file, be busy for a while, and give what anybody can compute at once."""
    with open(path, "rb") as file:
        data = file.read()
    digest = data
    for _ in range(rounds):
        digest = hashlib.sha256(digest).digest()
    return [hashlib.sha256(data).hexdigest(), len(data)]


def work(path):
    return spin(path, SETTINGS["rounds"])


def crashing(path):
    """The same; some paths kill the process the first time."""
    name = hashlib.sha256(os.fsencode(path)).hexdigest()
    if int(name, 16) % 1000 < SETTINGS["crashes_per_1000"]:
        try:
            os.mkdir(os.path.join(SETTINGS["marks"], name))
        except FileExistsError:
            pass
        else:
            os.kill(os.getpid(), signal.SIGKILL)
    return work(path)
'''


def rounds_for(seconds: float) -> int:
    """How many turns of `spin` take one core so long, by the fastest of a few tries here."""
    count, best = 20_000, float("inf")
    for _ in range(5):
        digest, began = b"", time.thread_time()
        for _ in range(count):
            digest = hashlib.sha256(digest).digest()
        best = min(best, time.thread_time() - began)
    return max(1, round(count * seconds / best))


def make(root: Path, files: int, seed: int, rounds: int, crashes: float) -> Path:
    """The repository of `files` files and the module, at `root/repository`. `crashes`: the share of the files whose first try dies."""
    place = root / "repository"
    (root / "marks").mkdir()
    settings = {"rounds": rounds, "marks": str(root / "marks"), "crashes_per_1000": round(1000 * crashes)}
    place.mkdir()
    (place / f"{MODULE}.py").write_text(_SOURCE.format(settings=json.dumps(settings)))
    make_repository(place, seed, files)
    return place


def expected_results(repository: Path, names: Iterable[str]) -> list[tuple[str, list[object]]]:
    """What a sequential run gives, in order."""
    return [(name, _seen((repository / name).read_bytes())) for name in names]


def _seen(data: bytes) -> list[object]:
    return [hashlib.sha256(data).hexdigest(), len(data)]


def mapped_files(repository: Path) -> list[str]:
    """The files that are mapped, in git's order."""
    found = (path for path in repository.rglob("*.txt") if path.is_file())
    return sorted((path.relative_to(repository).as_posix() for path in found), key=lambda name: name.encode())


# Measure
# -------
# The figures of `nightcrew bench map`: each side does the same with the same files, on the same cores, with the same niceness.


AIMS = (
    Aim("efficiency", 0.85, at_least=True, name="of a pool's throughput"),
    Aim("cpu_efficiency", name="the same by processor time"),
)
SNAPSHOT = "files"


@dataclass(frozen=True, slots=True)
class Options:
    files: int = 10_000
    agents: int = 50
    work_s: float = 75.0
    """How long all of it takes on all cores, nothing else running."""
    crashes: float = 0.02
    pools: int = 2
    """How often the pool is measured, before and after."""
    seed: int = 1


QUICK = Options(files=600, agents=10, work_s=4.0, pools=1)


def measure(options: Options, root: Path, say: Say) -> dict[str, Any]:
    """Return the figures. Raises ToolFailed when a side fails, or gives another output than a sequential run."""
    mine = len(cores.usable())
    rounds = rounds_for(options.work_s * mine / options.files)
    say(f"{options.files} files, each {options.work_s * mine / options.files * 1000:.1f} ms of a core")
    repository = make(root, options.files, options.seed, rounds, options.crashes)
    names = mapped_files(repository)
    expected = expected_results(repository, names)
    first = [_pool(repository, names, mine, say) for _ in range((options.pools + 1) // 2)]
    with SupervisedRun(root / "home", options.agents) as run:
        run.snapshot(run.repository(repository), SnapshotSpec(name=SNAPSHOT))
        supervisor = run.process()
        before = cpu_s(supervisor)
        wall_s, output = _map(run.home, repository, options, say)
        taken_s = _taken(run) + cpu_s(supervisor) - before
        crashes = sum(1 for _ in (root / "marks").iterdir())
    walls = first + [_pool(repository, names, mine, say) for _ in range(options.pools - len(first))]
    pool_s, pool_cpu_s = (statistics.mean(side) for side in zip(*walls, strict=True))
    if output != expected:
        raise ToolFailed("the output is not that of a sequential run", on="nightcrew map", why=_differs(output, expected))
    return {
        "files": options.files, "agents": options.agents, "wall_s": round(wall_s, 2), "pool_wall_s": round(pool_s, 2),
        "efficiency": round(pool_s / wall_s, 3), "crashes_injected": crashes,
        "pool_walls_s": [round(wall, 2) for wall, _ in walls], "cpu_s": round(taken_s, 2), "pool_cpu_s": round(pool_cpu_s, 2),
        "cpu_efficiency": round(pool_cpu_s / taken_s, 3),
    }  # fmt: skip


def _pool(repository: Path, names: Sequence[str], count: int, say: Say) -> tuple[float, float]:
    """Return how long a pool of `count` processes takes, and the processor time of all of it, in seconds."""
    began, before = time.monotonic(), children_cpu_s()
    pool.run(repository, f"{MODULE}:work", names, count, chunk=8)
    took = time.monotonic() - began
    say(f"a pool of {count} processes: {took:.1f} s")
    return took, children_cpu_s() - before


def _taken(run: SupervisedRun) -> float:
    """Processor time of the workers of the only map, once all have ended."""
    with contextlib.closing(sqlite.connect_readonly(run.home.ledger)) as db:
        newest = queries.runs(db, 1)[0].id
    return sum(float((view.account or {}).get("cpu_s") or 0.0) for view in run.finished(newest))


def _map(home: Home, repository: Path, options: Options, say: Say) -> tuple[float, list[tuple[str, list[object]]]]:
    """Return how long `nightcrew map` takes, from the command's start to its end, and what it gave. Raises ToolFailed."""
    shared = ("--files", "**/*.txt", "--agents", str(options.agents), "--class", "interactive", "--snapshot", SNAPSHOT)
    took, said = timed(home.root, "map", "--json", *shared, "--call", f"{MODULE}:crashing", cwd=repository)
    say(f"nightcrew map, {options.agents} workers: {took:.1f} s")
    lines = Path(json.loads(said)["out"]).read_text().splitlines()
    return took, [(str(shape["item"]), list(shape["result"])) for shape in map(json.loads, lines)]


def _differs(output: list[tuple[str, list[object]]], expected: list[tuple[str, list[object]]]) -> str:
    first = next((at for at, pair in enumerate(zip(output, expected, strict=False)) if pair[0] != pair[1]), "the end")
    return f"{len(output)} lines for {len(expected)}, different from {first} on"


def table(report: dict[str, Any]) -> str:
    """The figures for people."""
    return "\n".join(
        (
            f"{report['files']} files, {report['agents']} workers: {report['wall_s']} s; a pool: {report['pool_wall_s']} s",
            f"{report['crashes_injected']} crashes injected",
            *rows(AIMS, report),
        )
    )
