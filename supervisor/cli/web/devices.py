"""Tokens of devices, as the page's sessions ask for them."""

from __future__ import annotations

import asyncio
import time

from supervisor.core.access import Kind, Token
from supervisor.faces.access import TokenBook
from supervisor.faces.web.sessions import Who
from supervisor.host.paths import Home


class Devices:
    """`Tokens` of one home. The page shows everything, so a token that does not reach everything opens nothing here."""

    def __init__(self, where: Home) -> None:
        self._book = TokenBook(where.ledger, time.monotonic, time.time)

    async def verify(self, token: str) -> Who | None:
        """As `Tokens.verify`."""
        return _who(await asyncio.to_thread(self._book.verify, token, Kind.DEVICE))

    async def holder(self, token_id: str) -> Who | None:
        """As `Tokens.holder`."""
        return _who(await asyncio.to_thread(self._book.holder, token_id, Kind.DEVICE))


def _who(token: Token | None) -> Who | None:
    if token is None or token.projects or not token.others:
        return None
    return Who(token.id, token.user, token.scopes)
