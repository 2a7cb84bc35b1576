"""How long `nightcrew status` takes over a long history: the whole command, as a person waits for it."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import statistics
import subprocess
import time
from pathlib import Path

from supervisor.bench.workspace import nightcrew
from supervisor.core import result
from supervisor.core.spec import TaskSpec
from supervisor.core.states import End
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.ledger import store

RUN_TASKS = 200
REPEATS = 11


def status_s(root: Path, rows: int) -> float:
    """Seconds that `nightcrew status` takes with `rows` ended tasks and 200 running ones in the ledger: the median of 11 calls."""
    home = Home(files.private_dir(root))
    _fill(home.ledger, rows)
    return statistics.median(status_once_s(root) for _ in range(REPEATS))


def status_once_s(root: Path) -> float:
    """Seconds that one `nightcrew status` takes over the state directory `root`, from its start to its exit."""
    environment = {**os.environ, "NIGHTCREW_HOME": str(root)}
    began = time.monotonic()
    subprocess.run(
        nightcrew("status"), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    return time.monotonic() - began


def _fill(path: Path, rows: int) -> None:
    """A new ledger: `rows` ended tasks in runs of 200, each with attempt, result and journal; then a run of 200 that work."""
    work = result.Work(branch="nightcrew/work", tip="0" * 40, commits=1, files=2, plus=30, minus=4, rescue=None)
    times = result.Times(queued=0, spawned=0, ended=0)
    text = json.dumps(result.build(task="task", epoch=1, end=End.DONE, cause="", record=None, times=times, work=work, output=None))
    with contextlib.closing(store.connect(path)) as db, store.transaction(db, path):
        db.execute("INSERT INTO project VALUES ('p', '/nowhere', '/nowhere/.git', 0)")
        for first in range(0, rows, RUN_TASKS):
            _run(db, range(first, min(first + RUN_TASKS, rows)), "done", ("released", str(End.DONE), text))
        _run(db, range(rows, rows + RUN_TASKS), "running", ("running", None, None))


def _run(db: sqlite3.Connection, numbers: range, state: str, attempt: tuple[str, str | None, str | None]) -> None:
    run = f"0101-{numbers[0]}"
    spec = TaskSpec("task", "a task", "shell", ("sh", "-c", "true")).to_json()
    db.execute(
        "INSERT INTO run (id, key, project, title, base, base_oid, env, created) VALUES (?, ?, 'p', 'bench', 'HEAD', 'oid', '{}', 0)",
        (run, run),
    )
    db.executemany(
        "INSERT INTO task (id, run, project, name, title, spec, state, epoch, changed) VALUES (?, ?, 'p', ?, 'a task', ?, ?, 1, 0)",
        ((f"{run}/{number}", run, str(number), spec, state) for number in numbers),
    )
    db.executemany(
        "INSERT INTO attempt (task, epoch, state, end, result, created) VALUES (?, 1, ?, ?, ?, 0)",
        ((f"{run}/{number}", *attempt) for number in numbers),
    )
    db.executemany(
        "INSERT INTO journal (at, task, epoch, event) VALUES (0, ?, 1, ?)",
        ((f"{run}/{number}", event) for number in numbers for event in ("ready", "start", "tree gone", "end done")),
    )
