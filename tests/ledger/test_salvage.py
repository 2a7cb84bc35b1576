"""What is saved of a damaged ledger: every row of every page that can still be read, and nothing that was never there.

How many rows each page holds is told by SQLite's own `dbstat`, of the file as it was before the damage.
"""

from __future__ import annotations

import collections
import contextlib
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.gateway.account.schema import ACCOUNT
from supervisor.kernel.decision import Collect, MarkRunning, SetState, Start, Stop
from supervisor.kernel.errors import LedgerError, NotFound
from supervisor.kernel.states import End, TaskState
from supervisor.store import mending, sqlite
from supervisor.store.ledger import Ledger
from supervisor.store.salvage import Report, recover
from tests.data import make_account_sample, make_ledger_sample
from tests.ledger.kit import Wall, check_integrity, rows, spec, submit, whole

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


def told(table: str) -> str:
    """The columns that are read: every token is revoked when a ledger is mended."""
    return "id, digest, kind, user, name, scopes, projects" if table == "access_token" else "*"


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
def crashed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The file and its log as a supervisor leaves them that is killed, and the file of one that ended well."""
    place = tmp_path_factory.mktemp("history")
    ledger = history(place / "ledger.db")
    # What follows does not make the file longer: then the first page is not in the log, which would mend it.
    ledger._db.execute("PRAGMA wal_checkpoint(RESTART)")
    for row in ledger._db.execute("SELECT task FROM attempt WHERE base_oid = 'c0ffee' AND epoch = 1").fetchall():
        ledger.note(row["task"], 1, base_oid="c0ffed")
    ledger._db.execute("UPDATE task SET changed = changed + 1 WHERE ord % 3 = 0")
    kept = {name: (place / name).read_bytes() for name in ("ledger.db", "ledger.db-wal")}
    ledger.close()
    return {**kept, "whole": (place / "ledger.db").read_bytes()}


def mended(path: Path) -> Report:
    return recover(path, sqlite.LEDGER, "T", mending.mend, mending.check)


def content(path: Path) -> dict[str, set[tuple[object, ...]]]:
    """Every row of every table."""
    return {table: {tuple(row.values()) for row in rows(path, f"SELECT {told(table)} FROM {table}")} for table in TABLES}  # noqa: S608 - ours


def everything(data: bytes) -> dict[str, set[tuple[object, ...]]]:
    """Every row of every table of a file without a log."""
    with contextlib.closing(in_memory(data)) as db:
        return {table: set(db.execute(f"SELECT {told(table)} FROM {table}")) for table in TABLES}  # noqa: S608 - ours


def in_memory(data: bytes) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.deserialize(bytes(data[:18]) + b"\1\1" + bytes(data[20:]))  # such a file cannot have a log
    return db


def cells(data: bytes) -> dict[int, tuple[str, int]]:
    """Of each page the table that it belongs to, and the rows on it, as SQLite itself counts them."""
    with contextlib.closing(in_memory(data)) as db:
        try:
            found = db.execute("SELECT pageno, name, pagetype, ncell FROM dbstat").fetchall()
        except sqlite3.OperationalError:
            pytest.skip("this SQLite was built without dbstat")
    without_rowid = (
        "dependency", "attempt", "snapshot", "conversation", "mail", "verdict", "train", "train_entry", "train_gate", "push_consent",
        "pull_task", "pull_remark", "choice",
    )  # fmt: skip
    return {page: (name, count if kind == "leaf" or name in without_rowid else 0) for page, name, kind, count in found}


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


def put(directory: Path, data: bytes, log: bytes | None = None) -> Path:
    path = directory / "ledger.db"
    path.write_bytes(data)
    if log is not None:
        path.with_name("ledger.db-wal").write_bytes(log)
    return path


def test_a_whole_ledger_is_left_alone(tmp_path: Path, crashed: dict[str, bytes]) -> None:
    path = put(tmp_path, crashed["ledger.db"], crashed["ledger.db-wal"])
    assert mended(path) == Report()
    assert (path.read_bytes(), path.with_name("ledger.db-wal").read_bytes()) == (crashed["ledger.db"], crashed["ledger.db-wal"])


@pytest.mark.parametrize(
    "spoil", [lambda data: bytes(100) + data[100:], lambda data: bytes(PAGE) + data[PAGE:]], ids=["header", "first page"]
)
@pytest.mark.parametrize("with_log", [True, False])
def test_without_its_first_page_nothing_is_lost(
    tmp_path: Path, crashed: dict[str, bytes], spoil: Callable[[bytes], bytes], with_log: bool
) -> None:
    before = everything(crashed["whole"])
    log = crashed["ledger.db-wal"] if with_log else None
    spoilt = spoil(crashed["ledger.db" if with_log else "whole"])
    path = put(tmp_path, spoilt, log)
    report = mended(path)
    assert report.kept == path.with_name("ledger.db.damaged-T") and report.kept.read_bytes() == spoilt
    kept_log = path.with_name("ledger.db.damaged-T-wal")
    assert (kept_log.read_bytes() if with_log else None) == log
    assert not path.with_name("ledger.db-wal").exists(), "the old log would be replayed into the new file"
    assert everything(path.read_bytes()) == before
    check_invariants(path)


def test_the_log_alone_gives_what_it_holds(tmp_path: Path, crashed: dict[str, bytes]) -> None:
    put(tmp_path, b"", crashed["ledger.db-wal"]).unlink()
    report = mended(tmp_path / "ledger.db")
    assert report.saved["task"] and report.lost
    assert (tmp_path / "ledger.db.damaged-T-wal").read_bytes() == crashed["ledger.db-wal"]
    check_invariants(tmp_path / "ledger.db")


@pytest.mark.parametrize("round_", range(5))
def test_of_zeroed_and_missing_pages_only_their_own_rows_are_lost(
    tmp_path: Path, crashed: dict[str, bytes], round_: int, seed: int
) -> None:
    rng = random.Random(f"{seed}:{round_}")
    data = bytearray(crashed["whole"])
    held, total = cells(bytes(data)), everything(bytes(data))
    count = len(data) // PAGE
    gone = set(rng.sample(range(1, count + 1), rng.randint(1, 6)))
    for page in gone:
        data[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    if round_ % 2:
        cut = rng.randint(count // 2, count)
        del data[cut * PAGE - rng.randint(0, PAGE - 1) :]
        gone |= set(range(cut, count + 1))
    expected = collections.Counter({table: len(rows_) for table, rows_ in total.items()})
    expected.subtract(dict.fromkeys(TABLES, 0))
    for page in gone & held.keys():
        if held[page][0] in expected:
            expected[held[page][0]] -= held[page][1]
    path = put(tmp_path, bytes(data))
    report = mended(path)
    saved = collections.Counter(report.saved)
    del saved["dependency"], expected["dependency"]  # follow from the tasks
    assert saved == expected, (round_, sorted(gone))
    check_invariants(path)
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        after = content(path)
        submit(ledger, "later", run="0930-zzzz")
    assert after["journal"] <= total["journal"] and after["snapshot"] <= total["snapshot"]
    changed = {row[1] for row in after["task"] - total["task"]}
    assert all(any(str(task) in line for line in report.lost) for task in changed), "what was changed or made up is named"


@pytest.mark.in_turns
@pytest.mark.parametrize("with_log", [True, False])
@pytest.mark.parametrize("round_", range(6))
def test_flipped_bits_cost_no_more_than_the_pages_that_they_are_on(
    tmp_path: Path, crashed: dict[str, bytes], round_: int, with_log: bool, seed: int
) -> None:
    rng = random.Random(f"{seed}:flip:{round_}:{with_log}")
    data = {"ledger.db": bytearray(crashed["ledger.db" if with_log else "whole"]), "ledger.db-wal": bytearray(crashed["ledger.db-wal"])}
    for _ in range(rng.choice([1, 3, 30, 300])):
        file = data["ledger.db-wal" if with_log and rng.random() < 0.7 else "ledger.db"]
        file[rng.randrange(len(file))] ^= 1 << rng.randrange(8)
    path = put(tmp_path, bytes(data["ledger.db"]), bytes(data["ledger.db-wal"]) if with_log else None)
    if not with_log:
        held = cells(crashed["whole"])
        spoilt = {at // PAGE + 1 for at, (one, other) in enumerate(zip(crashed["whole"], data["ledger.db"], strict=True)) if one != other}
        least = collections.Counter(
            {table: -sum(held[page][1] for page in spoilt & held.keys() if held[page][0] == table) for table in TABLES}
        )
        least.update({table: sum(count for name, count in held.values() if name == table) for table in TABLES})
    version = int.from_bytes(data["ledger.db"][60:64], "big")
    if version > sqlite.SCHEMA and not with_log:
        return  # taken for a newer one: see below
    report = mended(path)
    if report.kept is None:
        return  # what the bits changed is no damage that anybody could see
    assert report.kept.read_bytes() == bytes(data["ledger.db"])
    check_invariants(path)
    if not with_log:
        assert all(report.saved[table] >= least[table] for table in TABLES if table != "dependency"), (round_, report.saved, least)


def test_a_damaged_piece_of_the_log_costs_itself_only(tmp_path: Path, crashed: dict[str, bytes]) -> None:
    """SQLite drops all that was committed after it."""
    log = bytearray(crashed["ledger.db-wal"])
    log[32 + 24 + 100] ^= 1
    path = put(tmp_path, crashed["ledger.db"], bytes(log))
    before = everything(crashed["whole"])
    report = mended(path)
    assert report.lost[0].startswith("the log: 1 damaged pieces")
    missing = {table: before[table] - content(path)[table] for table in TABLES}
    assert sum(map(len, missing.values())) <= 60, missing
    check_invariants(path)


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_what_is_lost_is_named_and_what_needed_it_is_not_run(tmp_path: Path, crashed: dict[str, bytes], every: int) -> None:
    """Without a page of tasks: those that ran can be looked at, those that waited for them are skipped."""
    held = cells(crashed["whole"])
    pages = [page for page, (name, count) in held.items() if name == "task" and count]
    skipped = [_without(tmp_path / str(page), crashed["whole"], page) for page in pages[::every]]
    assert any(skipped), "somewhere a task waited for one of another page"


def _without(directory: Path, whole: bytes, page: int) -> list[str]:
    """The tasks that are skipped because they needed one of the page that is lost."""
    data = bytearray(whole)
    data[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    before = everything(whole)
    directory.mkdir()
    path = put(directory, bytes(data))
    lost = "\n".join(mended(path).lost)
    after = {row["id"]: row for row in rows(path, "SELECT * FROM task")}
    gone = {str(row[1]): row for row in before["task"] if row[1] not in after or mending.LOST in after[str(row[1])]["title"]}
    assert gone and all(name in lost for name in gone if name in after)
    for name, row in after.items():
        if mending.LOST in row["title"]:
            attempts = rows(path, "SELECT * FROM attempt WHERE task = ? ORDER BY epoch", name)
            assert attempts and attempts[-1]["branch"] in (f"nightcrew/{name}/work", None)
    waited = [row for row in after.values() if row["state"] == "skipped" and "lost with the damaged ledger" in row["reason"]]
    assert all(row["id"] in lost for row in waited)
    return [str(row["id"]) for row in waited]


def test_long_rows_are_read_over_all_their_pages(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        submit(ledger, *(spec(f"t{size}", prompt="wörter " * size) for size in (1, 600, 5000, 90_000)))
    data = path.read_bytes()
    before = everything(data)
    path.write_bytes(bytes(PAGE) + data[PAGE:])
    mended(path)
    assert content(path) == before


def test_a_log_that_begins_again_counts_from_its_new_beginning(tmp_path: Path) -> None:
    """SQLite writes a log over the old one; what is left of that behind it is older than the file."""
    path = tmp_path / "ledger.db"
    ledger = history(path, 4)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(RESTART)")
    submit(ledger, "newest", run="0802-aaaa")
    crashed = put(tmp_path / "..", bytes(PAGE) + path.read_bytes()[PAGE:], path.with_name("ledger.db-wal").read_bytes())
    ledger.close()
    mended(crashed)
    assert content(crashed) == content(path)


@pytest.mark.parametrize("label", ["recover.kept", "recover.moved"])
@pytest.mark.parametrize("gone", [False, True])
def test_killed_half_way_it_is_done_again_with_the_log(tmp_path: Path, crashed: dict[str, bytes], label: str, gone: bool) -> None:
    log = crashed["ledger.db-wal"]
    path = put(tmp_path, bytes(PAGE) + crashed["ledger.db"][PAGE:], log)
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
    report = recover(path, sqlite.LEDGER, "U", mending.mend, mending.check)
    assert report.kept == path.with_name("ledger.db.damaged-T"), "the name of the first try"
    assert path.with_name("ledger.db.damaged-T-wal").read_bytes() == log
    assert set(os.listdir(tmp_path)) - {"ledger.db.damaged-T-shm"} == {"ledger.db", "ledger.db.damaged-T", "ledger.db.damaged-T-wal"}
    if not gone:
        assert content(path) == everything(crashed["whole"])
    check_invariants(path)


@pytest.mark.parametrize("data", [b"", b"x", b"this is no database\n" * 9000, bytes(40 * PAGE)], ids=["empty", "byte", "text", "zeros"])
def test_of_what_holds_no_row_no_ledger_is_made(tmp_path: Path, data: bytes) -> None:
    path = put(tmp_path, data)
    with pytest.raises(LedgerError, match="cannot recover the ledger") as caught:
        mended(path)
    assert "not one row of it can be read" in caught.value.line() and "kept: the file as it was" in caught.value.line()
    assert path.read_bytes() == data and os.listdir(tmp_path) == ["ledger.db"]


def test_a_newer_ledger_and_none_are_refused(tmp_path: Path, crashed: dict[str, bytes]) -> None:
    newer = bytearray(crashed["whole"])
    newer[60:64] = (sqlite.SCHEMA + 1).to_bytes(4, "big")
    newer[PAGE:] = bytes(len(newer) - PAGE)
    path = put(tmp_path, bytes(newer))
    with pytest.raises(LedgerError, match="newer"):
        mended(path)
    assert path.read_bytes() == bytes(newer)
    path.unlink()
    with pytest.raises(NotFound):
        mended(path)


def test_the_account_of_the_gateway_is_recovered_in_the_same_way(tmp_path: Path) -> None:
    path = tmp_path / "gateway.db"
    make_account_sample.write(path)
    shutil.copy(path, tmp_path / "copy.db")
    data = path.read_bytes()
    path.write_bytes(bytes(PAGE) + data[PAGE:])
    recover(path, ACCOUNT, "T", lambda _: [], lambda _: None)
    with contextlib.closing(sqlite3.connect(path)) as db, contextlib.closing(sqlite3.connect(tmp_path / "copy.db")) as whole_:
        assert list(db.iterdump()) == list(whole_.iterdump())
