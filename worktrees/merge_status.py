"""Whether a branch's work is merged already: by commit, by patch, or as one squashed patch.

A squash merge leaves no trace in the history: the same change arrives as another commit. Counting commits alone would keep
such branches for ever.

Each question makes git read every ref of the repository, so what many tips have in common is asked once for all of them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from supervisor.config import project
from supervisor.core.errors import ConfigError, ToolFailed, one_line
from supervisor.core.landing_terms import GeneratedRule
from worktrees import equivalence, refs
from worktrees.failures import wrap_os_errors
from worktrees.repository import Repository, main_root

TARGETS = 20
"""Branches searched for the patches: those with the newest commits. A patch on an older one counts as not merged."""
SHOWN = 20
"""Commits that a decision names."""

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


@dataclass(frozen=True, slots=True)
class Stand:
    """Where the change of one commit is."""

    commit: str
    subject: str
    state: str
    by: str = ""
    """The commit that holds the same patch, or took it back."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the work of a tip is on a branch of the person's, and why."""

    unmerged: int
    """As `Branches.unmerged`."""
    why: str
    """A sentence, where there is more to say than their number."""
    commits: tuple[Stand, ...] = ()
    """Oldest first, at most `SHOWN`: each commit that is not in their history; none where nothing was compared."""


@dataclass(slots=True)
class _Compared:
    """The branch that holds most of a tip's work."""

    target: str = ""
    standing: equivalence.Standing = field(default_factory=lambda: equivalence.Standing(held=False, why=""))

    def is_less(self, other: equivalence.Standing) -> bool:
        return (other.held, other.inside, bool(other.why)) > (self.standing.held, self.standing.inside, bool(self.standing.why))


class Branches:
    """What the person's branches hold, as they were when this was made. Safe to use from several threads."""

    def __init__(self, repo: Repository, tips: Iterable[str]) -> None:
        """`tips` are the commits that will be asked about. Raises as `Git.run`, but not for one of several tips that cannot be read."""
        self._repo = repo
        self._tips = frozenset(tips)
        self._parents = self._walked()
        self._targets = _targets(repo) if self._parents is None or self._parents else {}
        self._trees = _trees(repo, [*(self._tips & self._parents.keys()), *self._targets]) if self._parents else {}
        self._rules = _generated(repo) if self._targets else ()
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
        return self.decide(tip).unmerged

    def decide(self, tip: str) -> Decision:
        """The same, with what it follows from."""
        if tip not in self._tips:
            return Branches(self._repo, [tip]).decide(tip)
        lost = None if self._parents is None else _lost(self._parents, tip)
        count = len(lost.commits) if lost is not None else _count(self._repo, tip)
        if not count:
            return Decision(0, "its commits are on a branch or tag of yours")
        best = _Compared()
        for target in self._targets:
            seen = self._compared(target, tip, lost)
            if best.is_less(seen):
                best = _Compared(target, seen)
            if seen.held:
                break
        return self._decision(count, best)

    def _decision(self, count: int, best: _Compared) -> Decision:
        seen, name = best.standing, self._targets.get(best.target, "")
        listed = seen.commits[:SHOWN]
        said = self._subjects([commit.oid for commit in listed])
        commits = tuple(Stand(one.oid, said.get(one.oid, ""), one.state.value, one.by) for one in listed)
        why = f"on {name}: {seen.why}" if seen.why else ""
        return Decision(0 if seen.held else count, why, commits)

    def _subjects(self, commits: list[str]) -> dict[str, str]:
        """The first line of each message."""
        if not commits:
            return {}
        asked = "".join(f"{oid}\n" for oid in commits).encode()
        argv = ("rev-list", "--no-walk=unsorted", "--stdin", "--format=%s")
        lines = self._repo.git.run(self._repo.store, *argv, stdin=asked).text.split("\n")
        return {head.removeprefix("commit "): one_line(said) for head, said in zip(lines[::2], lines[1::2], strict=False)}

    def _compared(self, target: str, tip: str, lost: _Lost | None) -> equivalence.Standing:
        """Whether the work is on `target` as a patch. One without a commit of its own holds none: there only the files can be the same."""
        has_none = lost is not None and len(lost.edge) <= _EDGE_MAX and self._reaches(lost, target)
        if has_none and tip in self._trees and target in self._trees:
            same = self._trees[tip] == self._trees[target]
            return equivalence.Standing(held=same, why="its files are the same" if same else "")
        with wrap_os_errors(self._repo.git.scratch()):
            return equivalence.judge(self._repo.git, self._repo.store, target, tip, self._rules)

    def _reaches(self, lost: _Lost, target: str) -> bool:
        return target in lost.commits or target in lost.edge or any(self._is_ancestor(target, commit) for commit in lost.edge)


def _generated(repo: Repository) -> tuple[GeneratedRule, ...]:
    """Files that a command makes, as the project says; a file of its that cannot be read says nothing."""
    with contextlib.suppress(ConfigError):
        return project.load(main_root(repo)).generated
    return ()


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


def _targets(repo: Repository) -> dict[str, str]:
    """Commits that may hold a patch, each with the name of its branch: where the checkout is, and the branches that moved last."""
    flags = ("--sort=-committerdate", "--format=%(objectname) %(refname)")
    lines = refs.over_all(repo, "for-each-ref", *flags, "refs/heads", "refs/remotes").text.splitlines()
    pairs = [line.split(" ", 1) for line in lines]
    theirs = [
        (oid, ref.removeprefix("refs/heads/").removeprefix("refs/")) for oid, ref in pairs if not ref.startswith(f"refs/heads/{OURS}")
    ]
    here = repo.git.run(repo.checkout, "rev-parse", "--verify", "HEAD^{commit}").text  # may be detached, on no branch at all
    found = {here: "HEAD"}
    for oid, name in theirs[:TARGETS]:
        found[oid] = name if found.get(oid, "HEAD") == "HEAD" else found[oid]
    return found
