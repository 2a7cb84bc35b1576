"""A UNIX socket that takes one request a connection: one line of JSON each way. `daemon.sock` and `agents.sock` are two of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from supervisor.core.errors import NightcrewError, NotRunning, Refused, UsageError
from supervisor.host import unix_sockets

T = TypeVar("T")

BACKLOG = 1024
"""Clients that may wait to be accepted: hundreds of agents may connect at the same moment, and the kernel refuses those beyond this."""

_SERVERS = 8
"""Listening sockets kept when somebody removes the path again and again; then the oldest is closed."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The limits for a client."""

    request_max: int
    """Bytes of the longest request."""
    read_s: float
    """How long a client may take to send its request."""
    silent_max: int
    """Clients that may be connected and have not sent a request yet; one more, and the longest silent one is disconnected."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The client of a request, as the kernel names it. `pid` is 0 where it does not say."""

    pid: int
    _reader: asyncio.StreamReader

    async def until_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises; it is cancelled when the client disconnects, and then this raises NotRunning."""
        task = asyncio.get_running_loop().create_task(work)
        gone = asyncio.get_running_loop().create_task(self._reader.read(1))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise NotRunning("the visitor left")
        finally:
            for one in (task, gone):
                one.cancel()
                with contextlib.suppress(asyncio.CancelledError, NightcrewError, OSError):
                    await one


class SocketServer(ABC):
    """An async context: listening inside, gone outside."""

    def __init__(self, path: Path, terms: Terms, say: Callable[[str], None]) -> None:
        """`say` is told of failures that are no client's fault."""
        self._path = path
        self._terms = terms
        self._say = say
        self._silent: dict[asyncio.StreamWriter, None] = {}
        self._servers: deque[asyncio.Server] = deque()

    @abstractmethod
    async def serve(self, line: bytes, visitor: Visitor) -> dict[str, Any]:
        """The value that a request gets. Raises NightcrewError for one that gets none."""

    async def __aenter__(self) -> SocketServer:
        await self._bind()
        self._kept = asyncio.get_running_loop().create_task(unix_sockets.keep(self._path, self._bind, self._say))
        return self

    async def _bind(self) -> None:
        """The one before goes on being answered: somebody may have it open still."""
        self._path.unlink(missing_ok=True)
        self._servers.append(await asyncio.start_unix_server(self._answer, self._path, limit=self._terms.request_max, backlog=BACKLOG))
        self._path.chmod(0o600)
        if len(self._servers) > _SERVERS:
            self._servers.popleft().close()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._kept.cancel()
        with contextlib.suppress(OSError):  # somebody removed the directory, or put something in its way
            self._path.unlink()
        for server in self._servers:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # whoever went away does not want the answer
            writer.write(json.dumps(await self._reply(reader, writer)).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
        try:
            pid = _check_peer(writer.get_extra_info("socket"))
            line = await self._read(reader, writer)
            return {"ok": True, "value": await self.serve(line, Visitor(pid, reader))}
        except NightcrewError as error:
            return {"ok": False, "error": error.to_wire()}
        except (TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
            return {"ok": False, "error": UsageError("the request could not be read", why=str(error)).to_wire()}
        except Exception as error:  # noqa: BLE001 - one broken request must not end the supervisor; the fault is shown, not hidden
            self._say(f"a request failed: {type(error).__name__}: {error}")
            return {"ok": False, "error": NightcrewError("the supervisor failed on this request", why=repr(error)).to_wire()}

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        self._silent[writer] = None
        if len(self._silent) > self._terms.silent_max:
            next(iter(self._silent)).transport.abort()
        try:
            return await asyncio.wait_for(reader.readline(), self._terms.read_s)
        except ValueError:
            why = f"it is longer than {self._terms.request_max} bytes"
            raise UsageError("the request could not be read", why=why, hint="put long text into a file and name that") from None
        finally:
            del self._silent[writer]


def _check_peer(connection: socket.socket) -> int:
    """The socket is 0600 in a 0700 directory; the kernel's word on who connected is the second lock. Its pid."""
    if not sys.platform.startswith("linux"):
        return 0
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid not in (os.getuid(), 0):
        raise Refused("not your supervisor", why=f"it belongs to uid {os.getuid()}, you are uid {uid}")
    return int(pid)
