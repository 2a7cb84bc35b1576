"""Passing bytes between two sockets."""

# ruff: noqa: SIM105
# (contextlib costs several ms, see `main.py`)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket

_PIECE = 65536


def join(one: "socket.socket", other: "socket.socket") -> None:
    """Pass bytes both ways until both sides have ended. A thread each way: neither waits for the other to make room."""
    import threading

    back = threading.Thread(target=_pass_on, args=(other, one))
    back.start()
    _pass_on(one, other)
    back.join()


def _pass_on(source: "socket.socket", target: "socket.socket") -> None:
    import socket

    try:
        while data := source.recv(_PIECE):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for side in (source, target):  # wakes the other direction, which may be waiting in recv
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
