"""From a write to the wake-up of an agent that waits for it, a storm of files, and what the supervisor takes while nothing happens."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from supervisor.bench.supervised_run import SupervisedRun, until
from supervisor.bench.workspace import make_repository
from supervisor.core import tokens
from supervisor.core.spec import TaskSpec
from supervisor.daemon import lock, protocol
from supervisor.host import secrets

WAKES, FILES, IDLE_S, NOTES = 200, 50_000, 60.0, 1_000
STORM_S = 15.0
SETTLED_MAX_S = 120.0
STORM = """
import pathlib, sys, time
root, first, count, seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
began = time.monotonic()
for number in range(count):
    (root / f"s{first + number}.md").write_text(f"note {number}")
    time.sleep(max(0.0, number * seconds / count - (time.monotonic() - began)) if number % 100 == 0 else 0.0)
"""


def measure(quick: bool) -> dict[str, Any]:
    """`wake_ms`: from a person's write to the answer that a waiting agent has; `agent_wake_ms`: the same for an agent's write through the
    socket; `storm`: so many files are made by two processes in about 15 s, and the versions know all of them `settled_s` after the last;
    `idle_cpu_percent`: processor time of the whole supervisor, of one core, with 1,000 notes and no agent."""
    part = 10 if quick else 1
    with tempfile.TemporaryDirectory(prefix="nightcrew-watching-") as name, SupervisedRun(Path(name) / "home", 4) as side:
        make_repository(Path(name) / "repo", 1, files=3)
        repo = side.repository(Path(name) / "repo")
        run = side.submit(repo, [TaskSpec(f"a{number}", f"a{number}", "shell", ("sleep", "36000")) for number in range(2)])
        until(lambda: all(view.attempt_state == "running" for view in side.views(run)), "the agents to run")
        secret = secrets.own(side.home.secret)
        agents = [_Agent(side.home.agents_socket, tokens.derive(secret, view.id, view.epoch)) for view in side.views(run)]
        memory = side.home.memory(repo.project)
        agents[0].mem("wait", glob="**", timeout_s=0)  # it is watched from now on
        (memory / "semantic").mkdir(exist_ok=True)
        wakes = _wakes(agents[0], WAKES // part, lambda number: _by_hand(memory / "semantic" / f"w{number % 20}.md", number))
        puts = _wakes(
            agents[0], WAKES // part, lambda number: agents[1].mem("put", path=f"semantic/a{number % 20}.md", text=f"note {number}\n")
        )
        found = {"wake_ms": wakes, "agent_wake_ms": puts, "storm": _storm(memory, FILES // part)}
        for view in side.views(run):
            protocol.call(side.home.daemon_socket, "kill", {"tasks": [view.id]})
        side.finished(run)
        return {**found, "idle_cpu_percent": _idle(side, memory, IDLE_S / part)}


class _Agent:
    def __init__(self, door: Path, token: str) -> None:
        self._door, self._token = door, token

    def mem(self, op: str, **args: Any) -> dict[str, Any]:
        return protocol.call(self._door, "mem", {"op": op, **args}, token=self._token)


def _by_hand(note: Path, number: int) -> None:
    """As editors write: every second time over the file, else beside it and then by another name."""
    text = f"note {number}\n"
    if number % 2:
        note.write_text(text)
        return
    beside = note.with_name(f".{note.name}.new")
    beside.write_text(text)
    beside.rename(note)


def _wakes(waiting: _Agent, times: int, write: Callable[[int], object]) -> dict[str, float]:
    took = []
    with ThreadPoolExecutor(1) as thread:
        for number in range(times):
            since = waiting.mem("wait", glob="semantic/*", timeout_s=0)["number"]
            woken = thread.submit(_woken_at, waiting, since)
            time.sleep(0.03)  # it stands waiting
            began = time.perf_counter()
            write(number)
            took.append(1000 * (woken.result() - began))
    return {"p50": round(statistics.median(took), 1), "p99": round(sorted(took)[max(0, round(0.99 * len(took)) - 1)], 1)}


def _woken_at(waiting: _Agent, since: int) -> float:
    waiting.mem("wait", glob="semantic/*", since=since)
    return time.perf_counter()


def _storm(memory: Path, files: int) -> dict[str, Any]:
    folder, half = memory / "semantic", files // 2
    seconds = STORM_S * files / FILES
    writers = [
        subprocess.Popen([sys.executable, "-c", STORM, os.fspath(folder), str(first), str(half), str(seconds)]) for first in (0, half)
    ]
    for writer in writers:
        writer.wait()
    quiet = time.monotonic()
    there = {f"semantic/{path.name}" for path in folder.iterdir() if path.suffix == ".md" and not path.name.startswith(".")}
    known: set[str] = set()
    while known != there and time.monotonic() - quiet < SETTLED_MAX_S:
        time.sleep(0.2)
        known = _known(memory.with_name("memory.db"))
    found = {"files": files, "settled_s": round(time.monotonic() - quiet, 1), "equal": known == there}
    for path in sorted(there)[NOTES:]:
        (memory / path).unlink()
    return found


def _known(book: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(f"file:{book}?mode=ro", uri=True)) as db:
        return {path for (path,) in db.execute("SELECT path FROM known WHERE version <> ''")}


def _idle(side: SupervisedRun, memory: Path, seconds: float) -> float:
    until(lambda: len(_known(memory.with_name("memory.db"))) <= NOTES, "the notes that went to be known")
    pid = lock.holder(side.home.lock)
    process = psutil.Process(pid)
    time.sleep(min(5.0, seconds))
    before, began = process.cpu_times(), time.monotonic()
    time.sleep(seconds)
    after, took = process.cpu_times(), time.monotonic() - began
    return round(100 * (after.user + after.system - before.user - before.system) / took, 2)
