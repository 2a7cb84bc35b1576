"""What the ledger remembers of the attempts of a task, for the one that begins or ends."""

from __future__ import annotations

import sqlite3

from supervisor.core.recovery import AGAIN


def ready_since(db: sqlite3.Connection, task: str, before: float) -> float:
    """When a task last became ready before it started at `before`, wall clock: its backoff after an attempt that failed counts as waiting.
    0.0 when the history does not say."""
    found = db.execute("SELECT max(at) FROM journal WHERE task = ? AND at <= ? AND (event = 'ready' OR event LIKE 'end %')", (task, before))
    return float(found.fetchone()[0] or 0.0)


def begun_again(db: sqlite3.Connection, task: str) -> int:
    """How many attempts of a task were stopped for their memory so that it goes on in a new one."""
    return int(db.execute("SELECT count(*) FROM attempt WHERE task = ? AND end_cause LIKE ?", (task, f"{AGAIN}%")).fetchone()[0])


def left_by(db: sqlite3.Connection, task: str, epoch: int) -> str:
    """The commit that holds what an attempt left, if it was stopped for its memory so that its task goes on from there; else empty."""
    sql = "SELECT json_extract(result, '$.tip') FROM attempt WHERE task = ? AND epoch = ? AND end_cause LIKE ?"
    found = db.execute(sql, (task, epoch, f"{AGAIN}%")).fetchone()
    return str(found[0] or "") if found is not None else ""
