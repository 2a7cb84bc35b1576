"""Move a checkout of the person's forward, and say whether a branch is merged already."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.config import project
from supervisor.kernel.errors import ConfigError, Refused, ToolFailed, ToolHung, one_line, some_of
from supervisor.kernel.train_orders import GeneratedRule, Person
from worktrees import locks, repository, tree_merge
from worktrees.changes import observe
from worktrees.git import BULK_S, failure, wrap_os_errors
from worktrees.repository import Repository, drivers, main_root
from worktrees.tree_merge import GONE, bounded

# Merge
# -----
# What the person's own git would do in a checkout, how a checkout moves forward, and what a branch changed.
#
# Where a hardened git would skip something the repository relies on (filters such as Git LFS, hooks, signed commits), nothing is merged:
# the person gets the commands.


MERGE_HOOKS = ("pre-merge-commit", "prepare-commit-msg", "commit-msg")
"""What git runs when it makes a merge commit, besides the following."""
REF_HOOK = "reference-transaction"
"""What git runs whenever a ref moves."""
_MOVE_HOOKS = ("post-merge", "post-index-change", REF_HOOK)
"""What git runs whenever a merge moves the branch, a fast-forward included."""

CHANGED_MAX, CHANGED_BYTES = 20_000, 4 * 2**20
"""Of the names of changed files: a larger change is not looked through."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """Not merged: `why`, and the exact shell commands that do it with everything the repository relies on."""

    why: str
    commands: tuple[str, ...]


def fork_point(repo: Repository, into: str, tip: str, began: str | None) -> str:
    """Return the newest commit that both have; where they have none, the commit `began` at which the work of `tip` began, if known."""
    return repo.fork_point(into, tip) or began or tip


def diff(repo: Repository, base: str, tip: str, *, stat: bool = False) -> str:
    """The change from commit `base` to `tip` as git prints it. Write it out with `errors="surrogateescape"` to get git's very bytes."""
    flags = (
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        "--src-prefix=a/",
        "--dst-prefix=b/",
        *(("--stat",) if stat else ("--binary",)),
    )
    return os.fsdecode(repo.run("diff", *flags, "--end-of-options", base, tip, "--", deadline_s=BULK_S).out)


def patch(repo: Repository, base: str, tip: str, limit: int) -> bytes | None:
    """The change as text, without the content of binary files; None when it is larger than `limit` bytes, however large it is."""
    found, is_all = bounded(repo, limit, "diff", "--end-of-options", base, tip, "--")
    return found if is_all else None


def changed(repo: Repository, base: str, tip: str) -> list[str]:
    """Paths from the root of the files that differ, at most CHANGED_MAX of them; a renamed one has both names."""
    found, _ = bounded(repo, CHANGED_BYTES, "diff", "--name-only", "-z", "--no-renames", "--end-of-options", base, tip, "--")
    return [os.fsdecode(name) for name in found.split(b"\0")[:-1][:CHANGED_MAX]]


def refuse_dirty(repo: Repository) -> None:
    """Raises Refused where tracked files have changes. Untracked files are no hindrance: git itself refuses to overwrite one."""
    changes = observe(repo.git, repo.checkout)
    paths = [os.fsdecode(path) for path in (*changes.tracked, *changes.deleted)]
    if paths:
        raise refused(repo.root, f"uncommitted changes: {some_of(paths)}", f"git -C {quoted(repo.root)} stash")


def bypassed_by_merge(repo: Repository, old: str, new: str) -> str:
    """Name what a merge commit by us would skip, beside what `bypassed_by_move` names, or ""."""
    return bypassed_by_move(repo, old, new, ("merge",), MERGE_HOOKS) or unsigned(repo)


