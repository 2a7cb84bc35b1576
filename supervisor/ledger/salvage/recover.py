"""A whole file in place of a damaged one; the damaged one is kept beside it, with its log."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.core.errors import LedgerError, NotFound
from supervisor.host.failpoint import failpoint
from supervisor.ledger import store
from supervisor.ledger.salvage.pages import MAGIC, Pages
from supervisor.ledger.salvage.tables import Found, Reader, Shape, shapes
from supervisor.ledger.store import Book

_BESIDE = ("-wal", "-shm")
_IMPLAUSIBLE = 100
"""Versions ahead of ours: no newer program, but a damaged number."""


@dataclass(slots=True)
class Report:
    """What came of it."""

    kept: Path | None = None
    """The damaged file, with `-wal` and `-shm` after its name for those that were beside it. None: nothing is damaged, nothing was done."""
    saved: dict[str, int] = field(default_factory=dict)
    """Rows of each table that were read."""
    lost: list[str] = field(default_factory=list)
    """What could not be read, and what had to be changed or made up so that the rest agrees; a line each. Empty: nothing."""


def recover(
    path: Path, book: Book, stamp: str, mend: Callable[[sqlite3.Connection], list[str]], check: Callable[[sqlite3.Connection], object]
) -> Report:
    """Put a whole file in place of the damaged one at `path`, which is kept under its name with `.damaged-` and `stamp`.

    `mend` makes the rows agree and says what it did; `check` raises when a program could not use the file. Nobody else may have the
    file open for writing. It can be repeated after a kill at any moment. Raises NotFound when there is no file, and LedgerError when it is
    of a newer version or nothing whole can be made; then all is as it was.
    """
    with store.explained(path, book):
        before = _interrupted(path)
        log = next((one for one in (_log(before), _log(path)) if one is not None and one.exists() and one.stat().st_size), None)
        if not path.exists() and log is None:
            raise NotFound(f"no {book.name.removeprefix('the ')}", on=str(path), why=book.absent, hint=book.first)
        report = Report()
        with contextlib.closing(Pages(path, log)) as pages:
            if before is None and _is_whole(path, book, pages):
                return report
            _refuse_newer(pages, path, book)
            kept = before or _free_name(path, stamp)
            store.make(path, book, lambda db: _fill(db, pages, report, (mend, check), (path, book)), lambda: _keep(path, kept))
        report.kept = kept
        return report


def _log(path: Path | None) -> Path | None:
    return None if path is None else path.with_name(f"{path.name}-wal")


def _is_whole(path: Path, book: Book, pages: Pages) -> bool:
    if pages.log.skipped:
        return False
    try:
        with contextlib.closing(store.connect_readonly(path, book=book)) as db:
            return [row[0] for row in db.execute("PRAGMA integrity_check").fetchall()] == ["ok"] and not _dangling(db)
    except LedgerError as error:
        if error.what in (f"{book.name} is damaged", f"{book.name} refused"):
            return False
        raise


def _dangling(db: sqlite3.Connection) -> bool:
    return db.execute("PRAGMA foreign_key_check").fetchone() is not None


def _refuse_newer(pages: Pages, path: Path, book: Book) -> None:
    """Columns that we do not know would be lost."""
    version = int.from_bytes(pages.header[60:64], "big")
    if pages.header.startswith(MAGIC) and book.schema < version <= book.schema + _IMPLAUSIBLE:
        raise store.newer(path, version, book)


def _fill(
    db: sqlite3.Connection,
    pages: Pages,
    report: Report,
    ours: tuple[Callable[[sqlite3.Connection], list[str]], Callable[[sqlite3.Connection], object]],
    of: tuple[Path, Book],
) -> None:
    tables, indexes = shapes(db)
    db.execute("PRAGMA foreign_keys=OFF")
    found = Reader(pages, tables, indexes).read()
    mend, check = ours
    with store.transaction(db, of[0], book=of[1]):
        for shape in tables:
            report.saved[shape.name] = _insert(db, shape, found[shape.name])
        if not any(report.saved.values()):
            raise _hopeless(of, "not one row of it can be read")
        report.lost = [*_damage(pages, found), *mend(db)]
        check(db)
    if [row[0] for row in db.execute("PRAGMA integrity_check").fetchall()] != ["ok"] or _dangling(db):
        raise _hopeless(of, "what can be read of it does not agree")


def _hopeless(of: tuple[Path, Book], why: str) -> LedgerError:
    path, book = of
    hint = f"keep it elsewhere and begin with a new one: mkdir {path.name}.lost && mv {path.name}* {path.name}.lost, in {path.parent}"
    return LedgerError(f"cannot recover {book.name}", on=str(path), why=why, kept=f"the file as it was; {book.untouched}", hint=hint)


def _insert(db: sqlite3.Connection, shape: Shape, found: Found) -> int:
    """Write the rows; the better one first where two have one unique value. Returns how many were taken."""
    has_rowid = not shape.in_index and shape.alias is None
    taken = 0
    for key in sorted(found.rows, key=lambda key: found.ranks[key], reverse=True):
        rowid, values = found.rows[key]
        names = [column.name for column in shape.columns[: len(values)]]
        row = ((rowid, *values), ["rowid", *names]) if has_rowid else (values, names)
        marks, listed = ", ".join("?" * len(row[1])), ", ".join(row[1])
        taken += db.execute(f"INSERT OR IGNORE INTO {shape.name} ({listed}) VALUES ({marks})", row[0]).rowcount  # noqa: S608 - our own schema
    found.broken += len(found.rows) - taken
    return taken


def _damage(pages: Pages, found: dict[str, Found]) -> list[str]:
    said = [f"the log: {pages.log.skipped} damaged pieces; what they changed is lost, or is as it was before"] if pages.log.skipped else []
    for name, table in found.items():
        if table.damaged:
            said.append(
                f"table {name}: pages of it that are damaged, gone or not to be found: {table.damaged}, and maybe others below them"
            )
        if table.broken:
            said.append(f"table {name}: rows that cannot be read, or stood there twice: {table.broken}")
    return said


def _keep(path: Path, kept: Path) -> None:
    """Give the damaged file a second name, and take its log away from where the new file would look for one. Whoever finds both names of
    one file knows that this was interrupted; and at no moment is there none, for which a supervisor would make an empty one."""
    path.touch()  # it may be gone, and only its log be left
    if not kept.exists():
        os.link(path, kept)
        _sync(path.parent)
    failpoint("recover.kept")
    for suffix in _BESIDE:
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(kept.with_name(kept.name + suffix))
    _sync(path.parent)
    failpoint("recover.moved")


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _free_name(path: Path, stamp: str) -> Path:
    names = [path.with_name(f"{path.name}.damaged-{stamp}{more}") for more in ("", *(f"-{number}" for number in range(2, 100)))]
    return next(name for name in names if not any(name.with_name(name.name + suffix).exists() for suffix in ("", *_BESIDE)))


def _interrupted(path: Path) -> Path | None:
    """The other name of the file at `path`, when a recovery was killed before the new one was in place."""
    with contextlib.suppress(OSError):
        opened = store.file_identity(path)
        return next((other for other in path.parent.glob(f"{path.name}.damaged-*") if store.file_identity(other) == opened), None)
    return None
