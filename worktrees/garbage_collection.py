"""A `git gc` of the person's beside us: with `--prune=now` it takes what no ref named when it looked."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from supervisor.host.foreign import open_plain
from worktrees.git import BULK_S
from worktrees.repository import Repository

OUTLAST_S = 2.0
"""Seconds to wait for a `git gc` that began before refs moved. One that takes longer looks at the refs again before it deletes."""
_POLL_S = 0.02


def is_collecting(common_dir: Path) -> bool:
    """Whether a `git gc` runs in the repository: it says so in a file for as long as it does."""
    try:
        with open_plain(common_dir / "gc.pid") as file:
            pid = int(file.read(100).split()[0])
        os.kill(pid, 0)
    except PermissionError:
        return True  # somebody else's
    except (OSError, ValueError, IndexError, OverflowError):
        return False
    return True


def outlast(common_dir: Path) -> None:
    """Return when no `git gc` runs that may not have seen the refs of now."""
    until = time.monotonic() + OUTLAST_S
    while is_collecting(common_dir) and time.monotonic() < until:
        time.sleep(_POLL_S)


def check_kept(repo: Repository, commits: Sequence[str], known: str) -> None:
    """Raises ToolFailed when a collection took an object of `commits`, which refs name now, that `known` does not have."""
    outlast(repo.common_dir)
    repo.git.run(repo.store, "rev-list", "--objects", "--quiet", *commits, f"^{known}", deadline_s=BULK_S)
