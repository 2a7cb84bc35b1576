"""Counters from the ledger: each line of history once, in bounded steps, also when rows have left for the archive."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.features.metrics import catalog
from supervisor.features.metrics import rows as metrics_rows
from supervisor.features.metrics.catalog import Counts
from supervisor.features.metrics.rows import Living
from supervisor.kernel.account import Measured
from supervisor.store import sqlite


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite.connect(path)) as found:
        found.execute("INSERT INTO project VALUES ('p', '/r', '/r/.git', 0)")
        columns = "id, key, project, title, base, base_oid, env, created, night"
        found.execute(f"INSERT INTO run ({columns}) VALUES ('r', 'k', 'p', '', '', '', '{{}}', 0, 'r')")  # noqa: S608 - ours
        yield found


def task(db: sqlite3.Connection, name: str, state: str, attempt: str = "", account: object = None) -> None:
    db.execute(
        "INSERT INTO task (id, run, project, name, title, spec, state, epoch, changed) VALUES (?, 'r', 'p', ?, '', '{}', ?, 1, 0)",
        (f"r/{name}", name, state),
    )
    if attempt:
        db.execute(
            "INSERT INTO attempt (task, epoch, state, created, account, end) VALUES (?, 1, ?, 0, ?, ?)",
            (f"r/{name}", attempt, None if account is None else json.dumps(account), "done" if attempt in ("ended", "released") else None),
        )


def happened(db: sqlite3.Connection, event: str, name: str = "", **data: object) -> None:
    where = (f"r/{name}", 1) if name else (None, None)
    db.execute("INSERT INTO journal (at, task, epoch, event, data) VALUES (0, ?, ?, ?, ?)", (*where, event, json.dumps(data)))


def wait(db: sqlite3.Connection, kind: str, since: float, ended: float | None, name: str = "a") -> None:
    db.execute(
        "INSERT INTO wait (project, task, epoch, kind, what, holders, since, until, ended) VALUES ('p', ?, 1, ?, '', '[]', ?, 0, ?)",
        (f"r/{name}", kind, since, ended),
    )


def count(path: Path, counts: Counts, rows: int = metrics_rows.ROWS) -> tuple[Counts, metrics_rows.Moment]:
    with closing(sqlite.connect_readonly(path)) as reader:
        while True:
            moment, more = metrics_rows.count(reader, counts, rows)
            if not more:
                return Counts.from_json(counts.to_json()), moment


def test_history_is_counted_once_however_it_is_read(db: sqlite3.Connection, path: Path) -> None:
    task(db, "a", "done", "released", {"cpu_s": 7.0, "tool_cpu_s": 5.0, "human_s": 3.0, "slot_queue_s": 1.0, "wall_s": 60.0})
    task(db, "b", "running", "running", {"samples": 2, "memory": 1000, "processes": 3, "cpu_s": 2.0, "agent_cpu_s": 0.5})
    task(db, "c", "skipped")
    for number in range(5):
        happened(db, "memory changed", project="p", changes=number)
    happened(db, "start", "a")
    happened(db, "end done", "a", task="done")
    happened(db, "skipped", "c")
    happened(db, "night ended", run="r")
    happened(db, "night refused")
    counts, moment = count(path, Counts(), rows=2)
    for _ in range(3):
        counts, moment = count(path, counts)
    assert counts.values[catalog.ATTEMPTS_STARTED.name] == {(): 1} and counts.values[catalog.ATTEMPTS_ENDED.name] == {("done",): 1}
    assert counts.values[catalog.TASKS_ENDED.name] == {("done",): 1, ("skipped",): 1}
    assert counts.values[catalog.CPU.name] == {("a",): 7.0, ("b",): 2.0}
    assert counts.values[catalog.TOOL_CPU.name] == {
        ("a",): 5.0,
        ("b",): 1.5,
    }
    assert counts.values[catalog.NIGHTS.name] == {("partly",): 1, ("refused",): 1}
    assert moment.living == (Living("r/b", 1, "running", False, Measured(2, 1000, processes=3, cpu_s=2.0, agent_cpu_s=0.5)),)
    assert moment.tasks == {"running": 1} and set(counts.seen) == {"r/b:1"}


def test_an_attempt_that_ends_between_two_looks_counts_what_is_new(db: sqlite3.Connection, path: Path) -> None:
    task(db, "b", "running", "running", {"samples": 2, "cpu_s": 2.0, "agent_cpu_s": 0.5})
    counts, _ = count(path, Counts())
    happened(db, "memory changed")
    db.execute("UPDATE attempt SET end = 'failed', state = 'ended', account = ?", (json.dumps({"cpu_s": 9.0, "tool_cpu_s": 8.0}),))
    happened(db, "end failed", "b", task="ready")
    with closing(sqlite.connect_readonly(path)) as reader:
        assert metrics_rows.count(reader, counts, 1)[1] and counts.values[catalog.CPU.name] == {("b",): 2.0}, "its end was not read yet"
    counts, _ = count(path, counts)
    assert counts.values[catalog.CPU.name] == {("b",): 9.0} and counts.values[catalog.TOOL_CPU.name] == {("b",): 8.0} and not counts.seen


def test_rows_that_left_for_the_archive_hide_no_later_ones(db: sqlite3.Connection, path: Path) -> None:
    task(db, "a", "done", "released")
    happened(db, "start", "a")
    wait(db, "lease", 10.0, 25.0)
    counts, _ = count(path, Counts())
    db.execute("DELETE FROM journal")
    db.execute("DELETE FROM wait")
    counts, _ = count(path, counts)
    happened(db, "start", "a")
    wait(db, "lease", 10.0, 11.0)
    counts, _ = count(path, counts)
    assert counts.values[catalog.ATTEMPTS_STARTED.name] == {(): 2}
    assert counts.spreads[catalog.WAIT_SECONDS.name][("lease",)].total == 16.0


def test_a_wait_counts_when_it_is_over(db: sqlite3.Connection, path: Path) -> None:
    task(db, "a", "running", "running")
    wait(db, "lease", 10.0, None)
    wait(db, "human", 20.0, 30.0)
    db.execute("INSERT INTO lease (project, glob, mode, task, epoch, acquired, expires) VALUES ('p', '**', 'shared', 'r/a', 1, 0, 9)")
    counts, moment = count(path, Counts(), rows=1)
    assert (moment.waits, moment.leases) == ({"lease": 1}, {"shared": 1}) and counts.read.waits.open == {1}
    assert set(counts.spreads[catalog.WAIT_SECONDS.name]) == {("human",)}
    db.execute("UPDATE wait SET ended = 110 WHERE number = 1")
    for _ in range(2):
        counts, _ = count(path, counts)
    assert counts.spreads[catalog.WAIT_SECONDS.name][("lease",)].total == 100.0 and not counts.read.waits.open


def test_a_look_costs_what_is_new_and_what_lives(db: sqlite3.Connection, path: Path) -> None:
    """Work of the look, in steps of SQLite's own machine: a long history and many tasks that wait add next to nothing."""

    def steps(counts: Counts) -> int:
        number = 0

        def one() -> int:
            nonlocal number
            number += 1
            return 0

        with closing(sqlite.connect_readonly(path)) as reader:
            reader.set_progress_handler(one, 100)
            metrics_rows.count(reader, counts)
        return number

    task(db, "b", "running", "running", {"samples": 1})
    counts, _ = count(path, Counts())
    few = steps(counts)
    db.execute("BEGIN")
    for number in range(3000):
        task(db, f"old{number}", "done", "released", {"cpu_s": 1.0})
        happened(db, "end done", f"old{number}", task="done")
        wait(db, "lease", 0.0, 1.0, "b")
    db.execute("COMMIT")
    counts, _ = count(path, counts)
    assert steps(counts) <= few + 5
