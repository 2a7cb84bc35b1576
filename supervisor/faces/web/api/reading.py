"""The ledger, read in threads of its own, and the one look that all who wait share."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from supervisor.core.errors import LedgerError
from supervisor.ledger import archive, journal, store

T = TypeVar("T")
THREADS = 4
LOOK_S = 0.1
"""Between two looks for those who wait."""


class Reader:
    """Use it from one event loop; `close` it."""

    def __init__(self, ledger: Path, archived: Path) -> None:
        self._path, self._archive = ledger, archived
        self._pool = ThreadPoolExecutor(THREADS, "api-read")
        self._mine = threading.local()

    async def ask(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """What `look` finds in the ledger. Raises LedgerError, and what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._asked, look)

    async def ask_of(self, run: str, look: Callable[[sqlite3.Connection], T]) -> T:
        """The same of a run that may be archived."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._asked_of, run, look)

    def _asked(self, look: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return look(self._db())
        except LedgerError:  # the file may have been replaced, or migrated by a newer supervisor: look at it afresh, once
            self._drop()
            return look(self._db())

    def _asked_of(self, run: str, look: Callable[[sqlite3.Connection], T]) -> T:
        if self._asked(lambda db: archive.stays(db, run)):
            return self._asked(look)
        with contextlib.closing(archive.reader(self._path, self._archive, run)) as db:
            return look(db)

    def _db(self) -> sqlite3.Connection:
        known: tuple[sqlite3.Connection, tuple[int, int]] | None = getattr(self._mine, "known", None)
        if known is None:
            known = self._mine.known = store.connect_readonly(self._path), store.file_identity(self._path)
        store.check_same_file(self._path, known[1])
        return known[0]

    def _drop(self) -> None:
        known = getattr(self._mine, "known", None)
        if known is not None:
            self._mine.known = None
            known[0].close()

    def close(self) -> None:
        """Nothing is asked any more."""
        self._pool.shutdown(wait=False)


class Pulse:
    """Wakes who waits for something to happen in the ledger: one look for all of them, and none while nobody waits."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._beat = asyncio.Event()
        self._waiting = 0
        self._looking: asyncio.Task[None] | None = None
        self.seen = -1
        """What has happened, as a number: take it before you look, and give it to `next` when there was nothing for you."""

    async def next(self, seen: int, timeout_s: float) -> None:
        """Until more has happened than was `seen`, or the time is over."""
        self._waiting += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(self._look())
            with contextlib.suppress(TimeoutError):
                if self.seen == seen:
                    await asyncio.wait_for(self._beat.wait(), timeout_s)
        finally:
            self._waiting -= 1

    async def _look(self) -> None:
        while self._waiting:
            with contextlib.suppress(LedgerError):  # whoever is woken asks again, and meets it
                newest = await self._reader.ask(journal.newest_entry)
                if newest != self.seen:
                    self.seen = newest
                    self._beat.set()
                    self._beat = asyncio.Event()
            await asyncio.sleep(LOOK_S)
