"""What a client in a pane and the zygote say to each other.

    client -> zygote   once: 4 bytes length, then `key=value` entries each ended by NUL: `dir` (the attempt's directory, an absolute path;
                       the runner works there, wherever the client was) and `env` (`NAME=value`, repeated); with it the pane's handles
                       0, 1, 2 as SCM_RIGHTS
    zygote -> client   answers of 128 bytes, padded with NUL: `pid N` (the runner, which sends it itself), later `end N` (the status to exit
                       with); instead of either `no WHY` (nothing was started)

A client that waits in vain takes its request back: it shuts its side of the connection down, and then looks once more for a `pid`. The
runner says its `pid` first and then looks whether the request was taken back. So either the client finds the `pid` and stays, or the
runner leaves with `no`, or both: the client then reads on to the `no`. Never do both go on.

The connection belongs to the zygote and to the runner. Whichever of them is left says `end`: the zygote when it has reaped the runner,
whatever killed that; the runner itself in case the zygote is gone. `client.c` and `client.py` are the other side of this.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from dataclasses import dataclass

_LINUX: bool = sys.platform == "linux"
KIND = socket.SOCK_SEQPACKET if _LINUX else socket.SOCK_STREAM
REQUEST_MAX = 128 * 1024
"""Bytes of a request; a message on a Linux socket may have some 200 KB by default."""
ANSWER = 128
"""Bytes of an answer."""
_LENGTH = struct.Struct("=I")
NOTHING = _LENGTH.pack(0)
"""A request for nothing, which is answered `no`: it shows that somebody is there."""


@dataclass(frozen=True, slots=True)
class Request:
    """One attempt to start."""

    directory: bytes
    environment: dict[bytes, bytes]


class NotARequest(Exception):
    """What came is none, and never will be one."""


def read_request(data: bytes) -> Request | None:
    """The request that `data` holds; None when more has to come. Raises NotARequest."""
    if len(data) < _LENGTH.size:
        return None
    length = _LENGTH.unpack_from(data)[0]
    body = data[_LENGTH.size :]
    if length > REQUEST_MAX or len(body) > length:
        raise NotARequest("its length is wrong")
    if len(body) < length:
        return None
    if not body.endswith(b"\0"):
        raise NotARequest("it is cut short")
    pairs = [entry.partition(b"=")[::2] for entry in body[:-1].split(b"\0")]
    one = dict(pairs)
    if not one.get(b"dir", b"").startswith(b"/"):
        raise NotARequest("it names no absolute directory")
    variables = [value.partition(b"=")[::2] for key, value in pairs if key == b"env"]
    return Request(one[b"dir"], {name: value for name, value in variables if name})


def answer(word: str, value: object) -> bytes:
    """One answer; a long `value` is cut."""
    return f"{word} {value}".encode("utf-8", "replace")[: ANSWER - 1].ljust(ANSWER, b"\0")


def send(handle: socket.socket, data: bytes) -> None:
    """Send an answer without ever waiting; a client that is gone or does not read has none."""
    try:
        handle.send(data, socket.MSG_DONTWAIT)
    except OSError:
        return


def taken_back(handle: socket.socket) -> bool:
    """Whether the client waits no more: it shut its side down, or is gone. Never waits."""
    try:
        return not handle.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def peer_uid(handle: socket.socket) -> int:
    """Who is at the other end, as the kernel says it. Raises OSError."""
    if _LINUX:
        return int(struct.unpack("3i", handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])
    return int(struct.unpack("2I", handle.getsockopt(0, 1, 76)[:8])[1])  # LOCAL_PEERCRED: struct xucred of BSD and macOS; not tried


def close_all(handles: list[int]) -> None:
    """Close what came with a request."""
    for handle in handles:
        os.close(handle)
