"""What a change of a file changed, as text."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from memory.versions import Change

LINES_MAX = 2_000
"""Of one patch."""


def patch(content: Callable[[str], bytes | None], change: Change) -> str:
    """As `diff -u`; cut where it is very long. Empty when nothing is known of either side."""
    before, after = (_lines(content(version)) if version else [] for version in (change.before, change.version))
    old, new = (f"{change.path}@{version or 'none'}" for version in (change.before, change.version))
    lines = list(difflib.unified_diff(before, after, old, new, lineterm=""))
    more = [f"({len(lines) - LINES_MAX} lines more)"] if len(lines) > LINES_MAX else []
    return "\n".join([*lines[:LINES_MAX], *more])


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()
