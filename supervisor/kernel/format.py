"""Figures and moments as they are written."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def size(number: int) -> str:
    """`1.5 GiB`, for people."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"


@lru_cache(maxsize=1024)  # all tasks of a run were submitted at one moment
def rfc3339(seconds: float | None) -> str | None:
    """UTC with milliseconds, or None."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def many(count: int, noun: str) -> str:
    """`1 file`, `2,800 files`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
