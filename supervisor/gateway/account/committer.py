"""The one thread that writes the account. Everything that waits is committed at once: fifty requests that are opened together cost one
sync of the disk, not fifty."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from supervisor.core.errors import LedgerError, NightcrewError, from_wire
from supervisor.gateway.account import schema
from supervisor.ledger import store

GROUP_S = 0.05
"""A write for which nobody waits is committed with the next one for which somebody does, at the latest after this time."""
AGAIN_S = 1.0
"""What could not be written is tried again after this time, or together with the next write."""
_MOST = 1000
"""Writes of one transaction: the first of them must not wait for ever because others keep coming."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Write:
    """One statement. Whoever waits gets the number of rows that it changed, after the commit, or the error that nothing was written."""

    sql: str
    values: Sequence[object]
    waiter: asyncio.Future[int] | None = None


class Committer:
    """Writes in the order in which it is told, in transactions, by its own thread and its own connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="account", daemon=True)
        self._started: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._first: Callable[[sqlite3.Connection], object] = lambda _: None
        self._held: list[Write] = []
        self._closing = False
        self.trouble: NightcrewError | None = None
        """Why the last commit failed; None when it did not. Writes for which nobody waits are kept until one succeeds."""

    def start(self, first: Callable[[sqlite3.Connection], T]) -> T:
        """Open the file, do `first` with it, and begin. Raises what opening or `first` raises; then no thread is left."""
        self._first = first
        self._thread.start()
        outcome = self._started.get()
        if isinstance(outcome, Exception):
            self._thread.join()
            raise outcome
        return outcome  # type: ignore[return-value]  # it is what `first` returned

    def put(self, write: Write) -> None:
        """Have it written; never blocks. Raises LedgerError when somebody would wait for it in vain: the thread has ended."""
        if write.waiter is not None and not self._thread.is_alive():
            raise LedgerError("the account is closed", on=str(self._path), kept="everything committed before")
        self._queue.put(write)

    def close(self) -> None:
        """Write what waits, give the file back, and end the thread. Blocks. Raises what kept something from being written."""
        self._queue.put(None)
        self._thread.join()
        if self.trouble is not None and self._held:
            raise self.trouble

    # In the thread ------------------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            db = schema.connect(self._path)
        except Exception as error:  # noqa: BLE001 - `start` raises it
            self._started.put(error)
            return
        with contextlib.closing(db):
            try:
                identity = store.file_identity(self._path)
                outcome = self._first(db)
            except Exception as error:  # noqa: BLE001 - as above
                self._started.put(error)
                return
            self._started.put(outcome)
            while not self._closing:
                self._write(db, identity, self._held + self._gather())

    def _gather(self) -> list[Write]:
        """The next writes: none when there are old ones to try again, otherwise at least one, and all that wait beside it."""
        batch: list[Write] = []
        wait = AGAIN_S if self._held else None
        patient, until = True, 0.0
        with contextlib.suppress(queue.Empty):
            while len(batch) < _MOST:
                write = self._queue.get(timeout=wait)
                if write is None:
                    self._closing = True
                    break
                batch.append(write)
                until = until or time.monotonic() + GROUP_S
                patient = patient and write.waiter is None
                wait = max(0.0, until - time.monotonic()) if patient else 0.0
        return batch

    def _write(self, db: sqlite3.Connection, identity: tuple[int, int], batch: list[Write]) -> None:
        if not batch:
            return
        try:
            store.check_same_file(self._path, identity, schema.ACCOUNT)
            with store.transaction(db, self._path, book=schema.ACCOUNT):
                changed = [db.execute(write.sql, write.values).rowcount for write in batch]
        except Exception as error:  # noqa: BLE001 - whoever waits is told, whatever it is
            self.trouble = error if isinstance(error, NightcrewError) else NightcrewError("the account cannot be written", why=repr(error))
            self._held = [write for write in batch if write.waiter is None]
            _tell([(write.waiter, self.trouble) for write in batch if write.waiter is not None])
        else:
            self.trouble, self._held = None, []
            _tell([(write.waiter, rows) for write, rows in zip(batch, changed, strict=True) if write.waiter is not None])


Told = list[tuple["asyncio.Future[int]", "int | NightcrewError"]]


def _tell(told: Told) -> None:
    """Wake all who wait, by one message to their loop."""
    if told:
        with contextlib.suppress(RuntimeError):  # their loop is closed: nobody waits any more
            told[0][0].get_loop().call_soon_threadsafe(_resolve, told)


def _resolve(told: Told) -> None:
    for waiter, outcome in told:
        if waiter.done():  # its request was cancelled
            continue
        if isinstance(outcome, NightcrewError):
            waiter.set_exception(from_wire(outcome.to_wire()))  # each its own: a traceback grows with every raise
        else:
            waiter.set_result(outcome)
