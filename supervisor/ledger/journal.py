"""The history as people ask for it: what happened, to whom, and when."""

from __future__ import annotations

import json
import sqlite3
from typing import Any


def of_task(db: sqlite3.Connection, task: str) -> list[dict[str, Any]]:
    """The history of one task, oldest first."""
    return _entries(db, "task = ?", (task,))


def after(db: sqlite3.Connection, since: int, at_most: int) -> list[dict[str, Any]]:
    """The history of everything beyond the entry `since`, oldest first."""
    return _entries(db, "seq > ?", (since, at_most), "LIMIT ?")


def touched(db: sqlite3.Connection, since: int) -> tuple[list[str], int]:
    """The tasks whose state changed after the entry `since` of the journal, and its newest entry. Every change of a task's state is
    committed together with an entry."""
    rows = db.execute("SELECT task, seq FROM journal WHERE seq > ? ORDER BY seq", (since,)).fetchall()
    return list(dict.fromkeys(str(row["task"]) for row in rows if row["task"])), int(rows[-1]["seq"]) if rows else since


def newest_entry(db: sqlite3.Connection) -> int:
    """The number of the newest entry of the journal; 0 when there is none."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0])


def times_set_aside(db: sqlite3.Connection, task: str) -> int:
    """How often a task was set aside by now."""
    return int(db.execute("SELECT count(*) FROM journal WHERE task = ? AND event = 'set aside'", (task,)).fetchone()[0])


def _entries(db: sqlite3.Connection, which: str, values: tuple[Any, ...], limit: str = "") -> list[dict[str, Any]]:
    rows = db.execute(f"SELECT * FROM journal WHERE {which} ORDER BY seq {limit}", values)  # noqa: S608 - literals of ours
    return [dict(row) | {"data": json.loads(row["data"])} for row in rows]
