"""Batches in the account: a row in `request` each, and whose it is. They live for hours, and outlive the gateway."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from supervisor.gateway.account import schema
from supervisor.gateway.account.committer import Write
from supervisor.gateway.account.rows import OpenRow, SettledRow
from supervisor.gateway.account.writer import OPEN_COLUMNS, Account, open_row

_COLUMNS = ", ".join(f"r.{name}" for name in OPEN_COLUMNS.split(", "))
_ALL = f"""
    SELECT {_COLUMNS}, r.end, b.id AS batch, b.family, b.key, b.requests
    FROM batch b JOIN request r ON r.id = b.request ORDER BY b.request
"""  # noqa: S608 - our own names


@dataclass(slots=True)
class Kept:
    """One batch."""

    row_id: int
    row: OpenRow
    family: str
    """Whose it is."""
    key: str
    """The client's idempotency key; empty: it gave none."""
    requests: int
    """How many are in it."""
    id: str = ""
    """The provider's; empty: nobody knows whether the provider has made it."""
    over: bool = False
    """What it took is known, and charged."""


class BatchBook:
    """All batches that the account knows. Belongs to the gateway's loop."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.all: dict[int, Kept] = {}
        """By row."""

    def start(self, path: Path) -> None:
        """Read them, and go on with those that live. Blocks; to be called once the account has started."""
        with contextlib.closing(schema.connect_readonly(path)) as db:
            for row in db.execute(_ALL):
                over = row["end"] is not None
                one = Kept(row["id"], open_row(row), row["family"], row["key"], row["requests"], row["batch"] or "", over)
                self.all[one.row_id] = one
                if not over:
                    self._account.reopen(one.row_id, one.row)

    async def open(self, row: OpenRow, family: str, key: str, requests: int) -> Kept:
        """Write down that one is about to be made. Raises as `Account.open` does."""

        def with_it(row_id: int) -> Write:
            return Write("INSERT INTO batch VALUES (?, ?, NULL, ?, ?, ?)", (row_id, row.at, family, key, requests))

        row_id = await self._account.open(row, with_it)
        self.all[row_id] = kept = Kept(row_id, row, family, key, requests)
        return kept

    async def name(self, kept: Kept, batch: str) -> None:
        """The provider has made it. Durable when this returns."""
        kept.id = batch
        await self._account.written("UPDATE batch SET id = ? WHERE request = ?", (batch, kept.row_id))

    def settle(self, kept: Kept, row: SettledRow) -> bool:
        """Charge what it took; whether it was not charged before."""
        if kept.over:
            return False
        kept.over = True
        self._account.settle(kept.row_id, row)
        return True

    def find(self, family: str, batch: str) -> Kept | None:
        """One of a family's, by the provider's id."""
        return next((one for one in self.all.values() if one.id == batch and one.family == family), None)

    def by_key(self, family: str, key: str) -> Kept | None:
        """The newest of a family's that was asked for with this key, and that was made or may have been."""
        mine = (one for one in reversed(self.all.values()) if key and one.key == key and one.family == family)
        return next((one for one in mine if one.id or not one.over), None)

    def living(self) -> list[Kept]:
        """Those that are not charged yet."""
        return [one for one in self.all.values() if not one.over]
