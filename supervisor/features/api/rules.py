"""Who may ask over HTTP: access tokens, what each may do, and how much. Pure.

    nck_<id, 12 hex digits>_<secret>

The id finds the token's row, which holds a digest of the secret and no secret. A secret is long and random, so a plain digest will do.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from supervisor.gateway.admission.bucket import Bucket
from supervisor.kernel.errors import UsageError

PREFIX = "nck_"
_TEXT = re.compile(r"nck_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f](?:[^\x00-\x1f\x7f]{0,62}[^\s\x00-\x1f\x7f])?")
DAY_S = 86_400.0
RATE, RATE_MAX = 20.0, 10_000.0
"""Requests a second of a token of which nobody said it, and of any."""
BURST_S = 2.0
"""A token may at once ask as often as its rate allows in this time."""
QUOTA_MAX = 10**9
TOKENS_MAX = 1000
"""That hold at the same time."""


class Kind(StrEnum):
    """How a token travels. One is never taken for the other."""

    API = "api"
    """A program sends it as `Authorization: Bearer`."""
    DEVICE = "device"
    """A browser got it by a link, and keeps it as a cookie."""


class Scope(StrEnum):
    """What a token may do; none holds another."""

    READ = "read"
    SUBMIT = "submit"
    ACT = "act"


@dataclass(frozen=True, slots=True)
class Token:
    """One token, as the ledger knows it. Moments are seconds since 1970."""

    id: str
    digest: str
    kind: Kind
    user: str
    """Whose tasks are its own; their submitter in the fair share."""
    name: str
    scopes: frozenset[Scope]
    projects: frozenset[str]
    """Ids of the repositories that it reaches; none: all that the ledger knows."""
    others: bool
    """It reaches also what others submitted there."""
    confined: bool
    """Its tasks run in a sandbox or not at all."""
    rate: float
    quota: int
    spent: float = 0.0
    spent_at: float = 0.0
    created: float = 0.0
    expires: float | None = None
    used: float | None = None
    revoked: float | None = None

    def holds(self, wall: float) -> bool:
        """Whether it opens anything at `wall`."""
        return self.revoked is None and (self.expires is None or wall < self.expires)

    def may(self, scope: Scope) -> bool:
        """Whether it has this scope."""
        return scope in self.scopes

    def reaches(self, project: str) -> bool:
        """Whether it may know of this repository."""
        return not self.projects or project in self.projects

    def sees(self, project: str, user: str | None) -> bool:
        """Whether it may know of a task there that was handed over for `user`; None: not with a token."""
        return self.reaches(project) and (self.others or user == self.user)


@dataclass(frozen=True, slots=True)
class Words:
    """The two halves of a token's text."""

    id: str
    secret: str

    @property
    def text(self) -> str:
        """What a client sends."""
        return f"{PREFIX}{self.id}_{self.secret}"


def parse(text: str) -> Words | None:
    """The halves of a text; None for one that is no token of ours."""
    found = _TEXT.fullmatch(text)
    return None if found is None else Words(found[1], found[2])


def digest(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


_NOBODYS = digest("")


def is_secret_of(token: Token | None, secret: str) -> bool:
    """Whether the secret is this token's. Takes the same time for any wrong one, and for no token at all."""
    return hmac.compare_digest(token.digest if token is not None else _NOBODYS, digest(secret)) and token is not None


def bucket(token: Token, now: float) -> Bucket:
    """The requests that a token has, all of its burst at `now`, in monotonic seconds."""
    return Bucket(token.rate, max(1.0, token.rate * BURST_S), now)


def spent(token: Token, wall: float) -> float:
    """Tasks of its quota that are used up at `wall`: what was, less what came back since. A clock that went back gives nothing back."""
    return max(0.0, token.spent - max(0.0, wall - token.spent_at) * token.quota / DAY_S)


def wait_s(token: Token, tasks: int, wall: float) -> float:
    """Seconds until its quota has room for so many tasks; 0 when it has now, infinite when it never will."""
    if not token.quota:
        return 0.0
    if tasks > token.quota:
        return float("inf")
    return max(0.0, spent(token, wall) + tasks - token.quota) * DAY_S / token.quota


def check(token: Token) -> None:
    """Raises UsageError for a token that nobody should have."""
    if _NAME.fullmatch(token.user) is None or _NAME.fullmatch(token.name) is None:
        raise UsageError("not a name", on=token.user if _NAME.fullmatch(token.user) is None else token.name, why="1 to 64 characters")
    if not token.scopes:
        raise UsageError("a token needs a scope", why=f"one of {', '.join(Scope)}")
    if not 0 < token.rate <= RATE_MAX:
        raise UsageError("not a rate", on=f"{token.rate:g}", why=f"requests a second, above 0 and at most {RATE_MAX:g}")
    if not 0 <= token.quota <= QUOTA_MAX:
        raise UsageError("not a quota", on=str(token.quota), why=f"tasks in 24 hours, 0 to {QUOTA_MAX}; 0 is no limit")


def scopes(words: Collection[str]) -> frozenset[Scope]:
    """The scopes of these words. Raises UsageError for another word."""
    known = {str(scope): scope for scope in Scope}
    for word in words:
        if word not in known:
            raise UsageError("no scope is called", on=word, why=f"one of {', '.join(Scope)}")
    return frozenset(known[word] for word in words)
