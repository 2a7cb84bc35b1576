"""Checks a request before anybody looks at who sends it. A browser that a web page drives cannot get past it: not by a name that
resolves to 127.0.0.1 (Host), not from another site (Origin), not by a form (content type)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

METHODS = frozenset({"GET", "HEAD", "POST"})
BODY_MAX = 32 * 2**20
"""Bytes of the largest request: what the providers themselves take at most."""


@dataclass(frozen=True, slots=True)
class Denied:
    """Why a request goes no further, as an HTTP status and a sentence."""

    status: int
    why: str


class BrowserGuard:
    """Checks requests by the names under which the gateway answers."""

    def __init__(self, port: int) -> None:
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})

    def check(self, method: str, headers: Mapping[str, str], *, over_unix: bool) -> Denied | None:
        """None when the request may go on. `headers` is case-insensitive; over the UNIX socket the name is `localhost`, or one of the
        port's own: whoever bridges the socket into a sandbox keeps its clients' address."""
        host = headers.get("Host", "")
        if host not in self._hosts and not (over_unix and host == "localhost"):
            return Denied(421, "this is not the host that the request names")
        if "Origin" in headers:
            return Denied(403, "requests of web pages are refused")
        if method not in METHODS:
            return Denied(405, f"the method is one of {', '.join(sorted(METHODS))}")
        if method == "POST":
            return self._body(headers)
        if not _is_empty(headers):
            return Denied(400, f"a {method} has no body")
        return None

    @staticmethod
    def _body(headers: Mapping[str, str]) -> Denied | None:
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json" and not _is_empty(headers):
            return Denied(415, "the content type must be application/json")
        if int(headers.get("Content-Length", 0)) > BODY_MAX:  # the parser took it, so it is a number
            return Denied(413, f"a request has at most {BODY_MAX // 2**20} MiB")
        return None


def _is_empty(headers: Mapping[str, str]) -> bool:
    return "Transfer-Encoding" not in headers and headers.get("Content-Length", "0") == "0"
