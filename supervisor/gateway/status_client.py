"""Asking the gateway for its own pages, over its socket. Standard library only: `status` imports this."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any

from supervisor.host import secrets
from supervisor.host.paths import Home
from supervisor.kernel import tokens
from supervisor.kernel.errors import NotRunning, TimedOut, ToolFailed
from supervisor.kernel.format import duration

PING, STATUS, NOW, STOP, RELOAD, CREW, PAST = (f"/nightcrew/{page}" for page in ("ping", "status", "now", "stop", "reload", "crew", "past"))
METRICS = "/metrics"
RELOAD_S = 40.0
"""It reads the settings by a process of its own, and keys by programs that may take 30 s."""
_HINT = "nightcrew doctor"


def fetch(home: Home, page: str, *, post: bool = False, timeout_s: float = 5.0, body: Mapping[str, Any] | None = None) -> bytes:
    """The body of one page. `body` is posted. Blocks for at most about `timeout_s` between two pieces of the answer.

    Raises NotRunning when nobody listens, TimedOut, ToolFailed for any other answer than 200, Refused when the secret cannot be read.
    """
    connection = _OverSocket(str(home.gateway_socket), timeout_s)
    headers = {
        "Authorization": f"Bearer {tokens.admin(secrets.own(home.secret))}",
        **({"Content-Type": "application/json"} if body else {}),
    }
    try:
        connection.request("POST" if post or body else "GET", page, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        found = answer.read()
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning("no gateway is running", hint="nightcrew up -d") from None
    except TimeoutError:
        raise TimedOut("the gateway did not answer", on=f"{page} in {duration(timeout_s)}", hint=_HINT) from None
    except (OSError, http.client.HTTPException) as error:
        raise ToolFailed("the gateway broke off", on=page, why=str(error) or type(error).__name__, hint=_HINT) from None
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise ToolFailed("the gateway would not", on=page, why=f"{answer.status}: {found[:200].decode('utf-8', 'replace')}", hint=_HINT)
    return found


def ask(home: Home, page: str, *, post: bool = False, timeout_s: float = 5.0) -> dict[str, Any]:
    """The same for a page that is a JSON object."""
    body = fetch(home, page, post=post, timeout_s=timeout_s)
    try:
        shape = json.loads(body)
    except ValueError:
        shape = None
    if not isinstance(shape, dict):
        raise ToolFailed("the gateway answered something strange", on=page, why=body[:60].decode("utf-8", "replace"), hint=_HINT)
    return shape


class _OverSocket(http.client.HTTPConnection):
    """To a UNIX socket; the Host header is the one that the gateway knows for it."""

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Of the standard library's class."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
