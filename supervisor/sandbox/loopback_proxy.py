"""Pass on what an agent in a tier 2 sandbox connects to on its own 127.0.0.1."""

from __future__ import annotations

import os

from supervisor.sandbox import exec_step

TYPE_CHECKING = False  # `typing` costs more to import than this module

if TYPE_CHECKING:
    import socket
    import threading
    from collections.abc import Callable
    from typing import NoReturn

    from supervisor.sandbox.namespaces import PolicyArguments


# Relay
# -----
# Passing bytes between two sockets.


# ruff: noqa: SIM105
# (contextlib costs several ms, see `main.py`)


_PIECE = 65536


def join(one: socket.socket, other: socket.socket) -> None:
    """Pass bytes both ways until both sides have ended. A thread each way: neither waits for the other to make room."""
    import threading

    back = threading.Thread(target=_pass_on, args=(other, one))
    back.start()
    _pass_on(one, other)
    back.join()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
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


# Loopback proxy
# --------------
# The process outside a tier-2 sandbox that passes on what the agent connects to on its own 127.0.0.1.
#
# A listening socket belongs to the network namespace it was made in, and whoever holds it accepts there. So the sandbox makes the
# sockets, hands them out before the agent begins, and holds nothing: the agent can neither stop nor trace who serves it, and no
# port is ever refused because a relay is not up yet. The loopback proxy is a child of the process that waits outside, and the
# kernel kills it with that one.
#
# It is forked first, and loads what it needs while the sandbox is being built.


_AT_ONCE = 256
"""Connections served at the same time; more wait. A client of a model holds one to a few."""
_STACK = 512 * 1024
_HIGHEST = 1 << 20


def start(orders: PolicyArguments) -> int:
    """Fork the proxy. Returns the handle through which `exec_step.open_doors` gives it the sockets for `orders.ports`."""
    import _socket

    mine, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    parent = os.getpid()
    if os.fork() == 0:
        _become_doorman(orders, mine.detach(), parent)
    mine.close()
    return theirs.detach()


def _become_doorman(orders: PolicyArguments, post: int, parent: int) -> NoReturn:
    try:
        exec_step.die_with(parent)
        exec_step.ignore_stops()
        os.setsid()  # no terminal: Ctrl-Z on it must not stop what the agent talks through
        nothing = os.open("/dev/null", os.O_RDWR)
        for handle in (0, 1, 2):
            os.dup2(nothing, handle)
        os.closerange(3, post)
        os.closerange(post + 1, _HIGHEST)
        exec_step.give_up_rights()
        _serve(orders, post)
    except BaseException:  # noqa: BLE001, S110 - a forked child: nothing may unwind into the caller's frames, and nobody listens
        pass
    os._exit(1)


def _serve(orders: PolicyArguments, post: int) -> None:
    import socket
    import threading

    threading.stack_size(_STACK)
    hatch = socket.socket(fileno=post)
    _, handles, _, _ = socket.recv_fds(hatch, 16, 8)
    hatch.close()
    servants: list[Callable[[socket.socket], None]] = []
    if orders.gateway is not None:
        path = orders.gateway[1]
        servants.append(lambda client: _to_gateway(client, path))
    if orders.proxy is not None:
        from supervisor.sandbox import egress_proxy

        hosts = orders.proxy[1]
        servants.append(lambda client: egress_proxy.serve(client, hosts))
    room = threading.BoundedSemaphore(_AT_ONCE)
    keepers = [
        threading.Thread(target=_keep, args=(socket.socket(fileno=handle), servant, room))
        for handle, servant in zip(handles, servants, strict=True)
    ]
    for keeper in keepers:
        keeper.start()
    for keeper in keepers:
        keeper.join()


def _keep(door: socket.socket, servant: Callable[[socket.socket], None], room: threading.BoundedSemaphore) -> None:
    import threading

    while True:
        room.acquire()
        client, _ = door.accept()
        threading.Thread(target=_attend, args=(client, servant, room)).start()


def _attend(client: socket.socket, servant: Callable[[socket.socket], None], room: threading.BoundedSemaphore) -> None:
    try:
        with client:
            servant(client)
    except OSError:
        pass  # either side went away; the other one sees its connection close
    finally:
        room.release()


def _to_gateway(client: socket.socket, path: str) -> None:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gateway:
        gateway.connect(path)
        join(client, gateway)
