"""The figures of `nightcrew bench map`: each side does the same with the same files, on the same cores, with the same niceness."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench.aims import Aim, rows
from supervisor.bench.map import fixtures, pool, prompt
from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import busy_s, machine, nightcrew, private_place
from supervisor.core import records
from supervisor.core.errors import ToolFailed, last_line
from supervisor.core.snapshots import SnapshotSpec
from supervisor.daemon.mapping import book
from supervisor.host import cores, processes
from supervisor.host.paths import Home
from supervisor.ledger import queries, store

AIMS = (
    Aim("efficiency", 0.85, at_least=True, name="of a pool's throughput"),
    Aim("cpu_efficiency", name="the same by processor time"),
    Aim("lost", 0, name="results lost"),
    Aim("duplicates", 0, name="results twice, or done again"),
)
SNAPSHOT = "files"


@dataclass(frozen=True, slots=True)
class Options:
    files: int = 10_000
    agents: int = 50
    work_s: float = 75.0
    """How long all of it takes on all cores, nothing else running."""
    crashes: float = 0.02
    calls: int = 2000
    """One-shot prompts."""
    pools: int = 2
    """How often the pool is measured, before and after."""
    seed: int = 1


QUICK = Options(files=600, agents=10, work_s=4.0, calls=100, pools=1)


def measure(options: Options, under: Path | None, say: Callable[[str], None]) -> dict[str, Any]:
    """The report. Raises ToolFailed when a side fails, or gives another output than a sequential run."""
    with private_place(under) as root:
        mine = len(cores.usable())
        rounds = fixtures.rounds_for(options.work_s * mine / options.files)
        say(f"{options.files} files, each {options.work_s * mine / options.files * 1000:.1f} ms of a core")
        repository = fixtures.make(root, options.files, options.seed, rounds, options.crashes)
        names = fixtures.names(repository)
        expected = fixtures.expected(repository, names)
        first = [_pool(root, repository, names, mine, say) for _ in range((options.pools + 1) // 2)]
        with SupervisedRun(root / "home", options.agents) as run:
            run.snapshot(run.repository(repository), SnapshotSpec(name=SNAPSHOT))
            supervisor = psutil.Process(run.start())
            before = busy_s(supervisor)
            wall_s, output = _map(run.home, repository, "crashing", options, say)
            cpu_s = _taken(run) + busy_s(supervisor) - before
            crashes = sum(1 for _ in (root / "marks").iterdir())
            resumed = _resumed(run, root, repository, options, say)
        walls = first + [_pool(root, repository, names, mine, say) for _ in range(options.pools - len(first))]
        pool_s, pool_cpu_s = (statistics.mean(side) for side in zip(*walls, strict=True))
    say(f"{options.calls} one-shot prompts against the simulated provider's limit")
    prompts = prompt.measure(prompt.Options(calls=options.calls, seed=options.seed), under)
    if output != expected:
        raise ToolFailed("the output is not that of a sequential run", on="nightcrew map", why=_differs(output, expected))
    return {
        "files": options.files, "agents": options.agents, "wall_s": round(wall_s, 2), "pool_wall_s": round(pool_s, 2),
        "efficiency": round(pool_s / wall_s, 3), "crashes_injected": crashes, **resumed, "prompt": prompts,
        "pool_walls_s": [round(wall, 2) for wall, _ in walls], "cpu_s": round(cpu_s, 2), "pool_cpu_s": round(pool_cpu_s, 2),
        "cpu_efficiency": round(pool_cpu_s / cpu_s, 3), "machine": machine(),
    }  # fmt: skip


def _pool(root: Path, repository: Path, names: Iterable[str], count: int, say: Callable[[str], None]) -> tuple[float, float]:
    """How long a pool of `count` processes takes, and the processor time of all of it, in seconds."""
    out, began, before = root / "pool.jsonl", time.monotonic(), _children_s()
    argv = [sys.executable, "-I", str(Path(pool.__file__)), f"{fixtures.MODULE}:work", str(count), str(out)]
    done = subprocess.run(argv, cwd=repository, input="\n".join(names), text=True, capture_output=True, check=False)
    if done.returncode:
        raise ToolFailed("the pool failed", on=argv[2], why=last_line(done.stderr))
    took = time.monotonic() - began
    say(f"a pool of {count} processes: {took:.1f} s")
    return took, _children_s() - before


def _children_s() -> float:
    """Processor time of all our children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _taken(run: SupervisedRun) -> float:
    """Processor time of the workers of the only map, once all have ended."""
    with contextlib.closing(store.connect_readonly(run.home.ledger)) as db:
        newest = queries.runs(db, 1)[0].id
    return sum(float((view.account or {}).get("cpu_s") or 0.0) for view in run.finished(newest))


