"""The loop of a zygote: connections, the requests on them, and the ends of the runners it forked.

One thread, one `poll`, nothing that blocks. Whoever connects is this user, or is turned away; what such a client then sends, or does not
send, harms nobody: a request comes within a few seconds or the connection is closed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterable

from agents.runner.warm import TITLE
from agents.zygote import zygote_protocol
from agents.zygote.fork import fork, title

_REQUEST_S = 2.0
"""How long a connection may be without its whole request."""
_WAITING_MAX = 64
"""Connections without a request; with more the oldest is closed."""
_LOOK_S = 10.0
"""Between two looks whether anybody can still reach us."""
_FULL_S = 0.05  # no handle is left to accept with, and only the end of a runner gives one back
_MORE = zygote_protocol.REQUEST_MAX + 64


class Caller:
    """One connection: first its request comes, then its runner runs."""

    __slots__ = ("data", "handles", "pid", "since", "socket")

    def __init__(self, connection: socket.socket, now: float) -> None:
        self.socket = connection
        self.since = now
        self.data = b""
        self.handles: list[int] = []
        self.pid = 0

    def close(self) -> None:
        zygote_protocol.close_all(self.handles)
        self.handles = []
        self.socket.close()


class Server:
    """Serves `listener` until TERM, INT or HUP comes, or `reachable` says no. Its runners are not ended with it."""

    def __init__(self, listener: socket.socket, reachable: Callable[[], bool]) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._reachable = reachable
        self._callers: dict[int, Caller] = {}
        self._poll = select.poll()
        self._poll.register(listener, select.POLLIN)
        self._wake, bell = os.pipe()
        for handle in (self._wake, bell):
            os.set_blocking(handle, False)
        signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_ENDING):
            signal.signal(number, _arrived)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])  # whatever our starter had blocked
        self._poll.register(self._wake, select.POLLIN)
        self._ending = False

    def serve(self) -> None:
        looked = time.monotonic()
        while not self._ending:
            self._turn()
            now = time.monotonic()
            self._drop(caller for caller in self._waiting() if now - caller.since > _REQUEST_S)
            if now - looked > _LOOK_S:
                looked = now
                self._ending |= not self._reachable()

    def _turn(self) -> None:
        for handle, _ in self._poll.poll((_REQUEST_S if self._waiting() else _LOOK_S) * 1000):
            if handle == self._wake:
                self._take_signals()
            elif handle == self._listener.fileno():
                self._accept()
            elif handle in self._callers:
                self._hear(self._callers[handle])

    def _waiting(self) -> list[Caller]:
        return [caller for caller in self._callers.values() if not caller.pid]

    def _drop(self, callers: Iterable[Caller]) -> None:
        for caller in list(callers):
            del self._callers[caller.socket.fileno()]
            self._poll.unregister(caller.socket)
            caller.close()

    def _accept(self) -> None:
        waiting = self._waiting()
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no handle is left, or the client is gone
            self._drop(waiting[:1])
            if not waiting:
                time.sleep(_FULL_S)
            return
        connection.setblocking(False)
        caller = Caller(connection, time.monotonic())
        with contextlib.suppress(OSError):
            if zygote_protocol.peer_uid(connection) == os.geteuid():
                self._callers[connection.fileno()] = caller
                self._poll.register(connection, select.POLLIN)
                self._drop(waiting[: max(0, len(waiting) + 1 - _WAITING_MAX)])
                return
        caller.close()

    def _hear(self, caller: Caller) -> None:
        """More of its request, or its end. A client that speaks while its runner runs, or hangs up, is let go; the runner goes on."""
        try:
            data, handles, _, _ = socket.recv_fds(caller.socket, _MORE, 3)
        except BlockingIOError:
            return
        except OSError:
            data, handles = b"", []
        caller.handles += handles
        caller.data += data
        if not data or caller.pid or len(caller.handles) > 3:
            self._drop([caller])
            return
        try:
            request = zygote_protocol.read_request(caller.data)
        except zygote_protocol.NotARequest as error:
            self._refuse(caller, error)
            return
        if request is not None:
            self._start(caller, request)

    def _start(self, caller: Caller, request: zygote_protocol.Request) -> None:
        if len(caller.handles) != 3:
            self._refuse(caller, "three handles are needed")
        elif not TITLE.holds(title(request)):
            self._refuse(caller, "the attempt's directory has too long a name")
        else:
            try:
                caller.pid = fork(request, caller.handles, caller.socket)
            except OSError as error:
                self._refuse(caller, error.strerror)
                return
            zygote_protocol.close_all(caller.handles)
            caller.handles = []
            caller.data = b""

    def _refuse(self, caller: Caller, why: object) -> None:
        zygote_protocol.send(caller.socket, zygote_protocol.answer("no", why))
        self._drop([caller])

    def _take_signals(self) -> None:
        numbers = os.read(self._wake, 512)
        self._ending |= bool(set(numbers) & set(_ENDING))
        self._reap()

    def _reap(self) -> None:
        """Nobody else can wait for our children. The client of each learns how it ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            callers = [caller for caller in self._callers.values() if caller.pid == pid]
            for caller in callers:
                zygote_protocol.send(caller.socket, zygote_protocol.answer("end", code if code >= 0 else 128 - code))
            self._drop(callers)


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _arrived(number: int, frame: object) -> None:
    """The byte in the pipe is the message; a handler must exist for it to be written."""
