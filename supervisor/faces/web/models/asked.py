"""What the address of a page asks for, and where its data lies."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path

from supervisor.core.errors import NotFound, UsageError
from supervisor.ledger import store
from supervisor.ledger.store import LEDGER, Book

Asked = Mapping[str, str]
"""The words of an address, by name."""
ROWS = 50
"""Of a page."""
BUSY_S = 1.5
"""Somebody else may hold a file for so long before a page says that it is held."""
NUMBER_MAX = 2**62


def number(asked: Asked, name: str) -> int | None:
    """A number from 0 on; None when there is none. Raises UsageError for anything else."""
    text = asked.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > NUMBER_MAX:
        raise UsageError("no number", on=name, why="it has other signs than digits, or too many")
    return int(text)


def before(asked: Asked) -> int:
    """Those before this number are asked for; without one all."""
    found = number(asked, "before")
    return NUMBER_MAX if found is None else found


@contextlib.contextmanager
def opened(path: Path, book: Book = LEDGER) -> Iterator[sqlite3.Connection]:
    """A file of ours for looking. Raises NotFound while there is none, LedgerError when it cannot be read."""
    if not path.exists():
        raise NotFound(f"no {book.name.removeprefix('the ')} yet", why=book.absent, hint=book.first)
    with contextlib.closing(store.connect_readonly(path, book=book, busy_s=BUSY_S)) as db:
        yield db