def bypassed_by_move(repo: Repository, old: str, new: str, more: Sequence[str] = (), more_hooks: Sequence[str] = ()) -> str:
    """What moving the checkout from `old` to `new` by us would skip, or "": filters and hooks, and `more` attributes. Named for the
    person."""
    changed = tree_merge.changes(repo, old, new)
    paths = [path for path, (_, side) in changed.items() if side.mode != GONE]
    used = set(drivers(repo, paths, "filter", *more))
    if any(path.rpartition("/")[2] == repository.FILE for path in paths):
        with repository.of_commit(repo, new) as source:
            used |= set(drivers(repo, paths, "filter", *more, source=source))
    if used:
        return f"files use {repository.listed(used)}, which nightcrew does not run"
    return bypassed_hooks(repo, *more_hooks, *_MOVE_HOOKS)


def bypassed_hooks(repo: Repository, *names: str) -> str:
    """Those of these hooks that the person's own git would run, as a reason, or ""."""
    found = hooks(repo, *names)
    return f"the repository has hooks that nightcrew does not run: {', '.join(found)}" if found else ""


def hooks(repo: Repository, *names: str) -> list[str]:
    """Those of these hooks that the person's own git would run."""
    place = repo.root / (_own_setting(repo, "core.hooksPath", "path") or repo.common_dir / "hooks")
    return [name for name in names if os.access(place / name, os.X_OK)]


def unsigned(repo: Repository) -> str:
    """Why commits that we make would not be as the person's own, or ""."""
    return "your commits are signed, and nightcrew does not sign" if _own_setting(repo, "commit.gpgSign", "bool") == "true" else ""


def _own_setting(repo: Repository, key: str, kind: str) -> str:
    """What a key means to the person's own git, or "". Our door overrides the key itself: that is left out. Raises ToolFailed where their
    git could not read it either."""
    answer = repo.git.ask(repo.root, "config", "--show-scope", "-z", f"--type={kind}", "--get-all", key)
    if answer.code > 1:
        raise failure("config", str(repo.root), answer.code, answer.err)
    fields = answer.text.split("\0")
    found = [value for scope, value in zip(fields[::2], fields[1::2], strict=False) if scope != "command"]
    return found[-1] if found else ""


def person(repo: Repository, role: str = "AUTHOR") -> Person:
    """Who the person is to their own git. Raises Refused where it does not know."""
    answer = repo.git.ask(repo.root, "var", f"GIT_{role}_IDENT")
    if answer.code:
        hint = 'git config --global user.name "Your Name"; git config --global user.email you@example.com'
        raise refused(repo.root, "git does not know who you are", hint)
    name, _, mail = answer.text.rpartition("> ")[0].rpartition(" <")
    return Person(name, mail)


def advance(repo: Repository, commit: str) -> bool:
    """Move the checkout; whether a lock that a killed git had left was removed for that."""
    try:
        _fast_forward(repo, commit)
    except Refused as error:
        if "index.lock" not in error.why or not locks.remove(repo.git_dir, repo.root):
            raise
        _fast_forward(repo, commit)
        return True
    return False


def _fast_forward(repo: Repository, commit: str) -> None:
    try:
        # Killed in the middle it would leave some files new and some old: it goes on to its end without us.
        # Without `--no-overwrite-ignore` it would replace files that git ignores, which may be all that there is of them.
        flags = ("--ff-only", "--no-overwrite-ignore", "--no-squash", "--no-stat", "--quiet")
        repo.git.run(repo.checkout, "merge", *flags, commit, deadline_s=BULK_S, survives=True)
    except ToolHung:
        raise
    except ToolFailed as error:
        raise refused(repo.root, error.why, f"git -C {quoted(repo.root)} status") from error


def refused(on: object, why: str, hint: str) -> Refused:
    """Return the error for a branch or a checkout that is not to be moved now."""
    return Refused("nothing was merged into", on=str(on), why=why, kept="your checkout as it was", hint=hint)


def quoted(path: Path) -> str:
    """Return a path as a word of a shell."""
    return shlex.quote(str(path))


