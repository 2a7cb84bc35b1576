"""Opening the ledger: whole and ours, or refused in a way that names the file and leaves it alone."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.kernel.errors import DiskFull, LedgerError, NightcrewError
from supervisor.store import queries, sqlite
from supervisor.store.ledger import Ledger
from tests import support
from tests.store.kit import RUN, Wall, check_integrity, rows, submission, submit

Opener = Callable[[Path], object]
OPENERS: list[Opener] = [sqlite.connect, sqlite.connect_readonly]
ordinary = pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only to root")


def filled(path: Path, runs: int = 40) -> Path:
    """A ledger of several pages, closed."""
    path.write_bytes(_filled(runs))
    path.chmod(0o600)
    return path


@functools.cache
def _filled(runs: int) -> bytes:
    with tempfile.TemporaryDirectory() as place, contextlib.closing(Ledger(path := Path(place) / "ledger.db", Wall())) as ledger:
        for number in range(runs):
            submit(ledger, *(f"task-{index}" for index in range(20)), run=f"0731-{number:04}")
        ledger.close()
        return path.read_bytes()


def refusal(opener: Opener, path: Path) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        opener(path)
    assert str(path) in caught.value.line()
    return caught.value


def test_a_new_ledger_is_private_durable_and_without_leftovers(path: Path) -> None:
    with contextlib.closing(sqlite.connect(path)) as db:
        assert path.stat().st_mode & 0o777 == 0o600
        pragmas = {
            name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys", "user_version")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "user_version": sqlite.SCHEMA}
    assert os.listdir(path.parent) == ["ledger.db"]
    with contextlib.closing(sqlite.connect(path)):
        pass


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_commit_waits_for_the_disk_unless_it_need_not_and_the_next_one_does_again(path: Path, durable: bool, fails: bool) -> None:
    with contextlib.closing(sqlite.connect(path)) as db:
        with contextlib.suppress(ZeroDivisionError), sqlite.transaction(db, path, durable=durable):
            assert db.execute("PRAGMA synchronous").fetchone()[0] == (2 if durable else 1)
            db.execute("INSERT INTO project VALUES ('p', '/', '/.git', 1.0)")
            assert 1 // (not fails)
        assert db.execute("PRAGMA synchronous").fetchone()[0] == 2
        assert db.execute("SELECT count(*) FROM project").fetchone()[0] == (not fails)


def test_no_ledger_is_made_by_looking(path: Path) -> None:
    assert "no ledger" in refusal(sqlite.connect_readonly, path).line()
    assert "no ledger" in refusal(lambda where: sqlite.connect(where, create=False), path).line()
    assert os.listdir(path.parent) == []


def test_a_reader_cannot_write(path: Path) -> None:
    filled(path, 1)
    with contextlib.closing(sqlite.connect_readonly(path)) as db, pytest.raises(LedgerError, match="readonly"):
        db.execute("DELETE FROM task")


# Damage: S08, S09 ------------------------------------------------------------------------------------------------------------------


PAGE = 4096


def garbage(size: int) -> bytes:
    return random.Random(7).randbytes(size)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "zero bytes": lambda data: data[:0],
    "one byte": lambda data: data[:1],
    "only the first page": lambda data: data[:PAGE],
    "cut": lambda data: data[: len(data) // 2],
    "cut inside a page": lambda data: data[:-1000],
    "text": lambda data: b"this is no database\n" * (len(data) // 20),
    "zeros": lambda data: bytes(len(data)),
    "zeros in the head": lambda data: bytes(100) + data[100:],
    "garbage page": lambda data: data[: 3 * PAGE] + garbage(PAGE) + data[4 * PAGE :],
    "garbage but for the head": lambda data: data[:PAGE] + garbage(len(data) - PAGE),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_ledger_is_refused_and_left_as_it_was(path: Path, damage: str) -> None:
    filled(path)
    spoilt = DAMAGES[damage](path.read_bytes())
    path.write_bytes(spoilt)
    error = refusal(sqlite.connect, path)
    assert "the ledger is damaged" in error.what
    assert ("it has zero bytes" in error.why) == (spoilt == b"")
    assert (
        "kept: the file as it was; no new one was made" in error.line()
        and error.hint == "nightcrew down; nightcrew doctor --recover-ledger"
    )
    assert path.read_bytes() == spoilt
    # SQLite's own index of the log may stay beside it, and holds nothing.
    assert {name for name in os.listdir(path.parent) if os.path.getsize(path.parent / name)} <= {"ledger.db", "ledger.db-shm"}
    assert refusal(sqlite.connect, path).what == error.what


def test_the_log_of_a_damaged_ledger_stays_as_it_was_too(path: Path) -> None:
    """What a killed daemon left in `-wal` may be all that can be saved."""
    ledger = Ledger(filled(path), Wall())
    submit(ledger, "in-the-log", run=RUN)
    crashed = path.parent / "crashed"
    crashed.mkdir()
    for name in ("ledger.db", "ledger.db-wal"):
        shutil.copy(path.parent / name, crashed / name)
    ledger.close()
    spoilt = DAMAGES["garbage but for the head"]((crashed / "ledger.db").read_bytes())
    (crashed / "ledger.db").write_bytes(spoilt)
    log = (crashed / "ledger.db-wal").read_bytes()
    assert log
    refusal(sqlite.connect, crashed / "ledger.db")
    assert (crashed / "ledger.db").read_bytes() == spoilt
    assert (crashed / "ledger.db-wal").read_bytes() == log


@pytest.mark.parametrize("opener", OPENERS)
def test_a_ledger_that_is_gone_while_its_log_is_not_is_no_new_one(path: Path, opener: Opener) -> None:
    """SQLite would play the old log into the new file."""
    log = path.with_name("ledger.db-wal")
    log.write_bytes(b"frames")
    error = refusal(opener, path)
    assert "it is gone, while ledger.db-wal, which belongs to it, is not" in error.line()
    assert os.listdir(path.parent) == ["ledger.db-wal"]


@pytest.mark.parametrize("opener", OPENERS)
@pytest.mark.parametrize(("version", "why"), [(0, "it is not a nightcrew ledger (schema 0)"), (1, "it has no table"), (-1, "schema -1")])
def test_an_empty_schema_is_no_ledger(path: Path, opener: Opener, version: int, why: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE other (x)")
        db.execute(f"PRAGMA user_version={version}")
        db.commit()
    before = path.read_bytes()
    assert why in refusal(opener, path).line()
    assert path.read_bytes() == before


@pytest.mark.parametrize("opener", OPENERS)
def test_a_newer_ledger_is_refused_with_both_versions(path: Path, opener: Opener) -> None:
    filled(path, 1)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {sqlite.SCHEMA + 1}")
    before = path.read_bytes()
    line = refusal(opener, path).line()
    assert f"it has schema {sqlite.SCHEMA + 1}, this nightcrew knows up to {sqlite.SCHEMA}" in line
    assert "kept: the file as it was; next: install the newer nightcrew again" in line
    assert path.read_bytes() == before


def one_by_one(cursor: sqlite3.Cursor) -> None:
    while cursor.fetchone() is not None:
        pass


def test_damage_that_shows_while_reading_is_our_error_too(path: Path) -> None:
    """`status` does not check the whole file first."""
    roots = [row["rootpage"] for row in rows(filled(path), "SELECT rootpage FROM sqlite_schema")]
    with path.open("r+b") as file:
        for root in roots:
            file.seek((root - 1) * PAGE)
            file.write(garbage(PAGE))
    asks: list[Callable[[sqlite3.Connection], object]] = [
        queries.unfinished,
        lambda db: queries.runs(db, 5),
        lambda db: queries.match_tasks(db, "task"),
        lambda db: db.execute("SELECT * FROM task").fetchone(),
    ]
    for ask in asks:
        with contextlib.closing(sqlite.connect_readonly(path)) as db, pytest.raises(LedgerError, match="the ledger is damaged") as caught:
            ask(db)
        assert str(path) in caught.value.on


@pytest.mark.parametrize("read", [list, lambda cursor: cursor.fetchall(), one_by_one])
def test_damage_in_the_middle_of_a_long_answer_is_our_error_too(path: Path, read: Callable[[sqlite3.Cursor], object]) -> None:
    filled(path)
    with contextlib.closing(sqlite.connect_readonly(path)) as db:
        cursor = db.execute("SELECT title FROM task")
        assert next(cursor)["title"] == "task-0"
        path.write_bytes(path.read_bytes()[: 8 * PAGE] + garbage(PAGE))
        with pytest.raises(LedgerError, match="damaged"):
            read(cursor)


# Places that cannot be written: S10, ENOSPC --------------------------------------------------------------------------------------------


@ordinary
def test_a_read_only_file_is_refused(path: Path) -> None:
    filled(path, 1)
    path.chmod(0o400)
    before = path.read_bytes()
    assert "it is read-only; next: check the owner" in refusal(sqlite.connect, path).line()
    assert path.read_bytes() == before


@ordinary
@pytest.mark.parametrize("mode", [0o500, 0o000])
@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("opener", OPENERS)
def test_a_closed_directory_is_refused(tmp_path: Path, mode: int, there: bool, opener: Opener) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    if there:
        filled(closed / "ledger.db", 1)
    closed.chmod(mode)
    try:
        refusal(opener, closed / "ledger.db")
    finally:
        closed.chmod(0o700)


@pytest.mark.parametrize("opener", OPENERS)
def test_a_directory_in_its_place_is_refused(path: Path, opener: Opener) -> None:
    path.mkdir()
    refusal(opener, path)


def test_no_directory_is_refused(tmp_path: Path) -> None:
    refusal(sqlite.connect, tmp_path / "absent" / "ledger.db")


@pytest.mark.root
@pytest.mark.parametrize("opener", OPENERS)
def test_a_read_only_file_system_is_named(tmp_path: Path, opener: Opener) -> None:
    with support.small_disk(tmp_path / "small", "size=4m") as place:
        filled(place / "ledger.db", 1)
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        line = refusal(opener, place / "ledger.db").line()
    assert "the file system is read-only; kept: the file as it was" in line


def fill_up(ledger: Ledger) -> list[str]:
    """Runs until the disk is full; those that were acknowledged."""
    done: list[str] = []

    def submit_for_ever() -> None:
        for number in range(10_000):
            run = f"0731-{number:04}"
            ledger.submit(submission(*(f"t{index}" for index in range(50)), key=run), run)
            done.append(run)

    with pytest.raises(DiskFull) as caught:
        submit_for_ever()
    assert "kept: everything committed before; next: free some space" in caught.value.line()
    return done


def test_a_ledger_that_cannot_grow_keeps_what_was_acknowledged(path: Path) -> None:
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        ledger._db.execute("PRAGMA max_page_count=200")
        done = fill_up(ledger)
        ledger._db.execute("PRAGMA max_page_count=100000")
        ledger.submit(submission("after", key="after"), "0801-aaaa")
    assert done
    assert [row["id"] for row in rows(path, "SELECT id FROM run ORDER BY rowid")] == [*done, "0801-aaaa"]
    assert rows(path, "SELECT count(*) AS n FROM task") == [{"n": 50 * len(done) + 1}]
    check_integrity(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Two megabytes and eight files, mounted."""
    with support.small_disk(tmp_path / "small", "size=2m,nr_inodes=9") as place:
        yield place


