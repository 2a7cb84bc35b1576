"""Open the ledger, and any other SQLite file of ours: durable, checked and migrated."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import sqlite3
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from supervisor.host import files
from supervisor.kernel.errors import DiskFull, LedgerError, NightcrewError

# Store
# -----
# Opening the ledger, and any other file of ours that SQLite keeps: durable, checked, migrated; refused when it is not what we
# wrote.
#
# `synchronous=FULL` because an acknowledged task must survive a power cut (a modelled one lost 400 of 400 commits at NORMAL and
# none at FULL), but for a transaction that says it need not wait. `BEGIN IMMEDIATE` because sixteen claimers then never met
# "database is locked" (against 283,418 times).


SCHEMA = 9
ARCHIVE_NAME = "archive.db"
"""Of the file beside the ledger."""
BUSY_S = 10.0
_SCHEMAS = re.compile(r"^(?=-- Schema \d+[.:])", re.MULTILINE)
CHECK_S = 5.0
"""Seconds of a check of all pages, which reads 2.4 GB in 3.5 s from memory and in 30 s from a slow disk."""


@dataclass(frozen=True, slots=True)
class Book:
    """One kind of file: what it is called, what must be in it, and what to say when it cannot be used."""

    name: str
    """As in "the ledger is damaged"."""
    schema: int
    tables: frozenset[str]
    """Those of schema 1: whoever only reads may meet a file that is not migrated yet."""
    package: str
    """Its `schema.sql` holds the statements that lead to each schema."""
    untouched: str
    """What its damage leaves as it was."""
    goes_on: str
    """What becomes of things when it is taken away while it is in use."""
    recover: str
    """The verb that saves what can be read of a damaged one."""
    absent: str = "nothing was ever run here"
    first: str = "nightcrew run PLAN"
    """What makes the first one."""
    journaled: bool = False
    """Whether each transaction is also appended to a journal beside the file, from which `recovery` makes it again."""


LEDGER = Book(
    name="the ledger",
    schema=SCHEMA,
    tables=frozenset({"project", "run", "task", "dependency", "attempt", "journal"}),
    package="supervisor.store",
    untouched="branches and worktrees are untouched",
    goes_on="running agents go on; nothing new is accepted",
    recover="nightcrew down; nightcrew doctor --recover-ledger",
    journaled=True,
)


class _Connection(sqlite3.Connection):
    """A connection whose statements fail in our words, see `explained`."""

    path: Path
    book: Book
    written: list[tuple[str, Any, bool]] | None = None
    """Statements of the open transaction, for the journal; None outside of one, and for a file without a journal."""
    journal: tuple[int, int] | None = None
    """Which file of the journal is open, and its handle."""

    def close(self) -> None:
        self.close_journal()
        super().close()

    def close_journal(self) -> None:
        """Idempotent."""
        if self.journal is not None:
            os.close(self.journal[1])
            self.journal = None

    def note(self, sql: str, parameters: Any, *, many: bool) -> None:
        """Remember a statement of the open transaction that may write."""
        if self.written is not None and not sql.lstrip().startswith(_READS):
            self.written.append((sql, parameters, many))

    def execute(self, sql: str, parameters: Any = (), /) -> _Cursor:
        return self.cursor(_Cursor).execute(sql, parameters)

    def executemany(self, sql: str, parameters: Any, /) -> _Cursor:
        return self.cursor(_Cursor).executemany(sql, parameters)


class _Cursor(sqlite3.Cursor):
    connection: _Connection

    def execute(self, sql: str, parameters: Any = (), /) -> _Cursor:
        try:
            super().execute(sql, parameters)
        except _EXPLAINED as error:
            raise self._explained(error) from error
        self.connection.note(sql, parameters, many=False)
        return self

    def executemany(self, sql: str, parameters: Any, /) -> _Cursor:
        rows = list(parameters)
        try:
            super().executemany(sql, rows)
        except _EXPLAINED as error:
            raise self._explained(error) from error
        self.connection.note(sql, rows, many=True)
        return self

    # A damaged page shows when its row is fetched.

    def fetchone(self) -> Any:
        try:
            return super().fetchone()
        except _EXPLAINED as error:
            raise self._explained(error) from error

    def fetchall(self) -> list[Any]:
        try:
            return super().fetchall()
        except _EXPLAINED as error:
            raise self._explained(error) from error

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except _EXPLAINED as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> NightcrewError:
        return in_our_words(error, self.connection.path, self.connection.book)


def connect(path: Path, *, create: bool = True, book: Book = LEDGER, checked: bool = True) -> sqlite3.Connection:
    """Open the file for writing, creating it only when no file is there, and bring its schema up to date. Not `checked`, its pages are not
    walked: for whoever opens it again and again, or opens one that grows for ever.

    Raises LedgerError when the file is damaged, empty, newer than this version, or cannot be written; the file is left as it was.
    """
    with explained(path, book):
        if not _present(path, book):
            if not create:
                raise LedgerError(f"no {_noun(book)}", on=str(path), hint="nightcrew up -d")
            make(path, book)
    # Checked by a connection that only reads: one that can write folds SQLite's log into the file when it closes, damaged or not.
    with contextlib.closing(connect_readonly(path, book=book)) as reader:
        version = _check_version(reader, path, book)
        if checked and (found := _cut(path, reader) or _first_fault(reader)) is not None:
            raise damaged(path, found, book)
    return _writer(path, version, book)


def _cut(path: Path, reader: sqlite3.Connection) -> str | None:
    """Whether the file ends inside a page. SQLite reads what is missing as zeros, which a check of the tree takes for text. What a
    checkpoint was writing as it was cut off is in the log as well."""
    log = path.with_name(f"{path.name}-wal")
    page = int(reader.execute("PRAGMA page_size").fetchone()[0])
    logged = log.exists() and log.stat().st_size > 0
    return "it ends inside a page" if path.stat().st_size % page and not logged else None


def _first_fault(reader: sqlite3.Connection) -> str | None:
    """What is wrong with the file's pages, as far as CHECK_S seconds go: the pages of a large one that is not in memory take longer than
    anybody waits for a start. What is damaged beyond shows when it is read."""
    over = threading.Timer(CHECK_S, reader.interrupt)
    over.start()
    try:
        found = str(sqlite3.Connection.execute(reader, "PRAGMA quick_check(1)").fetchone()[0])
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return None
    finally:
        over.cancel()
    return None if found == "ok" else found


def _writer(path: Path, version: int, book: Book) -> sqlite3.Connection:
    with explained(path, book):
        if not os.access(path, os.W_OK):  # SQLite would open it for reading, and say so at the first commit
            raise PermissionError(errno.EACCES, "it is read-only")
        db = _open(path, path, book)
        try:
            if book.journaled and (version < book.schema or not transaction_number(db)):  # 0: of a release without a journal
                from supervisor.store import backups

                backups.copy(path, book)
            _prepare(db)
            _migrate(db, path, version, book)
        except BaseException:
            db.close()
            raise
    return db


def _open(target: Path | str, path: Path, book: Book, *, one_thread: bool = True, busy_s: float = BUSY_S) -> _Connection:
    db = sqlite3.connect(
        target, uri=isinstance(target, str), timeout=busy_s, isolation_level=None, factory=_Connection, check_same_thread=one_thread
    )
    db.path, db.book = path, book
    db.row_factory = sqlite3.Row
    return db


def _present(path: Path, book: Book) -> bool:
    """Whether the file is there. Raises LedgerError for less than a whole one: it must not be taken for none."""
    if not path.exists():
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise damaged(path, f"it is gone, while {log.name}, which belongs to it, is not", book)
        if book.journaled and any((path.parent / RECOVERY).glob(f"{path.name}.*")):
            raise damaged(path, f"it is gone, while its copies and its journal in {RECOVERY} are not", book)
        return False
    if path.stat().st_size == 0:
        raise damaged(path, "it has zero bytes", book)
    return True


def make(path: Path, book: Book) -> None:
    """Make the file: under another name, then moved into place whole, since a kill half-way must not leave one that looks damaged."""
    draft = path.with_name(f"{path.name}.new")
    remove(draft)
    draft.touch(mode=stat.S_IRUSR | stat.S_IWUSR)
    db = _open(draft, path, book)
    try:
        try:
            _prepare(db)
            _migrate(db, path, 0, replace(book, journaled=False))
            db.execute("PRAGMA application_id=1")  # as if making it were the first transaction
        finally:
            db.close()
    except BaseException:
        remove(draft)
        raise
    draft.rename(path)
    files.sync_directory(path.parent)


def remove(path: Path) -> None:
    """Remove the file with its log."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def connect_readonly(path: Path, *, book: Book = LEDGER, one_thread: bool = True, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Open the file for looking only: never creates, never migrates. Queries may name every table and column of this release, also
    where the file has an older schema. Without `one_thread` the caller makes sure that one thread at a time uses it. Raises LedgerError
    as `connect` does, and after `busy_s` seconds where another connection holds the file."""
    with explained(path, book):
        if not _present(path, book):
            raise LedgerError(f"no {_noun(book)}", on=str(path), why=book.absent, hint=book.first)
        db = _open(f"{path.absolute().as_uri()}?mode=ro", path, book, one_thread=one_thread, busy_s=busy_s)
        try:
            version = _check_version(db, path, book)
            _check_tables(db, path, book)
            if version < book.schema:
                _add_missing(db, book)
        except BaseException:
            db.close()
            raise
    return db


@contextlib.contextmanager
def transaction(db: sqlite3.Connection, path: Path, *, book: Book = LEDGER, durable: bool = True, accepts: bool = False) -> Iterator[None]:
    """All or nothing. At exit it outlives any crash of ours and, when `durable`, a power cut too. Else a cut may undo it, but only together
    with all that was committed later. When it `accepts` tasks, its line of the journal is synced to the disk as well. Raises DiskFull or
    LedgerError with nothing changed."""
    with explained(path, book):
        try:
            if not durable:
                db.execute("PRAGMA synchronous=NORMAL")  # in WAL mode: no wait for the disk, and a cut leaves a prefix of the commits
            db.execute("BEGIN IMMEDIATE")
            try:
                if book.journaled and isinstance(db, _Connection):
                    db.written = []
                    yield
                    _append_journal(db, path, synced=accepts)
                else:
                    yield
                db.execute("COMMIT")
            except BaseException:
                if isinstance(db, _Connection):
                    db.written = None
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        finally:
            if not durable:
                db.execute("PRAGMA synchronous=FULL")


# Journal of transactions
# -----------------------
# Beside the ledger, in the directory `recovery`: each transaction's statements as one line, written before its COMMIT and under SQLite's
# write lock, so that lines stand in the order of the commits. The number of the newest transaction is in the file itself
# (`application_id`), so a copy of the file says which lines it lacks. A transaction that was not committed leaves a line whose number the
# next one uses again: the later line counts.


RECOVERY = "recovery"
"""The directory beside the file that has its copies and its journal."""
LINES = 2000
"""Transactions of one file of the journal."""
_READS = ("SELECT", "WITH", "PRAGMA synchronous", "PRAGMA application_id")


def transaction_number(db: sqlite3.Connection) -> int:
    """Number of the newest transaction that the file holds; 0 before the first journaled one."""
    return int(sqlite3.Connection.execute(db, "PRAGMA application_id").fetchone()[0])


def journal_file(path: Path, number: int) -> Path:
    """The file of the journal that has the transaction of this number."""
    return path.parent / RECOVERY / f"{path.name}.journal-{number // LINES:07}"


def _append_journal(db: _Connection, path: Path, *, synced: bool) -> None:
    written, db.written = db.written, None
    if not written:
        return
    number = transaction_number(db) + 1
    sqlite3.Connection.execute(db, f"PRAGMA application_id={number}")
    line = _ENCODER.encode([number, written]).encode()
    if db.journal is None or db.journal[0] != number // LINES:
        db.close_journal()
        db.journal = number // LINES, _open_journal(journal_file(path, number))
    handle = db.journal[1]
    # The line break comes first: what a full disk or a power cut left of the line before must not run into this one.
    rest = memoryview(b"\n%08x%b" % (zlib.crc32(line), line))
    while rest:
        rest = rest[os.write(handle, rest) :]
    if synced:
        os.fdatasync(handle)


def _open_journal(file: Path) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(file, flags)
    except FileNotFoundError:
        file.parent.mkdir(mode=0o700, exist_ok=True)
        made = os.open(file, flags | os.O_CREAT, 0o600)
        files.sync_directory(file.parent)
        return made


_ENCODER = json.JSONEncoder(default=lambda value: value.__conform__(sqlite3.PrepareProtocol), separators=(",", ":"), check_circular=False)
"""A parameter that is no plain value is written as SQLite is given it."""


class explained:
    """Turn what SQLite and the kernel say inside a `with` into our errors."""

    __slots__ = ("_book", "_path")

    def __init__(self, path: Path, book: Book = LEDGER) -> None:
        self._path, self._book = path, book

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, _EXPLAINED):
            raise in_our_words(error, self._path, self._book) from error


_EXPLAINED = (sqlite3.DatabaseError, UnicodeError, OSError)


def in_our_words(error: Exception, path: Path, book: Book) -> NightcrewError:
    """Return our error for one of SQLite or of the kernel. `error` is one of `_EXPLAINED`."""
    if isinstance(error, sqlite3.DatabaseError):
        return _translate(error, path, book)
    if isinstance(error, UnicodeDecodeError):  # SQLite quotes the damaged words
        return damaged(path, f"text that is not Unicode: {error.object!r:.80}", book)
    if isinstance(error, UnicodeEncodeError):
        return LedgerError(f"{book.name} refused", on=str(path), why=f"not Unicode text: {error.object!r:.80}")
    why = getattr(error, "strerror", None) or str(error)
    if isinstance(error, PermissionError):
        return LedgerError(f"cannot open {book.name}", on=str(path), why=why, hint=f"check the owner of {path.parent}")
    if isinstance(error, OSError) and files.is_no_space(error):
        return _full(path, why, book)
    return LedgerError(f"cannot open {book.name}", on=str(path), why=why)


def _translate(error: sqlite3.DatabaseError, path: Path, book: Book) -> LedgerError | DiskFull:
    text = str(error)
    # "I/O error" is what SQLite says when the index of its log, of 32 KiB, cannot grow.
    if "disk is full" in text or ("disk I/O error" in text and files.is_full(path.parent)):
        return _full(path, text, book)
    if "readonly" in text or "unable to open" in text:
        why = "the file system is read-only" if files.is_read_only(path.parent) else text
        return LedgerError(f"cannot open {book.name}", on=str(path), why=why, kept="the file as it was", hint=f"check {path.parent}")
    if "Could not decode" in text:
        return damaged(path, text, book)
    if isinstance(error, sqlite3.OperationalError | sqlite3.IntegrityError | sqlite3.ProgrammingError):
        return LedgerError(f"{book.name} refused", on=str(path), why=text, kept="everything committed before")
    return damaged(path, text, book)


def _noun(book: Book) -> str:
    return book.name.removeprefix("the ")


def _full(path: Path, why: str, book: Book) -> DiskFull:
    return files.disk_full(f"cannot write {book.name}", path, why, kept="everything committed before")


def damaged(path: Path, why: str, book: Book) -> LedgerError:
    """What to say of a file that is not as it was written."""
    return LedgerError(
        f"{book.name} is damaged",
        on=str(path),
        why=why,
        kept=f"the file as it was; no new one was made; {book.untouched}",
        hint=book.recover,
    )


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file: it can be made smaller later, some pages at a time
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA foreign_keys=ON")


def _migrate(db: sqlite3.Connection, path: Path, version: int, book: Book) -> None:
    for number in range(version + 1, book.schema + 1):
        with transaction(db, path, book=book):
            for statement in _statements(book, number):
                db.execute(statement)
            db.execute(f"PRAGMA user_version={number}")


def _add_missing(db: sqlite3.Connection, book: Book) -> None:
    """Add what a file of an older schema lacks, for this connection alone: empty tables, and columns that have their default."""
    db.execute("PRAGMA temp_store=MEMORY")
    with contextlib.closing(sqlite3.connect(":memory:")) as whole:
        for number in range(1, book.schema + 1):
            for statement in _statements(book, number):
                whole.execute(statement)
        for name, made in whole.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").fetchall():
            there = _columns(db, name)
            lacks = [f"{default} AS {column}" for column, default in _columns(whole, name).items() if column not in there]
            if not there:
                db.execute(made.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))
            elif lacks:
                kept = "*" if "WITHOUT ROWID" in made else "rowid AS rowid, *"
                db.execute(f"CREATE TEMP VIEW {name} AS SELECT {kept}, {', '.join(lacks)} FROM main.{name}")  # noqa: S608 - our own names


def _columns(db: sqlite3.Connection, table: str) -> dict[str, str]:
    """Return the default of each column, as SQL."""
    return {str(row[1]): str(row[4] or "NULL") for row in db.execute(f"PRAGMA table_info({table})")}


def _statements(book: Book, number: int) -> Iterator[str]:
    """Read the statements that lead to a schema, one by one: `executescript` would commit the transaction."""
    script = _SCHEMAS.split(resources.files(book.package).joinpath("schema.sql").read_text(encoding="utf-8"))[number]
    held = ""
    for line in script.splitlines(keepends=True):
        held += line
        if sqlite3.complete_statement(held):
            yield held
            held = ""


def _check_version(db: sqlite3.Connection, path: Path, book: Book) -> int:
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    if version > book.schema:
        raise newer(path, version, book)
    if version < 1:
        raise damaged(path, f"it is not a nightcrew {_noun(book)} (schema {version})", book)
    return version


def newer(path: Path, version: int, book: Book) -> LedgerError:
    """What to say of a file that a newer program wrote."""
    return LedgerError(
        f"{book.name} is newer",
        on=str(path),
        why=f"it has schema {version}, this nightcrew knows up to {book.schema}",
        kept="the file as it was",
        hint="install the newer nightcrew again",
    )


def _check_tables(db: sqlite3.Connection, path: Path, book: Book) -> None:
    missing = book.tables - {row["name"] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if missing:
        raise damaged(path, f"it has no table {', '.join(sorted(missing))}", book)


def file_identity(path: Path) -> tuple[int, int]:
    """Which file it is, whatever its name."""
    seen = path.stat()
    return seen.st_dev, seen.st_ino


def check_same_file(path: Path, opened: tuple[int, int], book: Book = LEDGER) -> None:
    """Raises LedgerError when the file that was opened is no longer the one at `path`: what is written to it would be gone at exit."""
    with contextlib.suppress(OSError):
        if file_identity(path) == opened:
            return
    raise LedgerError(
        f"{book.name} was moved or removed while it was in use",
        on=str(path),
        kept=book.goes_on,
        hint=f"put it back at {path}, or nightcrew down",
    )


# Write access
# ------------
# What those share who write into the ledger.


class Journal(Protocol):
    """`Ledger._journal`: one line of history, inside the open transaction."""

    def __call__(self, task: str | None, epoch: int | None, event: str, data: Mapping[str, object], /) -> None: ...


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """What the ledger lends to those who write into it: its connection, its transactions, its clock and its journal."""

    db: sqlite3.Connection
    writing: Callable[..., AbstractContextManager[None]]
    wall: Callable[[], float]
    journal: Journal
