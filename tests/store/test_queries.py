"""What people ask of the ledger: right, and by an index however long the history is."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.kernel.decision import Collect, MarkRunning, SetState, Start
from supervisor.kernel.errors import NotFound, UsageError
from supervisor.kernel.names import gate_key
from supervisor.kernel.states import End, TaskState
from supervisor.store import journal, queries, sqlite
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, spec, submission, submit, whole

OLD, NEW, FAR = "0730-k3qz", "0731-k3qz", "0801-mmmm"


@pytest.fixture
def db(path: Path, wall: Wall) -> Iterator[sqlite3.Connection]:
    """Three runs: an old one, a newer one with some of the same names, and one of a single task."""
    with contextlib.closing(Ledger(path, wall)) as ledger:
        submit(ledger, "lint", "unit", "a.b", "a.b.c", "Build_all", run=OLD)
        wall.now += 60
        submit(ledger, "lint", "unit-slow", "unit-fast", "100%", "x_y", run=NEW)
        ledger.submit(submission(spec("only", priority=90), key=FAR, project="ba9876543210", root="/other"), FAR)
        ledger.commit(whole(f"{OLD}/lint", 1, End.LOST, TaskState.READY))
        ledger.commit([*whole(f"{OLD}/lint", 2), *whole(f"{OLD}/unit", 1, End.FAILED, TaskState.FAILED)])
        ledger.note(f"{OLD}/lint", 2, branch="b", result='{"schema": 1}')
        ledger.commit([Start(f"{NEW}/lint", 1, ""), MarkRunning(f"{NEW}/lint", 1)])
        with contextlib.closing(sqlite.connect_readonly(path)) as reader:
            yield reader


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"{OLD}/lint", [f"{OLD}/lint"]),
        ("lint", [f"{NEW}/lint"]),
        ("unit", [f"{OLD}/unit"]),
        ("unit-", ["more than one", f"{NEW}/unit-fast, {NEW}/unit-slow"]),
        ("unit-s", [f"{NEW}/unit-slow"]),
        ("a.b", [f"{OLD}/a-b"]),
        ("a", ["more than one", f"{OLD}/a-b, {OLD}/a-b-c"]),
        ("a.b.", [f"{OLD}/a-b-c"]),
        (f"{OLD}/a.b", [f"{OLD}/a-b"]),
        (f"{OLD}/a.b.", [f"{OLD}/a-b-c"]),
        (f"{OLD}/Build", [f"{OLD}/build_all"]),
        (f"{OLD}/b", [f"{OLD}/build_all"]),
        (f"{OLD}/un", [f"{OLD}/unit"]),
        (f"{NEW}/un", ["more than one", f"{NEW}/unit-fast, {NEW}/unit-slow"]),
        (FAR, [f"{FAR}/only"]),
        ("08", [f"{FAR}/only"]),
        (OLD, [f"{OLD}/{slug}" for slug in ("lint", "unit", "a-b", "a-b-c", "build_all")]),
        ("0730", [f"{OLD}/{slug}" for slug in ("lint", "unit", "a-b", "a-b-c", "build_all")]),
        ("073", ["more than one", f"{OLD}, {NEW}"]),
        ("100%", [f"{NEW}/100"]),
        ("10", [f"{NEW}/100"]),
        ("%", ["no task"]),
        ("_", ["no task"]),
        ("x_", [f"{NEW}/x_y"]),
        ("x.", ["no task"]),
        ("LINT", ["no task"]),
        ("nobody", ["no task"]),
        (f"{OLD}/nobody", ["no task"]),
        ("/", ["no task"]),
        ("", ["empty name"]),
        ("' OR 1 --", ["no task"]),
    ],
)
def test_what_a_name_means(db: sqlite3.Connection, name: str, found: list[str]) -> None:
    if "/" in found[0]:
        assert queries.match_tasks(db, name) == found
        return
    with pytest.raises((UsageError, NotFound)) as caught:
        queries.match_tasks(db, name)
    assert all(part in caught.value.line() for part in found)
    assert isinstance(caught.value, NotFound) == (found == ["no task"])


def test_one_name_for_one_task(db: sqlite3.Connection) -> None:
    assert queries.match_task(db, "lint") == f"{NEW}/lint"
    assert queries.match_task(db, FAR) == f"{FAR}/only"
    with pytest.raises(UsageError, match=f"more than one task is meant by {OLD}: {OLD}/lint, .*as RUN/NAME"):
        queries.match_task(db, OLD)


def test_views(db: sqlite3.Connection, wall: Wall) -> None:
    lint, unit, *_ = queries.of_run(db, OLD)
    assert (lint.state, lint.epoch, lint.end, lint.branch, lint.result, lint.final) == (TaskState.DONE, 2, "done", "b", {"schema": 1}, True)
    assert (lint.submitted, lint.project, lint.base_oid, lint.priority, lint.task_class) == (
        wall.now - 60,
        "0123456789ab",
        "c0ffee",
        50,
        "normal",
    )
    assert (unit.state, unit.reason, unit.retries_used, unit.result) == (TaskState.FAILED, "failed", 1, None)
    running = queries.one(db, f"{NEW}/lint")
    assert (running.attempt_state, running.started, running.ended, running.final) == ("running", wall.now, None, False)
    with pytest.raises(NotFound, match="no task nobody"):
        queries.one(db, "nobody")


def test_unfinished(db: sqlite3.Connection) -> None:
    assert [view.name for view in queries.unfinished(db)] == [
        "a.b",
        "a.b.c",
        "Build_all",
        "lint",
        "unit-slow",
        "unit-fast",
        "100%",
        "x_y",
        "only",
    ]
    assert queries.unfinished_ids(db) == [view.id for view in queries.unfinished(db)]


def test_the_run_of_a_gate_is_none_that_a_person_submitted(path: Path, wall: Wall) -> None:
    with contextlib.closing(Ledger(path, wall)) as ledger:
        submit(ledger, "lint", run=OLD)
        ledger.submit(submission(spec("gate"), key=gate_key("train-0731-k3qz", 1)), NEW)
        assert queries.newest_run(ledger.db) == OLD
        assert [run.id for run in queries.runs(ledger.db, 9)] == [NEW, OLD]
        assert [run.id for run in queries.runs(ledger.db, 9, gates=False)] == [OLD]


def test_what_a_screen_has_room_for(db: sqlite3.Connection) -> None:
    everyone = queries.unfinished(db)
    assert queries.foremost(db, 99) == everyone
    assert [view.state for view in queries.foremost(db, 0)] == [TaskState.RUNNING]
    assert [view.name for view in queries.foremost(db, 2)] == ["a.b", "a.b.c", "lint"]
    assert queries.unfinished_counts(db) == Counter(view.state for view in everyone)
    ended, counts = queries.ended_of(db, OLD, 99)
    assert ended == [view for view in queries.of_run(db, OLD) if view.final]
    assert counts == {TaskState.DONE: 1, TaskState.FAILED: 1}
    assert queries.ended_of(db, OLD, 0) == ([], Counter())
    assert queries.newest_run(db) == FAR
    lately = queries.ended_lately(db, 99)
    assert lately == [view for view in queries.of_run(db, OLD) if view.final] and len(lately) == 2
    assert len(queries.ended_lately(db, 1)) == 1 and queries.ended_lately(db, 0) == []


def test_what_happened_since(db: sqlite3.Connection) -> None:
    names, newest = journal.touched(db, 0)
    assert f"{OLD}/lint" in names and len(set(names)) == len(names)
    assert newest == journal.newest_entry(db)
    assert journal.touched(db, newest) == ([], newest)
    assert journal.touched(db, newest - 1)[1] == newest


def test_runs(db: sqlite3.Connection) -> None:
    assert [run.id for run in queries.runs(db, 2)] == [FAR, NEW]
    assert [run.id for run in queries.runs(db, 9, "0123456789ab")] == [NEW, OLD]
    run = queries.run(db, OLD)
    assert (run.title, run.root, run.base, run.counts) == ("a run", "/repo", "main", {"done": 1, "failed": 1, "ready": 3})
    with pytest.raises(NotFound, match="no run nothing"):
        queries.run(db, "nothing")


def test_attempts_and_history(db: sqlite3.Connection) -> None:
    assert [(row["epoch"], row["end"], row["cause"]) for row in queries.attempts(db, f"{OLD}/lint")] == [
        (1, "lost", ""),
        (2, "done", "again"),
    ]
    history = journal.journal_of_task(db, f"{OLD}/lint")
    assert [row["event"] for row in history] == ["ready", "start", "tree gone", "end lost", "start", "tree gone", "end done"]
    assert history[3]["data"] == {"cause": "", "task": "ready"}


# Indexes ---------------------------------------------------------------------------------------------------------------------------

SMALL = "task_open|attempt_open|attempt_worktree"  # partial indexes: only what is open is in them


def scans(db: sqlite3.Connection, ask: Callable[[], object]) -> list[str]:
    """Steps of every statement of `ask` that walk a whole table, or a whole index of one."""
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    ask()
    db.set_trace_callback(None)
    assert statements
    steps = [str(row["detail"]) for sql in statements for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
    return [
        step for step in steps if re.match(r"SCAN (?!CONSTANT|\(|b$|json_each)", step) and not re.search(f"USING INDEX ({SMALL})$", step)
    ]


ASKS: list[Callable[[sqlite3.Connection], object]] = [
    queries.unfinished,
    queries.unfinished_ids,
    queries.unfinished_counts,
    queries.newest_run,
    journal.newest_entry,
    lambda db: queries.foremost(db, 2),
    lambda db: queries.ended_of(db, OLD, 2),
    lambda db: queries.several(db, [f"{OLD}/lint", f"{NEW}/lint"]),
    lambda db: journal.touched(db, 3),
    queries.worktrees,
    lambda db: queries.of_run(db, OLD),
    lambda db: queries.one(db, f"{OLD}/lint"),
    lambda db: queries.run(db, OLD),
    lambda db: queries.attempts(db, f"{OLD}/lint"),
    lambda db: journal.journal_of_task(db, f"{OLD}/lint"),
    lambda db: journal.children(db, f"{OLD}/lint"),
    lambda db: journal.given_to_children(db, f"{OLD}/lint"),
    lambda db: journal.of_key(db, "child:x"),
    *(
        lambda db, name=name: queries.match_tasks(db, name)
        for name in (f"{OLD}/lint", OLD, "lint", "0730", "unit-s", f"{OLD}/un", f"{OLD}/a.b", "a.b.")
    ),
]


@pytest.mark.parametrize("number", range(len(ASKS)))
def test_no_question_walks_the_whole_history(db: sqlite3.Connection, number: int) -> None:
    assert scans(db, lambda: ASKS[number](db)) == []


ASKS_OF_THE_WRITER: list[Callable[[Ledger], object]] = [
    lambda ledger: ledger.unfinished(0.0),
    lambda ledger: ledger.tasks_of_run(OLD, 0.0),
    lambda ledger: ledger.task(f"{OLD}/lint", 0.0),
    lambda ledger: ledger.revivable(f"{OLD}/lint"),
    lambda ledger: ledger.unreleased(),
    lambda ledger: ledger.worktrees([f"{OLD}/lint", f"{NEW}/lint"]),
    lambda ledger: ledger.attempt(f"{OLD}/lint", 1),
    lambda ledger: ledger.launch_row(f"{OLD}/lint"),
    lambda ledger: ledger.run_exists(OLD),
    lambda ledger: ledger.commit([Collect(f"{NEW}/lint", 1, End.DONE, ""), SetState(f"{OLD}/a-b", TaskState.CANCELLED, "")]),
    lambda ledger: ledger.release(f"{OLD}/lint", 1),
]


@pytest.mark.parametrize("number", range(len(ASKS_OF_THE_WRITER)))
def test_nothing_that_the_daemon_does_walks_the_whole_history(db: sqlite3.Connection, path: Path, number: int) -> None:
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        assert scans(ledger._db, lambda: ASKS_OF_THE_WRITER[number](ledger)) == []


def test_the_check_for_scans_sees_one(db: sqlite3.Connection) -> None:
    assert scans(db, lambda: db.execute("SELECT id FROM task WHERE name LIKE 'a%' ESCAPE '!'").fetchall()) != []
