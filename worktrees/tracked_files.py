"""Which files a repository has."""

from __future__ import annotations

from pathlib import Path

from supervisor.core.errors import ToolFailed
from worktrees.git import Git, Place


def tracked(git: Git, common_dir: Path) -> list[str] | None:
    """The files of the commit that the repository stands on, sorted; None where there is none. Raises what `Git.run` does."""
    try:
        answer = git.run(Place(common_dir, common_dir), "ls-tree", "-r", "-z", "--name-only", "HEAD")
    except ToolFailed:  # no commit yet, or HEAD names none
        return None
    return sorted(name.decode("utf-8", "surrogateescape") for name in answer.out.split(b"\0") if name)
