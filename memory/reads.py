"""How often each note is read and by whom, and which attempts were told something before their prompt."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from memory.versions import BOOK
from supervisor.store import sqlite

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
