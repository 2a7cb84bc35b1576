"""Brings what a rescue ref holds back as a branch of the person's. The rescue ref stays."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from supervisor.core.errors import NotFound, Refused, UsageError
from worktrees import refs
from worktrees.repository import Repository


@dataclass(frozen=True, slots=True)
class Restored:
    """A branch that stands on the commit of the rescue ref."""

    branch: str
    commit: str
    is_new: bool
    """False: it stood there already."""


def restore(repo: Repository, rescue: str, branch: str) -> Restored:
    """Make `branch` at the commit of the ref `rescue`; nothing else changes. Safe to call again.

    Raises NotFound when there is no such ref, UsageError when git takes no branch of that name, Refused when one with that name stands
    elsewhere, ToolFailed when git could not write.
    """
    if repo.git.run(repo.store, "check-ref-format", f"refs/heads/{branch}", accept=(0, 1)).code or branch.startswith("-"):
        raise UsageError("no branch can be called", on=branch, why="git does not take the name")
    with repo.git.lock(repo.common_dir):
        commit = _commit(repo, rescue)
        if not commit:
            listed = f"git -C {shlex.quote(str(repo.root))} for-each-ref refs/nightcrew/rescue"
            raise NotFound("nothing was rescued", on=rescue, why="there is no such ref in this repository", hint=listed)
        stands = _commit(repo, f"refs/heads/{branch}")
        if stands == commit:
            return Restored(branch, commit, is_new=False)
        if stands:
            why = f"a branch of that name stands on {stands[:12]}"
            raise Refused("nothing was restored", on=branch, why=why, kept="that branch", hint="--branch NAME gives it another name")
        refs.move(repo, f"refs/heads/{branch}", commit, "", "nightcrew: restored")
    return Restored(branch, commit, is_new=True)


def _commit(repo: Repository, ref: str) -> str:
    asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    answer = repo.git.run(repo.store, *asked, accept=(0, 1, 128))
    return answer.text if answer.code == 0 else ""
