"""What the ledger keeps of an environment, and the environment made from it again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from worktrees.environments import Environment
from worktrees.private_repository import Layers
from worktrees.repository import Repository, discover

if TYPE_CHECKING:
    from supervisor.store.rows import AttemptRow
    from worktrees.git import Git


def facts(made: Environment) -> dict[str, str | None]:
    """What the ledger keeps of it."""
    layers = json.dumps(asdict(made.layers)) if made.layers is not None else None
    return {
        "worktree": str(made.path), "admin_dir": str(made.admin_dir), "branch": made.branch, "base_oid": made.base, "layers": layers,
    }  # fmt: skip


class Environments:
    """Environments as the ledger knows them. Safe to use from several threads."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._repositories: dict[str, Repository] = {}

    def repository(self, root: str) -> Repository:
        """Looked at once: what a launch needs of it (where its common directory is) does not change while the supervisor runs."""
        if root not in self._repositories:
            self._repositories[root] = discover(self._git, Path(root))
        return self._repositories[root]

    def of(self, row: AttemptRow, root: str) -> Environment | None:
        """Return the environment of an attempt of the repository at `root`; None when its launch did not come so far."""
        if row.worktree is None or row.admin_dir is None or row.branch is None or row.base_oid is None:
            return None
        layers = Layers(**json.loads(row.layers)) if row.layers else None
        worktree, admin = Path(row.worktree), Path(row.admin_dir)
        return Environment(self.repository(root), row.task, row.epoch, worktree, admin, row.branch, row.base_oid, layers)
