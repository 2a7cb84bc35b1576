"""One attempt's files: where they lie, what they are made of, and how its refs are called."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.core.records import attempt_name, rescue_ref, tips_ref
from worktrees import private_repository
from worktrees.git import Place
from worktrees.layers import Layers
from worktrees.mount_namespace import MountNamespace
from worktrees.repository import Repository

_LATER = 65
"""Attempts looked ahead: more than a task has in a row whose worktrees were all removed."""


@dataclass(frozen=True, slots=True)
class Alone:
    """An attempt's own repository, seen from inside its sandbox."""

    packed: str
    """As `private_repository.packed_at_start`."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One attempt's files. Everything but `repo` and `inside` is a line in the ledger; the whole is rebuilt from there."""

    repo: Repository
    task: str
    epoch: int
    path: Path
    """`<root>/<run>/<slug>.<epoch>`"""
    admin_dir: Path
    """git's own directory for this worktree, below the repository's common directory."""
    branch: str
    """Short name of the work branch."""
    base: str
    """Commit it started from."""
    layers: Layers | None = None
    """What its files are made of; None is a checkout of its own."""
    inside: MountNamespace | None = field(default=None, repr=False, compare=False)
    """Within `open_env`: the namespace that shows the files. Never in the ledger."""
    alone: Alone | None = None
    """`repo` is the attempt's own, whose refs and logs are all its agent's: so it is in the sandbox, for `securing_helper`."""

    @property
    def name(self) -> str:
        return attempt_name(self.task, self.epoch)

    @property
    def branch_ref(self) -> str:
        return f"refs/heads/{self.branch}"

    @property
    def rescue_ref(self) -> str:
        return rescue_ref(self.task, self.epoch)

    @property
    def tips_ref(self) -> str:
        return tips_ref(self.task, self.epoch)

    @property
    def private(self) -> Path | None:
        """The repository of its own, when its agent is confined: outside a sandbox no git may run in its worktree then, see
        `worktrees.securing`. No agent can make or remove that directory."""
        own = private_repository.place(self.path)
        return own if own.is_dir() else None

    @property
    def place(self) -> Place:
        """For verbs in the worktree; of what `open_env` gave."""
        return Place(self.admin_dir, self.repo.common_dir, self.path, self.inside, is_ours=True)


def environment_path(root: Path, task: str, epoch: int) -> Path:
    """Where the worktree of an attempt lies; two attempts never share it."""
    run, _, slug = task.partition("/")
    return Path(os.path.realpath(root)) / run / f"{slug}.{epoch}"


def has_successor(env: Environment) -> bool:
    """Whether a worktree of a later attempt is there: the work branch, and its log, are that one's then."""
    stem = str(env.path).rpartition(".")[0]
    return any(os.path.lexists(f"{stem}.{epoch}") for epoch in range(env.epoch + 1, env.epoch + _LATER))
