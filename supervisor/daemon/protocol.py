"""How the command line talks to the daemon: one JSON object a line over `daemon.sock`, one request a connection.

-> {"version": "0.1.0", "verb": "kill", "args": {...}}
<- {"ok": true, "value": {...}}  or  {"ok": false, "error": {...}}     (errors.to_wire)
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

from supervisor import __version__
from supervisor.core.errors import NotRunning, Refused, TimedOut, UsageError, from_wire

MAX_REQUEST = 64 * 2**20
"""A plan of 20,000 tasks is about 10 MB on the wire."""


def call(path: Path, verb: str, args: dict[str, Any], *, timeout_s: float = 60.0) -> dict[str, Any]:
    """Ask the daemon. Raises NotRunning when none answers, TimedOut, or the error that the daemon reports."""
    request = json.dumps({"version": __version__, "verb": verb, "args": args}).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(request)
            with connection.makefile("rb") as reader:
                line = reader.readline()
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning("no supervisor is running", hint="nightcrew up -d") from None
    except TimeoutError:
        raise TimedOut(
            "the supervisor did not answer", on=f"{verb} in {timeout_s:.0f} s", kept="the ledger", hint="nightcrew attach supervisor"
        ) from None
    except (BrokenPipeError, ConnectionResetError):
        line = b""
    if not line:
        raise NotRunning("the supervisor went away while answering", on=verb, kept="everything it acknowledged", hint="nightcrew up -d")
    answer = json.loads(line)
    if not answer["ok"]:
        raise from_wire(answer["error"])
    value: dict[str, Any] = answer["value"]
    return value


def parse(line: bytes) -> tuple[str, dict[str, Any]]:
    """One request as (verb, args). Raises UsageError, and Refused when the client is of another version."""
    try:
        shape = json.loads(line)
        version, verb, args = str(shape["version"]), str(shape["verb"]), dict(shape["args"])
    except (ValueError, KeyError, TypeError):
        raise UsageError("not a request", why="expected one JSON object with version, verb and args") from None
    if version != __version__ and verb not in ("ping", "down"):
        raise Refused(
            "the command and the supervisor differ",
            why=f"the command is {version}, the supervisor {__version__}",
            kept="running agents go on",
            hint="nightcrew down && nightcrew up -d",
        )
    return verb, args