def _argv(call: str, options: Options, *words: str) -> list[str]:
    shared = ("--files", "**/*.txt", "--agents", str(options.agents), "--class", "interactive", "--snapshot", SNAPSHOT)
    return nightcrew("map", "--json", *shared, "--call", f"{fixtures.MODULE}:{call}", *words)


def _environ(home: Home) -> dict[str, str]:
    return {**os.environ, "NIGHTCREW_HOME": str(home.root), "NIGHTCREW_CONFIG": str(home.root.with_name(f"{home.root.name}.toml"))}


def _map(
    home: Home, repository: Path, call: str, options: Options, say: Callable[[str], None]
) -> tuple[float, list[tuple[str, list[object]]]]:
    """How long `nightcrew map` takes, from the command's start to its end, and what it gave. Raises ToolFailed."""
    began = time.monotonic()
    done = subprocess.run(_argv(call, options), cwd=repository, env=_environ(home), capture_output=True, text=True, check=False)
    took = time.monotonic() - began
    if done.returncode:
        raise ToolFailed("nightcrew map failed", on=call, why=last_line(done.stderr))
    say(f"nightcrew map, {call}, {options.agents} workers: {took:.1f} s")
    lines = Path(json.loads(done.stdout)["out"]).read_text().splitlines()
    return took, [(str(shape["item"]), list(shape["result"])) for shape in map(json.loads, lines)]


def _resumed(run: SupervisedRun, root: Path, repository: Path, options: Options, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything is killed at half, then the same command again: `lost`, `duplicates`, `resume_s`."""
    log = root / "log"
    with (root / "said").open("wb") as said:
        command = subprocess.Popen(_argv("logged", options), cwd=repository, env=_environ(run.home), stdout=said, stderr=said)
    try:
        until(lambda: command.poll() is not None or _lines(log) >= options.files // 2, "half of the files")
    finally:
        command.kill()
        command.wait()
    run.kill()
    _kill_workers(run.home)
    before = _lines(log)
    recorded = _recorded(run.home)
    run.start()
    took, output = _map(run.home, repository, "logged", options, say)
    again = log.read_text().splitlines()[before:]
    given = Counter(name for name, _ in output)
    say(f"killed after {before} files; the second call did {len(again)}")
    return {
        "lost": options.files - len(given),
        "duplicates": sum(given.values()) - len(given) + sum(name in recorded for name in again),
        "resume_s": round(took, 2),
        "killed_after": before,
        "resume_did": len(again),
        "resume_missing": options.files - len(recorded),
    }


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _kill_workers(home: Home) -> None:
    """Every runner that lives, and what is below it."""
    for place in (home.root / "runs").glob("*/w*/*/started.json"):
        started = records.parse_started(place.read_text())
        if started is not None:
            for who in [started.identity, *processes.tree(started.identity)]:
                processes.send(who, signal.SIGKILL)


def _recorded(home: Home) -> set[str]:
    """The items whose results nobody can lose any more, of the map that was killed."""
    for path in (home.root / "maps").glob("*/map.db"):
        with contextlib.closing(book.connect_readonly(path)) as db:
            if book.about(db)["state"] != "ended":
                return {bytes(row["name"]).decode() for row in db.execute("SELECT name FROM item WHERE state = 'done'")}
    return set()


def _differs(output: list[tuple[str, list[object]]], expected: list[tuple[str, list[object]]]) -> str:
    first = next((at for at, pair in enumerate(zip(output, expected, strict=False)) if pair[0] != pair[1]), "the end")
    return f"{len(output)} lines for {len(expected)}, different from {first} on"


def table(report: dict[str, Any]) -> str:
    """The figures for people."""
    return "\n".join(
        (
            f"{report['files']} files, {report['agents']} workers: {report['wall_s']} s; a pool: {report['pool_wall_s']} s",
            f"{report['crashes_injected']} crashes injected",
            f"the second call after a kill: {report['resume_s']} s for {report['resume_did']}",
            *rows(AIMS, report),
            prompt.line(report["prompt"]),
        )
    )
