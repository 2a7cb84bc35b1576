"""Where a key stands in a TOML file. `tomllib` gives no positions, and an error without a line makes a person search.

This is a line scanner, not a parser: it runs only after `tomllib` has accepted the text, and only to find a line to name. For a key
inside an inline table it names the line on which that table starts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"^\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)(?:\s*\.\s*(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+))*)\s*=""")

Path = Sequence[str | int]


def line_of(text: str, path: Path) -> int:
    """The 1-based line of the deepest part of `path` that can be found; 1 when nothing can."""
    best, best_depth = 1, 0
    for line, here in _keys(text):
        depth = _common(here, path)
        if depth > best_depth or (depth == best_depth == len(here) and depth > 0 and best == 1):
            best, best_depth = line, depth
    return best


def _keys(text: str) -> list[tuple[int, list[str | int]]]:
    """Every table header and key with its line and its full path."""
    table: list[str | int] = []
    counts: dict[str, int] = {}
    found: list[tuple[int, list[str | int]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            name = header.group(2)
            table = list(_parts(name))
            if header.group(1) == "[[":
                counts[name] = counts.get(name, -1) + 1
            if name in counts:
                table.append(counts[name])
            found.append((number, list(table)))
        elif key := _KEY.match(line):
            found.append((number, [*table, *_parts(key.group(1))]))
    return found


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in re.findall(r'"[^"]*"|\'[^\']*\'|[^.]+', dotted)]


def _common(here: Path, path: Path) -> int:
    """How many leading parts agree; 0 when `here` leads elsewhere than along `path`."""
    length = min(len(here), len(path))
    return length if list(here[:length]) == list(path[:length]) and len(here) <= len(path) else 0
