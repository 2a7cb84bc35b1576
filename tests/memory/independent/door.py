"""How the independent trials speak as an agent: one line of JSON at `agents.sock`, with the attempt's token. No code is the product's."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

PATIENCE_S = 60.0


class Denied(Exception):
    """The supervisor's answer was no: `kind` is the error's class, `text` all of its words."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind, self.text = kind, text
        super().__init__(f"{kind}: {text}")


def ask(env: Mapping[str, str], verb: str, token: str | None = None, **args: Any) -> dict[str, Any]:
    """The answer to one request of the agent whose environment this is. Raises OSError when no whole answer came: nothing is known then."""
    request = {"version": "", "verb": verb, "args": args, "token": env["NIGHTCREW_TOKEN"] if token is None else token}
    return answer(exchange(env["NIGHTCREW_AGENTS_SOCKET"], json.dumps(request).encode() + b"\n"))


def exchange(path: str, data: bytes) -> bytes:
    """What comes back for these bytes, up to the end of the line."""
    with socket.socket(socket.AF_UNIX) as door:
        door.settimeout(PATIENCE_S)
        door.connect(path)
        door.sendall(data)
        with door.makefile("rb") as reader:
            return reader.readline()


def answer(line: bytes) -> dict[str, Any]:
    """The value in it. Raises Denied."""
    if not line.endswith(b"\n"):
        raise ConnectionResetError("no whole answer")
    said = json.loads(line)
    if said["ok"]:
        value: dict[str, Any] = said["value"]
        return value
    error = said["error"]
    raise Denied(error["error"], " ".join(str(error.get(key, "")) for key in ("what", "on", "why", "kept", "hint")))


class Book:
    """A plain file of what one process did, a line of JSON each, on the disk before the process goes on."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, what: str, **known: Any) -> None:
        os.write(self._handle, json.dumps({"what": what, **known}).encode() + b"\n")
        os.fsync(self._handle)
