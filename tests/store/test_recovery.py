"""What is restored of a damaged ledger: everything that was committed, from a copy and the journal of transactions."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest

from supervisor.gateway.account.charges import BodyDigest
from supervisor.gateway.account.schema import ACCOUNT
from supervisor.kernel.decision import Collect, MarkRunning, SetState, Start, Stop
from supervisor.kernel.errors import DiskFull, LedgerError, NotFound
from supervisor.kernel.states import End, TaskState
from supervisor.store import backups, sqlite
from supervisor.store.backups import Report, recover
from supervisor.store.ledger import Ledger
from tests.data import make_account_sample, make_ledger_sample
from tests.store.kit import Wall, check_integrity, rows, spec, submit, whole

PAGE = 4096
TABLES = (
    "project",
    "run",
    "task",
    "dependency",
    "attempt",
    "journal",
    "snapshot",
    "delivery",
    "conversation",
    "night",
    "lease",
    "wait",
    "access_token",
    "token_run",
    "mail",
    "verdict",
    "review_comment",
    "choice",
    "train",
    "train_entry",
    "train_gate",
    "push_consent",
    "pull_request",
    "pull_task",
    "pull_remark",
)


def history(path: Path, runs: int = 8) -> Ledger:
    """A crew's past and present, some of it still in the log: ended, retried, running, waiting tasks, and snapshots. The ledger is open."""
    make_ledger_sample.write(path)
    ledger = Ledger(path, Wall())
    for number in range(runs):
        names = submit(
            ledger, *(spec(f"t{index}", after=(f"t{index - 1}",) if index % 3 else ()) for index in range(20)), run=f"0801-aa{number:02}"
        )
        for name in names[::3]:
            ledger.commit([Start(name, 1, ""), MarkRunning(name, 1)])
            ledger.note(
                name,
                1,
                worktree=f"/h/worktrees/0123456789ab/{name}.1",
                admin_dir="/repo/.git/worktrees/t",
                branch=f"nightcrew/{name}/work",
                base_oid="c0ffee",
            )
        for name in names[:12:3]:
            ledger.commit(whole(name)[2:])
            ledger.note(name, 1, result='{"schema": 1, "end": "done"}')
            ledger.release(name, 1)
        ledger.commit([Stop(names[15], 1, "cancelled"), Collect(names[18], 1, End.FAILED, "exit code 1")])
        ledger.commit([SetState(names[1], TaskState.READY, ""), *whole(names[1], 1, End.FAILED, TaskState.READY), *whole(names[1], 2)])
    return ledger


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed supervisor leaves: the file, its log, a copy from the middle of its life, and the journal."""
    place = tmp_path_factory.mktemp("history")
    left = tmp_path_factory.mktemp("crashed")
    ledger = history(place / "ledger.db")
    backups.copy(place / "ledger.db", sqlite.LEDGER)
    submit(ledger, *(spec(f"late{index}") for index in range(20)), run="0802-aaaa")
    # What follows does not make the file longer: then the first page is not in the log, which would mend it.
    ledger._db.execute("PRAGMA wal_checkpoint(RESTART)")
    for row in rows(place / "ledger.db", "SELECT task FROM attempt WHERE base_oid = 'c0ffee' AND epoch = 1"):
        ledger.note(row["task"], 1, base_oid="c0ffed")
    shutil.copytree(place, left, dirs_exist_ok=True)
    ledger.close()
    shutil.copy(place / "ledger.db", left / "whole")
    return left


@pytest.fixture
def path(tmp_path: Path, crashed: Path) -> Path:
    """A ledger of its own to damage."""
    shutil.copytree(crashed, tmp_path / "home")
    return tmp_path / "home" / "ledger.db"


def mended(path: Path) -> Report:
    return recover(path, sqlite.LEDGER, "T", lambda _: [], lambda _: None)


def content(path: Path) -> dict[str, set[tuple[object, ...]]]:
    """Every row of every table."""
    return {table: {tuple(row.values()) for row in rows(path, f"SELECT * FROM {table}")} for table in TABLES}  # noqa: S608 - ours


def check_invariants(path: Path) -> None:
    """What every supervisor relies on."""
    check_integrity(path)
    assert (
        rows(
            path,
            """SELECT t.id FROM task t LEFT JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch
                         WHERE (t.state = 'running') <> (a.task IS NOT NULL AND a.end IS NULL)""",
        )
        == []
    )
    assert rows(path, "SELECT task FROM attempt WHERE (end IS NULL) = (state IN ('ended', 'released'))") == []
    assert rows(path, "SELECT task FROM attempt a WHERE end IS NULL AND epoch < (SELECT epoch FROM task t WHERE t.id = a.task)") == []
    counted = (
        "SELECT id, epoch, (SELECT count(*) FROM attempt a WHERE a.task = task.id AND a.epoch BETWEEN 1 AND task.epoch) AS found FROM task"
    )
    assert [row for row in rows(path, counted) if row["epoch"] != row["found"]] == [], "epochs have holes"
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        assert all(task.state is not TaskState.RUNNING or task.attempt is not None for task in ledger.unfinished(0.0))


def log_of(path: Path) -> Path:
    return path.with_name("ledger.db-wal")


def zero(path: Path, first: int, length: int) -> None:
    data = bytearray(path.read_bytes())
    data[first : first + length] = bytes(length)
    path.write_bytes(data)


class Damage:
    """What can happen to a ledger. Each method is one kind; `rng` makes it repeatable."""

    def __init__(self, path: Path, rng: random.Random) -> None:
        self.path, self.rng = path, rng

    def ended_well(self) -> None:
        """As a supervisor leaves it that was not killed: without a log."""
        shutil.copy(self.path.with_name("whole"), self.path)
        log_of(self.path).unlink()

    def header(self) -> None:
        zero(self.path, 0, 100)

    def header_without_log(self) -> None:
        self.ended_well()
        self.header()

    def first_page(self) -> None:
        zero(self.path, 0, PAGE)

    def first_page_without_log(self) -> None:
        self.ended_well()
        self.first_page()

    def file_gone(self) -> None:
        self.path.unlink()

    def file_and_log_gone(self) -> None:
        self.path.unlink()
        log_of(self.path).unlink()

    def log_gone(self) -> None:
        log_of(self.path).unlink()

    def pages_zeroed(self) -> None:
        self.ended_well()
        for page in self.rng.sample(range(self.path.stat().st_size // PAGE), 6):
            zero(self.path, page * PAGE, PAGE)

    def cut_off(self) -> None:
        self.ended_well()
        os.truncate(self.path, self.rng.randrange(PAGE, self.path.stat().st_size))

    def bits_flipped(self) -> None:
        self.ended_well()
        data = bytearray(self.path.read_bytes())
        for _ in range(300):
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        self.path.write_bytes(data)

    def a_piece_of_the_log(self) -> None:
        data = bytearray(log_of(self.path).read_bytes())
        data[32 + 24 + 100] ^= 1
        log_of(self.path).write_bytes(data)

    def emptied(self) -> None:
        log_of(self.path).unlink()
        self.path.write_bytes(b"")

    def overwritten(self) -> None:
        log_of(self.path).unlink()
        self.path.write_bytes(b"this is no database\n" * 9000)


DAMAGES = [name for name in vars(Damage) if not name.startswith("_") and name != "ended_well"]


def spoil(path: Path) -> None:
    """Nothing of it can be read."""
    zero(path, 0, PAGE)
    if log_of(path).exists():
        zero(log_of(path), 0, 32)


@pytest.mark.parametrize("how", DAMAGES)
def test_whatever_is_damaged_nothing_is_lost(path: Path, how: str, seed: int) -> None:
    before = content(path.with_name("whole"))
    getattr(Damage(path, random.Random(seed)), how)()
    spoilt = path.read_bytes() if path.exists() else b""
    log = log_of(path).read_bytes() if log_of(path).exists() else None
    report = mended(path)
    if report.kept is None and how in ("header", "first_page"):
        assert content(path) == before, "the log has that page as well"
        return
    assert report.kept == path.with_name("ledger.db.damaged-T") and report.kept.read_bytes() == spoilt
    kept_log = path.with_name("ledger.db.damaged-T-wal")
    assert (kept_log.read_bytes() if log is not None else None) == log
    assert not log_of(path).exists() or not log_of(path).read_bytes(), "the old log would be replayed into the new file"
    assert report.lost == [] and content(path) == before
    check_invariants(path)


@pytest.mark.parametrize("how", ["header", "pages zeroed", "file and log gone"])
def test_without_any_copy_the_journal_is_enough(path: Path, how: str, seed: int) -> None:
    """As in the first hour of a ledger."""
    fresh = path.parent / "fresh" / "ledger.db"
    fresh.parent.mkdir()
    with contextlib.closing(Ledger(fresh, Wall())) as ledger:
        submit(ledger, *(spec(f"t{index}") for index in range(50)), run="0801-aaaa")
        ledger.commit(whole("0801-aaaa/t1"))
        shutil.copy(fresh, fresh.with_name("whole"))
        shutil.copy(log_of(fresh), fresh.with_name("whole-wal"))
        before = content(fresh)
    assert not backups.copies(fresh)
    if how == "pages zeroed":
        zero(fresh, PAGE, fresh.stat().st_size - PAGE)
    elif how == "header":
        zero(fresh, 0, 100)
    else:
        fresh.unlink()
    assert mended(fresh).lost == []
    assert content(fresh) == before
    check_invariants(fresh)


def test_a_whole_ledger_is_left_alone(path: Path) -> None:
    before = {file.name: file.read_bytes() for file in (path, log_of(path))}
    assert mended(path) == Report()
    assert {file.name: file.read_bytes() for file in (path, log_of(path))} == before


def test_a_damaged_copy_gives_way_to_the_one_before(path: Path) -> None:
    before = content(path.with_name("whole"))
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        backups.copy(path, sqlite.LEDGER)
        submit(ledger, "newest", run="0803-aaaa")
    after = content(path)
    newest, older = backups.copies(path)
    zero(newest, 0, PAGE)
    spoil(path)
    assert mended(path).lost == [] and content(path) == after != before
    assert newest in backups.copies(path) or older in backups.copies(path)


def test_a_damaged_line_of_the_journal_costs_its_transaction_and_is_said(path: Path) -> None:
    journal = backups._journals(path)[-1]
    lines = journal.read_bytes().split(b"\n")
    last = next(index for index in reversed(range(len(lines))) if b"INSERT INTO run" in lines[index])
    lines[last] = lines[last][:-2]
    journal.write_bytes(b"\n".join(lines))
    spoil(path)
    report = mended(path)
    assert any("cannot be read: 1" in line for line in report.lost) and any("missing" in line for line in report.lost)
    assert [row["id"] for row in rows(path, "SELECT id FROM run WHERE id = '0802-aaaa'")] == []
    check_invariants(path)


def rolled_back(ledger: Ledger, path: Path) -> None:
    with sqlite.transaction(ledger.db, path):
        ledger.db.execute("DELETE FROM journal")
        sqlite._append_journal(ledger.db, path, synced=False)  # type: ignore[arg-type]
        raise RuntimeError


def test_a_transaction_that_was_rolled_back_is_not_repeated(path: Path) -> None:
    """A full disk at the commit, or a kill before it, leaves a line whose number the next transaction uses again."""
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        number = sqlite.transaction_number(ledger.db)
        with pytest.raises(RuntimeError):
            rolled_back(ledger, path)
        assert sqlite.transaction_number(ledger.db) == number
        submit(ledger, "next", run="0803-aaaa")
        before = content(path)
    spoil(path)
    assert mended(path).lost == [] and content(path) == before


def test_copies_and_journals_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LINES", 5)
    monkeypatch.setattr(backups, "LINES", 5)
    path = tmp_path / "ledger.db"
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        for number in range(8):
            for step in range(10):
                ledger.journal(None, None, f"step {number} {step}")
            backups.copy(path, sqlite.LEDGER)
            backups.copy(path, sqlite.LEDGER)  # nothing new: the same copy
        before = content(path)
    assert len(backups.copies(path)) == backups.COPIES and len(backups._journals(path)) <= 4
    spoil(path)
    assert mended(path).lost == [] and content(path) == before


def test_a_full_disk_costs_no_copy(path: Path) -> None:
    before = backups.copies(path)
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        submit(ledger, "newest", run="0803-aaaa")
    with pytest.raises(DiskFull, match="cannot copy the ledger"):
        backups.copy(path, sqlite.LEDGER, room=1 << 60)
    assert backups.copies(path) == before


def test_a_ledger_that_was_put_back_begins_copies_of_its_own(path: Path) -> None:
    """Copies and lines beyond it are of another time, and are kept aside."""
    old = backups.copies(path)[0]
    log_of(path).unlink()
    shutil.copy(old, path)
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        os.rename(old, old.with_name("ledger.db.copy-0000999999"))
        backups.begin(path, sqlite.LEDGER)
        submit(ledger, "other", run="0804-aaaa")
        before = content(path)
    assert list((path.parent / sqlite.RECOVERY).glob("replaced-*/ledger.db.copy-0000999999"))
    spoil(path)
    assert mended(path).lost == [] and content(path) == before


@pytest.mark.parametrize("label", ["recover.kept", "recover.moved"])
@pytest.mark.parametrize("gone", [False, True])
def test_killed_half_way_it_is_done_again_with_the_log(path: Path, label: str, gone: bool) -> None:
    before = content(path.with_name("whole"))
    spoil(path)
    log = log_of(path).read_bytes()
    if gone:
        path.unlink()
    child = os.fork()
    if child == 0:
        os.environ["NIGHTCREW_DIE_AT"] = label
        mended(path)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with pytest.raises(LedgerError, match="damaged"):
        sqlite.connect(path)
    report = recover(path, sqlite.LEDGER, "U", lambda _: [], lambda _: None)
    assert report.kept == path.with_name("ledger.db.damaged-T"), "the name of the first try"
    assert path.with_name("ledger.db.damaged-T-wal").read_bytes() == log
    assert content(path) == before
    check_invariants(path)


def test_without_copy_and_journal_no_ledger_is_made(path: Path) -> None:
    shutil.rmtree(path.parent / sqlite.RECOVERY)
    spoil(path)
    data = path.read_bytes()
    with pytest.raises(LedgerError, match="cannot recover the ledger") as caught:
        mended(path)
    assert "there is no sound copy" in caught.value.line() and "kept: the file as it was" in caught.value.line()
    assert path.read_bytes() == data and not list(path.parent.glob("*.damaged*"))


def test_a_newer_ledger_and_none_are_refused(path: Path, tmp_path: Path) -> None:
    Damage(path, random.Random(0)).ended_well()
    newer = bytearray(path.read_bytes())
    newer[60:64] = (sqlite.SCHEMA + 1).to_bytes(4, "big")
    path.write_bytes(newer)
    with pytest.raises(LedgerError, match="newer"):
        mended(path)
    assert path.read_bytes() == newer
    with pytest.raises(NotFound):
        mended(tmp_path / "ledger.db")


def test_a_ledger_is_copied_before_it_is_migrated(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    old = (Path(__file__).parents[1] / "data" / f"ledger-{sqlite.SCHEMA - 1}.sql").read_text("utf-8")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(old)
    before = path.read_bytes()
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        submit(ledger, "new", run="0804-aaaa")
        after = content(path)
    (copy,) = backups.copies(path)
    with contextlib.closing(sqlite3.connect(copy)) as db, contextlib.closing(sqlite3.connect(":memory:")) as known:
        known.executescript(old)
        assert list(db.iterdump()) == list(known.iterdump()), before[:20]
    spoil(path)
    assert mended(path).lost == [] and content(path) == after, "the journal has the migration too"


def test_the_account_of_the_gateway_is_recovered_in_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    make_account_sample.write(path)
    backups.begin(path, ACCOUNT)
    with contextlib.closing(sqlite.connect(path, book=ACCOUNT)) as db:
        for number in range(3):
            with sqlite.transaction(db, path, book=ACCOUNT):
                db.execute(
                    "UPDATE request SET input_sha256 = ? WHERE id = (SELECT max(id) FROM request)",
                    (BodyDigest(bytes([number]), lambda: None),),
                )
        before = list(db.iterdump())
    spoil(path)
    assert recover(path, ACCOUNT, "T", lambda _: [], lambda _: None).lost == []
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert list(db.iterdump()) == before
