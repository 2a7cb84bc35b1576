"""The one thread that writes the account. Everything that waits is committed at once: fifty requests that are opened together cost one
sync of the disk, not fifty.

To wake the thread and to commit cost far more than to write a row, so it is woken once for all that comes before it looks, and while many
are waiting it lets some more come first.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from supervisor.core.errors import LedgerError, NightcrewError, from_wire
from supervisor.gateway.account import schema
from supervisor.ledger import store

GROUP_S = 0.05
"""A write for which nobody waits is committed with the next one for which somebody does, at the latest after this time."""
AGAIN_S = 1.0
"""What could not be written is tried again after this time, or together with the next write."""
_CROWD = 3
"""When so many waited for a commit, the next one ..."""
_CROWD_S = 0.004
"""... waits so long for more of them: with 50 clients twice as many share a commit (PostgreSQL's commit_siblings and commit_delay)."""
_MOST = 1000
"""Writes of one transaction: the first of them must not wait for ever because others keep coming."""

_QUIET, _PATIENT, _URGENT = range(3)
"""How the thread was called since it last looked: not at all; to look within GROUP_S; at once."""

T = TypeVar("T")


class Write(NamedTuple):
    """One statement. Whoever waits gets the number of rows that it changed, after the commit, or the error that nothing was written."""

    sql: str
    values: Sequence[object]
    waiter: asyncio.Future[int] | None = None


class Committer:
    """Writes in the order in which it is told, in transactions, by its own thread and its own connection."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: deque[Write] = deque()
        self._bell: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True when somebody waits."""
        self._rung = _QUIET
        self._thread = threading.Thread(target=self._run, name="account", daemon=True)
        self._started: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._first: Callable[[sqlite3.Connection], object] = lambda _: None
        self._held: list[Write] = []
        self._has_written = False
        self._is_crowded = False
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
        self._pending.append(write)
        self._ring(_URGENT if write.waiter is not None else _PATIENT)

    def close(self) -> None:
        """Write what waits, give the file back, and end the thread. Blocks. Raises what kept something from being written."""
        self._closing = True
        self._bell.put(True)
        self._thread.join()
        if self.trouble is not None and self._held:
            raise self.trouble

    def _ring(self, how: int) -> None:
        """Wake the writer unless it is already due. Nothing is overlooked: it resets to `_QUIET` before it takes what is pending."""
        if self._rung < how:
            self._rung = how
            self._bell.put(how == _URGENT)

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
                self._await_bell()
                self._write(db, identity, self._held + self._taken())
            self._write(db, identity, self._held + list(self._pending))

    def _await_bell(self) -> None:
        """Until there is something to write, and whoever may come with it has had the time; or old writes are to be tried again.

        After a write it looks once more by itself, and need not be woken for the settling that follows most openings.
        """
        wait = None
        if self._held:
            wait = AGAIN_S
        elif self._has_written:
            wait = GROUP_S
            self._rung = max(self._rung, _PATIENT)
        with contextlib.suppress(queue.Empty):
            somebody_waits = self._bell.get(timeout=wait)
            if not somebody_waits:
                self._bell.get(timeout=GROUP_S)
            elif self._is_crowded and not self._closing:
                time.sleep(_CROWD_S)

    def _taken(self) -> list[Write]:
        """The next writes; none when there are old ones alone."""
        self._rung = _QUIET
        batch = [self._pending.popleft() for _ in range(min(len(self._pending), _MOST))]
        self._has_written = bool(batch)
        self._is_crowded = sum(write.waiter is not None for write in batch) >= _CROWD
        if self._pending:
            self._ring(_URGENT)
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
