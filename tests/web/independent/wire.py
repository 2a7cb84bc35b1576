"""HTTP by hand on a socket: what a hostile client sends is no client library's to choose."""

from __future__ import annotations

import contextlib
import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer, as it stood on the wire."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_problem(self) -> bool:
        """Whether it is an error as the API has them, and says its own status."""
        return self.headers.get("content-type", "").startswith("application/problem+json") and self.json["status"] == self.status


class Wire:
    """One server's port."""

    def __init__(self, port: int) -> None:
        self.port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def raw(self, data: bytes, quiet_s: float = PATIENCE_S) -> bytes:
        """Send these bytes and no more; everything that comes back until the server closes, or is silent for so long."""
        with self.connect() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            connection.settimeout(quiet_s)
            return read_all(connection)

    def head(self, method: str, target: str, headers: Mapping[str, str] | None = None) -> bytes:
        given = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **(headers or {})}
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items() if value != "-"), "", ""]
        return "\r\n".join(lines).encode("utf-8", "surrogateescape")

    def ask(self, method: str, target: str, headers: Mapping[str, str] | None = None, body: bytes | None = None) -> Reply:
        """One request; a header whose value is `-` is left out."""
        sized = {"Content-Length": str(len(body)), "Content-Type": "application/json"} if body is not None else {}
        return replies(self.raw(self.head(method, target, {**sized, **(headers or {})}) + (body or b"")))[0]


def read_all(connection: socket.socket) -> bytes:
    """Until it closes."""
    parts = []
    with contextlib.suppress(ConnectionError, TimeoutError):
        while data := connection.recv(65536):
            parts.append(data)
    return b"".join(parts)


def replies(data: bytes) -> list[Reply]:
    """The answers in what came back, in their order."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.[01] (\d{3}).*", first)
        assert match, first
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        size = int(headers.get("content-length", len(data)))
        found.append(Reply(int(match[1]), headers, data[:size]))
        data = data[size:]
    return found
