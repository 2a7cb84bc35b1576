"""Runs that ended long ago leave the ledger for the archive: each once and whole, whenever it is killed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.retention import archiving as retention_archiving
from supervisor.features.retention.archiving import OF_RUN, OF_TASK, STAYS, Archive
from supervisor.kernel.decision import Revive, SetState, Start
from supervisor.kernel.errors import LedgerError, Refused, StaleEpoch
from supervisor.kernel.night import NightOrder, NightTerms
from supervisor.kernel.retention import held, held_rows
from supervisor.kernel.states import TaskState
from supervisor.store import journal, queries, sqlite
from supervisor.store.archive import ARCHIVE, reader
from supervisor.store.ledger import Ledger
from tests.data import make_archive_sample
from tests.store.kit import Wall, check_integrity, rows, spec, submission, submit, whole
from tests.store.test_queries import scans

ALL = 1 << 40
"""Every row is proven."""
OLD, BIG, NEW = "0730-aaaa", "0730-bbbb", "0731-cccc"
TABLES = [*OF_TASK, *OF_RUN, "project"]


@pytest.fixture
def beside(path: Path) -> Path:
    return path.with_name("archive.db")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ended runs, one of them of more tasks than one step moves, and the newest."""
    path, wall = tmp_path_factory.mktemp("sample") / "ledger.db", Wall()
    with closing(Ledger(path, wall)) as ledger:
        for run, count in ((OLD, 2), (BIG, 2 * retention_archiving.TASKS + 7)):
            tasks = [spec(f"t{number}", after=(f"t{number - 1}",) if number else ()) for number in range(count)]
            first, *others = submit(ledger, *tasks, run=run)
            ready = [SetState(name, TaskState.READY, "") for name in others]
            ledger.commit([*ready, *(command for name in (first, *others) for command in whole(name))])
            for name in (first, *others):
                ledger.note(name, 1, result='{"schema": 1}')
                ledger.release(name, 1)
        ledger.conversations.begin(f"{OLD}/t0", 1, "5e55", None)
        ledger.journal(None, None, "up", {"pid": 1})
        wall.now += 60
        submit(ledger, "t0", run=NEW)
    return path


@pytest.fixture
def filled(sample: Path, path: Path, wall: Wall) -> Path:
    """A copy of the sample, and its wall clock."""
    shutil.copyfile(sample, path)
    wall.now += 60
    return path


@contextlib.contextmanager
def mover(path: Path, wall: Wall) -> Iterator[Archive]:
    with closing(Archive(path, path.with_name("archive.db"), wall)) as made:
        yield made


def everything(path: Path, book: sqlite.Book = sqlite.LEDGER) -> dict[str, set[tuple[Any, ...]]]:
    if not path.exists():
        return {table: set() for table in TABLES}
    with closing(sqlite.connect_readonly(path, book=book)) as db:
        return {table: {tuple(row) for row in db.execute(f"SELECT * FROM {table}")} for table in TABLES}  # noqa: S608 - ours


def finish(path: Path, wall: Wall) -> None:
    with mover(path, wall) as moving:
        while (run := moving.leaving()) is not None:
            while moving.move(run):
                pass


