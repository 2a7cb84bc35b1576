"""Check who looks, and that no foreign page drives a browser."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from supervisor.features.api.rules import Scope

# Sessions
# --------
# Who looks: a token opens the page once, then a cookie names the session, and a key that only our page has goes with each request.
#
# The cookie alone is worth nothing: browsers send it to every port of this machine, also to a server that an agent started there
# and a person looks at. The key lies where only pages of our own address can read it, and is derived from the cookie; so no session
# needs to be kept, and a server that was started again knows all of them.


LOCAL = "local"
"""The id of the token that `nightcrew web` prints."""
COOKIE_S = 30 * 86400
"""Seconds that a browser keeps the cookie."""


@dataclass(frozen=True, slots=True)
class Who:
    """Whose token it is."""

    token: str
    """Its id, which is no secret."""
    user: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        """Whether its token is good for that."""
        return scope in self.scopes


class Tokens(Protocol):
    """The tokens that a person made for browsers. Both raise LedgerError when nobody can tell."""

    async def verify(self, token: str) -> Who | None:
        """Whose it is; None when nobody's, or revoked. Takes the same time for every wrong one."""

    async def holder(self, token_id: str) -> Who | None:
        """The same by its id: None once it is revoked."""


@dataclass(frozen=True, slots=True)
class Session:
    """What a browser is given when it opens the page by a token."""

    cookie: str
    key: str


class Sessions:
    """Of one server. `secret` outlives it, so that a browser goes on after a restart."""

    def __init__(self, secret: bytes, tokens: Tokens, *, user: str) -> None:
        self._secret, self._tokens = secret, tokens
        self._local = Who(LOCAL, user, frozenset(Scope))

    @property
    def token(self) -> str:
        """The one that `nightcrew web` prints."""
        return self._mac("token", "")

    async def open(self, token: str) -> Session | None:
        """A session for who has a token."""
        who = self._local if _same(token, self.token) else await self._tokens.verify(token)
        if who is None:
            return None
        named = f"{who.token}.{secrets.token_urlsafe(12)}"
        cookie = f"{named}.{self._mac('cookie', named)}"
        return Session(cookie, self._mac("key", cookie))

    async def who(self, cookie: str) -> Who | None:
        """Whose session it is; None when it is nobody's, or its token was revoked."""
        named, _, mac = cookie.rpartition(".")
        if not _same(mac, self._mac("cookie", named)):
            return None
        token = named.partition(".")[0]
        return self._local if token == LOCAL else await self._tokens.holder(token)

    def has_key(self, cookie: str, key: str) -> bool:
        """Whether the key belongs to the session."""
        return _same(key, self._mac("key", cookie))

    def proof(self, cookie: str, host: str, nonce: str) -> str:
        """That who answers at `host` knows the key of the session, without the key. Another server that is asked there, and asks this one
        at another port, gets one for that port."""
        said = f"proof\0{host}\0{nonce}"
        return hmac.new(self._mac("key", cookie).encode(), said.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    def _mac(self, what: str, of: str) -> str:
        return hmac.new(self._secret, f"{what}\0{of}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _same(given: str, right: str) -> bool:
    """In the same time for every wrong one, also for bytes that are no text."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


# Guard
# -----
# Checks a request before anybody looks at who sends it. A browser that a foreign page drives cannot get past it: not by a name that
# resolves to 127.0.0.1 (Host), not from another site (Origin), not by a form (content type). Pure.


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
