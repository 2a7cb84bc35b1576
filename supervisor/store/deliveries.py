"""Texts for agents in the ledger. The journal has the size and the digest of each, and never the text."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection

from supervisor.contract import Tables
from supervisor.kernel.conversations import Delivery, DeliveryState, Remarks
from supervisor.store.sqlite import WriteAccess

_OPEN = "state IN ('pending', 'typing')"
"""Spelled out, since SQLite uses the partial index for exactly these words."""


class Deliveries:
    """The writer's door to deliveries; `Ledger.deliveries`."""

    def __init__(self, desk: WriteAccess, tables: Collection[Tables]) -> None:
        self._desk, self._tables = desk, tables

    def keep(
        self,
        tasks: Collection[str],
        text: str,
        mails: Collection[str] = (),
        comments: Collection[int] | None = None,
        remarks: Remarks | None = None,
    ) -> list[Delivery]:
        """Commit that `text` is to be typed into the agent of each task, all of them or none. `mails`: the messages that it hands
        over, which are given with that. `comments` and `remarks`: as `Tables.text_kept` says; it may refuse them."""
        data, now = text.encode(), self._desk.wall()
        digest = hashlib.sha256(data).hexdigest()
        ids = []
        with self._desk.writing():
            for task in tasks:
                made = self._desk.db.execute(
                    "INSERT INTO delivery (task, state, text, size, digest, reason, created, changed) VALUES (?, ?, ?, ?, ?, '', ?, ?)",
                    (task, DeliveryState.PENDING, text, len(data), digest, now, now),
                )
                ids.append(int(made.lastrowid or 0))
                self._desk.journal(task, None, "send", {"delivery": ids[-1], "bytes": len(data), "sha256": digest})
                for tables in self._tables:
                    tables.text_kept(task, ids[-1], comments, remarks)
                given = "UPDATE mail SET state = 'given', delivery = ?, changed = ? WHERE id = ? AND state IN ('new', 'given')"
                self._desk.db.executemany(given, [(ids[-1], now, mail) for mail in mails])
        return [self.one(number) for number in ids]

    def typing(self, delivery: int, epoch: int) -> None:
        """Commit that it is about to be typed into an attempt."""
        with self._desk.writing():
            self._move(delivery, DeliveryState.TYPING, "", epoch)

    def back(self, delivery: int) -> None:
        """It was certainly not typed: it waits again."""
        with self._desk.writing():
            self._move(delivery, DeliveryState.PENDING, "", None)

    def ended(self, delivery: int, state: DeliveryState, reason: str = "") -> None:
        """Commit what became of it; the text is forgotten. Comments and remarks that it held wait again when it was dropped."""
        with self._desk.writing():
            known = self.one(delivery)
            if state is DeliveryState.DROPPED:
                for tables in self._tables:
                    tables.text_dropped(known.task, delivery)
            self._move(delivery, state, reason, known.epoch)
            self._desk.db.execute("UPDATE delivery SET text = '' WHERE id = ?", (delivery,))
            data = {"delivery": delivery, "bytes": known.size, "sha256": known.digest, **({"why": reason} if reason else {})}
            self._desk.journal(known.task, known.epoch, f"send {state}", data)

    def waits(self, delivery: int, reason: str) -> None:
        """Note why it waits, for people who look; nothing when that is noted already."""
        if self.one(delivery).reason != reason:
            with self._desk.writing():
                self._move(delivery, DeliveryState.PENDING, reason, None)

    def _move(self, delivery: int, state: DeliveryState, reason: str, epoch: int | None) -> None:
        self._desk.db.execute(
            "UPDATE delivery SET state = ?, reason = ?, epoch = ?, changed = ? WHERE id = ?",
            (state, reason, epoch, self._desk.wall(), delivery),
        )

    def one(self, delivery: int) -> Delivery:
        """One of them."""
        return _delivery(self._desk.db.execute("SELECT * FROM delivery WHERE id = ?", (delivery,)).fetchone())

    def unfinished(self) -> list[Delivery]:
        """As `pending`, of the whole ledger."""
        return pending(self._desk.db)


def pending(db: sqlite3.Connection) -> list[Delivery]:
    """Those that wait or are being typed, in the order in which they were sent."""
    return [_delivery(row) for row in db.execute(f"SELECT * FROM delivery WHERE {_OPEN} ORDER BY id")]  # noqa: S608 - ours


def of_task(db: sqlite3.Connection, task: str, at_most: int) -> list[Delivery]:
    """The newest of one task, oldest first."""
    found = db.execute("SELECT * FROM delivery WHERE task = ? ORDER BY id DESC LIMIT ?", (task, at_most)).fetchall()
    return [_delivery(row) for row in reversed(found)]


def _delivery(row: sqlite3.Row) -> Delivery:
    return Delivery(**{**dict(row), "state": DeliveryState(row["state"])})
