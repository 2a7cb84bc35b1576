"""Reads what lies between two commits in the form in which `core.gate_files` judges it, within bounds."""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.file_diffs import FileDiff
from supervisor.core.gate_files import TEXT_MAX, Change, wants_text
from worktrees import patches
from worktrees.repository import Repository

TEXTS_MAX = 50
"""Files whose whole text is read."""


def read(repo: Repository, base: str, tip: str) -> list[Change]:
    """Every file that differs, with the lines that were removed and added; bounds as of `patches.read`. Raises as `Git.run`."""
    return of_diffs(repo, patches.read(repo, base, tip, 0))


def of_diffs(repo: Repository, diffs: Sequence[FileDiff]) -> list[Change]:
    """The same of differences that were read already."""
    wanted = {one.path for one in [one for one in diffs if wants_text(one.path) and one.status in "MRT"][:TEXTS_MAX]}
    return [
        Change(
            one.path, one.status, one.old_path, one.lines("-"), one.lines("+"),
            old_text=_text(repo, one.old_oid) if one.path in wanted else None,
            new_text=_text(repo, one.new_oid) if one.path in wanted else None,
            cut=one.cut,
        )
        for one in diffs
    ]  # fmt: skip


def _text(repo: Repository, oid: str) -> str | None:
    size = repo.git.run(repo.store, "cat-file", "-s", oid, accept=(0, 128)).text
    if not size.isdigit() or int(size) > TEXT_MAX:
        return None
    return repo.git.run(repo.store, "cat-file", "blob", oid, accept=(0, 128)).out.decode("utf-8", "replace")
