"""Whether a branch's work is merged already: by commit, by patch, or as one squashed patch.

A squash merge leaves no trace in the history: the same change arrives as another commit. Counting commits alone would keep
such branches for ever.

Each question makes git read every ref of the repository, so what many tips have in common is asked once for all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from supervisor.core.errors import ToolFailed
from worktrees import refs
from worktrees.git import BULK_S, Git, Place
from worktrees.repository import Repository

TARGETS = 20
"""Branches searched for the patches: those with the newest commits. A patch on an older one counts as not merged."""
HISTORY = 1000
"""Commits of a target searched for a squashed patch."""


OURS = "nightcrew/"
"""Branches of tasks do not count: two tasks that made the same change would vouch for each other, and both could go."""
_NOT_THEIRS = ("--not", f"--exclude={OURS}*", "--branches", "--remotes", "--tags")
_WALK_MAX = 20_000
"""Commits on no branch of the person's that are held in memory; where tips have more between them, git counts for each."""
_EDGE_MAX = 4


@dataclass(frozen=True, slots=True)
class _Lost:
    """The commits that a tip reaches and no branch, remote branch or tag of the person does."""

    commits: frozenset[str]
    edge: frozenset[str]
    """Their parents that are on such a branch: whatever else the tip reaches, these reach."""


class Branches:
    """What the person's branches hold, as they were when this was made. Safe to use from several threads."""

    def __init__(self, repo: Repository, tips: Iterable[str]) -> None:
        """`tips` are the commits that will be asked about. Raises as `Git.run`, but not for one of several tips that cannot be read."""
        self._repo = repo
        self._tips = frozenset(tips)
        self._parents = self._walked()
        self._targets = _targets(repo) if self._parents is None or self._parents else []
        self._trees = _trees(repo, [*(self._tips & self._parents.keys()), *self._targets]) if self._parents else {}
        self._is_ancestor = functools.cache(lambda old, new: _leads(repo, old, new))

    def _walked(self) -> Mapping[str, tuple[str, ...]] | None:
        try:
            return _walk(self._repo, self._tips) if self._tips else {}
        except ToolFailed:
            if len(self._tips) < 2:
                raise
            self._tips = frozenset()  # each is asked about alone then
            return {}

    def __contains__(self, commit: str) -> bool:
        """Whether it is one of the tips, and git could read it."""
        return commit in self._tips

    def unmerged(self, tip: str) -> int:
        """How many commits that `tip` reaches are on no branch, remote branch or tag of the person, not even as a patch; 0 is merged.
        One that is not among the tips is asked about alone. Raises as `Git.run`."""
        if tip not in self._tips:
            return Branches(self._repo, [tip]).unmerged(tip)
        lost = None if self._parents is None else _lost(self._parents, tip)
        count = len(lost.commits) if lost is not None else _count(self._repo, tip)
        return 0 if count and any(self._holds(target, tip, lost) for target in self._targets) else count

    def _holds(self, target: str, tip: str, lost: _Lost | None) -> bool:
        """Whether the work is on `target` as a patch. One without a commit of its own holds none: there only the files can be the same."""
        has_none = lost is not None and len(lost.edge) <= _EDGE_MAX and self._reaches(lost, target)
        if has_none and tip in self._trees and target in self._trees:
            return self._trees[tip] == self._trees[target]
        return _holds_patch(self._repo.git, self._repo.store, target, tip)

    def _reaches(self, lost: _Lost, target: str) -> bool:
        return target in lost.commits or target in lost.edge or any(self._is_ancestor(target, commit) for commit in lost.edge)


def _walk(repo: Repository, tips: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """Each commit that is on no branch of the person's, with its parents; None when there are too many."""
    asked = "".join(f"{tip}\n" for tip in sorted(tips)).encode()
    argv = ("rev-list", "--parents", f"--max-count={_WALK_MAX + 1}", "--stdin", *_NOT_THEIRS)
    lines = refs.over_all(repo, *argv, stdin=asked).text.splitlines()
    return {oid: tuple(parents) for oid, *parents in map(str.split, lines)} if len(lines) <= _WALK_MAX else None


def _count(repo: Repository, tip: str) -> int:
    return int(refs.over_all(repo, "rev-list", "--count", tip, *_NOT_THEIRS).text)


def _lost(parents: Mapping[str, tuple[str, ...]], tip: str) -> _Lost:
    commits, edge, todo = set[str](), set[str](), [tip]
    while todo:
        commit = todo.pop()
        if commit not in parents:
            edge.add(commit)
        elif commit not in commits:
            commits.add(commit)
            todo += parents[commit]
    return _Lost(frozenset(commits), frozenset(edge))


def _trees(repo: Repository, commits: Iterable[str]) -> dict[str, str]:
    """The tree of each commit that git can read."""
    names = list(dict.fromkeys(commits))
    asked = "".join(f"{name}^{{tree}}\n" for name in names).encode()
    found = repo.git.run(repo.store, "cat-file", "--batch-check=%(objectname)", stdin=asked).text.splitlines()
    return {name: tree for name, tree in zip(names, found, strict=True) if " " not in tree}


def _leads(repo: Repository, old: str, new: str) -> bool:
    return old == new or repo.git.run(repo.store, "merge-base", "--is-ancestor", old, new, accept=(0, 1)).code == 0


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
