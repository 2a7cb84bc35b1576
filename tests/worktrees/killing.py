"""A death at the Nth thing that a call does to the file system, before or after it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType

_CHANGES = {
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.symlink",
    "os.link",
    "ctypes.call_function",
    "ctypes.dlsym",
    "subprocess.Popen",
}


def died_at(number: int, call: Callable[[], object]) -> bool:
    """Fork; the child calls, and kills itself at the `number`th change. Whether it came to its end before.

    A file that is opened for writing is two changes: it is there, empty, a moment before anything is in it.
    """
    pid = os.fork()
    if pid == 0:
        left, opening = [number], [False]

        def step() -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def before(event: str, arguments: tuple[object, ...]) -> None:
            if event in _CHANGES:
                step()
            elif event == "open" and _writes(arguments):
                step()
                opening[0] = True

        def after(_frame: FrameType, event: str, function: object) -> None:
            if opening[0] and event == "c_return" and getattr(function, "__name__", "") == "open":
                opening[0] = False
                step()

        sys.addaudithook(before)
        sys.setprofile(after)
        try:
            call()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _writes(arguments: tuple[object, ...]) -> bool:
    """Of the audit event `open`: path, mode, flags; `os.open` has no mode."""
    _, mode, flags = arguments
    return mode not in ("r", "rb") if mode is not None else isinstance(flags, int) and bool(flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR))
