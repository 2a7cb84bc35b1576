"""Whose token a request carries: what the ledger says, read in a thread of its own and believed for a moment."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from supervisor.core import access
from supervisor.core.access import Kind, Token
from supervisor.core.errors import LedgerError
from supervisor.ledger import store
from supervisor.ledger.access import held

FRESH_S = 0.5
"""What was read is believed for so long: a token opens nothing at most this much after it was revoked."""


class TokenBook:
    """All tokens that hold. Use it from one event loop; `close` it."""

    def __init__(self, ledger: Path, now: Callable[[], float], wall: Callable[[], float]) -> None:
        """`now` gives monotonic seconds, `wall` seconds since 1970."""
        self._path, self._now, self._wall = ledger, now, wall
        self._thread = ThreadPoolExecutor(1, "tokens")
        self._db: sqlite3.Connection | None = None
        self._opened = (0, 0)
        self._held: Mapping[str, Token] = {}
        self._read_at = -FRESH_S
        self._reading: asyncio.Task[None] | None = None

    async def verify(self, text: str, kind: Kind) -> Token | None:
        """The token of this kind that `text` is; None for a text that opens nothing, in the same time whatever is wrong with it. Raises
        LedgerError when nobody can tell."""
        words = access.parse(text)
        await self._fresh()
        token = self._held.get(words.id) if words is not None else None
        right = access.is_secret_of(token, words.secret if words is not None else "")
        return token if token is not None and right and token.kind is kind and token.holds(self._wall()) else None

    def is_there(self, token: str) -> bool:
        """Whether this token held when it was read last, for a stream that goes on and on."""
        known = self._held.get(token)
        return known is not None and known.holds(self._wall())

    async def look(self) -> None:
        """Read what is too old, as `verify` does."""
        await self._fresh()

    async def _fresh(self) -> None:
        """However many ask at once, one reads."""
        if self._now() - self._read_at < FRESH_S:
            return
        if self._reading is None or self._reading.done():
            self._reading = asyncio.get_running_loop().create_task(self._read())
        await asyncio.shield(self._reading)

    async def _read(self) -> None:
        began = self._now()
        self._held = await asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        self._read_at = began

    def _look(self) -> Mapping[str, Token]:
        try:
            return self._tokens()
        except LedgerError:  # the file may have been replaced, or migrated by a newer supervisor: look at it afresh, once
            self._drop()
            return self._tokens()

    def _tokens(self) -> Mapping[str, Token]:
        if self._db is None:
            if not self._path.exists():
                return {}
            self._db = store.connect_readonly(self._path)
            self._opened = store.file_identity(self._path)
        store.check_same_file(self._path, self._opened)
        return held(self._db)

    async def close(self) -> None:
        """Give the ledger back."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown()

    def _drop(self) -> None:
        if self._db is not None:
            with contextlib.suppress(LedgerError):
                self._db.close()
            self._db = None
