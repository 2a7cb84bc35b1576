"""The bodies of requests, and how much memory all of them together may take: they stay until their requests have been answered."""

from __future__ import annotations

import asyncio
from typing import Self

from aiohttp import web
from aiohttp.streams import StreamReader

from supervisor.gateway.browser_guard import BODY_MAX
from supervisor.gateway.wire import BadRequest

BODY_S = 60.0
"""Seconds for a whole body: it comes from this machine."""
ALL_MAX = 256 * 2**20
"""Bytes of all bodies. A request of Claude Code has at most about a million."""
AGENTS_PART = 4
"""One agent has at most this part of them, so that none can keep the others out."""


class NoRoom(Exception):
    """There is no room for this body now. `why` is for its client, who may come again."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Bodies:
    """The room that all bodies share. Use it from one event loop."""

    def __init__(self) -> None:
        self._all = 0
        self._agents: dict[str, int] = {}

    def take(self, agent: str, size: int) -> None:
        """Take `size` bytes of the room for a body of this agent. Raises NoRoom, and then nothing is taken."""
        mine = self._agents.get(agent, 0) + size
        if mine > ALL_MAX // AGENTS_PART:
            raise NoRoom("requests of this agent hold all the memory that one agent may have")
        if self._all + size > ALL_MAX:
            raise NoRoom("requests hold all the memory that they may have")
        self._agents[agent] = mine
        self._all += size

    def give_back(self, agent: str, size: int) -> None:
        """Give back what was taken for a body of this agent."""
        self._all -= size
        if left := self._agents.get(agent, 0) - size:
            self._agents[agent] = left
        else:
            self._agents.pop(agent, None)


class Body:
    """The body of one request; its room is taken until the `with` block ends."""

    def __init__(self, bodies: Bodies, agent: str) -> None:
        self._bodies = bodies
        self._agent = agent
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.give_back(self._agent, self._taken)

    async def read(self, request: web.BaseRequest) -> bytes:
        """All of it, as it came. A body that says how long it will be is refused before any of it is read. Raises NoRoom; BadRequest when
        it is too long, too slow, or cut."""
        if not request.can_read_body:
            return b""
        self._take(request.content_length or 0)
        await _continue(request)
        try:
            async with asyncio.timeout(BODY_S):
                return await self._whole(request.content)
        except TimeoutError:
            raise BadRequest(408, f"the request did not arrive within {BODY_S:.0f} s") from None
        except web.RequestPayloadError:
            raise BadRequest(400, "the request's body is misshapen") from None

    async def _whole(self, content: StreamReader) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := await content.readany():
            pieces.append(piece)
            size += len(piece)
            if size > BODY_MAX:
                raise BadRequest(413, f"a request has at most {BODY_MAX // 2**20} MiB")
            if size > self._taken:  # it did not say how long it would be
                self._take(size - self._taken)
        return b"".join(pieces)

    def _take(self, size: int) -> None:
        self._bodies.take(self._agent, size)
        self._taken += size


async def _continue(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":  # curl asks so before it sends much
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer has not begun by that
