"""A zygote from inside: connections, forks and preloads."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from agents.runner import main as runner
from agents.runner import warm as venv
from agents.runner import warm as warm_programs
from agents.runner.warm import TITLE
from agents.zygote import lifecycle
from agents.zygote.lifecycle import Request
from supervisor.host.procfs import slurp
from supervisor.kernel.errors import Refused

# Fork
# ----
# The zygote's child: from the fork to the runner, in the pane's terminal and with nothing of the zygote's but its memory.


_NOTHING_STARTED = 70


def title(request: Request) -> list[bytes]:
    """The command line of a runner, however it was started: its last word is the attempt's directory."""
    return [os.fsencode(sys.executable), b"-I", b"-S", os.fsencode(Path(runner.__file__)), request.directory]


def fork(request: Request, handles: list[int], caller: socket.socket) -> int:
    """Fork the runner of an attempt, with `handles` as its 0, 1, 2; its pid. It answers `caller` itself. Raises OSError."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # until the child has dropped our handlers
    try:
        pid = os.fork()
        if pid == 0:
            _become_runner(request, handles, caller)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _become_runner(request: Request, handles: list[int], caller: socket.socket) -> NoReturn:
    status = _NOTHING_STARTED
    try:
        TITLE.show(title(request))
        lifecycle.send(caller, lifecycle.answer("pid", os.getpid()))
        if lifecycle.taken_back(caller):  # before anything of the pane's is touched: it starts the runner cold
            raise TimeoutError("it came too late")
        _take_over(handles, caller.fileno())
        os.environb.clear()
        os.environb.update(request.environment)
        _signals()
    except BaseException as error:  # noqa: BLE001 - a forked child: nothing may unwind into the zygote's frames
        lifecycle.send(caller, lifecycle.answer("no", error))
        os._exit(status)
    try:
        status = runner.main(os.fsdecode(request.directory), forked=True)
    except BaseException:  # noqa: BLE001 - as above; this is what Python does with it at the end of a program
        sys.excepthook(*sys.exc_info())
        status = 1
    lifecycle.send(caller, lifecycle.answer("end", status))
    os._exit(status)


def _take_over(handles: list[int], keep: int) -> None:
    """A session of its own with the pane's terminal, and no handle of the zygote's or of another client's."""
    os.setsid()
    for number, handle in enumerate(handles):  # all are above 2: the zygote holds 0, 1 and 2 itself
        os.dup2(handle, number)
    with contextlib.suppress(OSError):  # it is no terminal, or another session's: then it runs without one, as a pipe's reader does
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.closerange(3, keep)
    os.closerange(keep + 1, os.sysconf("SC_OPEN_MAX"))


