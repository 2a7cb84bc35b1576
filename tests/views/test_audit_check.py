"""The audit log proves the journal and the account: a row that is changed, taken away, added or put back is named (battery X14)."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.features.audit import rows as audit_rows
from supervisor.features.audit import rules as audit_rules
from supervisor.features.audit import views as audit_views
from supervisor.features.audit.rows import JOURNAL as JOURNAL_TABLE
from supervisor.features.audit.rows import Followed
from supervisor.features.audit.service import Anchoring, places
from supervisor.gateway.account import schema
from supervisor.gateway.account.writer import CALLS
from supervisor.host import files
from supervisor.host.audit_log import Audit
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.kernel.audit import Verdict
from supervisor.kernel.decision import MarkRunning, Revive, Start
from supervisor.kernel.names import trace_id
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger
from tests.store.kit import ended, submit

SECRET = b"s" * 32
AGENT = "0731-aaaa/t0"
ROWS = 9
"""Of the journal, and of the account."""


class Place:
    """A state directory, its ledger open."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        self.ledger = Ledger(self.home.ledger, SystemClock().wall)
        self.later = 0.0
        """Seconds by which `verify` is asked later."""

    def fill(self) -> None:
        """Journal and account get ROWS rows each, all of them anchored."""
        submit(self.ledger, *(f"t{number}" for number in range(ROWS - 1)))
        with contextlib.closing(schema.connect(self.home.gateway_account)):
            pass
        for number in range(1, ROWS + 1):
            self.call(number)
        self.step()

    def step(self) -> str:
        """As the supervisor does now and then, each time by one that has just started."""
        return Anchoring(self.home, SECRET, SystemClock()).step()

    def verify(self) -> Verdict:
        return audit_views.verify(self.home, SECRET, SystemClock().wall() + self.later)

    def call(self, number: int, end: str | None = "served", **facts: Any) -> None:
        """A model call; `end` None: it is under way."""
        facts = {
            "id": number, "at": SystemClock().wall(), "agent": AGENT, "epoch": 1, "class": "normal", "model": "m", "api": "anthropic",
            "model_class": "m", "long_context": 0, "account": "work", "upstream": "sim", "attempt_no": 1, "session": "s",
            "body_key": "b", "queued_ms": 0, "bound_input": 1, "bound_output": 1, "bound_cache_read": 1, "bound_cache_write": 1,
            "end": end, "input": 100, **facts,
        }  # fmt: skip
        names, marks = ", ".join(facts), ", ".join("?" * len(facts))
        self.write(self.home.gateway_account, f"INSERT INTO request ({names}) VALUES ({marks})", *facts.values())  # noqa: S608 - its columns

    def write(self, path: Path, sql: str, *values: object) -> None:
        """As anybody can who owns the file."""
        with contextlib.closing(sqlite3.connect(path)) as db, db:
            db.execute(sql, values)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("filled")
    files.private_dir(root / "home")
    made = Place(root)
    made.fill()
    made.ledger.close()
    return root


@pytest.fixture
def place(filled: Path, tmp_path: Path) -> Iterator[Place]:
    shutil.copytree(filled / "home", tmp_path / "home")
    made = Place(tmp_path)
    yield made
    made.ledger.close()


def test_what_was_written_is_proven_and_what_came_since_is_counted(place: Place) -> None:
    assert place.verify() == Verdict(2, proven={"journal": ROWS, "account": ROWS}, newer={"journal": 0, "account": 0})
    place.ledger.journal("0731-aaaa/t0", None, "limits", {"why": "none"})
    place.call(ROWS + 1)
    assert place.verify().newer == {"journal": 1, "account": 1}
    assert (place.step(), place.verify().proven) == ("", {"journal": ROWS + 1, "account": ROWS + 1})
    before = place.home.audit.read_bytes()
    assert (place.step(), place.home.audit.read_bytes()) == ("", before), "nothing new, nothing written"


