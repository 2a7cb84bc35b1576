"""Connections to providers, on real sockets: what goes out, when one is used again, and what never leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from multidict import CIMultiDict

from supervisor.gateway.proxy.upstreams import Outgoing, Timeouts, Unreachable, Upstreams
from tests.gateway.proxy import raw

pytestmark = pytest.mark.asyncio
TIMEOUTS = Timeouts(connect_s=5.0, first_byte_s=0.5, idle_s=20.0)


@asynccontextmanager
async def upstreams() -> AsyncIterator[Upstreams]:
    made = Upstreams(TIMEOUTS)
    try:
        yield made
    finally:
        await made.close()


def post(url: str, body: bytes | None = b"{}", **headers: str) -> Outgoing:
    return Outgoing("POST" if body is not None else "GET", f"{url}/v1/messages?beta=true", CIMultiDict(headers), body)


async def test_a_request_is_sent_as_it_is_and_framed() -> None:
    async def script(_: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.whole(200, b"{}"))

    async with raw.upstream(script) as up, upstreams() as here:
        for outgoing in (post(up.url, b'{"a":1}', Accept="x"), post(up.url, None)):
            with await here.send("one", outgoing) as reply:
                assert (reply.status, await reply.chunk(), reply.is_whole) == (200, b"{}", True)
        host = up.url.partition("//")[2]
        sent, asked = up.received
        assert sent.head.splitlines()[:4] == ["POST /v1/messages?beta=true HTTP/1.1", f"Host: {host}", "Accept: x", "Content-Length: 7"]
        assert sent.body == b'{"a":1}'
        assert asked.head.strip().splitlines() == ["GET /v1/messages?beta=true HTTP/1.1", f"Host: {host}"]


async def test_a_connection_is_used_again_once_its_answer_was_whole() -> None:
    seen: list[int] = []

    async def script(request: raw.Received, to: raw.Connection) -> None:
        seen.append(id(to.writer))
        if b"cut" in request.body:
            await to.send(raw.STREAM, raw.chunk(raw.START))
        else:
            await to.send(raw.whole(200, b"{}"))

    async with raw.upstream(script) as up, upstreams() as here:
        for body in (b"whole", b"cut", b"whole"):
            with await here.send("one", post(up.url, body)) as reply:
                assert await reply.chunk()
        first, second, third = seen
        assert first == second
        assert third != second, "the one whose answer was left is closed"


@pytest.mark.parametrize("value", ["a\r\nx-other: b", "a\nb", "a\rb", "a\0b"])
async def test_a_line_break_in_a_header_goes_nowhere(value: str) -> None:
    async def script(_: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.whole(200, b"{}"))

    async with raw.upstream(script) as up, upstreams() as here:
        with pytest.raises(ValueError, match="line break"):
            await here.send("one", post(up.url, Accept=value))
        assert not up.received


async def test_a_provider_that_is_silent_is_left() -> None:
    async def script(_: raw.Received, to: raw.Connection) -> None:
        await to.gone()

    async with raw.upstream(script) as up, upstreams() as here:
        with pytest.raises(Unreachable, match=r"no answer within 500ms"):
            await here.send("one", post(up.url))


async def test_a_connection_on_which_a_request_is_not_out_yet_is_not_used_again() -> None:
    """An answer may come before the body was read: to who is too large, or has no right to ask."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if b"Content-Length: 2\r\n" not in await reader.readuntil(b"\r\n\r\n"):
            writer.write(raw.whole(413, b"{}"))
            await done.wait()
        writer.write(raw.whole(200, b"{}"))
        await done.wait()
        writer.close()

    done = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, upstreams() as here:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            for body, status in ((bytes(2**26), 413), (b"{}", 200)):
                with await here.send("one", post(url, body)) as reply:
                    assert (reply.status, await reply.chunk()) == (status, b"{}")
        finally:
            done.set()
    assert connections == 2