def _signals() -> None:
    """Whatever the zygote was started with, the runner has what a new Python has; one that is blocked until now arrives."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


# Server
# ------
# The loop of a zygote: connections, the requests on them, and the ends of the runners it forked.
#
# One thread, one `poll`, nothing that blocks. Whoever connects is this user, or is turned away; what such a client then sends, or
# does not send, harms nobody: a request comes within a few seconds or the connection is closed.


_REQUEST_S = 2.0
"""How long a connection may be without its whole request."""
_WAITING_MAX = 64
"""Connections without a request; with more the oldest is closed."""
_LOOK_S = 10.0
"""Between two looks whether anybody can still reach us."""
_FULL_S = 0.05  # no handle is left to accept with, and only the end of a runner gives one back
_MORE = lifecycle.REQUEST_MAX + 64


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
        lifecycle.close_all(self.handles)
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
            if lifecycle.peer_uid(connection) == os.geteuid():
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
            request = lifecycle.read_request(caller.data)
        except lifecycle.NotARequest as error:
            self._refuse(caller, error)
            return
        if request is not None:
            self._start(caller, request)

    def _start(self, caller: Caller, request: lifecycle.Request) -> None:
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
            lifecycle.close_all(caller.handles)
            caller.handles = []
            caller.data = b""

    def _refuse(self, caller: Caller, why: object) -> None:
        lifecycle.send(caller.socket, lifecycle.answer("no", why))
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
                lifecycle.send(caller.socket, lifecycle.answer("end", code if code >= 0 else 128 - code))
            self._drop(callers)


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _arrived(number: int, frame: object) -> None:
    """The byte in the pipe is the message; a handler must exist for it to be written."""


# Preload
# -------
# Importing once what every fork will have, and refusing what a fork cannot have: another thread.


_LEAVE_OUT = "leave it out of preload"
_THEIRS = "preload what is installed in .venv; the repository's own modules each agent imports by itself, because it changes them"


def warm(modules: Sequence[str], path: Sequence[str]) -> None:
    """Import `modules`, from the `site-packages` directories `path` alone when there are any, else from our own.

    Raises Refused, naming the module that cannot be imported, that started a thread (a fork would have its locks but not the thread), or
    that is not of `path`.
    """
    gc.disable()
    with _among(path) if path else contextlib.nullcontext():
        for name in modules:
            _preload(name, _THEIRS if path else _LEAVE_OUT)


def _preload(name: str, hint: str) -> None:
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise Refused("cannot be preloaded", on=name, why=f"{type(error).__name__}: {error}", hint=hint) from error
    if (count := threads()) != 1:
        hint = f"{_LEAVE_OUT}; OPENBLAS_NUM_THREADS=1 and the like keep some libraries single-threaded"
        raise Refused("cannot be preloaded", on=name, why=f"importing it started {count - 1} more thread(s)", hint=hint)


def freeze() -> None:
    """Collect, then take everything that lives out of the collector's sight, so that it writes into no page that forks share."""
    gc.collect()
    warm_programs.prepare()
    gc.freeze()
    gc.enable()


def threads() -> int:
    """Threads of this process, those that Python does not know too where the system tells."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


def resident() -> int:
    """Bytes of this process in memory."""
    pages = slurp("/proc/self/statm").split()
    if pages:
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, which has no /proc


@contextlib.contextmanager
def _among(packages: Sequence[str]) -> Iterator[None]:
    """While the body imports, this is an interpreter of the other environment: nothing of ours can get into what it imports.

    That environment's `.pth` files are left to its forks, each of which has its own: so the repository's own modules, which agents change
    and which such files lead to, cannot be imported here. Afterwards `packages` come before our own.
    """
    path, finders = list(sys.path), list(sys.meta_path)
    at = next((at for at, entry in enumerate(path) if Path(entry).name in ("site-packages", "dist-packages")), len(path))
    apart = {name: sys.modules.pop(name) for name in list(sys.modules) if not _is_standard(name)}
    sys.path[:] = [*path[:at], *packages]
    sys.meta_path[:] = bare = [finder for finder in finders if getattr(finder, "__module__", "").startswith("_frozen_importlib")]
    yield
    files = _files({name for name in sys.modules if not _is_standard(name)}, packages)
    for name in apart:
        if name in sys.modules and name.partition(".")[0] in warm_programs.OURS:
            raise Refused("cannot be preloaded", on=name, why="nightcrew's own process has a package of this name", hint=_LEAVE_OUT)
    if len(packages) == 1:
        venv.note(packages[0], files, sys.meta_path, [name for name in apart if name not in sys.modules])
    sys.modules.update({name: module for name, module in apart.items() if name not in sys.modules})
    sys.meta_path[:] = [*finders, *(finder for finder in sys.meta_path if finder not in bare)]
    sys.path += path[at:]


def _files(modules: Iterable[str], packages: Sequence[str]) -> list[str]:
    """The files of `modules`, all of which must lie below `packages`. Raises Refused."""
    files = []
    for name in sorted(modules):
        file = getattr(sys.modules[name], "__dict__", {}).get("__file__")  # some modules make what they are asked for
        if not isinstance(file, str):
            continue
        if not file.startswith(tuple(f"{directory}/" for directory in packages)):
            raise Refused("cannot be preloaded", on=name, why=f"{file} is not among the packages of the environment", hint=_THEIRS)
        files.append(file)
    return files


def _is_standard(name: str) -> bool:
    return name == "__main__" or name.startswith("_sysconfigdata_") or name.partition(".")[0] in sys.stdlib_module_names
