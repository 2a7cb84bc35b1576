"""A merged tree whose gate is the one that was there before the result: what the result weakened is as it was, and its own work stays.

A result that passes only with the gate that it changed itself is not what was asked for. So the gate runs twice then, and both must pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.core.gate_files import RESTORED, Flag
from worktrees import gate_changes, tree_merge
from worktrees.repository import Repository
from worktrees.tree_merge import Side


def hardened(repo: Repository, staged: str, before: str, flags: Sequence[Flag]) -> str | None:
    """A commit on `staged` in which the files that weaken the gate are as in `before`, the commit that `staged` was put on; None when there
    are none, or all are as before. A file that `before` lacks is gone there; one that was renamed has its old name. The same arguments give
    the same commit. Raises as `Git.run`."""
    paths = {flag.path for flag in flags if flag.weakens and flag.kind in RESTORED}
    if not paths:
        return None
    moved = {change.path: change.old_path for change in gate_changes.read(repo, before, staged) if change.old_path}
    paths |= {moved[path] for path in paths if path in moved}
    there = tree_merge.sides(repo, before, sorted(paths))
    files: dict[str, Side | None] = {path: there.get(path) for path in sorted(paths)}
    tree = tree_merge.replaced(repo, staged, files)
    if tree == repo.git.run(repo.store, "rev-parse", "--verify", f"{staged}^{{tree}}").text:
        return None
    return tree_merge.our_commit(repo.git, repo.store, tree, staged, "nightcrew: the gate as it was before this result")
