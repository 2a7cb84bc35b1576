"""Checks a request before anybody looks at who sends it. A browser that a foreign page drives cannot get past it: not by a name that
resolves to 127.0.0.1 (Host), not from another site (Origin), not by a form (content type). Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto

METHODS = frozenset({"GET", "HEAD", "POST", "DELETE"})
BODY_MAX = 2**20
"""Bytes of a request."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "Cache-Control": "no-store",
    "Server": "nightcrew",
}
"""On every answer. Trusted types: no script can make elements of text, whatever it was given."""


class Access(Enum):
    """Who may ask for a route."""

    OPEN = auto()
    """Anybody on this machine: files of ours that hold nothing of the crew."""
    PAGE = auto()
    """A browser with the cookie: the frame of a page, which holds nothing of the crew either."""
    DATA = auto()
    """With the cookie and its key: what is read."""
    ACT = auto()
    """The same from a page of ours alone, with a token that may act; refused with --read-only."""
    BEARER = auto()
    """A program: the route itself looks after its token. No cookie counts."""


@dataclass(frozen=True, slots=True)
class Denied:
    """Why a request goes no further, as an HTTP status and a sentence."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class Names:
    """Under which the server answers: `127.0.0.1:PORT`, `localhost:PORT`, and what a person's own proxy calls it."""

    port: int
    others: Collection[str] = ()

    @property
    def hosts(self) -> frozenset[str]:
        """As a Host header has them."""
        return frozenset({f"127.0.0.1:{self.port}", f"localhost:{self.port}", *self.others})

    @property
    def origins(self) -> frozenset[str]:
        """As an Origin header has them; of others by https alone."""
        return frozenset({f"http://127.0.0.1:{self.port}", f"http://localhost:{self.port}", *(f"https://{one}" for one in self.others)})


class Guard:
    """Checks requests by the names under which the server answers."""

    def __init__(self, names: Names) -> None:
        self._hosts, self._origins = names.hosts, names.origins

    def check(self, method: str, headers: Mapping[str, str]) -> Denied | None:
        """Of any request; None when it may go on. `headers` is case-insensitive."""
        if headers.get("Host", "") not in self._hosts:
            return Denied(421, "this is not the host that the request names")
        if "Origin" in headers and headers["Origin"] not in self._origins:
            return Denied(403, "requests of other pages are refused")
        if method not in METHODS:
            return Denied(405, f"the method is one of {', '.join(sorted(METHODS))}")
        if "Upgrade" in headers:
            return Denied(400, "there is no other protocol here")
        if method == "POST":
            return self._body(headers)
        if headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers:
            return Denied(400, f"a {method} has no body")
        return None

    @staticmethod
    def _body(headers: Mapping[str, str]) -> Denied | None:
        if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            return Denied(415, "the content type must be application/json")
        if "Content-Encoding" in headers:
            return Denied(415, "a body is sent as it is, without an encoding")
        size = headers.get("Content-Length", "0").lstrip("0")  # the parser took it, so these are digits, but how many?
        if len(size) > len(str(BODY_MAX)) or int(size or 0) > BODY_MAX:
            return Denied(413, f"a request has at most {BODY_MAX} bytes")
        return None

    def check_site(self, access: Access, headers: Mapping[str, str]) -> Denied | None:
        """Whether it comes from where requests of this access may come from."""
        if access is Access.ACT and headers.get("Origin") not in self._origins:
            return Denied(403, "only a page of this server may ask for that")
        cross = headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none")
        if cross and access is not Access.OPEN:
            return Denied(403, "requests of other pages are refused")
        return None
