"""Values for the account's rows. Whatever a client or a provider said, SQLite takes it: one row that it refused would take down those that
are committed with it. Members of enums and truth values are brought to plain ones: sqlite3 looks for an adapter of each that is not, which
doubles a row's time.
"""

from __future__ import annotations

import math

from supervisor.core.gateway.types import Usage

_TEXT_MAX = 300
"""Characters of what a client says (a model's name, a session's): the rest is cut off."""
_NUMBER_MAX = 2**53


def text(said: str) -> str:
    """At most _TEXT_MAX characters of it, without what is no UTF-8."""
    return said[:_TEXT_MAX] if said.isascii() else said[:_TEXT_MAX].encode("utf-8", "backslashreplace").decode()


def number(value: float | None) -> float | None:
    """None also for what is no finite number."""
    return value if value is not None and math.isfinite(value) else None


def tokens(usage: Usage) -> tuple[int, int, int, int]:
    """In the order of the columns."""
    return _count(usage.input), _count(usage.output), _count(usage.cache_read), _count(usage.cache_write)


def hour(usage: Usage) -> int:
    """Of what was written to a cache, what is kept for an hour."""
    return _count(min(usage.cache_write_1h, usage.cache_write))


def _count(tokens: int) -> int:
    return min(max(0, tokens), _NUMBER_MAX)
