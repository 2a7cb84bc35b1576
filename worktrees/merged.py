"""Whether a branch's work is elsewhere already: by commit, by patch, or as one squashed patch.

A squash merge leaves no trace in the history: the same change arrives as another commit. Counting commits alone would keep
such branches for ever.
"""

from __future__ import annotations

from worktrees import refs
from worktrees.git import BULK_S, Git, Place
from worktrees.repository import Repository

TARGETS = 20
"""Branches searched for the patches: those with the newest commits. A patch on an older one counts as not merged."""
HISTORY = 1000
"""Commits of a target searched for a squashed patch."""


OURS = "nightcrew/"
"""Branches of tasks do not count: two tasks that made the same change would vouch for each other, and both could go."""


def unmerged(repo: Repository, tip: str) -> int:
    """How many commits that `tip` reaches are on no branch, remote branch or tag of the person, not even as a patch; 0 is merged."""
    git, store = repo.git, repo.store
    others = (f"--exclude={OURS}*", "--branches", "--remotes", "--tags")
    count = int(refs.over_all(repo, "rev-list", "--count", tip, "--not", *others).text)
    if count == 0 or any(_holds_patch(git, store, target, tip) for target in _targets(repo)):
        return 0
    return count


def _targets(repo: Repository) -> list[str]:
    flags = ("--sort=-committerdate", "--format=%(objectname) %(refname)")
    lines = refs.over_all(repo, "for-each-ref", *flags, "refs/heads", "refs/remotes").text.splitlines()
    pairs = [line.split(" ", 1) for line in lines]
    theirs = [oid for oid, ref in pairs if not ref.startswith(f"refs/heads/{OURS}")]
    here = repo.git.run(repo.checkout, "rev-parse", "--verify", "HEAD^{commit}").text  # may be detached, on no branch at all
    return list(dict.fromkeys([here, *theirs[:TARGETS]]))


def _holds_patch(git: Git, store: Place, target: str, tip: str) -> bool:
    base = git.run(store, "merge-base", target, tip, accept=(0, 1)).text
    if not base:
        return False
    return _every_commit(git, store, target, tip) or _merge_is_empty(git, store, target, tip) or _squashed(git, store, base, target, tip)


def _every_commit(git: Git, store: Place, target: str, tip: str) -> bool:
    """Cherry-picked or rebased onto the target. `git cherry` leaves merges out, and one may hold changes: then this is no answer."""
    marks = git.run(store, "cherry", target, tip, deadline_s=BULK_S).text.splitlines()
    if not marks or not all(mark.startswith("-") for mark in marks):
        return False
    return len(marks) == int(git.run(store, "rev-list", "--count", f"{target}..{tip}").text)


def _merge_is_empty(git: Git, store: Place, target: str, tip: str) -> bool:
    """Merging would change nothing: squashed, and the lines are still there. A reverted squash is not empty."""
    answer = git.run(store, "merge-tree", "--write-tree", "--no-messages", target, tip, accept=(0, 1), deadline_s=BULK_S)
    return answer.code == 0 and answer.text == git.run(store, "rev-parse", "--verify", f"{target}^{{tree}}").text


def _squashed(git: Git, store: Place, base: str, target: str, tip: str) -> bool:
    """One commit of the target is the whole branch as a patch, even when later commits changed the same lines."""
    flags = ("--no-ext-diff", "--no-textconv", "--full-index")
    whole = _patch_ids(git, store, git.run(store, "diff", *flags, base, tip, deadline_s=BULK_S).out)
    changed = git.run(store, "diff", "--name-only", "-z", "--no-renames", base, tip).text.split("\0")[:1]
    history = (f"--max-count={HISTORY}", "--no-merges", "--full-diff", "-p", f"{base}..{target}", "--", *changed)
    log = git.run(store, "log", "--format=commit %H", *flags, *history, deadline_s=BULK_S).out
    return bool(whole) and not whole.isdisjoint(_patch_ids(git, store, log))


def _patch_ids(git: Git, store: Place, patches: bytes) -> set[str]:
    if not patches:
        return set()
    lines = git.run(store, "patch-id", "--stable", stdin=patches, deadline_s=BULK_S).text.splitlines()
    return {line.split(" ", 1)[0] for line in lines}
