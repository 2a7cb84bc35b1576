"""One provider that sends more than anybody can read: the others have their turns."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightcrew.plugins.sim.settings import SimSettings
from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.simulator import running

pytestmark = pytest.mark.asyncio
FLOOD = r"""
import socket
event = b'data: {"type":"ping"}\n\n'
many = (b"%x\r\n%s\r\n" % (len(event), event)) * 20000
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    to, _ = server.accept()
    to.recv(65536)
    to.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    try:
        while True:
            to.sendall(many)
    except OSError:
        pass
"""


@contextlib.contextmanager
def flood() -> Iterator[int]:
    """The port of a process that answers one request with tiny events, as fast as they are taken."""
    with subprocess.Popen([sys.executable, "-I", "-c", FLOOD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


class Reader(threading.Thread):
    """A client that reads all it can; `came` bytes so far."""

    def __init__(self, port: int, token: str, body: bytes) -> None:
        super().__init__(daemon=True)
        self.came = 0
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nx-api-key: {token}\r\nContent-Type: application/json\r\n"
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._socket.recv(2**20):
                self.came += len(data)

    def leave(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self._socket.close()


async def test_a_flood_of_tiny_events_keeps_nobody_else_from_being_served(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    with flood() as port:
        async with running(SimSettings()) as sim:
            settings = kit.upstream(home, f"http://127.0.0.1:{port}", name="flood", more='models = ["claude-opus-*"]')
            async with kit.gateway(tmp_path, settings + kit.upstream(home, sim.url, more='models = ["claude-haiku-*"]')) as gate:
                token = gate.crew.agent("run/quick")
                reader = Reader(gate.port, gate.crew.agent("run/flooded"), kit.messages(model="claude-opus-4-8"))
                reader.start()
                await kit.until(lambda: reader.came > 2**20, "the flood to be there")
                meanwhile = []
                for _ in range(5):
                    before = reader.came
                    answer = await gate.post("/v1/messages", kit.messages(model="claude-haiku-4-5"), token)
                    assert b"message_stop" in answer.body
                    meanwhile.append(reader.came - before)
                reader.leave()
    assert min(meanwhile) < 2**19, f"bytes of the flood that went before one small request: {meanwhile}"
