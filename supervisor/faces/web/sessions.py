"""Who looks: a token opens the page once, then a cookie names the session, and a key that only our page has goes with each request.

The cookie alone is worth nothing: browsers send it to every port of this machine, also to a server that an agent started there and a person
looks at. The key lies where only pages of our own address can read it, and is derived from the cookie; so no session needs to be kept, and
a server that was started again knows all of them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Protocol

from supervisor.core.access import Scope

LOCAL = "local"
"""The id of the token that `nightcrew web` prints."""


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


class NoTokens:
    """Nobody made any."""

    async def verify(self, token: str) -> Who | None:  # noqa: ARG002 - of the protocol
        """As `Tokens`."""
        return None

    async def holder(self, token_id: str) -> Who | None:  # noqa: ARG002
        """As `Tokens`."""
        return None