def test_a_run_is_moved_whole(filled: Path, beside: Path, wall: Wall) -> None:
    before = everything(filled)
    with mover(filled, wall) as moving:
        facts, after = moving.oldest(0, ALL, 9)
        assert [(one.run, held_rows(one)) for one in facts] == [(OLD, ""), (BIG, ""), (NEW, "1 of its tasks have not ended")] and after == 0
        assert moving.mark(BIG, ALL) and moving.leaving() == BIG
        steps = 1
        while moving.move(BIG):
            steps += 1
        assert steps == 2 * 4, "three parts and an end, copied and then removed"
        assert moving.leaving() is None
    check_integrity(filled)
    check_integrity(beside)
    left, gone = everything(filled), everything(beside, ARCHIVE)
    for table in TABLES:
        added = left[table] - before[table]
        assert left[table] | gone[table] == before[table] | added, table
        assert not (left[table] & gone[table]) or table == "project", table
        assert [row[4] for row in added] == (["archived"] if table == "journal" else [])
    assert len(gone["task"]) == 2 * retention_archiving.TASKS + 7 and {row[0] for row in gone["run"]} == {BIG}
    with closing(reader(filled, beside, BIG)) as db:
        assert len(queries.of_run(db, BIG)) == len(gone["task"]) and queries.run(db, BIG).counts == {"done": len(gone["task"])}
        assert journal.journal_of_task(db, f"{BIG}/t1")[-1]["event"] == "end done"
    with closing(reader(filled, beside, OLD)) as db:
        assert len(queries.of_run(db, OLD)) == 2


KILLED = """
import os, sys
from pathlib import Path
from supervisor.features.retention.archiving import Archive
from tests.store.kit import Wall
path = Path(sys.argv[1])
moving = Archive(path, path.with_name("archive.db"), Wall())
for run in sys.argv[2:]:
    assert moving.mark(run, 1 << 40)
    while moving.move(run):
        pass
while moving.move_rest(1e12, 1 << 40):
    pass
"""
POINTS = [
    "archive.marked", "archive.copied", "archive.copied:2", "archive.copied:4", "archive.removed", "archive.removed:3", "archive.removed:4",
    "archive.rest-copied",
]  # fmt: skip


