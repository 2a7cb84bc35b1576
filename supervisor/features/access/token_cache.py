"""Whose token a request carries: what the ledger says, believed for a moment."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from supervisor.features.access import rules as access_rules
from supervisor.features.access.rows import held
from supervisor.features.access.rules import Kind, Token
from supervisor.kernel.errors import LedgerError
from supervisor.store import sqlite

FRESH_S = 0.5
"""What was read is believed for so long: a token opens nothing at most this much after it was revoked."""


class TokenBook:
    """All tokens that hold. Any thread may ask; `close` it."""

    def __init__(self, ledger: Path, now: Callable[[], float], wall: Callable[[], float]) -> None:
        """`now` gives monotonic seconds, `wall` seconds since 1970."""
        self._path, self._now, self._wall = ledger, now, wall
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._opened = (0, 0)
        self._held: Mapping[str, Token] = {}
        self._read_at = -2 * FRESH_S

    def knows(self, text: str) -> bool:
        """Whether `verify` answers without a look at the ledger."""
        words = access_rules.parse(text)
        return words is None or (self._is_fresh and words.id in self._held)

    @property
    def _is_fresh(self) -> bool:
        return self._now() - self._read_at < FRESH_S

    def verify(self, text: str, kind: Kind) -> Token | None:
        """The token of this kind that `text` is; None for a text that opens nothing, in the same time whatever is wrong with it. Raises
        LedgerError when nobody can tell."""
        words = access_rules.parse(text)
        token = None if words is None else self._known().get(words.id) or self._known(since=self._now()).get(words.id)
        right = access_rules.is_secret_of(token, words.secret if words is not None else "")
        return token if token is not None and right and token.kind is kind and token.holds(self._wall()) else None

    def holder(self, token: str, kind: Kind) -> Token | None:
        """The token of this id and kind, while it holds. Raises LedgerError."""
        known = self._known().get(token)
        return known if known is not None and known.kind is kind and known.holds(self._wall()) else None

    def _known(self, since: float = -1.0) -> Mapping[str, Token]:
        """Those that were read lately, and not before `since`: one that nobody knows may have been made just now."""
        if self._is_fresh and self._read_at >= since:
            return self._held
        with self._lock:  # however many ask at once, one reads
            if not self._is_fresh or self._read_at < since:
                began = self._now()
                self._held = self._look()
                self._read_at = began
        return self._held

    def _look(self) -> Mapping[str, Token]:
        try:
            return self._tokens()
        except LedgerError:  # the file may have been replaced, or migrated by a newer supervisor: look at it afresh, once
            self.close()
            return self._tokens()

    def _tokens(self) -> Mapping[str, Token]:
        if self._db is None:
            if not self._path.exists():
                return {}
            self._db = sqlite.connect_readonly(self._path, one_thread=False)
            self._opened = sqlite.file_identity(self._path)
        sqlite.check_same_file(self._path, self._opened)
        return held(self._db)

    def close(self) -> None:
        """Give the ledger back."""
        if self._db is not None:
            with contextlib.suppress(LedgerError):
                self._db.close()
            self._db = None
