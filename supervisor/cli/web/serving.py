"""The server's process, from its lock to its end."""

from __future__ import annotations

import asyncio
import errno
import signal
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from aiohttp import web

from supervisor.cli.web import record
from supervisor.core.errors import Refused, ToolFailed
from supervisor.faces.web.app import Server, application
from supervisor.faces.web.connections import Connections, logger, more_files
from supervisor.faces.web.feature import Feature
from supervisor.faces.web.guard import Names
from supervisor.faces.web.sessions import Sessions, Tokens
from supervisor.host.paths import Home

HOST = "127.0.0.1"
PORT = 8421
LEAVE_S = 2.0
"""Seconds that answers under way have when it leaves."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for."""

    port: int | None
    """None: that of before, or the usual one, or when that is taken any. 0: any."""
    names: Collection[str]
    read_only: bool
    user: str


def address(secret: str, port: int, tokens: Tokens) -> str:
    """What a person opens."""
    return f"http://{HOST}:{port}/enter?token={Sessions(bytes.fromhex(secret), tokens, user='').token}"


def serve(home: Home, wanted: Wanted, secret: str, features: Sequence[Feature], tokens: Tokens, ready: Callable[[str], None]) -> None:
    """Serve on 127.0.0.1 until SIGTERM or SIGINT; `ready` is told the address. The lock is held. Raises Refused, ToolFailed."""
    known = record.read(home)
    listener = _listen(wanted.port, known.port if known else PORT)
    port = int(listener.getsockname()[1])
    if known is not None and wanted.port is None and port != known.port:  # somebody else listens there, whom browsers may have told
        secret = record.new_secret()
    more_files()
    sessions = Sessions(bytes.fromhex(secret), tokens, user=wanted.user)
    app = application(Server(Names(port, wanted.names), sessions, wanted.read_only), features)

    def say() -> None:
        record.write(home, secret, port)
        ready(address(secret, port, tokens))

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(app, listener, say))


async def _serve(app: web.Application, listener: socket.socket, ready: Callable[[], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connections = Connections()
    app.middlewares.append(connections.busy)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=LEAVE_S, handler_cancellation=True, logger=logger())
    await runner.setup()
    assert runner.server is not None  # noqa: S101 - it is set up
    watching = asyncio.get_running_loop().create_task(connections.watch(runner.server))
    try:
        await web.SockSite(runner, listener).start()
        ready()
        await stop.wait()
    finally:
        watching.cancel()
        await runner.cleanup()


def _listen(asked: int | None, before: int) -> socket.socket:
    ports = (asked,) if asked is not None else (before, PORT, 0)
    for port in dict.fromkeys(ports):
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((HOST, port))
            listener.listen(256)
        except OSError as error:
            listener.close()
            if port == ports[-1]:
                raise _taken(port, error) from error
            continue
        return listener
    raise AssertionError(ports)


def _taken(port: int, error: OSError) -> Exception:
    if error.errno in (errno.EADDRINUSE, errno.EACCES):
        why = "another process has it" if error.errno == errno.EADDRINUSE else "it is for root alone"
        return Refused("cannot listen", on=f"{HOST}:{port}", why=why, hint="nightcrew web --port 0")
    return ToolFailed("cannot listen", on=f"{HOST}:{port}", why=error.strerror or str(error))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