@pytest.mark.parametrize("point", POINTS)
def test_whenever_it_is_killed_each_row_is_there_once(filled: Path, beside: Path, wall: Wall, point: str) -> None:
    before = everything(filled)
    argv, env = [sys.executable, "-c", KILLED, str(filled), BIG, OLD], {**os.environ, "NIGHTCREW_DIE_AT": point}
    done = subprocess.run(argv, env=env, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL
    with closing(reader(filled, beside, BIG)) as db:
        assert len(queries.of_run(db, BIG)) == 2 * retention_archiving.TASKS + 7, "at every moment one of the two has it whole"
        assert len(queries.outcomes(db, BIG)) == 2 * retention_archiving.TASKS + 7
    finish(filled, wall)
    check_integrity(filled)
    check_integrity(beside)
    left, gone = everything(filled), everything(beside, ARCHIVE)
    for table in set(TABLES) - {"project", "journal"}:
        assert (left[table] | gone[table], left[table] & gone[table]) == (before[table], set()), table
    assert left["journal"] | gone["journal"] >= before["journal"]
    with mover(filled, wall) as moving:  # a row that belongs to no task may be in both until the next time
        while moving.move_rest(1e12, ALL):
            pass
    assert not everything(filled)["journal"] & everything(beside, ARCHIVE)["journal"]


def test_every_table_is_moved_or_stays(filled: Path) -> None:
    found = {row["name"] for row in rows(filled, "SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert found == set(OF_TASK) | set(OF_RUN) | STAYS, "a new table must say here what becomes of its rows"


def test_what_is_needed_stays(path: Path, wall: Wall) -> None:
    with closing(Ledger(path, wall)) as ledger:
        for run, task in (
            ("r-plain", spec("t")),
            ("r-worktree", spec("t")),
            ("r-unreleased", spec("t")),
            ("r-needed", spec("t")),
            ("r-continued", spec("t")),
        ):
            submit(ledger, task, run=run)
            ledger.commit(whole(f"{run}/t"))
            if run != "r-unreleased":
                ledger.release(f"{run}/t", 1)
        ledger.note("r-worktree/t", 1, worktree="/w")
        submit(ledger, spec("agent"), run="r-parent")
        ledger.commit([Start("r-parent/agent", 1, "")])
        submit(ledger, spec("t", parent="r-parent/agent", parent_epoch=1), run="r-child")
        ledger.commit(whole("r-child/t"))
        ledger.release("r-child/t", 1)
        submit(ledger, spec("t", after=("r-needed/t",)), spec("c", continue_from="r-continued/t"), run="r-waiting")
        ledger.submit(submission(spec("t"), key="n", night=NightOrder(NightTerms())), "r-night")
        ledger.commit([SetState("r-night/t", TaskState.READY, ""), *whole("r-night/t")])
        ledger.release("r-night/t", 1)
        submit(ledger, spec("t"), run="r-last")
        ledger.commit(whole("r-last/t"))
        ledger.release("r-last/t", 1)
    with mover(path, wall) as moving:
        newest = rows(path, "SELECT max(seq) AS seq FROM journal")[0]["seq"]
        facts = {one.run: one for one in moving.oldest(0, newest, 99)[0]}
        assert {run: held(one) for run, one in facts.items()} == {
            "r-plain": "",
            "r-worktree": "1 of its worktrees are there: nightcrew clean",
            "r-unreleased": "an attempt of it is not over",
            "r-needed": "r-waiting/t comes after one of its tasks",
            "r-continued": "an unfinished task goes on with a conversation of it",
            "r-parent": "1 of its tasks have not ended",
            "r-child": "r-parent/agent added it, and has not ended",
            "r-night": "r-night is its night, and not over",
            "r-waiting": "2 of its tasks have not ended",
            "r-last": "it is the newest run",
        }
        first = rows(path, "SELECT max(seq) AS seq FROM journal WHERE task = 'r-plain/t'")[0]["seq"]
        assert not moving.mark("r-plain", first - 1), "its last row is not proven yet"
        assert all(not moving.mark(run, newest) for run in facts if run != "r-plain")
        assert moving.leaving() is None and moving.mark("r-plain", first)
        assert not moving.mark("nothing", newest)


def test_what_leaves_is_not_begun_again(filled: Path, wall: Wall) -> None:
    with mover(filled, wall) as moving, closing(Ledger(filled, wall, create=False)) as ledger:
        moving.mark(OLD, ALL)
        for _ in range(2):
            with pytest.raises(Refused, match=f"nothing more is done with {OLD}/t1: it is archived, and only read"):
                ledger.refuse_leaving([f"{OLD}/t1"])
            with pytest.raises(Refused, match="archived"):
                ledger.submit(submission(spec("x", after=(f"{OLD}/t1",)), key="x"), "0801-xxxx")
            with pytest.raises(StaleEpoch):
                ledger.commit([Revive(f"{OLD}/t1", "again")])
            while moving.move(OLD):
                pass
        ledger.refuse_leaving([f"{BIG}/t1", f"{NEW}/t0", "0801-xxxx/t"])
        assert ledger.run_exists(OLD) and ledger.key_is_known(OLD)
        assert ledger.submit(submission("t0", key=OLD), "0801-yyyy") == (OLD, False), "the same key twice is one run, archived or not"


def test_the_archive_of_another_ledger_is_left_alone(filled: Path, beside: Path, wall: Wall) -> None:
    with mover(filled, wall) as moving:
        moving.mark(OLD, ALL)
        finish(filled, wall)
    kept = everything(beside, ARCHIVE)
    filled.unlink()
    shutil.rmtree(filled.parent / sqlite.RECOVERY)
    with closing(Ledger(filled, wall)) as ledger:
        for run in ("r-one", "r-two"):
            submit(ledger, "t", run=run)
            ledger.commit(whole(f"{run}/t"))
            ledger.release(f"{run}/t", 1)
    with mover(filled, wall) as moving, pytest.raises(LedgerError, match="it belongs to another ledger"):
        moving.mark("r-one", ALL)
    assert everything(beside, ARCHIVE) == kept and len(rows(filled, "SELECT * FROM leaving")) == 0


def test_rows_of_no_task_follow_the_runs(filled: Path, beside: Path, wall: Wall) -> None:
    with mover(filled, wall) as moving:
        for run in (OLD, BIG):
            assert moving.mark(run, ALL)
            while moving.move(run):
                pass
        while moving.move_rest(wall.now - 1, ALL):
            pass
    left = [row["event"] for row in rows(filled, "SELECT event FROM journal WHERE task IS NULL ORDER BY seq")]
    assert left == ["submitted", "archived", "archived"], "those of the newest run's time"
    assert [row["event"] for row in rows(beside, "SELECT event FROM journal WHERE task IS NULL")] == ["submitted", "submitted", "up"]


def test_the_file_becomes_smaller(filled: Path, wall: Wall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_archiving, "PAGES", 512)
    with closing(Ledger(filled, wall)) as ledger:
        ledger.note(f"{BIG}/t0", 1, result=f'{{"schema": 1, "x": "{"x" * 2_000_000}"}}')
        ledger._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = filled.stat().st_size
    with mover(filled, wall) as moving:
        moving.mark(BIG, ALL)
        while moving.move(BIG):
            pass
        steps = 1
        while moving.shrink():
            steps += 1
        assert steps == 2, "about 600 pages"
    assert filled.stat().st_size < size - 2_000_000


def test_no_look_walks_the_whole_history(filled: Path, wall: Wall) -> None:
    with mover(filled, wall) as moving:
        assert scans(moving._db, lambda: retention_archiving.facts_of(moving._db, OLD, ALL, ())) == []
        assert scans(moving._db, lambda: moving.used()) == []
        facts, _ = moving.oldest(0, ALL, 9)
        assert all("sqlite_schema" in one for one in scans(moving._db, lambda: list(moving.sized(facts))))
        assert scans(moving._db, lambda: moving.mark(OLD, ALL)) == []
        assert scans(moving._db, lambda: [moving.move(OLD) for _ in range(4)]) == []
        assert scans(moving._db, lambda: moving.move_rest(wall.now, ALL)) == []


def test_a_random_order_of_steps_and_kills(filled: Path, beside: Path, wall: Wall, seed: int) -> None:
    """A new process after any step: nothing is kept in memory."""
    dice = random.Random(seed)
    before = everything(filled)
    with mover(filled, wall) as moving:
        moving.mark(OLD, ALL)
        moving.mark(BIG, ALL)
    while True:
        with mover(filled, wall) as moving:
            if (run := moving.leaving()) is None:
                break
            for _ in range(dice.randrange(1, 3)):
                if not moving.move(run):
                    break
        for name in (OLD, BIG):
            with closing(reader(filled, beside, name)) as db:
                assert queries.run(db, name).counts["done"] == len(queries.of_run(db, name)) in (2, 2 * retention_archiving.TASKS + 7)
    left, gone = everything(filled), everything(beside, ARCHIVE)
    assert left["task"] | gone["task"] == before["task"] and not left["task"] & gone["task"]


@pytest.mark.parametrize("schema", range(5, sqlite.SCHEMA + 1))
def test_an_old_archive_is_read_and_goes_on(filled: Path, beside: Path, wall: Wall, schema: int) -> None:
    with closing(sqlite3.connect(beside)) as db:
        db.executescript((Path(make_archive_sample.__file__).parent / f"archive-{schema}.sql").read_text(encoding="utf-8"))
    with closing(reader(filled, beside, make_archive_sample.RUN)) as db:
        assert [view.state for view in queries.of_run(db, make_archive_sample.RUN)] == ["done", "done"]
    with closing(Ledger(filled, wall, create=False)) as ledger:
        assert ledger.run_exists(make_archive_sample.RUN)
    wall.now += 60
    with closing(sqlite3.connect(filled)) as db, db:  # as if those had been this ledger's first
        db.execute("UPDATE task SET ord = ord + 1000")
        db.execute("UPDATE journal SET seq = seq + 1000")
    with mover(filled, wall) as moving:
        assert moving.mark(OLD, ALL)
        while moving.move(OLD):
            pass
    assert len(rows(beside, "SELECT id FROM task")) == 4
