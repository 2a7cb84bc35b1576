"""Moves a branch of the person's forward, at the end of a train: as compare and swap, and with the checkout that is on it, if any.

Where git as we run it would skip something that the repository relies on (filters, hooks), nothing moves: the person gets the command.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import NotFound, Refused, ToolFailed
from worktrees import merge, refs
from worktrees.merge import ByHand
from worktrees.refs import HEADS
from worktrees.repository import Repository, discover, operation


@dataclass(frozen=True, slots=True)
class Moved:
    """The branch stands on `commit` now."""

    commit: str
    checkout: Path | None
    """Where it is checked out; that moved with it."""
    unlocked: bool = False
    """The index there was locked by a git that was killed, and is not any more."""


def tip(repo: Repository, branch: str) -> str:
    """The commit that the person's branch (its short name) stands on. Raises NotFound."""
    argv = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{HEADS}/{branch}^{{commit}}")
    answer = repo.git.run(repo.store, *argv, accept=(0, 1, 128))
    if answer.code:
        raise NotFound("no such branch", on=branch, hint=f"git -C {shlex.quote(str(repo.root))} branch")
    return answer.text


def readiness(repo: Repository, branch: str) -> str:
    """Why `move` would refuse now, whatever the new commit is, or ""."""
    try:
        there = holder(repo, branch)
        if there is not None:
            _refuse_busy(there, branch)
    except (Refused, NotFound) as error:
        return error.why or error.what
    return ""


def left_out(repo: Repository) -> str:
    """What a commit of ours lacks that the person's own would have had, or "": a signature, and what hooks would have said."""
    found = merge.hooks(repo, *merge.MERGE_HOOKS)
    said = f"the repository has hooks that nightcrew does not run: {', '.join(found)}" if found else ""
    return "; ".join(filter(None, (merge.unsigned(repo), said)))


def holder(repo: Repository, branch: str) -> Repository | None:
    """The checkout that is on the branch; None when there is none."""
    said = refs.over_all(repo, "for-each-ref", "--format=%(worktreepath)", f"{HEADS}/{branch}").text
    path = said.splitlines()[0] if said else ""
    if not path:
        return None
    return repo if Path(path) == repo.root else discover(repo.git, Path(path))


def move(repo: Repository, branch: str, old: str, new: str) -> Moved | ByHand:
    """Move the person's branch (its short name) from the commit `old` forward to `new`. Done twice, it is done.

    Raises Refused, with everything untouched, when the branch stands elsewhere, `new` does not contain `old`, or the checkout that is on it
    is dirty or in the middle of something; NotFound when there is no such branch; ToolFailed when git could not write.
    """
    with repo.git.lock(repo.common_dir):
        stands = tip(repo, branch)
        there = holder(repo, branch)
        if stands == new:
            return Moved(new, there.root if there is not None else None)
        if stands != old:
            raise _refused(
                branch, f"it stands on {stands[:12]} by now, and on {old[:12]} when its results were tried", _log(repo, old, branch)
            )
        if repo.git.run(repo.store, "merge-base", "--is-ancestor", old, new, accept=(0, 1)).code:
            raise _refused(branch, f"{new[:12]} does not contain {old[:12]}", _log(repo, old, new))
        if why := merge.bypassed_by_move(there or repo, old, new):
            return ByHand(why, (by_hand(repo, branch, old, new),))
        if there is None:
            return _moved_ref(repo, branch, old, new)
        _refuse_busy(there, branch)
        return Moved(new, there.root, unlocked=merge.advance(there, new))


def _moved_ref(repo: Repository, branch: str, old: str, new: str) -> Moved:
    try:
        refs.move(repo, f"{HEADS}/{branch}", new, old, "nightcrew land")
    except ToolFailed as error:
        raise _refused(branch, error.why, _log(repo, old, branch)) from error
    return Moved(new, None)


def _refuse_busy(there: Repository, branch: str) -> None:
    """Raises Refused when the checkout is not one that may be moved."""
    quoted = shlex.quote(str(there.root))
    if doing := operation(there.git_dir):
        raise _refused(branch, f"a {doing} is in progress in {there.root}", f"git -C {quoted} status")
    merge.refuse_dirty(there)


def by_hand(repo: Repository, branch: str, old: str, new: str) -> str:
    """The command with which a person moves the branch forward with their own git."""
    there = holder(repo, branch)
    if there is not None:
        return f"git -C {shlex.quote(str(there.root))} merge --ff-only {new}"
    return f"git -C {shlex.quote(str(repo.root))} update-ref {shlex.quote(f'{HEADS}/{branch}')} {new} {old}"


def _log(repo: Repository, old: str, new: str) -> str:
    return f"git -C {shlex.quote(str(repo.root))} log --oneline {old[:12]}..{shlex.quote(new)}"


def _refused(branch: str, why: str, hint: str) -> Refused:
    return Refused("the branch was not moved", on=branch, why=why, kept="your checkout as it was, and what passed", hint=hint)
