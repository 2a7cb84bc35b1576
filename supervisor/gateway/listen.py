"""Where the gateway listens: 127.0.0.1 and a UNIX socket, and nothing else."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable
from pathlib import Path

from supervisor.core.errors import Refused, ToolFailed

HOST = "127.0.0.1"
WAIT_S = 2.0
"""How long a port may still be held by the gateway before this one."""
_BACKLOG = 1024
_LOOK_S = 0.05


def on_port(port: int, pause: Callable[[float], None] = time.sleep) -> socket.socket:
    """A listening socket on 127.0.0.1; 0 takes a free port. Raises Refused when another process has it for longer than 2 s."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return _bound(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise _taken(port, error) from error
        pause(_LOOK_S)


def on_path(path: Path) -> socket.socket:
    """A listening UNIX socket that only its owner can open, in place of whatever is at `path`. Raises ToolFailed."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    draft = path.with_name(f".{path.name}")  # put in place when it is private: for no moment can others open it
    try:
        draft.unlink(missing_ok=True)
        listener.bind(str(draft))
        draft.chmod(0o600)
        listener.listen(_BACKLOG)
        draft.rename(path)
    except OSError as error:
        listener.close()
        raise ToolFailed("cannot listen", on=str(path), why=error.strerror or str(error)) from error
    return listener


def _bound(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the one before may still linger
        listener.bind((HOST, port))
        listener.listen(_BACKLOG)
        if listener.getsockname()[0] != HOST:
            raise Refused("will not listen", on=str(listener.getsockname()[0]), why="it is not this machine alone")
    except BaseException:
        listener.close()
        raise
    return listener


def _taken(port: int, error: OSError) -> Refused:
    holder = _holder(port)
    return Refused(
        "cannot listen",
        on=f"{HOST}:{port}",
        why=f"pid {holder} has it" if holder else error.strerror or str(error),
        kept="nothing was started",
        hint=f"end that process, or set another port under [gateway] (now {port})",
    )


def _holder(port: int) -> int | None:
    """Who listens there, as far as we may see: other users' processes are hidden from us."""
    import psutil  # a tenth of a gateway's start, and seldom needed

    try:
        found = (one.pid for one in psutil.net_connections("tcp4") if one.status == psutil.CONN_LISTEN and tuple(one.laddr)[1:] == (port,))
        return next((pid for pid in found if pid), None)
    except (psutil.Error, OSError):
        return None
