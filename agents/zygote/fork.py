"""The zygote's child: from the fork to the runner, in the pane's terminal and with nothing of the zygote's but its memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import termios
from pathlib import Path
from typing import NoReturn

from agents.runner import main as runner
from agents.runner.warm import TITLE
from agents.zygote import zygote_protocol
from agents.zygote.zygote_protocol import Request

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
        zygote_protocol.send(caller, zygote_protocol.answer("pid", os.getpid()))
        if zygote_protocol.taken_back(caller):  # before anything of the pane's is touched: it starts the runner cold
            raise TimeoutError("it came too late")
        _take_over(handles, caller.fileno())
        os.environb.clear()
        os.environb.update(request.environment)
        _signals()
    except BaseException as error:  # noqa: BLE001 - a forked child: nothing may unwind into the zygote's frames
        zygote_protocol.send(caller, zygote_protocol.answer("no", error))
        os._exit(status)
    try:
        status = runner.main(os.fsdecode(request.directory), forked=True)
    except BaseException:  # noqa: BLE001 - as above; this is what Python does with it at the end of a program
        sys.excepthook(*sys.exc_info())
        status = 1
    zygote_protocol.send(caller, zygote_protocol.answer("end", status))
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
