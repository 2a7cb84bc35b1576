"""The account's file: what is in it, and how it is opened. Standard library only: `status` imports this."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from supervisor.store import sqlite

SCHEMA = 6
_CACHE_KIB = 512
"""Of the writer's pages, instead of SQLite's 2000: it writes at the end of a few tables and indexes, and reads next to nothing."""

ACCOUNT = sqlite.Book(
    name="the account",
    schema=SCHEMA,
    tables=frozenset({"request", "turned_away", "journal", "recording", "memory"}),
    package="supervisor.gateway.account",
    untouched="the ledger, branches and worktrees are untouched",
    goes_on="requests under way go on; no new one is sent",
    recover="nightcrew down; nightcrew doctor --recover-account",
    absent="no request ever went through a gateway here",
    first="nightcrew gateway status",
    journaled=True,
)


def connect(path: Path) -> sqlite3.Connection:
    """Open the account for writing, as `store.connect` does: made when there is none, refused when it is damaged or newer."""
    db = sqlite.connect(path, book=ACCOUNT)
    db.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    return db


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open the account for looking. Raises LedgerError as `store.connect_readonly` does."""
    return sqlite.connect_readonly(path, book=ACCOUNT)
