"""`daemon.sock`: takes one request a connection and hands it to the handler of its verb. Only the user's own processes may ask."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
from types import TracebackType
from typing import Any

from supervisor.core.errors import NightcrewError, Refused, UsageError
from supervisor.daemon import protocol
from supervisor.daemon.handlers import HANDLERS
from supervisor.daemon.loop import Loop
from supervisor.host.paths import Home

READ_S = 30.0


class Server:
    """An async context: listening inside, gone outside."""

    def __init__(self, loop: Loop, home: Home) -> None:
        self._loop = loop
        self._home = home

    async def __aenter__(self) -> Server:
        path = self._home.daemon_socket
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._answer, path, limit=protocol.MAX_REQUEST)
        path.chmod(0o600)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._home.daemon_socket.unlink(missing_ok=True)
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # whoever went away does not want the answer
            writer.write(json.dumps(await self._reply(reader, writer)).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def _reply(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, Any]:
        try:
            _check_peer(writer.get_extra_info("socket"))
            verb, args = protocol.parse(await asyncio.wait_for(reader.readline(), READ_S))
            handler = HANDLERS.get(verb)
            if handler is None:
                raise UsageError("the supervisor knows no verb", on=verb, why=f"known: {', '.join(sorted(HANDLERS))}")
            return {"ok": True, "value": await handler(self._loop, self._home, args)}
        except NightcrewError as error:
            return {"ok": False, "error": error.to_wire()}
        except (TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
            return {"ok": False, "error": UsageError("the request could not be read", why=str(error)).to_wire()}
        except Exception as error:  # noqa: BLE001 - one broken request must not end the supervisor; the fault is shown, not hidden
            self._loop.alert(f"a request failed: {type(error).__name__}: {error}")
            return {"ok": False, "error": NightcrewError("the supervisor failed on this request", why=repr(error)).to_wire()}


def _check_peer(connection: socket.socket) -> None:
    """The socket is 0600 in a 0700 directory; the kernel's word on who connected is the second lock."""
    if not sys.platform.startswith("linux"):
        return
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid not in (os.getuid(), 0):
        raise Refused("not your supervisor", why=f"it belongs to uid {os.getuid()}, you are uid {uid}")
