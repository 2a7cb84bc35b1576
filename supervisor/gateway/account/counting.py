"""Counters from the account: what ended since it was last read, in bounded steps. Read-only."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from supervisor.core.metrics import folding
from supervisor.core.metrics.counts import Counts
from supervisor.gateway.account.rows import NEVER_SENT, REFUSED

ROWS = 5000
"""Of one step: some 50 ms."""


def count(db: sqlite3.Connection, counts: Counts, rows: int = ROWS) -> bool:
    """Count at most `rows` rows of each table; whether there is more."""
    return _requests(db, counts, rows) | _turned_away(db, counts, rows) | _breakers(db, counts, rows)


def _requests(db: sqlite3.Connection, counts: Counts, rows: int) -> bool:
    cursor = counts.read.requests
    since = min(cursor.last, _newest(db, "SELECT max(id) FROM request"))
    found = db.execute(_NEW, (since, rows)).fetchall()
    old = db.execute(_OLD, (json.dumps(sorted(cursor.open)),)).fetchall()
    cursor.open.clear()
    for row in (*old, *found):
        if row["end"] is None:
            cursor.open.add(int(row["id"]))
        elif row["end"] != NEVER_SENT:
            folding.settled(counts, {**_shape(row), "served": row["end"] != REFUSED})
    cursor.last = int(found[-1]["id"]) if found else since
    return len(found) == rows


def _turned_away(db: sqlite3.Connection, counts: Counts, rows: int) -> bool:
    since = min(counts.read.turned_away, _newest(db, "SELECT max(rowid) FROM turned_away"))
    sql = "SELECT rowid AS number, agent, model_class, status, waited_ms FROM turned_away WHERE rowid > ? ORDER BY rowid LIMIT ?"
    found = db.execute(sql, (since, rows)).fetchall()
    for row in found:
        folding.turned_away(counts, _shape(row))
    counts.read.turned_away = int(found[-1]["number"]) if found else since
    return len(found) == rows


def _breakers(db: sqlite3.Connection, counts: Counts, rows: int) -> bool:
    since = min(counts.read.breakers, _newest(db, "SELECT max(seq) FROM journal"))
    found = db.execute("SELECT seq, about, event, data FROM journal WHERE seq > ? ORDER BY seq LIMIT ?", (since, rows)).fetchall()
    for row in found:
        if row["event"] == "breaker":
            folding.changed(counts, row["about"], json.loads(row["data"]))
    counts.read.breakers = int(found[-1]["seq"]) if found else since
    return len(found) == rows


def _shape(row: sqlite3.Row) -> dict[str, Any]:
    return dict(row)


def _newest(db: sqlite3.Connection, sql: str) -> int:
    return int(db.execute(sql).fetchone()[0] or 0)


_COLUMNS = "id, agent, model, end, status, input, output, cache_read, cache_write, cost_usd, queued_ms, first_byte_ms, total_ms"
_NEW = f"SELECT {_COLUMNS} FROM request WHERE id > ? ORDER BY id LIMIT ?"  # noqa: S608 - our own columns
_OLD = f"SELECT {_COLUMNS} FROM request WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"  # noqa: S608 - our own columns
