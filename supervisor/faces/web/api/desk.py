"""Whose token a request carries, and whether it may do what it asks now: scope, rate, and how many streams it has."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from supervisor.core import access
from supervisor.core.access import Kind, Scope, Token
from supervisor.core.errors import LedgerError, NightcrewError
from supervisor.core.gateway.bucket import Bucket
from supervisor.faces.access import TokenBook
from supervisor.faces.web.api.doors import Doors
from supervisor.faces.web.api.problems import Failed, of_error

STREAMS_MAX, STREAMS_EACH = 256, 16
"""Requests that are held open: of all tokens, and of one."""
NOTED_S = 60.0
"""A token that is used all the time is noted so often."""
_NO_TOKEN = "send the token of nightcrew token create as Authorization: Bearer"  # noqa: S105 - words


class Desk:
    """One server's. It belongs to one event loop."""

    def __init__(self, book: TokenBook, doors: Doors, now: Callable[[], float]) -> None:
        self._book, self._doors, self._now = book, doors, now
        self._buckets: dict[str, Bucket] = {}
        self._noted: dict[str, float] = {}
        self._open: Counter[str] = Counter()
        self._notes: set[asyncio.Task[None]] = set()

    async def admit(self, request: web.Request, scope: Scope | None) -> Token:
        """The token of a request that may go on. Raises Failed: 401, 403, 429, 503."""
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            raise Failed(403, "requests of other pages are refused")
        token = await self._verified(request)
        bucket = self._buckets.setdefault(token.id, access.bucket(token, self._now()))
        if wait := bucket.wait_s(1.0, self._now()):
            raise Failed(429, f"this token may ask {token.rate:g} times a second", retry_s=wait)
        bucket.take(1.0, self._now())
        if scope is not None and not token.may(scope):
            raise Failed(403, f"this token has not the scope {scope}")
        self._note(token.id)
        return token

    async def _verified(self, request: web.Request) -> Token:
        given = request.headers.getall("Authorization", [])
        scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            raise Failed(401, _NO_TOKEN)
        at_once = self._book.knows(text.strip())
        token = await self._asked(lambda: self._book.verify(text.strip(), Kind.API), at_once=at_once)
        if token is None:
            raise Failed(401, "this token opens nothing: it is wrong, was revoked, or its time is over")
        return token

    async def _asked(self, ask: Callable[[], Token | None], *, at_once: bool = False) -> Token | None:
        try:
            return ask() if at_once else await asyncio.to_thread(ask)
        except LedgerError as error:
            raise of_error(error) from None

    async def still_holds(self, token: Token) -> bool:
        """Whether a request that is held open may go on."""
        with contextlib.suppress(Failed):
            return await self._asked(lambda: self._book.holder(token.id, Kind.API)) is not None
        return True  # nobody can tell now

    @contextlib.asynccontextmanager
    async def held_open(self, token: Token) -> AsyncIterator[None]:
        """One more request of this token that is held open. Raises Failed: 429."""
        if self._open[token.id] >= STREAMS_EACH or self._open.total() >= STREAMS_MAX:
            raise Failed(429, f"a token may have {STREAMS_EACH} requests that wait", retry_s=1.0)
        self._open[token.id] += 1
        try:
            yield
        finally:
            self._open[token.id] -= 1
            if not self._open[token.id]:
                del self._open[token.id]

    def _note(self, token: str) -> None:
        if self._now() - self._noted.get(token, -NOTED_S) < NOTED_S:
            return
        self._noted[token] = self._now()
        task = asyncio.get_running_loop().create_task(self._noting(token))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _noting(self, token: str) -> None:
        with contextlib.suppress(NightcrewError):  # it is noted next time
            await asyncio.to_thread(self._doors.used, token)
