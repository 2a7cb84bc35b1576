"""Reads what lies between two commits in the form in which `core.gate_files` judges it, within bounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from supervisor.core.file_diffs import FileDiff
from supervisor.core.gate_files import TEXT_MAX, Change, folder_of, wants_folder, wants_text
from worktrees import patches
from worktrees.repository import Repository

TEXTS_MAX = 50
"""Files whose whole text is read."""
FOLDERS_MAX = 500
"""Directories that are looked for in the base."""


def read(repo: Repository, base: str, tip: str) -> list[Change]:
    """Every file that differs, with the lines that were removed and added; bounds as of `patches.read`. Raises as `Git.run`."""
    return of_diffs(repo, base, patches.read(repo, base, tip, 0))


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
    there = repo.git.run(repo.store, "ls-tree", "-z", "-t", "--name-only", "--full-tree", base, "--", *named).text.split("\0")
    return frozenset(asked).intersection(path.removesuffix("/__init__.py") for path in there if path.endswith("/__init__.py")), frozenset(
        folder for folder in asked if folder not in there
    )


def _text(repo: Repository, oid: str) -> str | None:
    size = repo.git.run(repo.store, "cat-file", "-s", oid, accept=(0, 128)).text
    if not size.isdigit() or int(size) > TEXT_MAX:
        return None
    return repo.git.run(repo.store, "cat-file", "blob", oid, accept=(0, 128)).out.decode("utf-8", "replace")
