"""Tables whose rows the audit log proves, and how their rows are read for that. See `supervisor.features.audit.rules`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.features.audit.rules import MOST, Place
from supervisor.store import sqlite
from supervisor.store.sqlite import LEDGER, Book

OVERDUE_S = 300.0
"""A supervisor that goes on for this long anchors a row every few seconds, so an older one without an anchor had one that is lost."""
SETTLING_S = 30.0
"""A supervisor that has just started, or whose machine has slept, has anchored what it found by then."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A table. Its numbers only grow."""

    name: str
    """As its anchors call it."""
    book: Book
    table: str
    number: str
    columns: str
    """What is proven of a row."""
    final: str = "1"
    """Of which rows: those that nothing of ours changes any more. May ask for `:now`, wall-clock seconds."""
    over: str = "at"
    """Since when such a row is final at the latest, wall-clock seconds."""


JOURNAL = Followed("journal", LEDGER, "journal", "seq", "at, task, epoch, event, data")


def fresh(db: sqlite3.Connection, what: Followed, place: Place, now: float) -> tuple[dict[int, tuple[object, ...]], Place]:
    """The next rows to anchor, at most MOST, and how far the table is anchored with them."""
    values = {"last": place.last, "open": json.dumps(place.open), "now": now, "most": MOST}
    found = db.execute(f"{_either(what, what.columns, f'AND {what.final}')} LIMIT :most", values).fetchall()
    rows = {int(row[0]): tuple(row)[1:] for row in found}
    last = max(place.last, *rows) if rows else place.last
    left = db.execute(_either(what, "1", f"AND {what.number} <= :upto"), {**values, "upto": last})
    return rows, Place(last, tuple(int(row[0]) for row in left if int(row[0]) not in rows))


def _either(what: Followed, columns: str, which: str) -> str:
    """Rows beyond the last one, or of those left open, in order. Two searches by number: with `OR` SQLite walks the whole table."""
    sought = f"{what.number} > :last", f"{what.number} IN (SELECT value FROM json_each(:open))"  # noqa: S608 - literals of ours, here and below
    each = (f"SELECT {what.number}, {columns} FROM {what.table} WHERE {where} {which}" for where in sought)  # noqa: S608
    return f"{' UNION ALL '.join(each)} ORDER BY 1"


def rows_of(db: sqlite3.Connection, what: Followed, numbers: Iterable[int]) -> dict[int, tuple[object, ...]]:
    """These rows, as far as they are there."""
    found = db.execute(
        f"SELECT {what.number}, {what.columns} FROM {what.table} WHERE {what.number} IN (SELECT value FROM json_each(?))",  # noqa: S608
        (json.dumps(list(numbers)),),
    )
    return {int(row[0]): tuple(row)[1:] for row in found}


def up_to(db: sqlite3.Connection, what: Followed, last: int) -> Iterator[int]:
    """The numbers of all rows up to `last`, in order."""
    found = db.execute(f"SELECT {what.number} FROM {what.table} WHERE {what.number} <= ? ORDER BY 1", (last,))  # noqa: S608
    return (int(row[0]) for row in found)


def beyond(db: sqlite3.Connection, what: Followed, last: int) -> int:
    """How many rows are newer than `last`."""
    return int(db.execute(f"SELECT count(*) FROM {what.table} WHERE {what.number} > ?", (last,)).fetchone()[0])  # noqa: S608


def newest(db: sqlite3.Connection, what: Followed) -> int:
    """The highest number; 0 when there is no row."""
    return int(db.execute(f"SELECT coalesce(max({what.number}), 0) FROM {what.table}").fetchone()[0])  # noqa: S608


def first_undigested(db: sqlite3.Connection, since: float) -> tuple[int, str] | None:
    """The first row of the journal, no older than `since` (wall-clock seconds), whose digest is not that of the text beside it in the
    ledger, and why: the end of an attempt and its result, the newest start of a task and its spec. A retry changes the spec, so a task that
    was retried is compared again once it has started."""
    for name, sql in (("result", _ENDS), ("spec", _STARTS)):
        for row in db.execute(sql, (since,)):
            if row["text"] is None or hashlib.sha256(str(row["text"]).encode()).hexdigest() != row["said"]:
                return int(row["seq"]), f"the {name} of {row['task']}:{row['epoch']} in the ledger is not the one that it names"
    return None


_DIGEST = "CASE WHEN json_valid(j.data) THEN json_extract(j.data, '$.{}_sha256') END AS said"
_ENDS = f"""
    SELECT j.seq, j.task, j.epoch, {_DIGEST.format("result")}, a.result AS text
    FROM journal j LEFT JOIN attempt a ON a.task = j.task AND a.epoch = j.epoch
    WHERE said IS NOT NULL AND j.event LIKE 'end %' AND j.at >= ? ORDER BY j.seq
"""  # noqa: S608 - ours, here and below
_STARTS = f"""
    SELECT max(j.seq) AS seq, j.task, j.epoch, {_DIGEST.format("spec")}, t.spec AS text FROM journal j LEFT JOIN task t ON t.id = j.task
    WHERE said IS NOT NULL AND j.event = 'start' AND j.at >= ?
    AND NOT EXISTS (SELECT 1 FROM journal r WHERE r.task = j.task AND r.seq > j.seq AND r.event = 'retry') GROUP BY j.task ORDER BY 1
"""  # noqa: S608


def supervised(ledger: Path, now: float) -> float:
    """Wall-clock seconds of the newest row of the journal that has settled: a supervisor ran then. Minus infinity when nothing says so, as
    of a ledger of an older schema, which no supervisor of this version has opened."""
    if not ledger.exists():
        return -math.inf
    with contextlib.closing(sqlite.connect_readonly(ledger)) as db:
        if not _current(db, JOURNAL):
            return -math.inf
        row = db.execute("SELECT at FROM journal WHERE at <= ? ORDER BY seq DESC LIMIT 1", (now - SETTLING_S,)).fetchone()
        return float(row[0]) if row is not None else -math.inf


def unproven(path: Path, what: Followed, last: int, before: float, now: float) -> tuple[int, float] | None:
    """How many final rows beyond `last` there are, and since when the oldest one is; None unless that is at `before` or earlier."""
    if not path.exists() or before == -math.inf:
        return None
    with contextlib.closing(sqlite.connect_readonly(path, book=what.book)) as db:
        if not _current(db, what):
            return None
        sql = f"SELECT count(*), min({what.over}) FROM {what.table} WHERE {what.number} > :last AND {what.final}"  # noqa: S608 - ours
        rows, oldest = db.execute(sql, {"last": last, "now": now}).fetchone()
        return (int(rows), float(oldest)) if rows and oldest <= before else None


def _current(db: sqlite3.Connection, what: Followed) -> bool:
    return int(db.execute("PRAGMA user_version").fetchone()[0]) == what.book.schema