JOURNAL, ACCOUNT = "ledger", "gateway_account"
CHANGES: list[tuple[str, str, int, str]] = [
    (JOURNAL, 'UPDATE journal SET data = \'{"reason": "another"}\' WHERE seq = 4', 4, "changed"),
    (JOURNAL, "UPDATE journal SET at = at + 0.001 WHERE seq = 2", 2, "changed"),
    (JOURNAL, "UPDATE journal SET task = '0731-aaaa/t7' WHERE seq = 3", 3, "changed"),
    (JOURNAL, "UPDATE journal SET seq = CASE seq WHEN 5 THEN 100 ELSE seq END", 5, "missing"),
    (JOURNAL, "DELETE FROM journal WHERE seq = 1", 1, "missing"),
    (JOURNAL, "DELETE FROM journal WHERE seq > 6", 7, "missing"),
    (JOURNAL, "DELETE FROM journal", 1, "missing"),
    (ACCOUNT, "UPDATE request SET input = 1 WHERE id = 6", 6, "changed"),
    (ACCOUNT, "UPDATE request SET cost_usd = 0 WHERE id = 9", 9, "changed"),
    (ACCOUNT, "UPDATE request SET agent = '0731-aaaa/t1' WHERE id = 1", 1, "changed"),
    (ACCOUNT, "DELETE FROM request WHERE id IN (3, 4)", 3, "missing"),
]


@pytest.mark.parametrize(("file", "sql", "row", "why"), CHANGES)
def test_a_row_that_is_not_as_it_was_is_named(place: Place, file: str, sql: str, row: int, why: str) -> None:
    place.write(getattr(place.home, file), sql)
    found, table, line = place.verify(), *(("journal", 1) if file == JOURNAL else ("account", 2))
    assert (found.table, found.row, found.line, why in found.why) == (table, row, line, True), found


@pytest.mark.parametrize("what", [JOURNAL_TABLE, CALLS])
def test_every_column_of_a_row_is_proven(place: Place, what: Followed) -> None:
    path = place.home.ledger if what is JOURNAL_TABLE else place.home.gateway_account
    with contextlib.closing(sqlite3.connect(path)) as db:
        columns = {row[1]: row[2] for row in db.execute(f"PRAGMA table_info({what.table})")}
        was = dict(zip(columns, db.execute(f"SELECT * FROM {what.table} WHERE {what.number} = 5").fetchone(), strict=True))  # noqa: S608
    for name, kind in columns.items():
        other = {"TEXT": "other", "INTEGER": 77, "REAL": 77.5}[kind]
        for number, value in ((5, other), (77 if name == what.number else 5, was[name])):
            place.write(path, f"UPDATE {what.table} SET {name} = ? WHERE {what.number} = ?", value, number)  # noqa: S608 - its columns
            assert (place.verify().row, name) == (5 if value == other else 0, name)


