"""Brings what a rescue ref holds back as a branch of the person's, and as a worktree of theirs. The rescue ref stays.

Where git as we run it would skip something that the repository relies on (filters, hooks) no worktree is made: the person gets the command.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from supervisor.kernel.errors import NotFound, Refused, ToolFailed, UsageError
from worktrees import merge, refs, repository
from worktrees.git import BULK_S
from worktrees.repository import Repository

_HOOKS = ("post-checkout", "post-index-change", "reference-transaction")
"""What git runs when it makes a worktree."""


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
    if repo.run("check-ref-format", f"refs/heads/{branch}", accept=(0, 1)).code or branch.startswith("-"):
        raise UsageError("no branch can be called", on=branch, why="git does not take the name")
    with repo.git.lock(repo.common_dir):
        commit = repo.commit(rescue)
        if not commit:
            listed = f"git -C {shlex.quote(str(repo.root))} for-each-ref refs/nightcrew/rescue"
            raise NotFound("nothing was rescued", on=rescue, why="there is no such ref in this repository", hint=listed)
        stands = repo.commit(f"refs/heads/{branch}")
        if stands == commit:
            return Restored(branch, commit, is_new=False)
        if stands:
            why = f"a branch of that name stands on {stands[:12]}"
            raise Refused("nothing was restored", on=branch, why=why, kept="that branch", hint="--branch NAME gives it another name")
        refs.move(repo, f"refs/heads/{branch}", commit, "", "nightcrew: restored")
    return Restored(branch, commit, is_new=True)


def check_out(repo: Repository, done: Restored, place: Path, ours: Path) -> bool:
    """Make `place` a worktree of the person's with the restored branch; False when it is one already. `ours`: where it may not lie. Neither
    hook nor filter nor merge driver runs.

    Raises Refused, with the branch as it is and no worktree, when the place is taken or ours, when the branch is checked out elsewhere, and
    where the person's own git would run a filter or a hook; DiskFull, ToolFailed when git could not write.
    """
    by_hand = f"git -C {shlex.quote(str(repo.root))} worktree add {shlex.quote(str(place))} {shlex.quote(done.branch)}"
    with repo.git.lock(repo.common_dir):
        if _stands_there(repo, done.branch, place):
            return False
        if why := _why_not(place, ours):
            raise _no_worktree(place, why, done, "--worktree DIR names another place")
        if why := _skipped(repo, done.commit):
            raise _no_worktree(place, why, done, by_hand)
        try:  # killed in the middle it would leave half of the files: it goes on to its end without us
            repo.run("worktree", "add", "--quiet", str(place), done.branch, deadline_s=BULK_S, survives=True)
        except ToolFailed as error:
            raise _no_worktree(place, error.why, done, "git worktree list") from error
    return True


def _no_worktree(place: Path, why: str, done: Restored, hint: str) -> Refused:
    return Refused("no worktree was made", on=str(place), why=why, kept=f"the branch {done.branch}", hint=hint)


def _stands_there(repo: Repository, branch: str, place: Path) -> bool:
    entries = repo.run("worktree", "list", "--porcelain", "-z").text.split("\0\0")
    wanted = [f"worktree {os.path.realpath(place)}", f"branch refs/heads/{branch}"]
    return place.is_dir() and any(set(wanted) <= set(entry.split("\0")) and "\0locked initializing" not in entry for entry in entries)


def _why_not(place: Path, ours: Path) -> str:
    if not str(place).isprintable():
        return "its name holds a character that git cannot write down"
    real = Path(os.path.realpath(place))
    if real.is_relative_to(os.path.realpath(ours)):
        return f"{ours} is nightcrew's own"
    if ".git" in real.parts:
        return "it lies inside a .git directory"
    if os.path.lexists(place) and not (place.is_dir() and not any(place.iterdir())):
        return "something is there"
    return ""


def _skipped(repo: Repository, commit: str) -> str:
    """What the person's own git would run for the files of a commit and ours does not, or ""."""
    if used := repository.drivers_in(repo, commit, "filter"):
        return f"files use {repository.listed(used)}, which nightcrew does not run"
    return merge.bypassed_hooks(repo, *_HOOKS)
