"""The bodies of requests, and how much memory all of them together may take: they stay until their requests have been answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from supervisor.gateway.guard import BODY_MAX
from supervisor.gateway.wire import BadRequest

BODY_S = 60.0
"""Seconds for a whole body: it comes from this machine."""
ALL_MAX = 256 * 2**20
"""Bytes of all bodies. A request of Claude Code has at most about a million."""
AGENTS_PART = 4
"""One agent has at most this part of them, so that no single one can shut the door."""


class NoRoom(Exception):
    """There is no room for this body now. `why` is for its client, who may come again."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(slots=True)
class _Held:
    """Bytes that one body has taken of the room."""

    size: int = 0


class Bodies:
    """Use it from one event loop."""

    def __init__(self) -> None:
        self._all = 0
        self._agents: dict[str, int] = {}

    @asynccontextmanager
    async def read(self, request: web.BaseRequest, agent: str) -> AsyncIterator[bytes]:
        """All of it, as it came; its room is taken until the block ends. A body that says how long it will be is refused before any of it
        is read. Raises NoRoom; BadRequest when it is too long, too slow, or cut."""
        held = _Held()
        try:
            yield await self._whole(request, agent, held) if request.can_read_body else b""
        finally:
            self._give_back(agent, held.size)

    async def _whole(self, request: web.BaseRequest, agent: str, held: _Held) -> bytes:
        """`held` grows by what is taken, whether or not it comes to its end."""
        held.size += self._take(agent, request.content_length or 0)
        await _continue(request)
        deadline = asyncio.get_running_loop().time() + BODY_S
        parts: list[bytes] = []
        size = 0
        while piece := await _piece(request, deadline):
            parts.append(piece)
            size += len(piece)
            if size > BODY_MAX:
                raise BadRequest(413, f"a request has at most {BODY_MAX // 2**20} MiB")
            if (more := size - held.size) > 0:  # it did not say how long it would be
                held.size += self._take(agent, more)
        return b"".join(parts)

    def _take(self, agent: str, size: int) -> int:
        mine = self._agents.get(agent, 0) + size
        if mine > ALL_MAX // AGENTS_PART:
            raise NoRoom("requests of this agent hold all the memory that one agent may have")
        if self._all + size > ALL_MAX:
            raise NoRoom("requests hold all the memory that they may have")
        self._agents[agent] = mine
        self._all += size
        return size

    def _give_back(self, agent: str, size: int) -> None:
        self._all -= size
        if left := self._agents.get(agent, 0) - size:
            self._agents[agent] = left
        else:
            self._agents.pop(agent, None)


async def _continue(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":  # curl asks so before it sends much
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer has not begun by that


async def _piece(request: web.BaseRequest, deadline: float) -> bytes:
    """The next one as it came; empty at the end."""
    try:
        async with asyncio.timeout_at(deadline):
            return await request.content.readany()
    except TimeoutError:
        raise BadRequest(408, f"the request did not arrive within {BODY_S:.0f} s") from None
    except web.RequestPayloadError:
        raise BadRequest(400, "the request's body is misshapen") from None
