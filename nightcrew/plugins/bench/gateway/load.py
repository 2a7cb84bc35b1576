"""Load a proxy for the benchmark: each connection sends its next request when it has the whole answer to the last one."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from supervisor.kernel.errors import ToolFailed

BODY_BYTES = 72_600
"""As Claude Code 2.1 sends with its tools and system prompt (measured: 76.6 kB for a first request)."""
_END = b"0\r\n\r\n"
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What came of one round."""

    latencies_s: tuple[float, ...]
    """Of each request, from its first byte out to its last byte in."""
    wall_s: float


def body(size: int = BODY_BYTES) -> bytes:
    """A request of about `size` bytes in the shape of Claude Code's."""
    shape = {"model": "claude-sonnet-4-5", "max_tokens": 64000, "stream": True, "messages": [{"role": "user", "content": "Say something."}]}
    filler = "Use the tools that you have. " * (size // 29)
    return json.dumps({**shape, "system": [{"type": "text", "text": filler}]}).encode()[: -len("}]}")] + b"}]}"


def request(port: int, headers: Mapping[str, str], payload: bytes) -> bytes:
    """The bytes of one POST to `/v1/messages`."""
    lines = [f"POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}"]
    return "\r\n".join([*lines, *(f"{name}: {text}" for name, text in headers.items())]).encode() + b"\r\n\r\n" + payload


async def run(port: int, requests: Sequence[bytes], each: int) -> Load:
    """One connection for each of `requests`, which it sends `each` times. Raises ToolFailed for any answer but a whole 200."""
    callers = [_Caller(text, each) for text in requests]
    loop = asyncio.get_running_loop()
    for caller in callers:
        await loop.create_connection(lambda caller=caller: caller, "127.0.0.1", port)  # type: ignore[misc]  # bound now
    began = time.perf_counter()
    for caller in callers:
        caller.send()
    try:
        async with asyncio.timeout(_PATIENCE_S + each * len(requests) * 0.1):
            await asyncio.gather(*(caller.done for caller in callers))
    except TimeoutError:
        raise ToolFailed("no whole answer came", on=f"port {port}", why="the time was up") from None
    finally:
        for caller in callers:
            caller.close()
    return Load(tuple(taken for caller in callers for taken in caller.latencies), time.perf_counter() - began)


class _Caller(asyncio.Protocol):
    """One connection."""

    def __init__(self, text: bytes, times: int) -> None:
        self._text = text
        self._left = times
        self._came = b""
        self._began = 0.0
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ToolFailed("the connection was closed", why=str(exc or self._came[:200])))

    def send(self) -> None:
        self._came = b""
        self._began = time.perf_counter()
        self._transport.write(self._text)

    def data_received(self, data: bytes) -> None:
        # Only the beginning and the end are looked at: the cost of a client must not hide that of the proxy.
        self._came = self._came + data if len(self._came) < 16 else self._came[:16] + data[-8:]
        if not self._came.endswith(_END):
            return
        if not self._came.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(ToolFailed("the answer was no 200", why=self._came[:200].decode("utf-8", "replace")))
            return
        self.latencies.append(time.perf_counter() - self._began)
        self._left -= 1
        if self._left:
            self.send()
        elif not self.done.done():
            self.done.set_result(None)

    def close(self) -> None:
        if not self.done.done():
            self.done.cancel()
        self._transport.close()
