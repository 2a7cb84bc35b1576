"""The one door to what keeps the machine awake: a child that lives as long as the machine is to stay awake, and no longer than we do.

`systemd-inhibit` holds its lock while the program that it starts lives: `cat`, which ends with the pipe that we hold open, also when we are
killed. macOS has `caffeinate`, which ends with the process that it is told to watch; that path has not been tried.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_STOP_S = 5.0
_SAID_MAX = 500
_WHAT = ("sleep:idle:handle-lid-switch", "idle")
"""What is asked for, and what a session may have that nobody sits at: polkit's defaults give it the second alone."""
MISSING = "neither systemd-inhibit nor caffeinate is there"


def commands(pid: int, why: str) -> list[list[str]]:
    """The programs that keep the machine awake here, the best first, each to be run with a pipe as its input; none: there is no such
    program. `pid` is the process for which it stays awake."""
    if found := shutil.which("systemd-inhibit"):
        return [[found, f"--what={what}", "--who=nightcrew", f"--why={why}", "--mode=block", "cat"] for what in _WHAT]
    if sys.platform == "darwin" and (found := shutil.which("caffeinate")):
        return [[found, "-i", "-w", str(pid)]]
    return []


class SleepInhibitor:
    """Belongs to one thread. Release it."""

    def __init__(self, log: Path) -> None:
        """What the programs say goes to `log`."""
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None
        self._left: list[list[str]] = []

    @property
    def pid(self) -> int | None:
        """The child that keeps the machine awake; None without one."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def hold(self, why: str) -> None:
        """Begin to keep the machine awake, for the reason `why`, which `systemd-inhibit --list` shows. Returns at once: whether that
        succeeds, `trouble` says. To be released before it is asked for again. Raises OSError."""
        self._left = commands(os.getpid(), why)
        self._start()

    def trouble(self) -> str:
        """Why nothing keeps the machine awake; empty while something does, or is being tried: a program that is refused ends at once, and
        then the next one is started. Raises OSError."""
        if self._child is None:
            return MISSING
        code = self._child.poll()
        if code is None:
            return ""
        said = self._log.read_bytes()[:_SAID_MAX].decode("utf-8", "replace").strip()
        if not self._left:
            return f"the program that keeps the machine awake ended with {code}" + (f": {said}" if said else "")
        self._end()
        self._start()
        return ""

    def release(self) -> None:
        """Let the machine sleep. Idempotent."""
        self._left = []
        self._end()

    def _start(self) -> None:
        if self._left:
            with self._log.open("wb") as said:
                # In a session of its own: Ctrl-C at the supervisor's terminal is not meant for it.
                self._child = subprocess.Popen(self._left.pop(0), stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        if child.stdin is not None:
            with contextlib.suppress(OSError):
                child.stdin.close()
        try:
            child.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
