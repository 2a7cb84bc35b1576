"""Patterns of paths, and which paths a note may have."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from fnmatch import translate
from itertools import takewhile

# Path globs
# ----------
# Patterns of paths, as people and agents write them wherever nightcrew takes one: leases and a task's `paths`, the `paths` of a
# note, what `mem wait` waits for, what a snapshot copies. One form, one way to match, one to compare. Pure.
#
# A pattern is a path below a root, whose parts may hold `*` (any characters), `?` (one) and `[...]` (one of these; `[!...]`: one
# that is none of these), none of which crosses a `/`, and whose part `**` stands for any number of directories, none among them. A
# pattern covers what it matches and everything below it: `src/api`, `src/api/` and `src/api/**` are the same. Only where files are
# listed to be copied or compared, a directory needs a mark behind it (`src/`, `src/**`), see `names_files`.


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


def wildcards(glob: str) -> int:
    """Count the wildcards of a normal form; each costs time in every comparison."""
    return sum(glob.count(char) for char in "*?[") - glob.count(_MANY)


@functools.lru_cache(maxsize=4096)
def _head(glob: str) -> tuple[str, ...]:
    """The parts of a normal form before its first `**`. Each form ends in one, since it covers what is below it."""
    return tuple(takewhile(lambda part: part != _MANY, glob.split("/")))


@functools.lru_cache(maxsize=65536)
def overlap(one: str, other: str) -> bool:
    """Whether a path may be covered by both, of two normal forms. False is certain; True may be wrong where two parts with wildcards begin
    and end alike (`a*b`, `a?b`).

    Only the parts before the first `**` of either decide: what comes after them in one form can follow, in one path, what comes after them
    in the other, since a `**` takes in whatever the other form needs. So a comparison looks at no more than PARTS_MAX pairs of parts.
    """
    return all(map(_alike, _head(one), _head(other)))


def covers(glob: str, path: str) -> bool:
    """Whether a normal form covers a path from the root."""
    return _matches((*glob.split("/"), _MANY), path.split("/"))


def names_top(glob: str) -> bool:
    """Return whether a normal form begins with the name of a file or directory, and so covers only that one."""
    return _WILD.isdisjoint(glob.partition("/")[0])


def is_below(glob: str) -> bool:
    """Whether a pattern, as it was written, means what is below a directory."""
    return glob.endswith(("/", _MANY))


def names_files(glob: str) -> Callable[[str], bool]:
    """Whether a pattern, as it was written, names a file: its own match, or what is below it if it `is_below`. Raises ValueError."""
    form = normalised(glob)
    parts = (*form.split("/"), *([_MANY] if is_below(glob) else []))
    return lambda path: _matches(parts, path.split("/"))


def _matches(parts: Sequence[str], path: Sequence[str]) -> bool:
    """Return whether the parts match the whole path. Parts between two `**` match at their first place, since a later one leaves less of
    the path; so each pair of a part and a name is compared at most once for each part."""
    first, *middle = _runs(parts)
    if not _fits(first, path, 0):
        return False
    if not middle:
        return len(path) == len(first)
    at, last = len(first), middle.pop()
    end = len(path) - len(last)
    for run in middle:
        at = next((place for place in range(at, end - len(run) + 1) if _fits(run, path, place)), end) + len(run)
    return at <= end and _fits(last, path, end)


def _runs(parts: Sequence[str]) -> list[list[str]]:
    """Split the parts at each `**`."""
    runs: list[list[str]] = [[]]
    for part in parts:
        if part == _MANY:
            runs.append([])
        else:
            runs[-1].append(part)
    return runs


def _fits(run: Sequence[str], path: Sequence[str], at: int) -> bool:
    return at + len(run) <= len(path) and all(_is_name(part, path[at + number]) for number, part in enumerate(run))


def _is_name(part: str, name: str) -> bool:
    found = _wild(part)
    return part == name if found is None else found(name) is not None


@functools.lru_cache(maxsize=4096)
def _wild(part: str) -> Callable[[str], re.Match[str] | None] | None:
    """The matcher of a part with wildcards; None for a name."""
    return None if _WILD.isdisjoint(part) else re.compile(translate(part)).match


@functools.lru_cache(maxsize=4096)
def _ends(part: str) -> tuple[str, str]:
    """Return the text before the first wildcard of a part, and the text after its last."""
    head, tail = ("".join(takewhile(lambda char: char not in _WILD, text)) for text in (part, reversed(part)))
    return head, tail[::-1]


def _alike(one: str, other: str) -> bool:
    """Return whether one name may match both parts."""
    if one == other:
        return True
    wild = [not _WILD.isdisjoint(part) for part in (one, other)]
    if not any(wild):
        return False
    (head, tail), (its_head, its_tail) = _ends(one), _ends(other)
    if not (head.startswith(its_head) or its_head.startswith(head)) or not (tail.endswith(its_tail) or its_tail.endswith(tail)):
        return False
    return all(wild) or "*" in (one, other) or (_is_name(one, other) if wild[0] else _is_name(other, one))


# Note paths
# ----------
# Which paths a note of a project's memory can have, and how large it may be. `memory/files.py` says where they lie.


PATH_MAX = 200
"""Characters of a path below `memory/`."""
NOTE_MAX = 64 * 2**10
CORE_MAX = 4 * 2**10
RECORD_MAX = 4 * 2**10
DAY_MAX = 32 * 2**20
"""Bytes of a file, of a line of a day, and of a day."""
CONFLICT = ".conflict-"
"""In the name of a file that is kept beside another."""
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
_CORE = re.compile(rf"core({re.escape(CONFLICT)}[\w-]+)?\.md\Z", re.ASCII)
_NOTES = re.compile(rf"notes({re.escape(CONFLICT)}[\w-]+)?\.md\Z", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d\.jsonl\Z")


class Kind(StrEnum):
    """What a file is for."""

    CORE = "core"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"
    EPISODIC = "episodic"
    NOTES = "notes"


WHERE = "it is core.md, semantic/NAME.md, procedural/NAME.md, episodic/YYYY-MM-DD.jsonl or agents/RUN/TASK/notes.md"
"""Where a note can lie, for people."""


def kind_of(path: str) -> Kind | None:
    """What a path below `memory/` is for; None for one at which nothing of ours may lie."""
    parts = path.split("/")
    if len(path) > PATH_MAX or not all(map(_PART.match, parts)):
        return None
    match parts:
        case [name] if _CORE.match(name):
            return Kind.CORE
        case ["semantic" | "procedural", name] if name.endswith(".md"):
            return Kind(parts[0])
        case ["episodic", day] if _DAY.match(day):
            return Kind.EPISODIC
        case ["agents", _, _, name] if _NOTES.match(name):
            return Kind.NOTES
        case _:
            return None


def size_max(path: str) -> int:
    """Bytes that a file at `path` may have for somebody to wait for it."""
    return CORE_MAX if kind_of(path) is Kind.CORE else NOTE_MAX
