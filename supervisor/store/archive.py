"""Runs that ended long ago are in `archive.db` beside the ledger, a file of the same tables: what `queries` asks of a ledger can be
asked of it as well. Here is who reads it; `archiving` moves runs there.
"""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

from supervisor.kernel.errors import NotFound, Refused
from supervisor.store import sqlite
from supervisor.store.queries import has_run

ARCHIVE = replace(
    sqlite.LEDGER,
    name="the archive",
    untouched="the ledger is untouched",
    goes_on="runs stay in the ledger",
    recover="put it back from a copy, or move it elsewhere: what is in it is needed by nobody but readers of old runs",
    absent="nothing was archived yet",
    first="nightcrew clean --old",
)


def connect(path: Path) -> sqlite3.Connection:
    """The archive for looking, of which `queries` can be asked. Raises NotFound when there is none, and LedgerError."""
    if not path.exists():
        raise NotFound("no archive", on=str(path), why=ARCHIVE.absent, hint=ARCHIVE.first)
    return sqlite.connect_readonly(path, book=ARCHIVE)


def has(path: Path, run: str) -> bool:
    """Whether the archive has this run whole."""
    if not path.exists():
        return False
    with contextlib.closing(connect(path)) as db:
        return has_run(db, run)


def reader(ledger: Path, archive: Path, run: str) -> sqlite3.Connection:
    """A connection for looking, to the file that has this run whole; to the ledger when neither has it. Raises LedgerError as
    `store.connect_readonly` does."""
    db = sqlite.connect_readonly(ledger)
    if archive.exists() and not stays(db, run):
        kept = connect(archive)
        if has_run(kept, run):
            db.close()
            return kept
        kept.close()
    return db


def stays(db: sqlite3.Connection, run: str) -> bool:
    """Whether the ledger has this run, and it is not on its way to the archive."""
    return has_run(db, run) and db.execute("SELECT 1 FROM leaving WHERE run = ?", (run,)).fetchone() is None


def archived(task: str) -> Refused:
    """What to say to whoever wants to begin with an archived task again."""
    why = "it is archived, and only read"
    return Refused("nothing more is done with", on=task, why=why, kept="its history, branch and refs", hint=f"nightcrew status {task}")


class Known:
    """What the ledger's writer asks of the archive: keys and ids that are taken for ever."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    def run_of_key(self, key: str) -> str | None:
        """The archived run that was submitted with it."""
        return self._one("SELECT id FROM run WHERE key = ?", key)

    def has_run(self, run: str) -> bool:
        """Whether the id is an archived run's."""
        return self._one("SELECT id FROM run WHERE id = ?", run) is not None

    def digest_of(self, run: str) -> str:
        """Of the request by which the archived run was handed over with a token; else empty."""
        return self._one("SELECT digest FROM token_run WHERE run = ?", run) or ""

    def tasks_of_run(self, run: str) -> list[str]:
        """The full ids of its tasks, in the plan's order; none while the archive has it not whole."""
        return self._all("SELECT t.id FROM run r JOIN task t ON t.run = r.id WHERE r.id = ? ORDER BY t.ord", run)

    def _one(self, sql: str, value: str) -> str | None:
        return next(iter(self._all(sql, value)), None)

    def _all(self, sql: str, value: str) -> list[str]:
        if self._db is None and not self._path.exists():
            return []
        self._db = self._db or connect(self._path)
        return [str(row[0]) for row in self._db.execute(sql, (value,))]

    def close(self) -> None:
        """Idempotent."""
        if self._db is not None:
            self._db.close()
            self._db = None
