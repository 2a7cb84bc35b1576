"""Both ends of HTTP without a library between: an upstream that writes exactly what a test says, a client that sends exactly that."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
START = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],'
    b'"usage":{"input_tokens":25,"output_tokens":1}}}\n\n'
)
TEXT = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"words "}}\n\n'
END = (
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(status: int, body: bytes, headers: bytes = b"Content-Type: application/json\r\n") -> bytes:
    """A whole answer."""
    return b"HTTP/1.1 %d X\r\n%sContent-Length: %d\r\n\r\n%s" % (status, headers, len(body), body)


@dataclass(slots=True)
class Received:
    """One request as it came."""

    head: str
    body: bytes

    @property
    def lines(self) -> list[str]:
        """Of the head, in lower case."""
        return self.head.lower().splitlines()


@dataclass(slots=True)
class Connection:
    """What a script has in its hands."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *data: bytes) -> None:
        """Write it now."""
        self.writer.write(b"".join(data))
        await self.writer.drain()

    async def gone(self) -> None:
        """Until the other side has closed the connection."""
        try:
            while await self.reader.read(65536):
                pass
        except ConnectionError:
            pass


Script = Callable[[Received, Connection], Awaitable[None]]


@dataclass(slots=True)
class Upstream:
    """Answers each request by the script; the connection stays open until the script closes it or the client leaves."""

    url: str
    received: list[Received] = field(default_factory=list)
    connections: int = 0


@asynccontextmanager
async def upstream(script: Script) -> AsyncIterator[Upstream]:
    """One on 127.0.0.1 until the end of the block."""
    made = Upstream("")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        made.connections += 1
        try:
            while (request := await _request(reader)) is not None:
                made.received.append(request)
                await script(request, Connection(reader, writer))
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            made.connections -= 1
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    length = next((int(line.partition(":")[2]) for line in head.lower().splitlines() if line.startswith("content-length:")), 0)
    return Received(head, await reader.readexactly(length))


async def exchange(port: int, data: bytes, *, until_closed: bool = True) -> bytes:
    """Send it, and give back what comes: all until the connection is closed, or only the head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(30):
            return await reader.read() if until_closed else await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


@asynccontextmanager
async def listening(say: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A port where everybody who connects is told `say`, and then nothing more; the connection is closed."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(say)
            await writer.drain()
            await reader.read(1)  # not before the client has spoken: it would see a broken connection instead
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
