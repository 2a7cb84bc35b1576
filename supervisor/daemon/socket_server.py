"""A UNIX socket that takes one request a connection: one line of JSON each way. `daemon.sock` and `agents.sock` are two of them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import socket
import struct
import sys
from abc import ABC, abstractmethod
from collections import Counter, deque
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

_ACCEPTED = 32
"""Connections accepted at one turn of the event loop: other work goes on between two turns of a flood."""

_NO_FILES_S = 1.0
"""Until the next try to accept where this process may open no more files."""

_ANSWER_S = 60.0
"""Time limit for a client to read its answer: a busy machine slows agents down."""
_PIECE = 2**16
_LISTENERS = 8
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
    sandbox_max: int
    """Connections that the processes of one sandbox may hold, with a request or without. It cannot be seen, and so does not hold, outside
    Linux."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The client of a request, as the kernel names it. `pid` is 0 where it does not say."""

    pid: int
    _connection: socket.socket

    async def until_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises; it is cancelled when the client disconnects, and then this raises NotRunning."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        gone = loop.create_task(loop.sock_recv(self._connection, 1))
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
        self._silent: dict[asyncio.Task[None], None] = {}
        """The connections that have not sent a request yet, the longest silent one first."""
        self._held: Counter[str] = Counter()
        """The connections of each sandbox."""
        self._working: set[asyncio.Task[None]] = set()
        self._listeners: deque[socket.socket] = deque()

    @abstractmethod
    async def serve(self, line: bytes, visitor: Visitor) -> dict[str, Any]:
        """The value that a request gets. Raises NightcrewError for one that gets none."""

    async def __aenter__(self) -> SocketServer:
        self._bind()
        self._kept = asyncio.get_running_loop().create_task(unix_sockets.keep(self._path, self._bind, self._say))
        return self

    def _bind(self) -> None:
        """Listen at the path. The previous listening socket stays in service: a client may still be connected to it."""
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(os.fspath(self._path))
            self._path.chmod(0o600)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except BaseException:
            listener.close()
            raise
        self._listeners.append(listener)
        self._listen(listener)
        if len(self._listeners) > _LISTENERS:
            self._close(self._listeners.popleft())

    def _listen(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:  # it may have been closed while no files were left
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    @staticmethod
    def _close(listener: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(listener)
        listener.close()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._kept.cancel()
        with contextlib.suppress(OSError):  # somebody removed the directory, or put something in its way
            self._path.unlink()
        while self._listeners:
            self._close(self._listeners.popleft())

    def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTED):
            try:
                connection, _address = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._say(f"{self._path.name} accepts no connection for {_NO_FILES_S:.0f} s: {error}")
                loop.remove_reader(listener)
                loop.call_later(_NO_FILES_S, self._listen, listener)
                return
            connection.setblocking(False)
            try:
                self._admit(connection)
            except NightcrewError as error:
                _turn_away(connection, error)

    def _admit(self, connection: socket.socket) -> None:
        """Begin to serve a connection. Raises Refused for a stranger, and for one too many of a sandbox: before it costs a task."""
        pid = _check_peer(connection)
        sandbox = _sandbox(pid)
        if sandbox and self._held[sandbox] >= self._terms.sandbox_max:
            why = f"the processes of this sandbox hold {self._terms.sandbox_max} connections"
            raise Refused("one connection too many", on=self._path.name, why=why, hint="close a connection, or let its request end")
        task = asyncio.get_running_loop().create_task(self._answer(connection, pid))
        self._working.add(task)
        self._silent[task] = None
        self._held[sandbox] += 1
        task.add_done_callback(lambda done: self._forget(done, connection, sandbox))
        if len(self._silent) > self._terms.silent_max:
            longest = next(iter(self._silent))
            del self._silent[longest]  # now: the next connection of this turn disconnects another one
            longest.cancel()

    def _forget(self, task: asyncio.Task[None], connection: socket.socket, sandbox: str) -> None:
        connection.close()
        self._working.discard(task)
        self._silent.pop(task, None)
        self._held[sandbox] -= 1
        if not self._held[sandbox]:
            del self._held[sandbox]

    async def _answer(self, connection: socket.socket, pid: int) -> None:
        with contextlib.suppress(OSError, TimeoutError):  # whoever went away, or takes no answer, does not want it
            answer = _line(await self._reply(connection, pid))
            async with asyncio.timeout(_ANSWER_S):
                await asyncio.get_running_loop().sock_sendall(connection, answer)

    async def _reply(self, connection: socket.socket, pid: int) -> dict[str, Any]:
        try:
            line = await self._read(connection)
            return {"ok": True, "value": await self.serve(line, Visitor(pid, connection))}
        except NightcrewError as error:
            return {"ok": False, "error": error.to_wire()}
        except Exception as error:  # noqa: BLE001 - one broken request must not end the supervisor; the fault is shown, not hidden
            self._say(f"a request failed: {type(error).__name__}: {error}")
            return {"ok": False, "error": NightcrewError("the supervisor failed on this request", why=repr(error)).to_wire()}

    async def _read(self, connection: socket.socket) -> bytes:
        """The first line, or what came before the client sent no more. Raises UsageError when it is too long or takes too long."""
        loop = asyncio.get_running_loop()
        line = bytearray()
        try:
            async with asyncio.timeout(self._terms.read_s):
                while piece := await loop.sock_recv(connection, _PIECE):
                    end = piece.find(b"\n")
                    line += piece if end < 0 else piece[: end + 1]
                    if len(line) > self._terms.request_max:
                        why = f"it is longer than {self._terms.request_max} bytes"
                        raise UsageError("the request could not be read", why=why, hint="put long text into a file and name that")
                    if end >= 0:
                        break
        except TimeoutError:
            raise UsageError("the request could not be read", why=f"it did not come within {self._terms.read_s:.0f} s") from None
        except ConnectionError:
            raise NotRunning("the visitor left") from None
        finally:
            if (task := asyncio.current_task()) is not None:
                self._silent.pop(task, None)
        return bytes(line)


def _line(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _turn_away(connection: socket.socket, error: NightcrewError) -> None:
    """Say why, as far as the client can take it at once, and disconnect."""
    with contextlib.suppress(OSError):
        connection.send(_line({"ok": False, "error": error.to_wire()}))
    connection.close()


def _sandbox(pid: int) -> str:
    """Name the sandbox of a process by its PID namespace. Empty for a process without a sandbox, and for one that has ended."""
    try:
        namespace = os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - once a connection, of a flood too
        return "" if namespace == _own_namespace() else namespace
    except OSError:  # it has ended, or forbids that others look at it: then only the other bounds hold
        return ""


@functools.cache
def _own_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _check_peer(connection: socket.socket) -> int:
    """The socket is 0600 in a 0700 directory; the kernel's word on who connected is the second lock. Its pid."""
    if not sys.platform.startswith("linux"):
        return 0
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid not in (os.getuid(), 0):
        raise Refused("not your supervisor", why=f"it belongs to uid {os.getuid()}, you are uid {uid}")
    return int(pid)
