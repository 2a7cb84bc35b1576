"""A branch of the person's, and a commit in front of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from worktrees import landing
from worktrees.landing import Moved
from worktrees.merge import ByHand
from worktrees.repository import discover

if TYPE_CHECKING:
    from tests.worktrees.conftest import World


class Branch:
    """`main` of a repository, checked out, and a commit in front of it that changes, adds, removes and moves files."""

    def __init__(self, world: World, root: Path | None = None) -> None:
        self.world, self.root = world, root or world.make()
        self.repo = discover(world.git, self.root)
        self.old = self.repo.head
        self.new = self.ahead(self.old)

    def ahead(self, old: str) -> str:
        """Made beside the checkout."""
        top = self.world.tmp / "beside"
        self.world.sh(self.root, "worktree", "add", "-q", "--detach", os.fspath(top), old)
        (top / "f0.txt").write_text("new\n")
        new = self.world.commit(top, "new/file.txt")
        self.world.sh(self.root, "worktree", "remove", "--force", os.fspath(top))
        return new

    def again(self) -> None:
        """In front of where it stands now."""
        self.old = self.stands()
        self.new = self.ahead(self.old)

    def move(self, branch: str = "main") -> Moved | ByHand:
        return landing.move(self.repo, branch, self.old, self.new)

    def state(self, root: Path | None = None) -> tuple[str, ...]:
        """All that a person could miss of a checkout: refs, what is staged, every file."""
        top = root or self.root
        files = [f"{path.relative_to(top)} {path.lstat().st_mode:o} {path.read_bytes() if path.is_file() else b''!r}"
                 for path in sorted(top.rglob("*")) if ".git" not in path.relative_to(top).parts]  # fmt: skip
        refs = self.world.sh(top, "for-each-ref")
        return (refs, self.world.sh(top, "ls-files", "--stage"), self.world.sh(top, "status", "--porcelain"), *files)

    def stands(self, branch: str = "main") -> str:
        return self.world.sh(self.root, "rev-parse", f"refs/heads/{branch}")

    def assert_moved(self, done: object, root: Path | None = None) -> None:
        top = root or self.root
        assert isinstance(done, Moved) and done.commit == self.new and done.checkout == top
        assert (top / "f0.txt").read_text() == "new\n" and (top / "new" / "file.txt").exists()
        assert not self.world.sh(top, "status", "--porcelain", "--untracked-files=no")
