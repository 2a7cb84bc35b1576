"""A ledger with a long past, made by plain inserts of rows as a supervisor writes them.

python -m tests.store.history PATH TASKS
"""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, rows, submit, whole

PER_RUN = 100
BEGAN = 1_700_000_000.0
APART_S = 60.0
"""Between two runs."""
_RUN, _TASK = "0101-samp", "0101-samp/task"
_RESULT = {
    "schema": 1,
    "end": "done",
    "notes": ["x" * 200],
    "account": {"wall_s": 12.5, "where": ["y" * 400]},
    "sha256": {"stdout.log": "0" * 64},
}


def make(path: Path, tasks: int) -> list[str]:
    """A ledger of so many tasks that have ended, PER_RUN in each run; the ids of the runs, oldest first."""
    with closing(Ledger(path, Wall(BEGAN - APART_S))) as ledger:
        submit(ledger, "task", run=_RUN)
        ledger.commit(whole(_TASK))
        ledger.note(_TASK, 1, branch=f"nightcrew/{_TASK}/work", rescue_oid="0" * 40, result=json.dumps(_RESULT), account='{"wall_s": 12.5}')
        ledger.release(_TASK, 1)
    ones = {table: rows(path, f"SELECT * FROM {table} ORDER BY 1") for table in ("run", "task", "attempt", "journal")}  # noqa: S608 - ours
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA synchronous=OFF")
        runs = [f"r{number:06d}" for number in range(tasks // PER_RUN)]
        with db:
            for number, run in enumerate(runs):
                _add(db, ones, run, BEGAN + number * APART_S)
    return runs


def _add(db: sqlite3.Connection, ones: dict[str, list[dict[str, Any]]], run: str, at: float) -> None:
    _insert(db, "run", [{**ones["run"][0], "id": run, "key": run, "created": at}])
    names = [f"t{number:02d}" for number in range(PER_RUN)]
    task = {**ones["task"][0], "run": run, "changed": at, "ord": None}
    _insert(db, "task", [{**task, "id": f"{run}/{name}", "name": name} for name in names])
    _insert(db, "attempt", [{**ones["attempt"][0], "task": f"{run}/{name}", "created": at, "ended": at} for name in names])
    history = [row for row in ones["journal"] if row["task"]]
    _insert(db, "journal", [{**row, "seq": None, "at": at, "task": f"{run}/{name}"} for name in names for row in history])


def _insert(db: sqlite3.Connection, table: str, values: list[dict[str, Any]]) -> None:
    names = list(values[0])
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608 - ours
    db.executemany(sql, [tuple(row.values()) for row in values])


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
