"""Clients that stand still: what a paused agent left open is read to its end, and what everything being stopped means to requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import aiohttp
import pytest

from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.proxy import raw

pytestmark = pytest.mark.asyncio
PIECE = raw.chunk(b"event: ping\ndata: " + b"x" * 65_500 + b"\n\n")
PIECES = 128
"""8 MiB: more than the sockets' own buffers take of what is not read."""


def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


async def test_what_a_client_that_stands_still_left_open_is_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.gateway.proxy.forward.KEPT_MAX", 2**25)

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.STREAM, raw.chunk(raw.START), *[PIECE] * PIECES, raw.chunk(raw.END), raw.LAST)

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        body, token = kit.messages(), gate.crew.agent()
        head = f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{gate.port}\r\nx-api-key: {token}\r\nContent-Type: application/json\r\n"
        with socket.socket() as still:
            still.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            still.connect(("127.0.0.1", gate.port))
            still.sendall(f"{head}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            (row,) = await kit.settled(gate.home, 1)
            assert (row["end"], row["estimated"]) == ("served", 0), "its tokens are counted while it stands still"
            assert [pool["in_flight"] for pool in (await gate.status())["pools"]] in ([], [0])
            seen = await asyncio.to_thread(_all_of, still)
        assert seen.endswith(b"0\r\n\r\n") and seen.count(b"x") >= PIECES * 65_500, "it goes on and finds all of its answer"


def _all_of(reader: socket.socket) -> bytes:
    return b"".join(iter(lambda: reader.recv(2**20), b""))


async def test_while_everything_is_stopped_no_model_is_asked(tmp_path: Path) -> None:
    """What is under way is cut, what waits or comes is sent away; after the thaw requests are served as before."""
    asked = asyncio.Event()

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        if asked.is_set():
            await to.send(raw.STREAM, raw.chunk(raw.START + raw.END), raw.LAST)
            return
        await to.send(raw.STREAM, raw.chunk(raw.START), raw.chunk(raw.TEXT))
        asked.set()
        await to.gone()

    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home(tmp_path), up.url)) as gate:
        under_way = asyncio.create_task(gate.post("/v1/messages", kit.messages(), gate.crew.agent("run/a")))
        await asked.wait()
        other = gate.crew.agent("run/b")
        gate.home.sentinel.touch()
        with contextlib.suppress(aiohttp.ClientError):
            assert (await under_way).cut
        refused = await gate.post("/v1/messages", kit.messages(), other)
        assert (refused.status, b"nightcrew thaw" in refused.body) == (503, True)
        (row,) = await kit.settled(gate.home, 1)
        assert (row["agent"], row["end"], "stopped" in row["flags"]) == ("run/a", "client gone", True)
        gate.home.sentinel.unlink()
        assert (await gate.post("/v1/messages", kit.messages(), other)).status == 200
