"""Reads the difference of two commits as files, hunks and lines, within bounds: by two gits, however large it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.core.file_diffs import FileDiff, Hunk
from supervisor.host.scratch import locked_directory
from worktrees.git import BULK_S
from worktrees.repository import Repository

PATCH_MAX = 16 * 2**20
"""Bytes of the patch that are read."""
FILES_MAX = 20_000

_FLAGS = ("-r", "-M", "-l1000", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(slots=True)
class _Section:
    hunks: list[Hunk]
    binary: bool = False


def read(repo: Repository, base: str, tip: str, context: int = 3) -> list[FileDiff]:
    """Every file that differs, at most FILES_MAX, in git's order. What lies behind PATCH_MAX is `cut`. Raises as `Git.run`."""
    rows = _rows(repo, base, tip)[:FILES_MAX]
    patch, whole = _patch(repo, base, tip, context)
    sections = list(_sections(patch))
    last = len(sections) - 1
    found, place = [], 0
    for row in rows:
        count = 2 if row.status == "T" else 1  # another kind of file: one that goes, and one that comes
        here = sections[place : place + count]
        hunks = tuple(hunk for section in here for hunk in section.hunks)
        cut = len(here) < count or (not whole and place + count > last)
        found.append(replace(row, hunks=hunks, binary=any(section.binary for section in here), cut=cut))
        place += count
    return found


def _rows(repo: Repository, base: str, tip: str) -> list[FileDiff]:
    words = iter(repo.git.run(repo.store, "diff-tree", "-z", "--raw", *_FLAGS, base, tip, deadline_s=BULK_S).text.split("\0"))
    found = []
    for facts in words:
        if not facts.startswith(":"):
            continue
        old_mode, new_mode, old, new, status = facts.removeprefix(":").split(" ")
        first = next(words)
        second = next(words) if status[0] in "RC" else ""
        found.append(FileDiff(second or first, status[0], first if second else "", old_mode, new_mode, old, new))
    return found


def _patch(repo: Repository, base: str, tip: str, context: int) -> tuple[bytes, bool]:
    """The patch up to PATCH_MAX bytes, and whether that is all."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        file: Path = scratch / "patch"
        repo.git.run(repo.store, "diff-tree", "-p", f"-U{context}", *_FLAGS, f"--output={file}", base, tip, deadline_s=BULK_S)
        with file.open("rb") as said:
            return said.read(PATCH_MAX), file.stat().st_size <= PATCH_MAX


def _sections(patch: bytes) -> Iterator[_Section]:
    """Of each file its hunks. A hunk says how many lines it has, so no line of a file is taken for git's own."""
    lines = patch.split(b"\n")
    place = 0
    here: _Section | None = None
    while place < len(lines):
        line = lines[place]
        place += 1
        if line.startswith(b"diff --git "):
            if here is not None:
                yield here
            here = _Section([])
        elif here is not None and (match := _HUNK.match(line)):
            hunk, place = _hunk(match, lines, place)
            here.hunks.append(hunk)
        elif here is not None and line.startswith(b"Binary files "):
            here.binary = True
    if here is not None:
        yield here


def _hunk(match: re.Match[bytes], lines: Sequence[bytes], place: int) -> tuple[Hunk, int]:
    old, new = int(match.group(1)), int(match.group(3))
    gone, come = (1 if count is None else int(count) for count in match.group(2, 4))
    found: list[tuple[str, str]] = []
    bare = set[int]()
    while place < len(lines) and (gone > 0 or come > 0 or lines[place][:1] == b"\\"):
        sign = lines[place][:1].decode("ascii", "replace") or " "
        if sign == "\\":  # "\ No newline at end of file"
            bare.add(len(found) - 1)
        else:
            found.append((sign, lines[place][1:].decode("utf-8", "replace")))
            gone -= sign in " -"
            come -= sign in " +"
            if sign not in " -+":
                break
        place += 1
    return Hunk(old, new, tuple(found), frozenset(bare)), place
