"""UNIX sockets that take one request a connection: `daemon.sock` and `agents.sock`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
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

from memory.service import desk
from memory.service.desk import MemoryDesk
from supervisor.client import protocol
from supervisor.contract import Verb
from supervisor.host import attempt_tokens, unix_sockets
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.errors import NightcrewError, NotRunning, Refused, UsageError
from supervisor.kernel.format import duration
from supervisor.kernel.states import LIVING
from supervisor.server.agent_requests import VERBS, AddRate, Asked
from supervisor.server.loop import Loop
from supervisor.server.request_table import HANDLERS, work

# Socket server
# -------------
# A UNIX socket that takes one request a connection: one line of JSON each way. `daemon.sock` and `agents.sock` are two of them.


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
                self._say(f"{self._path.name} accepts no connection for {duration(_NO_FILES_S)}: {error}")
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
            raise UsageError("the request could not be read", why=f"it did not come within {duration(self._terms.read_s)}") from None
        except ConnectionError:
            raise NotRunning("the visitor left") from None
        finally:
            if (task := asyncio.current_task()) is not None:
                self._silent.pop(task, None)
        return bytes(line)


def _line(answer: dict[str, Any]) -> bytes:
    return codec.dumps(answer).encode() + b"\n"


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


# Server
# ------
# `daemon.sock`: hands the requests of the command line to the handlers of their verbs. Only the user's own processes may ask.


SERVER_TERMS = Terms(request_max=protocol.MAX_REQUEST, read_s=30.0, silent_max=200, sandbox_max=64)


class Server(SocketServer):
    """The socket of the command line."""

    def __init__(self, loop: Loop, home: Home, memory_desk: MemoryDesk) -> None:
        super().__init__(home.daemon_socket, SERVER_TERMS, loop.alert)
        self._verbs: dict[str, tuple[object, Verb]] = {verb: (loop, handler) for verb, handler in HANDLERS.items()}
        self._verbs |= {verb: (loop, handler) for verb, handler in loop.hooks.requests.items()}
        self._verbs |= {verb: (memory_desk, handler) for verb, handler in desk.VERBS.items()}
        self._interrupted = loop.hooks.interrupted | desk.VERBS.keys()

    async def serve(self, line: bytes, visitor: Visitor) -> dict[str, Any]:
        """See `SocketServer.serve`."""
        verb, args = protocol.parse(line)
        if verb not in self._verbs:
            raise UsageError("the supervisor knows no verb", on=verb, why=f"known: {', '.join(sorted(self._verbs))}")
        context, handler = self._verbs[verb]
        done = work(handler, context, args)
        return await (visitor.until_gone(done) if verb in self._interrupted else done)


# Agents socket
# -------------
# `agents.sock`: what agents may ask of the supervisor. Each request carries the attempt's token, and ends with the attempt.
#
# A token that is wrong, or whose attempt has ended, is refused; that is journalled with the pid that the kernel names, since it is
# either a process that outlived its attempt or somebody who tries. The verbs of `daemon.sock` are not for agents, even where one
# has the same name.


AGENTS_SOCKET_TERMS = Terms(request_max=256 * 2**10, read_s=5.0, silent_max=256, sandbox_max=64)
ASKED_MAX = 64
"""Requests of one attempt that may wait for their answers at one moment."""
JOURNAL_S = 10.0
"""Between two lines about refusals: each is a commit, and who tries may try a thousand times a second."""


class AgentsSocket(SocketServer):
    """The socket of the agents."""

    def __init__(self, loop: Loop, home: Home, secret: bytes, memory: MemoryDesk) -> None:
        super().__init__(home.agents_socket, AGENTS_SOCKET_TERMS, loop.alert)
        self._loop = loop
        self._secret = secret
        self._memory, self._verbs = memory, {**VERBS, **loop.hooks.agent_requests}
        self._refused_at = -JOURNAL_S
        self._unsaid = 0
        self._asked: Counter[tuple[str, int]] = Counter()
        self._home, self._adds = home, AddRate()

    async def serve(self, line: bytes, visitor: Visitor) -> dict[str, Any]:
        """See `SocketServer.serve`."""
        verb, args, token = protocol.parse_agents(line)
        who = task, epoch = self._who(token, verb, visitor.pid)
        handle = self._verbs.get(verb)
        if handle is None:
            raise UsageError("agents have no verb", on=verb, why=f"known: {', '.join(sorted(self._verbs))}")
        if self._asked[who] >= ASKED_MAX:
            why = f"{ASKED_MAX} requests of this attempt wait for their answers"
            raise Refused("one request too many", on=verb, why=why, hint="let a request end, then ask again")
        done = work(handle, Asked(self._loop, task, epoch, self._home, self._adds, self._memory), args)
        self._asked[who] += 1
        try:
            return await visitor.until_gone(done)
        finally:
            self._asked[who] -= 1
            if not self._asked[who]:
                del self._asked[who]

    def _who(self, token: str, verb: str, pid: int) -> tuple[str, int]:
        name = attempt_tokens.check(self._secret, token)
        row = self._loop.ledger.attempt(*name) if name is not None else None
        if name is None or row is None or row.end is not None or row.state not in LIVING:
            why = "its token is not one of ours" if name is None or row is None else "its attempt has ended"
            self._keep(name if row is not None else None, {"verb": verb[:40], "pid": pid, "why": why})
            raise Refused("not for you", on=verb[:40], why=why, hint="NIGHTCREW_TOKEN of a running attempt opens it")
        return name

    def _keep(self, name: tuple[str, int] | None, data: dict[str, Any]) -> None:
        now = self._loop.clock.monotonic()
        if now - self._refused_at < JOURNAL_S:
            self._unsaid += 1
            return
        more = {"more before": self._unsaid} if self._unsaid else {}
        self._refused_at, self._unsaid = now, 0
        task, epoch = name or (None, None)
        self._loop.ledger.journal(task, epoch, "refused at agents.sock", {**data, **more})
        self._loop.alert(f"agents.sock refused pid {data['pid']}: {data['why']}")
