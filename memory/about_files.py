"""Which notes are about which files of the repository, by the patterns in their `paths`, see `core.path_globs`. Pure."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Sequence

from supervisor.core.path_globs import covers, normalised, overlap

_WILD = re.compile(r"[*?\[]")
_FILES = 10_000
"""Paths that are compared with one pattern; one that could cover more is taken to cover one of them."""


class GlobIndex:
    """The patterns of many notes, by the notes' numbers: a task asks for its files, and few notes are near them."""

    def __init__(self) -> None:
        self._by_first: dict[str, dict[str, set[int]]] = {}

    def add(self, number: int, globs: Iterable[str]) -> None:
        """A note is about what these cover; what is no pattern is passed over."""
        for glob in known(globs):
            self._by_first.setdefault(_first(glob), {}).setdefault(glob, set()).add(number)

    def remove(self, number: int, globs: Iterable[str]) -> None:
        """Take back what `add` did."""
        for glob in known(globs):
            same = self._by_first.get(_first(glob), {})
            same.get(glob, set()).discard(number)
            if not same.get(glob):
                same.pop(glob, None)

    def about(self, paths: Iterable[str]) -> set[int]:
        """The notes about one of these files, or patterns of files."""
        found: set[int] = set()
        for path in known(paths):
            first = _first(path)
            for key in (first, "") if first else tuple(self._by_first):
                for glob, numbers in self._by_first.get(key, {}).items():
                    if overlap(glob, path):
                        found |= numbers
        return found


def known(globs: Iterable[str]) -> list[str]:
    """Their normal forms, without what is no pattern."""
    found = []
    for glob in globs:
        try:
            found.append(normalised(glob))
        except ValueError:
            continue
    return found


def is_dead(globs: Iterable[str], tracked: Sequence[str]) -> bool:
    """Whether there are patterns, and none of them covers one of the `tracked` files, which are sorted."""
    patterns = known(globs)
    return bool(patterns) and not any(_covers_one(glob, tracked) for glob in patterns)


def _covers_one(glob: str, tracked: Sequence[str]) -> bool:
    fixed = _WILD.split(glob, maxsplit=1)[0]
    begin, end = bisect.bisect_left(tracked, fixed), bisect.bisect_right(tracked, fixed + chr(0x10FFFF))
    near = tracked[begin:end]
    return len(near) > _FILES or any(covers(glob, path) for path in near)


def _first(glob: str) -> str:
    """Its first part; empty when that may be anything."""
    part = glob.split("/", 1)[0]
    return "" if _WILD.search(part) else part
