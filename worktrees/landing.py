"""Moves a branch of the person's forward, at the end of a train: as compare and swap, and with the checkout that is on it, if any.

Where git as we run it would skip something that the repository relies on (filters, hooks), nothing moves: the person gets the command.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import NotFound, Refused, ToolFailed
from supervisor.host.foreign import folder
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
        _holder_at_rest(repo, branch)
    except (Refused, NotFound) as error:
        return error.why or error.what
    return ""


def left_out(repo: Repository) -> str:
    """What a commit of ours lacks that the person's own would have had, or "": a signature, and what hooks would have said."""
    return "; ".join(filter(None, (merge.unsigned(repo), merge.bypassed_hooks(repo, *merge.MERGE_HOOKS))))


def holder(repo: Repository, branch: str) -> Repository | None:
    """The checkout that is on the branch; None when there is none. Raises Refused when there are several, or it is not there now."""
    found = _checkouts(repo, branch)
    if len(found) > 1:
        raise _refused(branch, f"it is checked out at {' and at '.join(map(str, found))}", f"git -C {_quoted(found[1])} switch --detach")
    if not found or found[0] == repo.root:
        return repo if found else None
    if not found[0].is_dir():
        raise _refused(branch, f"it is checked out at {found[0]}, which is not there", f"git -C {_quoted(repo.root)} worktree prune")
    return discover(repo.git, found[0])


def move(repo: Repository, branch: str, old: str, new: str) -> Moved | ByHand:
    """Move the person's branch (its short name) from the commit `old` forward to `new`. Done twice, it is done.

    Raises Refused, with everything untouched, when the branch stands elsewhere, `new` does not contain `old`, or the checkout that is on it
    is dirty or in the middle of something; NotFound when there is no such branch; ToolFailed when git could not write.
    """
    with repo.git.lock(repo.common_dir):
        stands = tip(repo, branch)
        if stands == new:
            return Moved(new, next(iter(_checkouts(repo, branch)), None))
        if stands != old:
            why = f"it stands on {stands[:12]} by now, and on {old[:12]} when its results were tried"
            raise _refused(branch, why, _log(repo, old, branch))
        if repo.git.run(repo.store, "merge-base", "--is-ancestor", old, new, accept=(0, 1)).code:
            raise _refused(branch, f"{new[:12]} does not contain {old[:12]}", _log(repo, old, new))
        there = _holder_at_rest(repo, branch)
        if there is None:
            return _moved_ref(repo, branch, old, new)
        if why := merge.bypassed_by_move(there, old, new):
            return ByHand(why, (by_hand(repo, branch, old, new),))
        return Moved(new, there.root, unlocked=merge.advance(there, new))


def _moved_ref(repo: Repository, branch: str, old: str, new: str) -> Moved | ByHand:
    ref = f"{HEADS}/{branch}"
    if why := merge.bypassed_hooks(repo, merge.REF_HOOK):
        return ByHand(why, (by_hand(repo, branch, old, new),))
    try:
        refs.move(repo, ref, new, old, "nightcrew land")
    except ToolFailed as error:
        raise _refused(branch, error.why, _log(repo, old, branch)) from error
    return Moved(new, None)


def by_hand(repo: Repository, branch: str, old: str, new: str) -> str:
    """The command with which a person moves the branch forward with their own git."""
    for top in _checkouts(repo, branch):
        return f"git -C {_quoted(top)} merge --ff-only {new}"
    return f"git -C {_quoted(repo.root)} update-ref {shlex.quote(f'{HEADS}/{branch}')} {new} {old}"


def _holder_at_rest(repo: Repository, branch: str) -> Repository | None:
    """`holder`. Raises Refused also when that, or the branch, is not to be moved now."""
    named = repo.git.run(repo.store, "symbolic-ref", "--quiet", f"{HEADS}/{branch}", accept=(0, 1, 128))
    if not named.code:
        name = named.text.removeprefix(f"{HEADS}/")
        raise _refused(
            branch, f"it is another name of {name}", f"git -C {_quoted(repo.root)} symbolic-ref {shlex.quote(f'{HEADS}/{branch}')}"
        )
    there = holder(repo, branch)
    if there is not None:
        _refuse_busy(there.git_dir, there.root, branch)
        merge.refuse_dirty(there)
    elif doing := _detached_from(repo, branch):
        raise _refused(branch, f"{doing} of it is in progress", f"git -C {_quoted(repo.root)} worktree list")
    return there


def _checkouts(repo: Repository, branch: str) -> list[Path]:
    """Where the branch is checked out. The main worktree comes first, and where its git directory lies elsewhere git misnames it."""
    said = refs.over_all(repo, "worktree", "list", "--porcelain", "-z").text
    entries = [entry.split("\0") for entry in said.split("\0\0")]
    if repo.git_dir == repo.common_dir:
        entries[0][0] = str(repo.root)
    return [Path(entry[0].removeprefix("worktree ")) for entry in entries if f"branch {HEADS}/{branch}" in entry[1:]]


def _refuse_busy(git_dir: Path, root: Path, branch: str) -> None:
    """Raises Refused when the checkout is in the middle of something."""
    if doing := operation(git_dir):
        raise _refused(branch, f"a {doing} is in progress in {root}", f"git -C {_quoted(root)} status")


_BEGUN = (("rebase-merge", "head-name", "a rebase"), ("rebase-apply", "head-name", "a rebase"), ("", "BISECT_START", "a bisect"))
"""Where git notes the branch to which it will return, and what it does meanwhile, with HEAD detached."""


def _detached_from(repo: Repository, branch: str) -> str:
    """What began on the branch in some checkout and has left it meanwhile, or ""."""
    with contextlib.ExitStack() as stack:
        linked: list[str] = []
        with contextlib.suppress(OSError):
            linked = stack.enter_context(folder(repo.common_dir, "worktrees")).names()
        for admin in ("", *(f"worktrees/{name}/" for name in linked)):
            for below, file, what in _BEGUN:
                with contextlib.suppress(OSError), folder(repo.common_dir, f"{admin}{below}".rstrip("/")) as here:
                    said = os.fsdecode((here.read(file, 4096) or b"").removesuffix(b"\n"))
                    if said.removeprefix(f"{HEADS}/") == branch:
                        return what
    return ""


def _log(repo: Repository, old: str, new: str) -> str:
    return f"git -C {_quoted(repo.root)} log --oneline {old[:12]}..{shlex.quote(new)}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _refused(branch: str, why: str, hint: str) -> Refused:
    return Refused("the branch was not moved", on=branch, why=why, kept="your checkout as it was, and what passed", hint=hint)
