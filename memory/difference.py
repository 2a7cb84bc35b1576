"""What a change of a file changed, as text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence

from memory.versions import Change

LINES_MAX = 2_000
"""Of one patch."""
COMPARED_MAX = 1_000_000
"""Lines before times lines after, without those at both ends that stayed: what is compared, in 11 ms. More are said to be replaced."""
CONTEXT = 3
_HUNK = re.compile(r"@@ -(?P<old>\d+)(?P<old_size>,\d+)? \+(?P<new>\d+)(?P<new_size>,\d+)? @@")


def patch(content: Callable[[str], bytes | None], change: Change) -> str:
    """As `diff -u`; cut where it is very long. Empty when nothing is known of either side."""
    before, after = (_lines(content(version)) if version else [] for version in (change.before, change.version))
    old, new = (f"{change.path}@{version or 'none'}" for version in (change.before, change.version))
    lines = _diff(before, after, old, new)
    more = [f"({len(lines) - LINES_MAX} lines more)"] if len(lines) > LINES_MAX else []
    return "\n".join([*lines[:LINES_MAX], *more])


def _diff(before: list[str], after: list[str], old: str, new: str) -> list[str]:
    """Of what differs alone: the time that difflib takes grows with the square of what it is given."""
    head = _alike(before, after)
    tail = _alike(before[head:][::-1], after[head:][::-1])
    skipped, over = max(0, head - CONTEXT), max(0, tail - CONTEXT)
    a, b = before[skipped : len(before) - over], after[skipped : len(after) - over]
    if (len(before) - head - tail) * (len(after) - head - tail) > COMPARED_MAX:
        end = tail - over
        gone, come = a[head - skipped : len(a) - end], b[head - skipped : len(b) - end]
        hunk = f"@@ -{skipped + 1},{len(a)} +{skipped + 1},{len(b)} @@"
        context = [f" {line}" for line in a[: head - skipped]], [f" {line}" for line in a[len(a) - end :]]
        return [f"--- {old}", f"+++ {new}", hunk, *context[0], *(f"-{line}" for line in gone), *(f"+{line}" for line in come), *context[1]]
    return [
        _HUNK.sub(lambda match: _moved(match, skipped), line) if line.startswith("@@") else line
        for line in difflib.unified_diff(a, b, old, new, lineterm="")
    ]


def _moved(hunk: re.Match[str], by: int) -> str:
    return f"@@ -{int(hunk['old']) + by}{hunk['old_size'] or ''} +{int(hunk['new']) + by}{hunk['new_size'] or ''} @@"


def _alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").splitlines()
