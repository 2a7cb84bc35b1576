"""Patterns of paths, as people and agents write them wherever nightcrew takes one: leases and a task's `paths`, the `paths` of a note, what
`mem wait` waits for, what a snapshot copies. One form, one way to match, one to compare. Pure.

A pattern is a path below a root, whose parts may hold `*` (any characters), `?` (one) and `[...]` (one of these; `[!...]`: one that is none
of these), none of which crosses a `/`, and whose part `**` stands for any number of directories, none among them. A pattern covers what it
matches and everything below it: `src/api`, `src/api/` and `src/api/**` are the same. Only where files are listed to be copied or compared,
a directory needs a mark behind it (`src/`, `src/**`), see `names_files`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

GLOB_MAX = 512
"""Characters of a pattern."""
PARTS_MAX = 32
_MANY = "**"
_WILD = frozenset("*?[]")


def normalised(glob: str) -> str:
    """The one form of a pattern. Raises ValueError, in words for whoever wrote it, for what is no path below the root or is too large."""
    if not glob or len(glob) > GLOB_MAX:
        raise ValueError(f"a pattern has 1 to {GLOB_MAX} characters" + (f", not {len(glob)}" if glob else ""))
    if any(ord(char) < 0x20 or ord(char) == 0x7F or 0xD800 <= ord(char) < 0xE000 for char in glob):
        raise ValueError("a pattern holds no control character")
    if glob.startswith(("/", "~")):
        raise ValueError("a pattern begins at the root, without a / or ~ before it")
    parts: list[str] = []
    for part in glob.split("/"):
        if part == "..":
            raise ValueError("a pattern stays below the root: it has no part ..")
        if part in ("", ".") or (part == _MANY and parts[-1:] == [_MANY]):
            continue
        parts.append(part if part == _MANY else _fewer_stars(part))
    if len(parts) > PARTS_MAX:
        raise ValueError(f"a pattern has at most {PARTS_MAX} parts, not {len(parts)}")
    if not parts:
        return _MANY
    return "/".join(parts[:-1] if parts[-1] == _MANY and len(parts) > 1 else parts)


def _fewer_stars(part: str) -> str:
    while _MANY in part:
        part = part.replace(_MANY, "*")
    return part


@functools.lru_cache(maxsize=4096)
def _parts(glob: str) -> tuple[str, ...]:
    """Of a normal form, with what is below it."""
    return (*(part for part in glob.split("/") if glob != _MANY), _MANY)


@functools.lru_cache(maxsize=65536)
def overlap(one: str, other: str) -> bool:
    """Whether a path may be covered by both, of two normal forms. False is certain; True may be wrong where two parts with wildcards begin
    and end alike (`a*b`, `a?b`)."""
    return _meet(_parts(one), _parts(other))


def covers(glob: str, path: str) -> bool:
    """Whether a normal form covers a path from the root."""
    return _meet(_parts(glob), tuple(path.split("/")), literal=True)


def is_below(glob: str) -> bool:
    """Whether a pattern, as it was written, means what is below a directory."""
    return glob.endswith(("/", _MANY))


def names_files(glob: str) -> Callable[[str], bool]:
    """Whether a pattern, as it was written, names a file: its own match, or what is below it if it `is_below`. Raises ValueError."""
    form = normalised(glob)
    parts = _parts(form) if is_below(glob) else tuple(form.split("/"))
    return lambda path: _meet(parts, tuple(path.split("/")), literal=True)


def _meet(one: Sequence[str], other: Sequence[str], *, literal: bool = False) -> bool:
    """Whether both match one path. `literal`: the other one is that path. Each pair of parts is looked at once."""
    reached = {0}  # how many parts of the other one may be over when this many parts of the one are
    for part in one:
        nexts: set[int] = set()
        for at in _over(reached, other, literal=literal):
            if part == _MANY:
                nexts.update(range(at, len(other) + 1))
            elif at < len(other):
                if not literal and other[at] == _MANY:
                    nexts.add(at)
                elif _same(part, other[at], literal=literal):
                    nexts.add(at + 1)
        reached = nexts
        if not reached:
            return False
    return len(other) in _over(reached, other, literal=literal)


def _over(reached: Iterable[int], other: Sequence[str], *, literal: bool) -> set[int]:
    """A `**` may also stand for nothing."""
    found = set(reached)
    for at in sorted(reached):
        while not literal and at < len(other) and other[at] == _MANY:
            at += 1
            found.add(at)
    return found


def _same(one: str, other: str, *, literal: bool) -> bool:
    """Whether two parts may match one name."""
    if literal or _WILD.isdisjoint(other):
        return fnmatchcase(other, one)
    if _WILD.isdisjoint(one):
        return fnmatchcase(one, other)
    return all(_begin_alike(*ends) for ends in ((_head(one), _head(other)), (_head(one[::-1]), _head(other[::-1]))))


def _head(part: str) -> str:
    """What is before its first wildcard."""
    return "".join(takewhile(lambda char: char not in _WILD, part))


def _begin_alike(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
