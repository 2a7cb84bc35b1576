"""Starts the helper that works in a sandbox: forked from a warm process where our own namespaces make the sandbox, else as a new program.

What the helper imports costs more time than what it does. So the first one starts a process that imports everything once, has one thread
and no secret, and waits: for each request it forks, and the fork enters the sandbox (`supervisor.sandbox.namespaces`). It ends when
the process that uses it has ended, and everything that it forked ends with it.
"""

from __future__ import annotations

import array
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.sandbox import executors
from supervisor.sandbox.executors import Executor
from supervisor.sandbox.policy import Policy

_HELPER = (sys.executable, "-I", "-S", str(Path(__file__).parent / "collect_helper.py"))
_ANSWER_S = 20.0
"""The warm process forks within milliseconds, its first time after importing; one that takes longer is replaced."""
_END_S = 10.0
_WORDS_MAX = 2**17
"""Bytes of orders in one datagram; the kernel takes 200 kB."""


@dataclass(frozen=True, slots=True)
class Helper:
    """A helper at work, by handles of this process."""

    stdin: int
    stdout: int
    stderr: int
    pid: int
    """Of its outermost process, which is not reaped before the end."""


class Forks:
    """The warm process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def fork(self, words: Sequence[str], handles: Sequence[int]) -> tuple[int, int] | None:
        """Start a helper with these three handles in the sandbox of these orders; its pid and a pidfd; None without a warm process."""
        data = b"\0".join(map(os.fsencode, words))
        if len(data) > _WORDS_MAX:
            return None
        with self._lock:
            for _ in range(2):  # somebody may have ended the first
                with contextlib.suppress(OSError):
                    line = self._line or self._start()
                    line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handles))])
                    if (started := _received(line)) is not None:
                        return started
                self._forget()
        return None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv, number = [*_HELPER, "serve", str(theirs.fileno())], theirs.fileno()
            self._process = subprocess.Popen(
                argv, pass_fds=(number,), stdin=subprocess.DEVNULL, cwd="/", env=_variables(), start_new_session=True
            )
        ours.settimeout(_ANSWER_S)
        self._line = ours
        return ours

    def _forget(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._line, self._process = None, None


_forks = Forks()


@contextlib.contextmanager
def start(policy: Policy, executor: Executor) -> Iterator[Helper]:
    """Yield a helper in the sandbox of `policy`, whose `tmp` is a `locked_directory` of this process. It ends with the `with`, and with
    this process. Raises Refused, OSError."""
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as theirs:
            child_in, stdin = _pipe(theirs, stack)
            stdout, child_out = _pipe(stack, theirs)
            stderr, child_err = _pipe(stack, theirs)
            pid = _started(policy, executor, (child_in, child_out, child_err), stack)
        yield Helper(stdin, stdout, stderr, pid)


def _started(policy: Policy, executor: Executor, handles: tuple[int, int, int], stack: contextlib.ExitStack) -> int:
    """Start a helper, and return its pid. `stack` ends it, and everything in its sandbox ends a moment later."""
    started = _forks.fork(executors.words(policy), handles) if executor is Executor.NAMESPACES else None
    if started is not None:
        pid, pidfd = started
        stack.callback(os.close, pidfd)
        stack.callback(_end, pidfd)
        return pid
    stdin, stdout, stderr = handles
    argv = [*executors.argv(policy, executor), *_HELPER]
    group, env = stack.enter_context(executors.guarded(Path(policy.tmp), _variables()))
    process = subprocess.Popen(argv, stdin=stdin, stdout=stdout, stderr=stderr, cwd="/", env=env, process_group=group)
    stack.callback(process.wait)
    stack.callback(process.kill)
    return process.pid


def _end(pidfd: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    select.select([pidfd], [], [], _END_S)


def _received(line: socket.socket) -> tuple[int, int] | None:
    """The pid, and the pidfd, that the warm process answers with; None when it has ended."""
    pid, handles, _, _ = socket.recv_fds(line, 16, 1)
    return (int(pid), handles[0]) if handles else None


def _pipe(reading: contextlib.ExitStack, writing: contextlib.ExitStack) -> tuple[int, int]:
    """Its ends, each of which its stack closes."""
    ends = os.pipe()
    reading.callback(os.close, ends[0])
    writing.callback(os.close, ends[1])
    return ends


def _variables() -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "LC_ALL": "C"}
