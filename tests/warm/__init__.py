"""`nightcrew` for the tests, without the half second that Python takes to import it: forked from a process that has.

The way of our own warm agents (`agents.runner.warm`): a fork runs the command as a new interpreter would, in a process of its own with the
handles, directory, umask and environment it is given; limits and cores are those that pytest began with. What such a supervisor starts for
long, a gateway or a zygote, is a fork too, and so is a supervisor that a command starts in a pane (`server.py`). What all this cannot show
is a module that nobody imported, nor how a supervisor tries out its sandboxes as it starts, unless its PATH is another than pytest's.
NIGHTCREW_TEST_COLD=1 starts every command as a new interpreter instead.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

NIGHTCREW = (sys.executable, "-I", "-m", "supervisor.cli.main")
COLD = "NIGHTCREW_TEST_COLD" in os.environ or not hasattr(os, "pidfd_open")
_ROOM = 9000
"""Bytes of a command line that /proc can show of a fork: two of the longest paths, as a zygote's own forks have (`agents.zygote`)."""
_SHARED = "NIGHTCREW_TEST_WARM"
"""Where the socket is of the process that `shared` started."""

Process = subprocess.Popen[bytes]


_FIRST = "import runpy, sys; exec(sys.argv.pop(1)); runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"


def start(
    args: Sequence[str], cwd: Path, env: Mapping[str, str], stdout: int, stderr: int, *, session: bool = False, first: str = ""
) -> Process:
    """`nightcrew ARGS` with no input, in a new session if asked. `first`: Python that is run in the process before it, such as to break
    something."""
    argv = [sys.executable, "-I", "-c", _FIRST, first, NIGHTCREW[-1], *args] if COLD and first else [*NIGHTCREW, *args]
    return start_program(argv, cwd, env, stdout, stderr, session=session, first=first)


def start_program(
    argv: list[str], cwd: Path, env: Mapping[str, str], stdout: int, stderr: int, *, session: bool = False, first: str = ""
) -> Process:
    """As `start`, another of our own programs."""
    if COLD:
        return subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=session)
    return Forked(argv, cwd, env, (stdout, stderr), session, first)


def run(args: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """`nightcrew ARGS` to its end, and what it said. Raises TimeoutExpired, and it is ended then."""
    deadline = time.monotonic() + timeout_s
    ends = [os.pipe(), os.pipe()]
    said = {reader: bytearray() for reader, _ in ends}
    try:
        process = start(args, cwd, env, *(writer for _, writer in ends))
    finally:
        for _, writer in ends:
            os.close(writer)
    try:
        with selectors.DefaultSelector() as open_ends:
            for reader in said:
                open_ends.register(reader, selectors.EVENT_READ)
            while open_ends.get_map():  # until nobody holds them: also a supervisor that kept them would be found
                ready = open_ends.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise subprocess.TimeoutExpired(list(args), timeout_s)
                for key, _ in ready:
                    data = os.read(key.fd, 2**16)
                    said[key.fd] += data
                    if not data:
                        open_ends.unregister(key.fd)
        status = process.wait(max(0.0, deadline - time.monotonic()))
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        for reader in said:
            os.close(reader)
    words = [text.decode(errors="surrogateescape").replace("\r\n", "\n").replace("\r", "\n") for text in said.values()]
    return subprocess.CompletedProcess([*NIGHTCREW, *args], status, *words)


class Forked(subprocess.Popen[bytes]):
    """As much of Popen as it takes: a process that is not our child, but whose parent keeps it for us until we have asked for its end."""

    def __init__(
        self, argv: list[str], cwd: Path, env: Mapping[str, str], handles: tuple[int, int], session: bool, first: str = ""
    ) -> None:
        self.returncode: int | None = None
        self._life = -1
        self.args = argv
        self.stdin = self.stdout = self.stderr = None
        how = {"session": session, "umask": _umask(), "first": first}
        order = {"do": "start", "argv": argv, "cwd": os.fspath(cwd), "env": dict(env), **how}
        self._server = _server()
        self.pid = self._server.ask(order, handles)
        self._life = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._ended(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._life, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __del__(self) -> None:
        if self._life >= 0:
            os.close(self._life)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            look = select.poll()
            look.register(self._life, select.POLLIN)
            if look.poll(None if timeout is None else timeout * 1000):
                lost = self._server.closed  # its status went with the server
                self.returncode = -signal.SIGKILL if lost else self._server.ask({"do": "reap", "pid": self.pid})
                os.close(self._life)
                self._life = -1
        return self.returncode


def _umask() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1], 8) for line in lines if line.startswith("Umask:"))


class _Server:
    """A process that has imported everything. `place`: its socket. `is_new`: it is started, and lives as long as this."""

    def __init__(self, place: str, *, is_new: bool) -> None:
        self.owner = os.getpid()
        self.closed = False
        self._turn = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = self._start(place) if is_new else None
        if not is_new:
            self._socket.connect(place)
        atexit.register(self.close)

    def _start(self, place: str) -> Process:
        program = Path(__file__).with_name("server.py")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(place)
            listener.listen()
            self._socket.connect(place)
            return subprocess.Popen(
                [sys.executable, "-I", str(program), str(listener.fileno()), "x" * _ROOM],
                env={name: text for name, text in os.environ.items() if not name.startswith("NIGHTCREW_")} | {"_": "." * 256},  # for a tag
                stdin=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )

    def ask(self, order: Mapping[str, object], handles: Sequence[int] = ()) -> int:
        """Its answer. Raises OSError as the process that was to start would have."""
        with tempfile.TemporaryFile() as paper:  # an environment may be longer than a packet
            paper.write(json.dumps(order).encode("utf-8", "surrogateescape"))
            paper.flush()
            with self._turn:
                try:
                    socket.send_fds(self._socket, [b"?"], [paper.fileno(), *handles])
                    said = self._socket.recv(4096)
                except BaseException:  # a test's time is over: what it asked for would be the answer to the next
                    self.close()
                    raise
        if not said:
            self.close()
            raise AssertionError("the process that starts nightcrew for the tests died; see what it said")
        answer = json.loads(said)
        if "error" in answer:
            raise OSError(*answer["error"])
        return int(answer["number"])

    def close(self) -> None:
        self.closed = True
        self._socket.close()
        if self._process is not None and self.owner == os.getpid():
            self._process.wait()


@contextlib.contextmanager
def shared() -> Iterator[None]:
    """What is started inside has one such process in common."""
    if COLD:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="nc-") as directory:
        os.environ[_SHARED] = f"{directory}/warm"
        server = _Server(os.environ[_SHARED], is_new=True)
        try:
            yield
        finally:
            del os.environ[_SHARED]
            server.close()


def ready() -> None:
    """Have the process that is forked run: it keeps the cores and limits that this one has now."""
    if not COLD:
        _server()


_servers: list[_Server] = []
_first = threading.Lock()


def _server() -> _Server:
    with _first:
        if not _servers or _servers[0].closed or _servers[0].owner != os.getpid():
            _servers[:] = [_shared_server() or _own_server()]
        return _servers[0]


def _shared_server() -> _Server | None:
    place = os.environ.get(_SHARED)
    try:
        return None if place is None else _Server(place, is_new=False)
    except OSError:  # it died
        return None


def _own_server() -> _Server:
    with tempfile.TemporaryDirectory(prefix="nc-") as directory:
        return _Server(f"{directory}/warm", is_new=True)
