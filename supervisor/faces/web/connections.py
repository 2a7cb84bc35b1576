"""Who holds a connection and asks nothing with it is let go: a flood of silent connections keeps nobody out.

Every program of this machine can connect, an agent in a sandbox with the host's network among them.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware
from aiohttp.web_protocol import RequestHandler

SILENT_S, CROWDED_S = 60.0, 1.0
"""How long a connection may be silent: before its first request, and between two; and when there are CROWD."""
CROWD = 300
LOOK_S = 0.5
FILES = 65536
"""Open files that are asked for, as far as the system allows."""


class Connections:
    """Of one server. `busy` is its middleware."""

    def __init__(self) -> None:
        self._busy = set[RequestHandler]()
        self._silent: dict[RequestHandler, float] = {}
        """Since when."""

    @property
    def busy(self) -> Middleware:
        """Notes which connections have a request under way."""

        @web.middleware
        async def note(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
            self._busy.add(request.protocol)
            try:
                return await handler(request)
            finally:
                self._busy.discard(request.protocol)
                self._silent.pop(request.protocol, None)

        return note

    async def watch(self, server: web.Server) -> None:
        """Let the silent ones go, until it is cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOOK_S)
            now = clock()
            self._silent = {one: self._silent.get(one, now) for one in server.connections if one not in self._busy}
            crowded = len(self._silent) > CROWD
            for one, since in self._silent.items():
                is_over = now - since > (CROWDED_S if crowded else SILENT_S)
                if is_over and one.transport is not None and (crowded or not _is_sent_to(one.transport)):
                    one.transport.abort()


def _is_sent_to(transport: asyncio.BaseTransport) -> bool:
    """Whether an answer is still on its way, to somebody slow."""
    return isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size() > 0


def more_files() -> None:
    """Let this process have as many open files as the system allows it, up to FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def logger() -> logging.Logger:
    """Of the server: without what strangers sent, which would fill it, and may hold a cookie with its key."""
    log = logging.getLogger("aiohttp.server")
    if not any(isinstance(one, _NotOfStrangers) for one in log.filters):
        log.addFilter(_NotOfStrangers())
    return log


class _NotOfStrangers(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)
