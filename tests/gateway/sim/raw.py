"""A client that hides nothing: what it sends and what comes back are bytes on a socket."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

MESSAGES = "/v1/messages"
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
GEMINI = "/v1beta/models/gemini-3-pro:generateContent"
GEMINI_STREAM = "/v1beta/models/gemini-3-pro:streamGenerateContent"


def anthropic_body(**fields: Any) -> dict[str, Any]:
    return {"model": "claude-opus-4-8", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}], **fields}


def chat_body(**fields: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], **fields}


def gemini_body(**fields: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": "hi"}]}], **fields}


@dataclass(frozen=True)
class Came:
    """An answer as it came, chunks put together; `ended` says whether HTTP's own framing was complete."""

    status: int
    headers: dict[str, str]
    body: bytes
    ended: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[dict[str, Any]]:
        """The JSON of every data line."""
        lines = self.body.replace(b"\r\n", b"\n").split(b"\n")
        return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


def connected(url: str, path: str, body: dict[str, Any] | bytes, key: str, **headers: str) -> socket.socket:
    """The request was sent; the answer is to be read."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    place = urlsplit(url)
    lines = [f"POST {path} HTTP/1.1", f"Host: {place.netloc}", f"x-api-key: {key}", f"Content-Length: {len(data)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {text}" for name, text in headers.items()]
    talk = socket.create_connection((place.hostname or "", place.port or 0), timeout=30)
    talk.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
    return talk


def read_all(talk: socket.socket) -> bytes:
    """Until the other side closes."""
    parts = []
    while part := talk.recv(65536):
        parts.append(part)
    return b"".join(parts)


def ask_raw(url: str, path: str, body: dict[str, Any] | bytes, key: str, **headers: str) -> bytes:
    """Everything that came until the connection was closed."""
    with connected(url, path, body, key, **headers) as talk:
        return read_all(talk)


def ask(url: str, path: str, body: dict[str, Any] | bytes, key: str, **headers: str) -> Came:
    """One whole answer."""
    head, _, rest = ask_raw(url, path, body, key, **headers).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    named = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
    if named.get("transfer-encoding") == "chunked":
        data, ended = unchunked(rest)
    else:
        data, ended = rest, len(rest) == int(named.get("content-length", -1))
    return Came(int(first.split()[1]), named, data, ended)


def unchunked(rest: bytes) -> tuple[bytes, bool]:
    """(the chunks' bytes, whether the last chunk came)."""
    parts: list[bytes] = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if int(size, 16) == 0:
            return b"".join(parts), True
        parts.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return b"".join(parts), False


def chunk_sizes(raw: bytes) -> list[int]:
    """How the answer was cut into chunks."""
    rest, sizes = raw.partition(b"\r\n\r\n")[2], []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        sizes.append(int(size, 16))
        rest = rest[sizes[-1] + 2 :]
    return sizes
