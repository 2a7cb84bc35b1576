"""What those share who write into the ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


class Journal(Protocol):
    """`Ledger._journal`: one line of history, inside the open transaction."""

    def __call__(self, task: str | None, epoch: int | None, event: str, data: Mapping[str, object], /) -> None: ...


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """What the ledger lends to those who write into it: its connection, its transactions, its clock and its journal."""

    db: sqlite3.Connection
    writing: Callable[..., AbstractContextManager[None]]
    wall: Callable[[], float]
    journal: Journal
