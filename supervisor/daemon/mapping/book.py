"""`maps/<id>/map.db`: how it is opened, read and filled. The supervisor alone writes it.

A command prepares a workload in a file beside it, which the supervisor takes over by one statement, however many items there are.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.core import mapping
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.ledger import store

BOOK = store.Book(
    name="the map's file",
    schema=1,
    tables=frozenset({"map", "item", "lease", "kept"}),
    package="supervisor.daemon.mapping",
    untouched="the ledger, branches and worktrees are untouched",
    goes_on="its workers wait",
    recover="nightcrew map --fresh",
    absent="nothing was ever mapped so",
    first="nightcrew map",
)
_ITEMS = "CREATE TABLE item (position INTEGER PRIMARY KEY, name BLOB, key TEXT, nth INTEGER, size INTEGER)"
_MERGE = """
INSERT INTO item (position, name, key, nth, size, state, tries, deaths, ms, text)
SELECT i.position, i.name, i.key, i.nth, i.size, coalesce(o.state, 'waiting'), coalesce(o.tries, 0), 0, coalesce(o.ms, 0), o.text
FROM incoming.item i LEFT JOIN before o ON o.name = i.name AND o.key = i.key AND o.nth = i.nth
"""
_DIFFER = """
SELECT (SELECT count(*) FROM main.item) <> (SELECT count(*) FROM incoming.item)
OR EXISTS (SELECT 1 FROM incoming.item i LEFT JOIN main.item o USING (position) WHERE o.name IS NOT i.name OR o.key IS NOT i.key)
"""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a workload."""

    name: bytes
    """A path, a line, or an object as one line of JSON."""
    key: str
    """Of its content: the same key under the same name needs no second look."""
    size: int
    """Bytes: of the file, or of the line."""


def map_id(project: str, source: dict[str, Any], what: dict[str, Any]) -> str:
    """12 hex digits: the same workload with the same done to it is the same map, and goes on where it was."""
    return hashlib.sha256(json.dumps([project, source, what], sort_keys=True).encode()).hexdigest()[:12]


def directory(home: Home, name: str) -> Path:
    """Where all of one map lies."""
    return home.root / "maps" / name


def file(home: Home, name: str) -> Path:
    """Its database."""
    return directory(home, name) / "map.db"


def prepare(home: Home, name: str, items: Iterable[Item]) -> Path:
    """Write a workload into a new file beside the map's, for the supervisor to take over; its path. Raises DiskFull, LedgerError."""
    path = files.private_dir(directory(home, name)) / f"incoming-{os.getpid()}-{os.urandom(4).hex()}.db"
    held = list(items)
    nth = mapping.occurrences((item.name, item.key) for item in held)
    with store.explained(path, BOOK), contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")  # it is made anew after a crash
        db.execute("BEGIN")
        db.execute(_ITEMS)
        rows = ((at, item.name, item.key, number, item.size) for at, (item, number) in enumerate(zip(held, nth, strict=True)))
        db.executemany("INSERT INTO item VALUES (?, ?, ?, ?, ?)", rows)
        db.execute("COMMIT")
    return path


def connect(path: Path) -> sqlite3.Connection:
    """Open for writing, made when there is none. What was committed outlives every crash of ours; a power cut can cost the newest shards,
    which are then done again. Raises LedgerError."""
    db = store.connect(path, book=BOOK)
    db.execute("PRAGMA synchronous=NORMAL")
    db.execute("INSERT OR IGNORE INTO map (one) VALUES (1)")
    return db


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open for looking. Raises LedgerError as `store.connect_readonly` does."""
    return store.connect_readonly(path, book=BOOK)


transaction = functools.partial(store.transaction, book=BOOK)
"""As it is for the ledger."""


def take_over(db: sqlite3.Connection, path: Path, incoming: Path, *, fresh: bool) -> None:
    """Replace the workload by that in the file `incoming`. Items that are done, and are the same, stay done; with `fresh` none does."""
    db.execute("ATTACH ? AS incoming", (os.fspath(incoming),))
    try:
        with transaction(db, path):
            db.execute("CREATE TEMP TABLE before AS SELECT * FROM item WHERE state = 'done' AND NOT ?", (fresh,))
            db.execute("CREATE INDEX temp.before_by_name ON before (name, key, nth)")
            db.execute("DELETE FROM item")
            db.execute(_MERGE)
            db.execute("DELETE FROM lease")
            if fresh:
                db.execute("DELETE FROM kept")
            db.execute("DROP TABLE temp.before")
    finally:
        db.execute("DETACH incoming")


def is_same(db: sqlite3.Connection, path: Path, incoming: Path) -> bool:
    """Whether the workload in the file `incoming` is the map's. Raises LedgerError."""
    db.execute("ATTACH ? AS incoming", (os.fspath(incoming),))
    try:
        with store.explained(path, BOOK):
            return not db.execute(_DIFFER).fetchone()[0]
    finally:
        db.execute("DETACH incoming")


def counts(db: sqlite3.Connection) -> dict[str, int]:
    """How many items are in each state; `total`."""
    found = {str(row["state"]): int(row["n"]) for row in db.execute("SELECT state, count(*) n FROM item GROUP BY state")}
    return {"total": sum(found.values()), **{state: found.get(state, 0) for state in ("done", "failed", "waiting")}}


def about(db: sqlite3.Connection) -> dict[str, Any]:
    """The map's own row."""
    return dict(db.execute("SELECT * FROM map").fetchone())


def set_about(db: sqlite3.Connection, **values: Any) -> None:
    """Change columns of it; the names are ours."""
    db.execute(f"UPDATE map SET {', '.join(f'{name} = ?' for name in values)}", tuple(values.values()))  # noqa: S608 - no text of others
