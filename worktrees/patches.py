"""The difference of two commits, within bounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.host.scratch import locked_directory
from supervisor.kernel.diffs import FileDiff, Hunk
from supervisor.kernel.gate_files import TEXT_MAX, Change, folder_of, wants_folder, wants_text
from worktrees.git import BULK_S
from worktrees.repository import Repository

# Patches
# -------
# Reads the difference of two commits as files, hunks and lines, within bounds: by two gits, however large it is.


PATCH_MAX = 16 * 2**20
"""Bytes of the patch that are read."""
FILES_MAX = 20_000

_FLAGS = ("-r", "-M", "-l1000", "--ignore-submodules=none")
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


@dataclass(slots=True)
class _Section:
    hunks: list[Hunk]
    binary: bool = False


def read_patch(repo: Repository, base: str, tip: str, context: int = 3) -> list[FileDiff]:
    """Every file that differs, at most FILES_MAX, in git's order. What lies behind PATCH_MAX is `cut`. Raises as `Git.run`."""
    rows = _rows(repo, base, tip)[:FILES_MAX]
    patch, whole = bounded(repo, PATCH_MAX, "diff-tree", "-p", f"-U{context}", *_FLAGS, base, tip)
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
    words = iter(repo.run("diff-tree", "-z", "--raw", *_FLAGS, base, tip, deadline_s=BULK_S).text.split("\0"))
    found = []
    for facts in words:
        if not facts.startswith(":"):
            continue
        old_mode, new_mode, old, new, status = facts.removeprefix(":").split(" ")
        first = next(words)
        second = next(words) if status[0] in "RC" else ""
        found.append(FileDiff(second or first, status[0], first if second else "", old_mode, new_mode, old, new))
    return found


def bounded(repo: Repository, limit: int, verb: str, *argv: str) -> tuple[bytes, bool]:
    """Return at most `limit` bytes of a difference that `verb` prints, and whether that is all: git writes it into a file, so that it is
    never held in memory, however large it is. Raises as `Git.run`."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        file: Path = scratch / "difference"
        repo.run(verb, "--no-ext-diff", "--no-textconv", "--no-color", f"--output={file}", *argv, deadline_s=BULK_S)
        with file.open("rb") as said:
            return said.read(limit), file.stat().st_size <= limit


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


# Gate changes
# ------------
# Reads what lies between two commits in the form in which `core.gate_files` judges it, within bounds.


TEXTS_MAX = 50
"""Files whose whole text is read."""
FOLDERS_MAX = 500
"""Directories that are looked for in the base."""


def read_gate_changes(repo: Repository, base: str, tip: str) -> list[Change]:
    """Every file that differs, with the lines that were removed and added; bounds as of `patches.read`. Raises as `Git.run`."""
    return of_diffs(repo, base, read_patch(repo, base, tip, 0))


def of_diffs(repo: Repository, base: str, diffs: Sequence[FileDiff]) -> list[Change]:
    """The same of differences from `base` that were read already."""
    wanted = {one.path for one in [one for one in diffs if wants_text(one.path) and one.status in "AMRT"][:TEXTS_MAX]}
    packages, new = _folders(repo, base, [folder_of(one.path) for one in diffs if one.status not in "MD" and wants_folder(one.path)])
    return [
        Change(
            one.path, one.status, one.old_path, one.lines("-"), one.lines("+"),
            old_text=_text(repo, one.old_oid) if one.path in wanted else None,
            new_text=_text(repo, one.new_oid) if one.path in wanted else None,
            cut=one.cut,
            link=one.new_mode in ("120000", "160000"),
            in_package=folder_of(one.path) in packages,
            in_new_folder=folder_of(one.path) in new,
        )
        for one in diffs
    ]  # fmt: skip


def _folders(repo: Repository, base: str, folders: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the Python packages among `folders` in `base`, and the folders that `base` lacks. The root, and folders beyond FOLDERS_MAX,
    are neither."""
    asked = sorted({folder for folder in folders if folder})[:FOLDERS_MAX]
    if not asked:
        return frozenset(), frozenset()
    named = [path for folder in asked for path in (folder, f"{folder}/__init__.py")]
    there = repo.run("ls-tree", "-z", "-t", "--name-only", "--full-tree", base, "--", *named).text.split("\0")
    return frozenset(asked).intersection(path.removesuffix("/__init__.py") for path in there if path.endswith("/__init__.py")), frozenset(
        folder for folder in asked if folder not in there
    )


def _text(repo: Repository, oid: str) -> str | None:
    size = repo.run("cat-file", "-s", oid, accept=(0, 128)).text
    if not size.isdigit() or int(size) > TEXT_MAX:
        return None
    return repo.run("cat-file", "blob", oid, accept=(0, 128)).out.decode("utf-8", "replace")
