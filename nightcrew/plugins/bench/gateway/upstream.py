"""The provider of the benchmark: answers every POST with one Messages stream of 30 events, at once.

    python -I -m nightcrew.plugins.bench.gateway.upstream [--tls CERT KEY] [--close]

prints its port on one line and serves until it is told to stop. A bare protocol and no web framework, so that what is measured is the
proxy before it; the same process is asked directly for the comparison.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import ssl
import sys
from typing import cast

EVENTS = 30
INPUT_TOKENS, OUTPUT_TOKENS = 18_000, 27


def answer(*, close: bool = False) -> bytes:
    """The whole response: headers, `message_start`, 26 deltas, the three closing events; one chunk an event, as providers send them."""
    start: dict[str, object] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
    }
    events: list[dict[str, object]] = [
        {"type": "message_start", "message": {**start, "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"[simulated] word {number} "}}
            for number in range(EVENTS - 5)
        ),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": OUTPUT_TOKENS}},
        {"type": "message_stop"},
    ]
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nrequest-id: req_bench\r\n"
    body = b"".join(_chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()) for event in events)
    return f"{head}{'Connection: close' + chr(13) + chr(10) if close else ''}\r\n".encode() + body + b"0\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class Provider(asyncio.Protocol):
    """One connection. Reads whole requests by their Content-Length, also several in a row."""

    def __init__(self, reply: bytes, *, close: bool) -> None:
        self._reply = reply
        self._close = close
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
                if self._close:
                    self._transport.close()
                    return


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _serve(context: ssl.SSLContext | None, *, close: bool) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    reply = answer(close=close)
    server = await loop.create_server(lambda: Provider(reply, close=close), "127.0.0.1", 0, ssl=context)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await stopped.wait()


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tls", nargs=2, metavar=("CERT", "KEY"))
    parser.add_argument("--close", action="store_true", help="close each connection after its answer")
    options = parser.parse_args()
    context = None
    if options.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*options.tls)
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.run(_serve(context, close=options.close))
        sys.exit(0)
    asyncio.run(_serve(context, close=options.close))


if __name__ == "__main__":
    main()
