"""Answers that break HTTP itself. They are written to the connection by hand, past the server's own framing, and then it is closed."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Iterator, Mapping
from functools import cache

from supervisor.gateway.sim.faults import Manner, Wire

BOMB_BYTES = 128 * 1024 * 1024
"""What the gzip bomb unpacks to; on the wire it is a thousandth of that."""

_INSIDE = re.compile(rb"(?<=[\xc2-\xf4])(?=[\x80-\xbf])")
"""Between the first byte of a UTF-8 character and its second."""


async def broken(kind: Wire, headers: Mapping[str, str], body: bytes) -> bytes:
    """The raw bytes of an answer that is broken in this way; nothing for `no_answer`."""
    match kind:
        case "no_answer":
            return b""
        case "mid_headers":
            return _head(headers)[:40]
        case "length_short":
            return _head({**headers, "Content-Length": str(max(0, len(body) - 10))}) + b"\r\n" + body
        case "length_long":
            return _head({**headers, "Content-Length": str(len(body) + 1000)}) + b"\r\n" + body
        case "no_chunk_end":
            return _head({**headers, "Transfer-Encoding": "chunked"}) + b"\r\n" + f"{len(body):x}\r\n".encode() + body + b"\r\n"
        case "gzip_bomb":
            packed = await asyncio.to_thread(_bomb)
            return _head({**headers, "Content-Encoding": "gzip", "Content-Length": str(len(packed))}) + b"\r\n" + packed
        case _:
            raise ValueError(f"nothing is broken: {kind!r}")


def _head(headers: Mapping[str, str]) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + "".join(f"{name}: {text}\r\n" for name, text in headers.items()).encode()


@cache
def _bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    block = b" " * (1024 * 1024)
    return b"".join(packer.compress(block) for _ in range(BOMB_BYTES // len(block))) + packer.flush()


def writes(data: bytes, manner: Manner) -> Iterator[bytes]:
    """One event's bytes as the separate writes that `manner` makes of them."""
    match manner:
        case "bytes":
            yield from (data[place : place + 1] for place in range(len(data)))
        case "split":
            yield from (part for part in _INSIDE.split(data) if part)
        case "crlf":
            yield data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        case "comments":
            yield b": a comment\n\n:\n" + data
        case _:
            yield data
