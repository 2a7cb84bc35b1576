"""What a commit holds, without a worktree."""

from __future__ import annotations

from dataclasses import dataclass

from worktrees.git import BULK_S
from worktrees.repository import Repository


@dataclass(frozen=True, slots=True)
class Extent:
    """How much there is."""

    files: int
    size: int
    """Bytes in all."""


def extent(repo: Repository, commit: str, suffix: bytes) -> Extent:
    """The regular files of `commit` whose names end in `suffix`. Raises ToolFailed when git cannot read it."""
    listed = repo.git.run(repo.store, "ls-tree", "-r", "-l", "-z", "--full-tree", commit, deadline_s=BULK_S)
    files = size = 0
    for entry in listed.out.split(b"\0"):
        facts, _, path = entry.partition(b"\t")
        if path.endswith(suffix) and facts.startswith(b"100"):
            files += 1
            size += int(facts.split()[-1])
    return Extent(files, size)
