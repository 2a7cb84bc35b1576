"""`memory.db`: every version of every file, who wrote it and when, and what each file was when it was looked at last.

A write is a row that is pending, with its content, before the file is touched, and done after it. A row that is still pending when the
file is opened belongs to a writer that was killed: `Store` looks at the disk and settles it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from supervisor.store import sqlite

BOOK = sqlite.Book(
    name="the memory's file",
    schema=1,
    tables=frozenset({"change", "content", "known", "reading", "prefix", "briefed"}),
    package="memory",
    untouched="the notes are files of their own, and are untouched",
    goes_on="the notes can be read; nothing is written through nightcrew",
    recover="move it away: a new one begins with the notes as they are",
    absent="nothing was ever remembered here",
    first="nightcrew mem put",
)
Identity = tuple[int, int, int, int]
"""Inode, size, mtime and ctime (ns) of a file: while they stay, it was not written."""
NEVER: Identity = (0, 0, 0, 0)
Known = tuple[str, Identity]
"""A version, and what its file was; the version is empty where no file was."""
NOTHING: Known = ("", NEVER)


class Action(StrEnum):
    """What was done to a file."""

    PUT = "put"
    APPEND = "append"
    REMOVE = "remove"
    RESTORE = "restore"
    FOUND = "found"
    """It is not what it was, and nobody came by a door."""
    CONFLICT = "conflict"
    """A text was kept beside the file that it was meant for."""
    PRUNE = "prune"
    QUARANTINE = "quarantine"
    APPROVE = "approve"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes. `person`, the id of a task, or `unknown`."""

    name: str
    epoch: int | None = None
    agent: str = ""
    """The kind of the agent."""
    trusted: bool = True
    """Not so, all that it writes waits for a person."""

    @property
    def is_agent(self) -> bool:
        return self.name not in ("person", "unknown")


