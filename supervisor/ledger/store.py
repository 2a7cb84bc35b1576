"""Opening the ledger: durable, checked, migrated; refused when it is not what we wrote.

`synchronous=FULL` because an acknowledged task must survive a power cut (a modelled one lost 400 of 400 commits at NORMAL and none at
FULL), `BEGIN IMMEDIATE` because sixteen claimers then never met "database is locked" (against 283,418 times).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from supervisor.core.errors import DiskFull, LedgerError

SCHEMA = 1
BUSY_S = 10.0
_TABLES = frozenset({"project", "run", "task", "dependency", "attempt", "journal"})


class _Connection(sqlite3.Connection):
    """A connection whose statements fail in our words, see `explained`."""

    path: Path

    def execute(self, sql: str, parameters: Any = (), /) -> _Cursor:
        return self.cursor(_Cursor).execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> _Cursor:
        return self.cursor(_Cursor).executemany(sql, parameters)


class _Cursor(sqlite3.Cursor):
    connection: _Connection

    def execute(self, sql: str, parameters: Any = (), /) -> _Cursor:
        with explained(self.connection.path):
            super().execute(sql, parameters)
        return self

    def executemany(self, sql: str, parameters: Any, /) -> _Cursor:
        with explained(self.connection.path):
            super().executemany(sql, parameters)
        return self

    # A damaged page shows when its row is fetched.

    def fetchone(self) -> Any:
        with explained(self.connection.path):
            return super().fetchone()

    def fetchall(self) -> list[Any]:
        with explained(self.connection.path):
            return super().fetchall()

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except sqlite3.DatabaseError as error:
            raise _translate(error, self.connection.path) from error


def connect(path: Path, *, create: bool = True) -> sqlite3.Connection:
    """Open the ledger for writing, creating it only when no file is there, and bring its schema up to date.

    Raises LedgerError when the file is damaged, empty, newer than this version, or cannot be written; the file is left as it was.
    """
    with explained(path):
        if not _present(path):
            if not create:
                raise LedgerError("no ledger", on=str(path), hint="nightcrew up -d")
            _create(path)
    # Checked by a connection that only reads: one that can write folds SQLite's log into the file when it closes, damaged or not.
    with contextlib.closing(connect_readonly(path)) as reader:
        version = _check_version(reader, path)
        found = reader.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _damaged(path, str(found))
    return _writer(path, version)


def _writer(path: Path, version: int) -> sqlite3.Connection:
    with explained(path):
        if not os.access(path, os.W_OK):  # SQLite would open it for reading, and say so at the first commit
            raise PermissionError(errno.EACCES, "it is read-only")
        db = _open(path, path)
        try:
            _prepare(db)
            _migrate(db, path, version)
        except BaseException:
            db.close()
            raise
    return db


def _open(target: Path | str, path: Path) -> _Connection:
    db = sqlite3.connect(target, uri=isinstance(target, str), timeout=BUSY_S, isolation_level=None, factory=_Connection)
    db.path = path
    db.row_factory = sqlite3.Row
    return db


def _present(path: Path) -> bool:
    """Whether the ledger is there. Raises LedgerError for less than a whole one: it must not be taken for no ledger."""
    if not path.exists():
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise _damaged(path, f"it is gone, while {log.name}, which belongs to it, is not")
        return False
    if path.stat().st_size == 0:
        raise _damaged(path, "it has zero bytes")
    return True


def _create(path: Path) -> None:
    """Make the file under another name and move it into place whole: a kill half-way must not leave a ledger that looks damaged."""
    draft = path.with_name(f"{path.name}.new")
    for suffix in ("", "-wal", "-shm"):
        draft.with_name(draft.name + suffix).unlink(missing_ok=True)
    draft.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
    db = _open(draft, path)
    try:
        _prepare(db)
        _migrate(db, path, 0)
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
    with explained(path):
        if not _present(path):
            raise LedgerError("no ledger", on=str(path), why="nothing was ever run here", hint="nightcrew run PLAN")
        db = _open(f"{path.absolute().as_uri()}?mode=ro", path)
        try:
            _check_version(db, path)
            _check_tables(db, path)
        except BaseException:
            db.close()
            raise
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
    except UnicodeEncodeError as error:
        raise LedgerError("the ledger refused", on=str(path), why=f"not Unicode text: {error.object!r:.80}") from None
    except PermissionError as error:
        raise LedgerError(
            "cannot open the ledger", on=str(path), why=error.strerror or "", hint=f"check the owner of {path.parent}"
        ) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise (_full(path, why) if error.errno == errno.ENOSPC else LedgerError("cannot open the ledger", on=str(path), why=why)) from None


def _translate(error: sqlite3.DatabaseError, path: Path) -> LedgerError | DiskFull:
    text = str(error)
    if "disk is full" in text or ("disk I/O error" in text and _no_space(path)):
        return _full(path, text)
    if "readonly" in text or "unable to open" in text:
        return LedgerError("cannot open the ledger", on=str(path), why=text, kept="the file as it was", hint=f"check {path.parent}")
    if isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError):
        return LedgerError("the ledger refused", on=str(path), why=text, kept="everything committed before")
    return _damaged(path, text)


def _no_space(path: Path) -> bool:
    """SQLite says "I/O error" when the index of its log, of 32 KiB, cannot grow."""
    try:
        space = os.statvfs(path.parent)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize < 2**20


def _full(path: Path, why: str) -> DiskFull:
    return DiskFull("cannot write the ledger", on=str(path), why=why, kept="everything committed before", hint="free some space")


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
    if version < 1:
        raise _damaged(path, f"it is not a nightcrew ledger (schema {version})")
    return version


def _check_tables(db: sqlite3.Connection, path: Path) -> None:
    missing = _TABLES - {row["name"] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if missing:
        raise _damaged(path, f"it has no table {', '.join(sorted(missing))}")


def file_identity(path: Path) -> tuple[int, int]:
    """Which file it is, whatever its name."""
    seen = path.stat()
    return seen.st_dev, seen.st_ino


def check_same_file(path: Path, opened: tuple[int, int]) -> None:
    """Raises LedgerError when the file that was opened is no longer the one at `path`: what is written to it would be gone at exit."""
    with contextlib.suppress(OSError):
        if file_identity(path) == opened:
            return
    raise LedgerError(
        "the ledger was moved or removed while it was in use",
        on=str(path),
        kept="running agents go on; nothing new is accepted",
        hint=f"put it back at {path}, or nightcrew down",
    )
