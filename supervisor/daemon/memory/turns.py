"""Whose request comes to the memory's thread next: that thread takes what is first, so one author may have only few requests there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

AT_ONCE = 2
"""Requests of one author on the thread and in its line."""


class Turns:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._lines: dict[str, asyncio.Semaphore] = {}
        self._asking: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def of(self, author: str) -> AsyncIterator[None]:
        """Inside, it is the author's turn; its requests are let in as they came, and those of others do not wait for them."""
        line = self._lines.setdefault(author, asyncio.Semaphore(AT_ONCE))
        self._asking[author] = self._asking.get(author, 0) + 1
        try:
            async with line:
                yield
        finally:
            self._asking[author] -= 1
            if not self._asking[author]:
                del self._asking[author], self._lines[author]
