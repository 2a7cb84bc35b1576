"""How often each note is read, and how much of prompts providers read from their caches."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memory.versions import BOOK
from supervisor.store import sqlite

# Reads
# -----
# How often each note is read and by whom, and how much of the prompts that begin alike providers read from their caches.
#
# Rows of `memory.db`. They may be lost in a power cut, never in a crash of ours; nothing else depends on them.


UNCOUNTED_MAX = 1000


@dataclass(frozen=True, slots=True)
class Reads:
    """Of one note."""

    hits: int
    """How often it was given or asked for."""
    readers: int
    last: float
    """Seconds since 1970."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What became of one beginning of prompts."""

    digest: str
    bytes: int
    last: float
    attempts: int
    """That were given it."""
    counted: int
    """Of these, that ended and whose tokens were counted."""
    hit_ratio: float | None
    """Share of what was sent in all their requests that came from the provider's cache; None: nothing was counted."""
    first_hit_ratio: float | None
    """The same of their first requests alone: what later ones read is mostly their own conversation."""


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

    def uncounted(self) -> list[tuple[str, int]]:
        """Attempts that were given one and whose tokens nobody counted yet."""
        rows = self._db.execute("SELECT task, epoch FROM briefed WHERE ended = 0 ORDER BY at LIMIT ?", (UNCOUNTED_MAX,))
        return [(str(row[0]), int(row[1])) for row in rows]

    def count(self, results: Mapping[tuple[str, int], Mapping[str, Any]]) -> None:
        """What attempts that ended took, by their `result.json`."""
        rows = [(*_sent(found.get("tokens")), *_sent(found.get("first_request")), *key) for key, found in results.items()]
        with sqlite.transaction(self._db, self._path, book=BOOK, durable=False):
            self._db.executemany(
                "UPDATE briefed SET ended = 1, input = ?, cache_read = ?, first_input = ?, first_read = ? WHERE task = ? AND epoch = ?",
                rows,
            )

    def reads(self) -> dict[str, Reads]:
        """By path."""
        rows = self._db.execute("SELECT path, sum(given + read) hits, count(*) readers, max(last) last FROM reading GROUP BY path")
        return {str(row["path"]): Reads(int(row["hits"]), int(row["readers"]), float(row["last"])) for row in rows}

    def prefixes(self) -> list[Prefix]:
        """The one that was given last first."""
        return prefixes(self._db)


def prefixes(db: sqlite3.Connection) -> list[Prefix]:
    """As `ReadBook.prefixes`, for whoever only reads."""
    rows = db.execute(
        """SELECT p.digest, p.bytes, p.last, count(*) attempts, count(b.input) counted, sum(b.input) input, sum(b.cache_read) cache_read,
           sum(b.first_input) first_input, sum(b.first_read) first_read
           FROM prefix p JOIN briefed b USING (digest) GROUP BY p.digest ORDER BY p.last DESC, p.digest"""
    )
    return [_prefix(row) for row in rows]


def _prefix(row: sqlite3.Row) -> Prefix:
    ratios = _ratio(row["input"], row["cache_read"]), _ratio(row["first_input"], row["first_read"])
    return Prefix(row["digest"], row["bytes"], row["last"], row["attempts"], row["counted"], *ratios)


def _ratio(fresh: int | None, cached: int | None) -> float | None:
    total = (fresh or 0) + (cached or 0)
    return round((cached or 0) / total, 4) if total else None


def _sent(tokens: Any) -> tuple[int | None, int | None]:
    """What of a prompt was not in the cache, and what was; None, None when nobody knows."""
    if not isinstance(tokens, Mapping):
        return None, None
    counts = [tokens.get(kind) for kind in ("input", "cache_write", "cache_read")]
    known = [int(count) if isinstance(count, int) else None for count in counts]
    if all(count is None for count in known):
        return None, None
    return (known[0] or 0) + (known[1] or 0), known[2] or 0


# Cache note
# ----------
# The note that says how much of the prompts that begin alike providers read from their caches. Pure.


PATH = "semantic/prompt-cache.md"
SHOWN = 20
_HEAD = """---
kind: semantic
title: How much of our prompts came from the provider's cache
tags: [figures]
source: nightcrew
---

All agents of this repository are told the same first, until core.md changes. Of each such beginning: how many attempts were given it, and
how much of what they sent the provider had in its cache, in their first requests and in all of them.

| Beginning | Last given | Bytes | Attempts | Counted | First requests | All requests |
| --- | --- | --: | --: | --: | --: | --: |
"""


def text(prefixes: Sequence[Prefix]) -> str:
    """The note."""
    return _HEAD + "".join(f"| {' | '.join(_cells(one))} |\n" for one in prefixes[:SHOWN])


def _cells(one: Prefix) -> tuple[str, ...]:
    day = datetime.fromtimestamp(one.last, UTC).strftime("%Y-%m-%d")
    return (one.digest, day, str(one.bytes), str(one.attempts), str(one.counted), _percent(one.first_hit_ratio), _percent(one.hit_ratio))


def _percent(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.0%}"
