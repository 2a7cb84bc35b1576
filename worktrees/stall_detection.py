"""Waits for a git process as long as it works, and stops one that does nothing.

A git that met a pipe sleeps and does nothing. That is seen from outside: its threads sleep, its processor time and its input and output
stand still. So do those of one that somebody stopped, and of one that is dead while a child of it keeps its pipes open. A git that reads a
million files moves; one that waits for a disk is in another state of sleep.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import IO

from supervisor.host import procfs

LOOK_S = 0.5
STILL_LOOKS = 8
"""A git that did nothing between so many looks, 4 s, is stopped; git itself waits for a lock of another git at most 1 s. Looks are counted
and not the time, so that none is stopped because we stood still."""
STILL = f"it did nothing for {STILL_LOOKS * LOOK_S:g} s, as when it waits for a pipe"
_TERM_S = 2.0
_PIPE_HOLDS = 2**12
"""Bytes: what every system's pipe takes at once when it is empty."""
_IDLE = (b"S", b"T", b"t", b"Z")
"""States of /proc/PID/stat in which nothing is done: asleep, stopped, traced, dead."""


class Stopped(Exception):
    """The process did not end and was stopped; the text says why."""


class Tail(threading.Thread):
    """Takes over what a process writes to its stderr, and keeps the end of it: a stranger's objects can make git say gigabytes."""

    def __init__(self, process: subprocess.Popen[bytes], size: int) -> None:
        super().__init__(daemon=True)
        self._pipe: IO[bytes] | None = process.stderr
        process.stderr = None
        self._size = size
        self._kept = b""
        self.start()

    def run(self) -> None:
        if self._pipe is not None:
            with self._pipe as pipe:
                while data := os.read(pipe.fileno(), self._size):
                    self._kept = (self._kept + data)[-self._size :]

    def end(self) -> bytes:
        """When the process has ended. Up to `size` bytes."""
        self.join()
        return self._kept


def communicate(process: subprocess.Popen[bytes], stdin: bytes, deadline_s: float) -> tuple[bytes, bytes]:
    """All that it says, once it has ended. Raises Stopped when `deadline_s` passed or it did nothing for long; it is ended then."""
    until = time.monotonic() + deadline_s
    watch = StallDetector(process.pid)
    _feed(process, stdin)
    while True:
        try:
            return process.communicate(timeout=min(LOOK_S, deadline_s))
        except subprocess.TimeoutExpired:
            pass
        is_still = watch.look()
        if time.monotonic() >= until:
            _end(process)
            raise Stopped(f"no answer in {deadline_s:g} s")
        if is_still:
            _end(process)
            raise Stopped(STILL)


class StallDetector:
    """Looks at a process and all below it, every LOOK_S seconds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: object = None
        self._still = 0

    def look(self) -> bool:
        """Whether none of them has done anything for STILL_LOOKS looks in a row."""
        before, self._seen = self._seen, _doing(self._pid)
        self._still = self._still + 1 if self._seen is not None and self._seen == before else 0
        return self._still >= STILL_LOOKS


def _feed(process: subprocess.Popen[bytes], stdin: bytes) -> None:
    """By a thread where a pipe does not hold it: `Popen.communicate` writes nothing more once it has timed out (CPython 3.11 to 3.13)."""
    pipe, process.stdin = process.stdin, None
    if pipe is None:
        return

    def write() -> None:
        with contextlib.suppress(OSError), pipe:  # it ended without reading all
            pipe.write(stdin)

    if len(stdin) <= _PIPE_HOLDS:
        write()
    else:
        threading.Thread(target=write, daemon=True, name="feed a git").start()


def _doing(pid: int) -> object:
    """What changes while the process or a child of it does anything; None when one is at work, or the system does not say."""
    found = []
    for one in [pid, *(child.pid for child in procfs.descendants(pid))]:
        for thread in _threads(one):
            fields = procfs.slurp(f"/proc/{one}/task/{thread}/stat").rpartition(b")")[2].split()
            if not fields or fields[0] not in _IDLE:
                return None
            found.append((one, thread, fields[11:13]))
        found.append((one, "io", [procfs.slurp(f"/proc/{one}/io")]))
    return found


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - many times a second
    except OSError:
        return []


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and its children: it leads a process group of its own, and it is not reaped yet, so the id is still its. Asked first, so
    that it removes its own locks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)  # one that is stopped hears nothing else
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_TERM_S)
            return