PERSON, UNKNOWN = Author("person"), Author("unknown")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a file. `at` is seconds since 1970, `size` bytes afterwards; an empty version is no file."""

    number: int
    path: str
    at: float
    author: str
    epoch: int | None
    action: Action
    version: str
    before: str
    size: int


def version_of(data: bytes) -> str:
    """The name of a content: the first 16 hex digits of its sha256."""
    return hashlib.sha256(data).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Planned:
    """A change that is about to be made."""

    path: str
    author: Author
    action: Action
    version: str
    before: str
    size: int


_KNOWN = "SELECT path, version, inode, size, mtime, ctime FROM known WHERE path IN (SELECT value FROM json_each(?))"
_BEGIN = "INSERT INTO change (path, at, author, epoch, action, version, before, size, state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_KNOW = "INSERT OR REPLACE INTO known (path, version, inode, size, mtime, ctime) VALUES (?, ?, ?, ?, ?, ?)"


class Versions:
    """The file of one project; it belongs to one thread. Everything raises DiskFull and LedgerError."""

    def __init__(self, path: Path, *, reads: bool = False) -> None:
        """`reads`: nothing is written; a supervisor may have the file open meanwhile. Where there is none, nothing is known."""
        self._path = path
        if not reads:
            self._db = sqlite.connect(path, book=BOOK, checked=False)  # it grows for ever
        elif path.exists():
            self._db = sqlite.connect_readonly(path, book=BOOK)
        else:
            self._db = sqlite3.connect(":memory:")
            self._db.executescript(Path(__file__).with_name("schema.sql").read_text())

    @property
    def db(self) -> sqlite3.Connection:
        """For the tables of others."""
        return self._db

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def together(self, *, durable: bool = True) -> Iterator[None]:
        """All or nothing. Not `durable`, a power cut may undo it; a crash of ours does not. One within another is part of it."""
        if self._db.in_transaction:
            yield
            return
        with sqlite.transaction(self._db, self._path, book=BOOK, durable=durable):
            yield

    def keep(self, data: bytes) -> str:
        """Hold a content for ever; its version."""
        version = version_of(data)
        self.keep_all([(version, data)])
        return version

    def keep_all(self, contents: Iterable[tuple[str, bytes]]) -> None:
        """As `keep`, of many whose versions are known."""
        self._db.executemany("INSERT OR IGNORE INTO content (version, data) VALUES (?, ?)", contents)

    def begin(self, planned: Planned, at: float, state: str = "pending") -> int:
        """Write down what is about to be done; its number."""
        return int(self._db.execute(_BEGIN, _row(planned, at, state)).lastrowid or 0)

    def begin_all(self, planned: Iterable[Planned], at: float, state: str) -> None:
        """As `begin`, of many, with numbers in their order."""
        self._db.executemany(_BEGIN, [_row(one, at, state) for one in planned])

    def next_number(self) -> int:
        """The number that `begin` will give next."""
        return int(self._db.execute("SELECT coalesce(max(number), 0) + 1 FROM change").fetchone()[0])

    def settle(self, number: int, state: str) -> None:
        """`done`, or `dropped` when the file is as it was."""
        self._db.execute("UPDATE change SET state = ? WHERE number = ?", (state, number))

    def know(self, path: str, version: str, identity: Identity = NEVER) -> None:
        """What a file is now; an empty version forgets it."""
        self.know_all([(path, version, identity)])

    def know_all(self, files: Collection[tuple[str, str, Identity]]) -> None:
        """As `know`, of many."""
        self._db.executemany(_KNOW, [(path, version, *identity) for path, version, identity in files if version])
        self._db.executemany("DELETE FROM known WHERE path = ?", [(path,) for path, version, _ in files if not version])

    def known(self, path: str) -> Known:
        """What the file was when it was looked at last; an empty version when it was not there."""
        return self.known_of([path]).get(path, NOTHING)

    def known_of(self, paths: Collection[str]) -> dict[str, Known]:
        """As `known`, of many; those that were not there are left out."""
        rows = self._db.execute(_KNOWN, (json.dumps(list(paths)),))
        return {row[0]: (row[1], (row[2], row[3], row[4], row[5])) for row in rows}

    def known_paths(self) -> list[str]:
        """All files that were there."""
        return [str(row[0]) for row in self._db.execute("SELECT path FROM known ORDER BY path")]

    def pending(self) -> list[Change]:
        """What a killed writer may or may not have done, oldest first."""
        return [_change(row) for row in self._db.execute("SELECT * FROM change WHERE state = 'pending' ORDER BY number")]

    def changes(self, path: str | None, limit: int, before: int | None = None) -> list[Change]:
        """Newest first, of those before the number `before`; of all files when there is no path."""
        over = before if before is not None else 2**63 - 1
        if path is None:
            rows = self._db.execute("SELECT * FROM change WHERE number < ? AND state = 'done' ORDER BY number DESC LIMIT ?", (over, limit))
        else:
            sql = "SELECT * FROM change WHERE path = ? AND number < ? AND state = 'done' ORDER BY number DESC LIMIT ?"
            rows = self._db.execute(sql, (path, over, limit))
        return [_change(row) for row in rows]

    def by_person(self, path: str) -> bool:
        """Whether a person wrote or approved what was last known there."""
        return any(change.author == PERSON.name for change in self.changes(path, 1))

    def changes_after(self, number: int, limit: int) -> list[Change]:
        """Oldest first."""
        rows = self._db.execute("SELECT * FROM change WHERE number > ? AND state = 'done' ORDER BY number LIMIT ?", (number, limit))
        return [_change(row) for row in rows]

    def newest(self) -> int:
        """Number of the last change; 0 before the first."""
        return int(self._db.execute("SELECT coalesce(max(number), 0) FROM change WHERE state = 'done'").fetchone()[0])

    def content(self, version: str) -> bytes | None:
        """The content of a version; None when it was never kept."""
        row = self._db.execute("SELECT data FROM content WHERE version = ?", (version,)).fetchone()
        return None if row is None else bytes(row[0])

    def versions_like(self, path: str, start: str) -> list[str]:
        """The versions of a file that begin so, newest first."""
        rows = self._db.execute(
            "SELECT version, max(number) last FROM change WHERE path = ? AND substr(version, 1, ?) = ? AND version <> '' "
            "GROUP BY version ORDER BY last DESC",
            (path, len(start), start),
        )
        return [str(row[0]) for row in rows]


def _row(planned: Planned, at: float, state: str) -> tuple[object, ...]:
    who = planned.author
    return (planned.path, at, who.name, who.epoch, planned.action, planned.version, planned.before, planned.size, state)


def _change(row: sqlite3.Row) -> Change:
    return Change(row[0], row[1], row[2], row[3], row[4], Action(row[5]), row[6], row[7], row[8])


# Reads
# -----
# How often each note is read and by whom, and which attempts were told something.
#
# Rows of `memory.db`. They may be lost in a power cut, never in a crash of ours; nothing else depends on them.


@dataclass(frozen=True, slots=True)
class Reads:
    """Of one note."""

    hits: int
    """How often it was given or asked for."""
    readers: int
    last: float
    """Seconds since 1970."""


class ReadBook:
    """The file of one project; it belongs to one thread. Everything raises DiskFull and LedgerError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = sqlite.connect(path, book=BOOK, checked=False)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path) -> Iterator[ReadBook]:
        """The file, until left."""
        with contextlib.closing(cls(path)) as book:
            yield book

    def close(self) -> None:
        self._db.close()

    def note(self, paths: Iterable[str], task: str, at: float, *, given: bool) -> None:
        """These were read by a task, or by `person`: asked for, or `given` before its prompt."""
        rows = [(path, task, int(given), int(not given), at, at) for path in dict.fromkeys(paths)]
        with sqlite.transaction(self._db, self._path, book=BOOK, durable=False):
            self._db.executemany(
                """INSERT INTO reading (path, task, given, read, first, last) VALUES (?, ?, ?, ?, ?, ?)
                   ON CONFLICT (path, task) DO UPDATE SET given = given + excluded.given, read = read + excluded.read,
                   last = excluded.last""",
                rows,
            )

    def briefed(self, task: str, epoch: int, prefix: tuple[str, int], at: float) -> None:
        """An attempt was given the prefix of this digest and size. A launch that is repeated counts once."""
        digest, size = prefix
        with sqlite.transaction(self._db, self._path, book=BOOK, durable=False):
            self._db.execute(
                """INSERT INTO prefix (digest, bytes, first, last) VALUES (?, ?, ?, ?)
                   ON CONFLICT (digest) DO UPDATE SET last = excluded.last""",
                (digest, size, at, at),
            )
            self._db.execute("INSERT OR REPLACE INTO briefed (task, epoch, digest, at) VALUES (?, ?, ?, ?)", (task, epoch, digest, at))

    def reads(self) -> dict[str, Reads]:
        """By path."""
        rows = self._db.execute("SELECT path, sum(given + read) hits, count(*) readers, max(last) last FROM reading GROUP BY path")
        return {str(row["path"]): Reads(int(row["hits"]), int(row["readers"]), float(row["last"])) for row in rows}
