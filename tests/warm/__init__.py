"""`nightcrew` for the tests, without the half second that Python takes to import it: forked from a process that has.

The way of our own warm agents (`agents.runner.warm`): a fork runs the command as a new interpreter would, in a process of its own with the
handles, directory and environment it is given. NIGHTCREW_TEST_COLD=1 starts every command as a new interpreter instead.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

NIGHTCREW = (sys.executable, "-I", "-m", "supervisor.cli.main")
COLD = "NIGHTCREW_TEST_COLD" in os.environ or not hasattr(os, "pidfd_open")
_ROOM = 4096
"""Bytes of a command line that /proc can show of a fork."""

Process = subprocess.Popen[bytes]


def start(
    args: Sequence[str], cwd: Path, env: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes], *, session: bool = False
) -> Process:
    """`nightcrew ARGS` with no input, in a new session if asked."""
    argv = [*NIGHTCREW, *args]
    if COLD:
        return subprocess.Popen(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=session)
    return _Forked(argv, cwd, env, (stdout.fileno(), stderr.fileno()), session)


def run(args: Sequence[str], cwd: Path, env: Mapping[str, str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """`nightcrew ARGS` to its end, and what it said. Raises TimeoutExpired, and it is ended then."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = start(args, cwd, env, out, err)
        try:
            status = process.wait(timeout_s)
        except BaseException:
            process.kill()
            process.wait()
            raise
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="surrogateescape").replace("\r\n", "\n"))
    return subprocess.CompletedProcess([*NIGHTCREW, *args], status, *said)


class _Forked(subprocess.Popen[bytes]):
    """As much of Popen as it takes: a process that is not our child, but whose parent keeps it for us until we have asked for its end."""

    def __init__(self, argv: list[str], cwd: Path, env: Mapping[str, str], handles: tuple[int, int], session: bool) -> None:
        self.returncode: int | None = None
        self.args = argv
        self.stdin = self.stdout = self.stderr = None
        order = {"do": "start", "argv": argv, "cwd": os.fspath(cwd), "env": dict(env), "session": session}
        self.pid = _server().ask(order, handles)
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
        if getattr(self, "returncode", 0) is None:
            os.close(self._life)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._life], [], [], timeout)[0]:
            self.returncode = _server().ask({"do": "reap", "pid": self.pid})
            os.close(self._life)
        return self.returncode


class _Server:
    """The process that has imported everything. One for each process of pytest."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._turn = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = Path(__file__).with_name("server.py")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", str(program), str(theirs.fileno()), "x" * _ROOM],
                env={name: text for name, text in os.environ.items() if not name.startswith("NIGHTCREW_")},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        atexit.register(self.close)

    def ask(self, order: Mapping[str, object], handles: Sequence[int] = ()) -> int:
        """Its answer. Raises OSError as the process that was to start would have."""
        with tempfile.TemporaryFile() as paper:  # an environment may be longer than a packet
            paper.write(json.dumps(order).encode("utf-8", "surrogateescape"))
            paper.flush()
            with self._turn:
                socket.send_fds(self._socket, [b"?"], [paper.fileno(), *handles])
                answer = json.loads(self._socket.recv(4096))
        if "error" in answer:
            raise OSError(*answer["error"])
        return int(answer["number"])

    def close(self) -> None:
        self._socket.close()
        if self.owner == os.getpid():
            self._process.wait()


_servers: list[_Server] = []
_first = threading.Lock()


def _server() -> _Server:
    with _first:
        if not _servers or _servers[0].owner != os.getpid():
            _servers[:] = [_Server()]
        return _servers[0]