# Merge status
# ------------
# Whether a branch's work is merged already: by commit, by patch, or as one squashed patch.
#
# A squash merge leaves no trace in the history: the same change arrives as another commit. Counting commits alone would keep such
# branches for ever.
#
# Each question makes git read every ref of the repository, so what many tips have in common is asked once for all of them.


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
    standing: tree_merge.Standing = field(default_factory=lambda: tree_merge.Standing(held=False, why=""))

    def is_less(self, other: tree_merge.Standing) -> bool:
        return (other.held, other.inside, bool(other.why)) > (self.standing.held, self.standing.inside, bool(self.standing.why))


class Branches:
    """What the person's branches hold, as they were when this was made. Safe to use from several threads."""

    def __init__(self, repo: Repository, tips: Iterable[str]) -> None:
        """`tips` are the commits that will be asked about. Raises as `Git.run`, but not for one of several tips that cannot be read."""
        self._repo = repo
        self._tips = frozenset(tips)
        self._parents = self._walked()
        self._targets = _targets(repo) if self._parents is None or self._parents else {}
        self._trees = repo.trees([*(self._tips & self._parents.keys()), *self._targets]) if self._parents else {}
        self._rules = generated_rules(repo) if self._targets else ()
        self._is_ancestor = functools.cache(lambda old, new: repo.has(new, old))

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
        lines = self._repo.run(*argv, stdin=asked).text.split("\n")
        return {head.removeprefix("commit "): one_line(said) for head, said in zip(lines[::2], lines[1::2], strict=False)}

    def _compared(self, target: str, tip: str, lost: _Lost | None) -> tree_merge.Standing:
        """Whether the work is on `target` as a patch. One without a commit of its own holds none: there only the files can be the same."""
        has_none = lost is not None and len(lost.edge) <= _EDGE_MAX and self._reaches(lost, target)
        if has_none and tip in self._trees and target in self._trees:
            same = self._trees[tip] == self._trees[target]
            return tree_merge.Standing(held=same, why="its files are the same" if same else "")
        with wrap_os_errors(self._repo.git.scratch()):
            return tree_merge.judge(self._repo, target, tip, self._rules)

    def _reaches(self, lost: _Lost, target: str) -> bool:
        return target in lost.commits or target in lost.edge or any(self._is_ancestor(target, commit) for commit in lost.edge)


def generated_rules(repo: Repository) -> tuple[GeneratedRule, ...]:
    """Return the rules of the project for files that a command makes; none where its file cannot be read."""
    with contextlib.suppress(ConfigError):
        return project.load(main_root(repo)).generated
    return ()


def _walk(repo: Repository, tips: Iterable[str]) -> dict[str, tuple[str, ...]] | None:
    """Each commit that is on no branch of the person's, with its parents; None when there are too many."""
    asked = "".join(f"{tip}\n" for tip in sorted(tips)).encode()
    argv = ("rev-list", "--parents", f"--max-count={_WALK_MAX + 1}", "--stdin", *_NOT_THEIRS)
    lines = repository.over_all(repo, *argv, stdin=asked).text.splitlines()
    return {oid: tuple(parents) for oid, *parents in map(str.split, lines)} if len(lines) <= _WALK_MAX else None


def _count(repo: Repository, tip: str) -> int:
    return int(repository.over_all(repo, "rev-list", "--count", tip, *_NOT_THEIRS).text)


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


def _targets(repo: Repository) -> dict[str, str]:
    """Commits that may hold a patch, each with the name of its branch: where the checkout is, and the branches that moved last."""
    flags = ("--sort=-committerdate", "--format=%(objectname) %(refname)")
    lines = repository.over_all(repo, "for-each-ref", *flags, "refs/heads", "refs/remotes").text.splitlines()
    pairs = [line.split(" ", 1) for line in lines]
    theirs = [
        (oid, ref.removeprefix("refs/heads/").removeprefix("refs/")) for oid, ref in pairs if not ref.startswith(f"refs/heads/{OURS}")
    ]
    here = repo.git.run(repo.checkout, "rev-parse", "--verify", "HEAD^{commit}").text  # may be detached, on no branch at all
    found = {here: "HEAD"}
    for oid, name in theirs[:TARGETS]:
        found[oid] = name if found.get(oid, "HEAD") == "HEAD" else found[oid]
    return found