def test_any_row_of_several_anchors_is_named_by_its_number_and_its_line(place: Place, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    for number in range(40):
        place.ledger.journal(None, None, "limits", {"why": str(number)})
        if number % 10 == 9:
            place.step()
    number = random.Random(seed).randrange(ROWS + 1, ROWS + 41)
    place.write(place.home.ledger, "UPDATE journal SET event = 'other' WHERE seq = ?", number)
    found = place.verify()
    assert (found.row, found.line) == (number, 3 + (number - ROWS - 1) // 10)


def test_a_row_that_was_put_between_others_is_named(place: Place) -> None:
    for seq in (100, 50):
        assert not place.verify().why
        place.write(place.home.ledger, "INSERT INTO journal (seq, at, event) VALUES (?, 0, 'stopping')", seq)
        place.step()
    assert (place.verify().row, place.verify().why) == (50, "it was added between those that were anchored")


def test_a_journal_that_was_cut_is_told_of_and_stays_named_when_it_grew_again(place: Place) -> None:
    place.write(place.home.ledger, "DELETE FROM journal WHERE seq > 6")
    assert "cut or put back" in place.step()
    for _ in range(5):
        place.ledger.journal(None, None, "limits")
    place.step()
    assert (place.verify().row, place.verify().table) == (7, "journal")


def test_a_file_that_is_gone_is_named(place: Place) -> None:
    place.ledger.close()
    place.home.ledger.unlink()
    assert (place.verify().table, place.verify().why) == ("journal", "ledger.db is gone")


def test_a_call_is_anchored_once_it_is_over_and_one_that_a_crash_cut_an_hour_later(place: Place) -> None:
    place.call(10, None)
    place.call(11)
    place.call(12, "crashed", at=SystemClock().wall())
    place.step()
    assert places(place.home, SECRET)["account"] == audit_rules.Place(11, (10,))
    place.write(place.home.gateway_account, "UPDATE request SET end = 'served', input = 3 WHERE id = 10")
    place.write(place.home.gateway_account, "UPDATE request SET input = 7, flags = 'told_by_retry' WHERE id = 12")
    place.step()
    assert places(place.home, SECRET)["account"] == audit_rules.Place(12, ())
    assert place.verify().proven["account"] == ROWS + 3
    place.write(place.home.gateway_account, "UPDATE request SET input = 4 WHERE id = 10")
    assert (place.verify().row, place.verify().line) == (10, 4)


def test_calls_that_were_pruned_may_be_missing_and_no_others(place: Place) -> None:
    Audit(place.home.audit, SECRET, SystemClock(), "gateway").note(audit_rules.PRUNED, {"rows": [[1, 4]]})
    place.write(place.home.gateway_account, "DELETE FROM request WHERE id <= 4")
    assert not place.verify().why
    place.write(place.home.gateway_account, "UPDATE request SET output = 1 WHERE id = 8")
    assert place.verify().row == 8
    place.write(place.home.gateway_account, "DELETE FROM request WHERE id = 5")
    assert place.verify().row == 5


def test_after_a_recovery_the_rows_are_anchored_anew(place: Place) -> None:
    place.write(place.home.ledger, "DELETE FROM journal WHERE seq IN (2, 3)")
    assert place.verify().row == 2
    Audit(place.home.audit, SECRET, SystemClock(), "doctor").note("ledger recovered", {"lost": "line 2; line 3"})
    assert place.verify().proven == {"journal": 0, "account": ROWS}
    place.step()
    assert place.verify().proven == {"journal": ROWS - 2, "account": ROWS}


def wipe(home: Home) -> None:
    for path in (home.audit, home.audit.with_suffix(".head")):
        path.write_bytes(b"")


def delete(home: Home) -> None:
    for path in (home.audit, home.audit.with_suffix(".head")):
        path.unlink()


@pytest.mark.parametrize("change", [wipe, delete])
def test_a_log_that_was_begun_anew_is_found_and_stays_named_when_a_supervisor_went_on(place: Place, change: Callable[[Home], None]) -> None:
    change(place.home)
    place.write(place.home.ledger, "UPDATE journal SET at = at - 3600 WHERE seq = 1")
    place.later = 60
    found = place.verify()
    assert (found.table, f"no record proves {ROWS} rows" in found.why) == ("journal", True)
    told = place.step()
    assert f"did not prove {ROWS} rows of the journal" in told
    found = place.verify()
    assert (found.why, f"{ROWS} rows of the journal without a proof" in "".join(found.warnings)) == ("", True)
    assert place.step() == ""


def test_an_older_log_beside_newer_rows_is_found_where_a_supervisor_ran_on(place: Place) -> None:
    older = {path: path.read_bytes() for path in (place.home.audit, place.home.audit.with_suffix(".head"))}
    for number in range(4):
        place.ledger.journal(None, None, "limits", {"why": str(number)})
    place.step()
    for path, data in older.items():
        path.write_bytes(data)
    place.write(place.home.ledger, "UPDATE journal SET at = at - 60 WHERE seq > ?", ROWS)
    assert place.verify().why == "", "a supervisor that was killed leaves as much"
    place.write(place.home.ledger, "UPDATE journal SET at = at - 3600 WHERE seq = ?", ROWS + 1)
    assert (place.verify().table, "no record proves 4 rows" in place.verify().why) == ("journal", True)
    assert "did not prove 4 rows" in place.step()


def test_what_nobody_could_have_anchored_yet_is_no_tampering(place: Place) -> None:
    now, later = SystemClock().wall(), 7200.0
    place.write(place.home.gateway_account, "UPDATE request SET at = at - 3600 WHERE id = 1")
    wipe(place.home)
    place.later = 60
    place.write(place.home.ledger, f"PRAGMA user_version = {sqlite.SCHEMA - 1}")
    place.write(place.home.ledger, "UPDATE journal SET at = at - 3600 WHERE seq = 1")
    assert place.verify().why == "", "an older version's ledger"
    place.write(place.home.ledger, f"PRAGMA user_version = {sqlite.SCHEMA}")
    assert place.verify().why
    place.step()
    place.call(ROWS + 1, at=now, total_ms=later * 1000)
    place.call(ROWS + 2, "crashed", at=now)
    place.ledger.journal(None, None, "limits")
    place.write(place.home.ledger, "UPDATE journal SET at = ? WHERE seq = ?", now + later, ROWS + 1)
    place.later = later + 60
    assert "no record proves 2 rows" in place.verify().why, "the journal's own row is new, the cut call is not"
    place.write(place.home.gateway_account, "DELETE FROM request WHERE id = ?", ROWS + 2)
    assert place.verify().why == "", "the call has only just ended"


def test_a_result_and_a_spec_are_proven_by_the_rows_of_end_and_start(place: Place) -> None:
    place.ledger.commit([Start(AGENT, 1, ""), MarkRunning(AGENT, 1)])
    place.ledger.note(AGENT, 1, result='{"end": "done"}')
    place.ledger.commit(ended(AGENT, 1))
    place.step()
    assert not place.verify().why
    with contextlib.closing(sqlite.connect_readonly(place.home.ledger)) as db:
        seqs = {event: seq for seq, event in db.execute("SELECT seq, event FROM journal WHERE task = ?", (AGENT,))}
        spec = db.execute("SELECT spec FROM task WHERE id = ?", (AGENT,)).fetchone()[0]
    place.write(place.home.ledger, "UPDATE attempt SET result = '{}' WHERE task = ?", AGENT)
    assert (place.verify().row, place.verify().line, "the result of" in place.verify().why) == (seqs["end done"], 3, True)
    place.write(place.home.ledger, 'UPDATE attempt SET result = \'{"end": "done"}\' WHERE task = ?', AGENT)
    place.write(place.home.ledger, "UPDATE task SET spec = '{}' WHERE id = ?", AGENT)
    assert (place.verify().row, place.verify().line, "the spec of" in place.verify().why) == (seqs["start"], 3, True)
    place.write(place.home.ledger, "UPDATE task SET spec = ? WHERE id = ?", spec, AGENT)
    assert not place.verify().why
    place.ledger.commit([Revive(AGENT, "a person's retry")])
    assert not place.verify().why, "a retry changes the spec"
    place.write(place.home.ledger, "UPDATE attempt SET result = NULL WHERE task = ?", AGENT)
    assert place.verify().row == seqs["end done"]
    Audit(place.home.audit, SECRET, SystemClock(), "doctor").note("ledger recovered", {"lost": ""})
    assert not place.verify().why, "a recovery repairs what it can"


def test_more_rows_than_one_anchor_has(place: Place) -> None:
    with contextlib.closing(sqlite3.connect(place.home.ledger)) as db, db:
        db.executemany("INSERT INTO journal (at, event) VALUES (?, 'limits')", [(float(number),) for number in range(2 * audit_rules.MOST)])
    place.step()
    assert place.verify().proven["journal"] == ROWS + 2 * audit_rules.MOST
    place.write(place.home.ledger, "UPDATE journal SET at = 0.5 WHERE seq = ?", ROWS + audit_rules.MOST + 1)
    assert place.verify().row == ROWS + audit_rules.MOST + 1


@pytest.mark.parametrize("what", [JOURNAL_TABLE, CALLS])
def test_what_is_new_is_found_without_a_walk_through_what_is_old(place: Place, what: Followed) -> None:
    path = place.home.ledger if what is JOURNAL_TABLE else place.home.gateway_account
    with contextlib.closing(sqlite.connect_readonly(path, book=what.book)) as db:
        statements: list[str] = []
        db.set_trace_callback(statements.append)
        audit_rows.fresh(db, what, audit_rules.Place(5, (2, 3)), 0.0)
        audit_rows.newest(db, what)
        db.set_trace_callback(None)
        steps = [str(row["detail"]) for sql in statements for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert [step for step in steps if what.table in step] and not [step for step in steps if step.startswith(f"SCAN {what.table}")]


def test_one_trace_id_runs_through_a_run_its_tasks_attempts_and_calls(place: Place) -> None:
    place.ledger.commit([Start(AGENT, 1, "")])
    found = audit_views.entries(place.home, SECRET, most=100, task=AGENT)
    assert {entry["in"] for entry in found} == {"journal", "account"}
    assert {entry["kind"] for entry in found} == {"admission", "start", "model call"}
    assert len({entry["trace"] for entry in found}) == 1
    others = audit_views.entries(place.home, SECRET, most=100, task="0731-aaaa/t1")
    assert {entry["trace"] for entry in others} == {entry["trace"] for entry in found} == {trace_id(AGENT)}
    assert trace_id("0801-bbbb/t1") != trace_id(AGENT)


def test_only_what_is_newer_is_shown(place: Place) -> None:
    now: Callable[[], float] = SystemClock().wall
    assert audit_views.entries(place.home, SECRET, most=100, since=now() + 60) == []
    assert len(audit_views.entries(place.home, SECRET, most=4)) == 4
