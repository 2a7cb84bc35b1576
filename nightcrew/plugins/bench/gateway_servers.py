"""The servers of the benchmark, each as a process of its own that prints its port on one line and serves until it is told to stop:

    python -I -m nightcrew.plugins.bench.gateway_servers provider
    python -I -m nightcrew.plugins.bench.gateway_servers bare URL

The provider answers every POST with one Messages stream of 30 events, at once. It is a bare protocol and no web framework, so that what is
measured is the proxy before it; the same process is asked directly for the comparison. The bare proxy is the floor: an aiohttp proxy that
passes requests on and does nothing else. It has no agents, no limits and no account.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from typing import cast

import aiohttp
from aiohttp import web

EVENTS = 30
INPUT_TOKENS, OUTPUT_TOKENS = 18_000, 27
_PASSED_ON = ("content-type", "authorization", "anthropic-version")


def answer() -> bytes:
    """Return the whole response: headers, `message_start`, 25 deltas, the closing events; one chunk an event, as providers send them."""
    message: dict[str, object] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
    }
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": OUTPUT_TOKENS}},
        {"type": "message_stop"},
    ]
    for number in range(EVENTS - len(events)):
        delta = {"type": "text_delta", "text": f"[simulated] word {number} "}
        events.insert(-3, {"type": "content_block_delta", "index": 0, "delta": delta})
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nrequest-id: req_bench\r\n"
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    chunks = "".join(f"{len(frame):x}\r\n{frame}\r\n" for frame in frames)
    return f"{head}\r\n{chunks}0\r\n\r\n".encode()


class Provider(asyncio.Protocol):
    """One connection. Reads whole requests by their Content-Length, also several in a row."""

    def __init__(self, reply: bytes) -> None:
        self._reply = reply
        self._missing = 0
        self._head = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        while data:
            if self._missing:
                used = min(self._missing, len(data))
                self._missing, data = self._missing - used, data[used:]
            else:
                head, end, data = (self._head + data).partition(b"\r\n\r\n")
                self._head = b"" if end else head
                self._missing = _length(head) if end else 0
                if not end:
                    return
            if not self._missing:
                self._transport.write(self._reply)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _serve_until_stopped(port: int) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    print(port, flush=True)
    await stopped.wait()


async def _provider() -> None:
    reply = answer()
    server = await asyncio.get_running_loop().create_server(lambda: Provider(reply), "127.0.0.1", 0)
    async with server:
        await _serve_until_stopped(server.sockets[0].getsockname()[1])


async def _bare(url: str) -> None:
    async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as session:

        async def forward(request: web.BaseRequest) -> web.StreamResponse:
            body = await request.read()
            headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
            async with session.post(url + request.path_qs, data=body, headers=headers) as answer:
                passed = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")})
                await passed.prepare(request)
                async for piece in answer.content.iter_any():
                    await passed.write(piece)
                await passed.write_eof()
            return passed

        runner = web.ServerRunner(web.Server(forward))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await _serve_until_stopped(runner.addresses[0][1])
        await runner.cleanup()


def main() -> None:
    """Serve until SIGTERM."""
    serve = _bare(*sys.argv[2:]) if sys.argv[1] == "bare" else _provider()
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.run(serve)
        sys.exit(0)
    asyncio.run(serve)


if __name__ == "__main__":
    main()
