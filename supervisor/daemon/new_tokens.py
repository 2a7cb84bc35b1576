"""Making access tokens. Runs in the process of the command, or of the page: the supervisor gets no secret."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any

from supervisor.core import access
from supervisor.core.access import Token, Words
from supervisor.ledger.access import to_shape
from worktrees.repository import Repository

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Asks the supervisor for a verb with arguments."""


def create(ask: Ask, wanted: Token, places: Iterable[Repository] = ()) -> Words:
    """Have a token made as `wanted` says, but for its id and digest, which are made here; `places` are its repositories. Returns the token:
    nobody can read it again. Raises UsageError, Refused, and what `ask` raises."""
    words = Words(secrets.token_hex(6), secrets.token_urlsafe(32))
    shape = {**to_shape(wanted), "id": words.id, "digest": access.digest(words.secret)}
    known = [{"project": place.project, "root": str(place.root), "common_dir": str(place.common_dir)} for place in places]
    ask("token", {"op": "create", "token": shape, "places": known})
    return words