@pytest.mark.root
def test_a_full_disk_keeps_what_was_acknowledged(small_disk: Path) -> None:
    path = small_disk / "ledger.db"
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        done = fill_up(ledger)
        with pytest.raises(DiskFull):
            ledger.journal(None, None, "one line", {"data": "x" * 1_000_000})
        assert done and [run for run in done if not ledger.run_exists(run)] == []
    check_integrity(path)
    assert len(rows(path, "SELECT id FROM run")) == len(done)


@pytest.mark.root
@pytest.mark.parametrize("left", [0, 1, 3, 10, 20])
def test_a_disk_that_is_full_at_the_first_start_leaves_nothing_in_the_way(small_disk: Path, left: int) -> None:
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(PAGE)):
            pass
    os.truncate(ballast, (ballast.stat().st_size // PAGE - left) * PAGE)
    with contextlib.suppress(NightcrewError):
        sqlite.connect(small_disk / "ledger.db").close()
    ballast.unlink()
    sqlite.connect(small_disk / "ledger.db").close()
    check_integrity(small_disk / "ledger.db")


@pytest.mark.root
def test_a_disk_that_takes_no_more_files_is_a_full_disk(small_disk: Path) -> None:
    names = itertools.count()
    with contextlib.suppress(OSError):
        while True:
            (small_disk / str(next(names))).touch()
    with pytest.raises(DiskFull, match="cannot write the ledger"):
        sqlite.connect(small_disk / "ledger.db")
    (small_disk / "0").unlink()
    (small_disk / "1").unlink()
    (small_disk / "2").unlink()
    sqlite.connect(small_disk / "ledger.db").close()


# Killed while it is made ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [b"", b"half a database", b"SQLite format 3\0" + bytes(5000)])
def test_what_a_killed_creation_left_is_swept(path: Path, left: bytes) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(f"ledger.db.new{suffix}").write_bytes(left)
    sqlite.connect(path).close()
    assert os.listdir(path.parent) == ["ledger.db"]
    check_integrity(path)


def test_a_creation_killed_at_any_moment_blocks_no_later_start(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    unfinished = 0
    for number in range(20):
        path = tmp_path / str(number) / "ledger.db"
        path.parent.mkdir()
        child = os.fork()
        if child == 0:
            sqlite.connect(path)
            os._exit(0)
        time.sleep(draw.uniform(0, 0.012))  # the fault, not a wait
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        unfinished += not path.exists()
        sqlite.connect(path).close()
        assert os.listdir(path.parent) == ["ledger.db"]
        check_integrity(path)
    print(f"{unfinished} of 20 creations did not finish")
