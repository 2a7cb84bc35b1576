"""Reads what lies between two commits in the form in which `core.gate_files` judges it: by three gits, within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.core.gate_files import TEXT_MAX, Change, wants_text
from supervisor.host.scratch import locked_directory
from worktrees.git import BULK_S
from worktrees.repository import Repository

PATCH_MAX = 16 * 2**20
"""Bytes of the patch that are read; what lies behind them counts as too large to be read through."""
FILES_MAX = 20_000
TEXTS_MAX = 50
"""Files whose whole text is read."""

_FLAGS = ("-r", "-M", "-l1000", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none")
_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class _Row:
    """One file of `diff-tree --raw`."""

    change: Change
    old: str
    new: str


def read(repo: Repository, base: str, tip: str) -> list[Change]:
    """Every file that differs, at most FILES_MAX, with the lines that were removed and added. Raises as `Git.run`."""
    rows = _rows(repo, base, tip)[:FILES_MAX]
    patch, whole = _patch(repo, base, tip)
    found, sections = [], _sections(patch)
    for row in rows:
        removed: list[str] = []
        added: list[str] = []
        last = False
        for _ in range(2 if row.change.status == "T" else 1):  # another kind of file: one that goes, and one that comes
            lines = next(sections, None)
            last = lines is None
            removed += lines[0] if lines else []
            added += lines[1] if lines else []
        found.append(replace(row.change, removed=tuple(removed), added=tuple(added), cut=last))
    if not whole and found:
        found = [replace(change, cut=True) if not (change.removed or change.added) else change for change in found]
    return _with_texts(repo, rows, found)


def _rows(repo: Repository, base: str, tip: str) -> list[_Row]:
    words = iter(repo.git.run(repo.store, "diff-tree", "-z", "--raw", *_FLAGS, base, tip, deadline_s=BULK_S).text.split("\0"))
    found = []
    for facts in words:
        if not facts.startswith(":"):
            continue
        _, _, old, new, status = facts.split(" ")
        first = next(words)
        second = next(words) if status[0] in "RC" else ""
        found.append(_Row(Change(second or first, status[0], first if second else ""), old, new))
    return found


def _patch(repo: Repository, base: str, tip: str) -> tuple[bytes, bool]:
    """The patch up to PATCH_MAX bytes, and whether that is all."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        file: Path = scratch / "patch"
        repo.git.run(repo.store, "diff-tree", "-p", "-U0", *_FLAGS, f"--output={file}", base, tip, deadline_s=BULK_S)
        with file.open("rb") as said:
            return said.read(PATCH_MAX), file.stat().st_size <= PATCH_MAX


def _sections(patch: bytes) -> Iterator[tuple[list[str], list[str]]]:
    """Of each file the lines that were removed and added. A hunk says how many it has, so no line of a file is taken for git's own."""
    lines = patch.split(b"\n")
    place = 0
    here: tuple[list[str], list[str]] | None = None
    while place < len(lines):
        line = lines[place]
        place += 1
        if line.startswith(b"diff --git "):
            if here is not None:
                yield here
            here = ([], [])
        elif here is not None and (hunk := _HUNK.match(line)):
            gone, come = (1 if count is None else int(count) for count in hunk.groups())
            place = _take(lines, place, gone, here[0])
            place = _take(lines, place, come, here[1])
    if here is not None:
        yield here


def _take(lines: Sequence[bytes], place: int, count: int, into: list[str]) -> int:
    into += [line[1:].decode("utf-8", "replace") for line in lines[place : place + count]]
    place += count
    return place + (place < len(lines) and lines[place].startswith(b"\\ "))


def _with_texts(repo: Repository, rows: Sequence[_Row], found: Sequence[Change]) -> list[Change]:
    """The same, with the text of the files that are compared whole."""
    wanted = [number for number, change in enumerate(found) if wants_text(change.path) and change.status in "MRT"][:TEXTS_MAX]
    changes = list(found)
    for number in wanted:
        old, new = (_text(repo, oid) for oid in (rows[number].old, rows[number].new))
        changes[number] = replace(changes[number], old_text=old, new_text=new)
    return changes


def _text(repo: Repository, oid: str) -> str | None:
    size = repo.git.run(repo.store, "cat-file", "-s", oid, accept=(0, 128)).text
    if not size.isdigit() or int(size) > TEXT_MAX:
        return None
    return repo.git.run(repo.store, "cat-file", "blob", oid, accept=(0, 128)).out.decode("utf-8", "replace")
