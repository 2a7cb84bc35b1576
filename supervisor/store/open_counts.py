"""How many tasks have not ended, for who has no time: it imports nothing of the other tables, and says nothing of what is wrong."""

from __future__ import annotations

import sqlite3
from pathlib import Path

_WAIT_S = 0.2
# Spelled out, so that SQLite uses the partial index of unfinished tasks.
_SQL = "SELECT state, count(*) FROM task WHERE state IN ('waiting', 'ready', 'running', 'paused', 'parked') GROUP BY state"


def read(ledger: Path) -> dict[str, int]:
    """By state; none when there is no ledger that can be read."""
    if not ledger.exists():
        return {}
    try:
        db = sqlite3.connect(f"{ledger.absolute().as_uri()}?mode=ro", uri=True, timeout=_WAIT_S)
        try:
            return of(db)
        finally:
            db.close()
    except sqlite3.Error:
        return {}


def of(db: sqlite3.Connection) -> dict[str, int]:
    """The same, of a ledger that is open."""
    return {str(state): int(number) for state, number in db.execute(_SQL)}
