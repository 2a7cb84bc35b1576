"""How the command line talks to the daemon: one JSON object a line over `daemon.sock`, one request a connection.

-> {"version": "0.1.0", "verb": "kill", "args": {...}}                  an agent, at `agents.sock`: also "token": "nct_..."
<- {"ok": true, "value": {...}}  or  {"ok": false, "error": {...}}     (errors.to_wire)
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

from supervisor import __version__
from supervisor.kernel import codec
from supervisor.kernel.errors import NotRunning, Refused, TimedOut, UsageError, from_wire
from supervisor.kernel.format import duration

MAX_REQUEST = 64 * 2**20
"""A plan of 20,000 tasks is about 10 MB on the wire."""


class Unbound(NotRunning):
    """Nobody listens at the socket, so nothing was asked."""


def call(path: Path, verb: str, args: object, *, timeout_s: float | None = 60.0, token: str = "") -> dict[str, Any]:
    """Ask the daemon; without a `timeout_s` for as long as it takes. An agent asks at `agents.sock` with its `token`.

    Raises Unbound when nobody listens, NotRunning when none answers, TimedOut, or the error that the daemon reports.
    """
    shape = {"version": __version__, "verb": verb, "args": args, **({"token": token} if token else {})}
    request = json.dumps(shape, default=codec.brief).encode() + b"\n"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            _connect(connection, str(path), timeout_s)
            connection.sendall(request)
            with connection.makefile("rb") as reader:
                line = reader.readline()
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        raise Unbound("no supervisor is running", hint="nightcrew up -d") from None
    except TimeoutError:
        raise TimedOut(
            "the supervisor did not answer",
            on=f"{verb} in {duration(timeout_s or 0)}",
            kept="the ledger",
            hint="nightcrew attach supervisor",
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


def _connect(connection: socket.socket, path: str, timeout_s: float | None) -> None:
    """Connect, and try again while the socket's backlog is full: the kernel refuses then, instead of letting the client wait."""
    ends_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        try:
            return connection.connect(path)
        except BlockingIOError:
            if ends_at is not None and time.monotonic() > ends_at:
                raise TimeoutError from None
            time.sleep(0.01)


def parse(line: bytes) -> tuple[str, dict[str, Any]]:
    """One request as (verb, args). Raises UsageError, and Refused when the client is of another version."""
    version, verb, args, _ = _parse(line)
    if version != __version__ and verb not in ("ping", "down"):
        raise Refused(
            "the command and the supervisor differ",
            why=f"the command is {version}, the supervisor {__version__}",
            kept="running agents go on",
            hint="nightcrew down && nightcrew up -d",
        )
    return verb, args


def parse_agents(line: bytes) -> tuple[str, dict[str, Any], str]:
    """One request of an agent as (verb, args, token). Its version does not matter: agents outlive an upgrade of the supervisor."""
    return _parse(line)[1:]


def _parse(line: bytes) -> tuple[str, str, dict[str, Any], str]:
    try:
        shape = json.loads(line)
        return str(shape["version"]), str(shape["verb"]), dict(shape["args"]), str(shape.get("token", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError("not a request", why="expected one JSON object with version, verb and args") from None
