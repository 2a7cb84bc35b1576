"""Copy a SQLite file of ours while it is in use, and make a whole one again from a copy and the journal of transactions.

A copy is made by SQLite's backup API, every hour and before each migration, and says by its number which lines of the journal it lacks.
To recover is to take the newest whole copy, run the statements of those lines, and put the result in place of the damaged file. Without
any copy the journal begins with an empty file.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from supervisor.host import files
from supervisor.host.failpoint import failpoint
from supervisor.kernel.errors import DiskFull, LedgerError, NotFound
from supervisor.store import sqlite
from supervisor.store.sqlite import LINES, RECOVERY, Book

# Copies
# ------

COPIES = 2
"""Copies that are kept: the newest, and the one before in case the newest is damaged too."""


def copies(path: Path) -> list[Path]:
    """The copies of a file, newest first."""
    found = (path.parent / RECOVERY).glob(f"{path.name}.copy-*")
    return sorted(found, key=lambda copy: (copy.stat().st_mtime, copy.name), reverse=True)


def copy(path: Path, book: Book, room: int = 0) -> None:
    """Copy the file, unless nothing was committed since the newest copy, and remove what is older than COPIES. `room`: bytes that must
    stay free. Blocks for as long as the disk takes, and keeps no writer waiting. Raises DiskFull and LedgerError with no copy lost."""
    folder = path.parent / RECOVERY
    draft = folder / f"{path.name}.copy.new"
    with sqlite.explained(path, book):
        folder.mkdir(mode=0o700, exist_ok=True)
        if files.free_bytes(folder) < room + path.stat().st_size:
            raise files.disk_full(f"cannot copy {book.name}", path, "the disk has no room for a copy", kept="the copies that there are")
        with contextlib.closing(sqlite.connect_readonly(path, book=book)) as source:
            if any(copy.name == _name(path, sqlite.transaction_number(source)) for copy in copies(path)):
                return
            try:
                number = _back_up(source, draft)
                draft.rename(folder / _name(path, number))
            finally:
                draft.unlink(missing_ok=True)
        files.sync_directory(folder)
        _prune(path)


def _name(path: Path, number: int) -> str:
    return f"{path.name}.copy-{number:010}"


def _number(file: Path) -> int:
    return int(file.name.rpartition("-")[2])


def _back_up(source: sqlite3.Connection, draft: Path) -> int:
    """Returns the number of the newest transaction in the copy."""
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    with contextlib.closing(sqlite3.connect(draft)) as target:
        target.execute("PRAGMA synchronous=OFF")
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE")  # a copy is one file
        number = sqlite.transaction_number(target)
    with draft.open("rb") as written:
        os.fsync(written.fileno())
    return number


def _prune(path: Path) -> None:
    kept = copies(path)
    for copy in kept[COPIES:]:
        copy.unlink(missing_ok=True)
    oldest = min(_number(copy) for copy in kept[:COPIES])
    for journal in _journals(path):
        if _number(journal) < oldest // LINES:
            journal.unlink(missing_ok=True)


def _journals(path: Path) -> list[Path]:
    return sorted((path.parent / RECOVERY).glob(f"{path.name}.journal-*"))


def begin(path: Path, book: Book) -> None:
    """Move copies and journals that are ahead of the file, whose place an older one took by hand, to a directory of their own. Make a
    copy when nothing could restore the file. Raises DiskFull and LedgerError."""
    found = [(_number(copy), copy) for copy in copies(path)] + [(_number(journal) * LINES, journal) for journal in _journals(path)]
    with sqlite.explained(path, book):
        with contextlib.closing(sqlite.connect_readonly(path, book=book)) as db:
            number = sqlite.transaction_number(db)
        ahead = [file for its_number, file in found if its_number > number]
        if ahead:
            aside = Path(tempfile.mkdtemp(prefix="replaced-", dir=path.parent / RECOVERY))
            for file in ahead:
                file.rename(aside / file.name)
    if not is_covered(path):
        copy(path, book)


def is_covered(path: Path) -> bool:
    """Whether the file could be made again now: from a copy, or from a journal that begins with its first transaction."""
    return bool(copies(path)) or sqlite.journal_file(path, 0).exists()


# Journal
# -------

Statements = list[tuple[str, Any, bool]]
Line = tuple[int, Statements]


def _lines(path: Path, after: int) -> tuple[list[Line], int]:
    """The transactions beyond the number `after`, in order, and how many lines cannot be read."""
    found: list[Line] = []
    damaged = 0
    for journal in _journals(path):
        for text in journal.read_bytes().split(b"\n"):
            line = _line(text)
            if line is None:
                damaged += bool(text)
                continue
            while found and found[-1][0] >= line[0]:  # that one was not committed
                found.pop()
            found.append(line)
    return [line for line in found if line[0] > after], damaged


def _line(text: bytes) -> Line | None:
    with contextlib.suppress(ValueError):
        if int(text[:8], 16) == zlib.crc32(text[8:]):
            number, written = json.loads(text[8:])
            return number, written
    return None


def _replay(draft: Path, path: Path) -> list[str]:
    """Run the transactions that the draft lacks; what is missing or cannot be done, a line each."""
    with contextlib.closing(sqlite3.connect(draft, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        number = sqlite.transaction_number(db)
        lines, damaged = _lines(path, number)
        lost = [f"the journal: lines that cannot be read: {damaged}"] if damaged else []
        for following, written in lines:
            if following != number + 1:
                lost.append(f"the journal: transactions {number + 1} to {following - 1} are missing")
            number = following
            lost += _repeat(db, number, written)
    return lost


def _repeat(db: sqlite3.Connection, number: int, written: Statements) -> list[str]:
    db.execute("BEGIN")
    try:
        for sql, values, many in written:
            if many:
                db.executemany(sql, values)
            else:
                db.execute(sql, values).fetchall()
        db.execute(f"PRAGMA application_id={number}")
        db.execute("COMMIT")
    except sqlite3.Error as error:
        db.execute("ROLLBACK")
        return [f"the journal: transaction {number} cannot be repeated: {error}"]
    return []


def _drop_dangling(db: sqlite3.Connection) -> list[str]:
    """Delete rows that name a row which is lost."""
    said = []
    db.execute("PRAGMA foreign_keys=OFF")
    while found := {(row[0], row[3]) for row in db.execute("PRAGMA foreign_key_check").fetchall()}:
        for table, key in sorted(found):
            listed = db.execute(f"PRAGMA foreign_key_list({table})").fetchall()
            parent, column, to = next((row["table"], row["from"], row["to"]) for row in listed if row["id"] == key)
            gone = db.execute(f"DELETE FROM {table} WHERE {column} NOT IN (SELECT {to} FROM {parent})").rowcount  # noqa: S608 - our schema
            said.append(f"table {table}: {gone} rows are lost with what they belonged to in {parent}")
    return said


# Recover
# -------

_BESIDE = ("-wal", "-shm")


@dataclass(slots=True)
class Report:
    """Result of a recovery."""

    kept: Path | None = None
    """The damaged file, with `-wal` and `-shm` after its name for those that were beside it. None: nothing is damaged, nothing was done."""
    saved: dict[str, int] = field(default_factory=dict)
    """Rows of each table."""
    lost: list[str] = field(default_factory=list)
    """What could not be restored, and what was changed so that the rest agrees; a line each. Empty: nothing."""


def recover(
    path: Path, book: Book, stamp: str, mend: Callable[[sqlite3.Connection], list[str]], check: Callable[[sqlite3.Connection], object]
) -> Report:
    """Put a whole file in place of the damaged one at `path`, which is kept under its name with `.damaged-` and `stamp`.

    `mend` makes the rows agree with what else is known and says what it did; `check` raises when a program could not use the file. Nobody
    else may have the file open for writing. It can be repeated after a kill at any moment. Raises NotFound when there is nothing to
    recover, and LedgerError when the file is of a newer version or nothing whole can be made; then all is as it was.
    """
    with sqlite.explained(path, book):
        before = _interrupted(path)
        if not path.exists() and not path.with_name(f"{path.name}-wal").exists() and not is_covered(path):
            raise NotFound(f"no {book.name.removeprefix('the ')}", on=str(path), why=book.absent, hint=book.first)
        if before is None and _is_whole(path, book):
            return Report()
        draft = path.with_name(f"{path.name}.new")
        plain = replace(book, journaled=False)
        kept = before or _free_name(path, stamp)
        report = Report(kept)
        try:
            _start_draft(draft, path, book)
            report.lost += _replay(draft, path)
            with contextlib.closing(sqlite.connect(draft, book=plain)) as db:
                report.lost += [*mend(db), *_drop_dangling(db)]
                check(db)
                report.saved = _counted(db)
            _keep(path, kept)
        except BaseException:
            sqlite.remove(draft)
            raise
        draft.rename(path)
        files.sync_directory(path.parent)
    try:
        copy(path, book)
    except DiskFull as error:
        report.lost.append(f"nothing, but there is no new copy: {error.line()}")
    return report


def _is_whole(path: Path, book: Book) -> bool:
    """Whether the file is sound and holds every transaction of its journal: SQLite passes over a damaged log in silence."""
    try:
        with contextlib.closing(sqlite.connect_readonly(path, book=book)) as db:
            return _is_sound(db) and not _lines(path, sqlite.transaction_number(db))[0]
    except LedgerError as error:
        if error.what in (f"{book.name} is damaged", f"{book.name} refused"):
            return False
        raise


def _is_sound(db: sqlite3.Connection) -> bool:
    checked = [row[0] for row in db.execute("PRAGMA integrity_check").fetchall()]
    return checked == ["ok"] and db.execute("PRAGMA foreign_key_check").fetchone() is None


def _start_draft(draft: Path, path: Path, book: Book) -> None:
    """Begin with the newest sound copy, or with an empty file when the journal has everything. Raises LedgerError."""
    sqlite.remove(draft)
    for one in copies(path):
        with contextlib.suppress(LedgerError), contextlib.closing(sqlite.connect_readonly(one, book=book)) as db:
            if _is_sound(db):
                draft.touch(mode=0o600)
                shutil.copyfile(one, draft)
                return
    if not sqlite.journal_file(path, 0).exists():
        raise LedgerError(
            f"cannot recover {book.name}",
            on=str(path),
            why=f"there is no sound copy of it in {path.parent / RECOVERY}",
            kept=f"the file as it was; {book.untouched}",
            hint=f"begin with a new one: mkdir {path.name}.lost && mv {path.name}* {RECOVERY} {path.name}.lost, in {path.parent}",
        )
    sqlite.make(draft, replace(book, journaled=False))


def _counted(db: sqlite3.Connection) -> dict[str, int]:
    """Rows of each table."""
    tables = [str(row["name"]) for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'sqlite_*'")]
    return {table: int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]) for table in tables}  # noqa: S608 - our schema


def _keep(path: Path, kept: Path) -> None:
    """Give the damaged file a second name, and take its log away from where the new file would look for one. Whoever finds both names of
    one file knows that this was interrupted; and at no moment is there none, for which a supervisor would make an empty one."""
    path.touch()  # it may be gone, and only its log be left
    if not kept.exists():
        os.link(path, kept)
        files.sync_directory(path.parent)
    failpoint("recover.kept")
    for suffix in _BESIDE:
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(kept.with_name(kept.name + suffix))
    files.sync_directory(path.parent)
    failpoint("recover.moved")


def _free_name(path: Path, stamp: str) -> Path:
    names = [path.with_name(f"{path.name}.damaged-{stamp}{more}") for more in ("", *(f"-{number}" for number in range(2, 100)))]
    return next(name for name in names if not any(name.with_name(name.name + suffix).exists() for suffix in ("", *_BESIDE)))


def _interrupted(path: Path) -> Path | None:
    """The other name of the file at `path`, when a recovery was killed before the new one was in place."""
    with contextlib.suppress(OSError):
        opened = sqlite.file_identity(path)
        return next((other for other in path.parent.glob(f"{path.name}.damaged-*") if sqlite.file_identity(other) == opened), None)
    return None
