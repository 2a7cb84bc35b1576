"""Merge a branch into the person's checkout; whether its work is merged already."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.config import project
from supervisor.features.landing.terms import GeneratedRule, Person
from supervisor.host.scratch import locked_directory
from supervisor.kernel.errors import ConfigError, NotFound, Refused, ToolFailed, ToolHung, one_line, some_of
from worktrees import equivalence, locks, refs, repository, tree_merge
from worktrees.changes import observe
from worktrees.git import BULK_S, failure, wrap_os_errors
from worktrees.repository import Repository, Source, drivers, main_root, operation
from worktrees.tree_merge import GONE

# Merge
# -----
# Merges a finished branch into the person's checkout, and shows its change.
#
# The merge is computed beside the checkout, so a conflict is known before anything is touched; what is left is a fast-forward,
# which git does as one guarded step. Where a hardened git would skip something the repository relies on (filters such as Git LFS,
# hooks, signed commits), nothing is merged: the person gets the commands.


MERGE_HOOKS = ("pre-merge-commit", "prepare-commit-msg", "commit-msg")
"""What git runs when it makes a merge commit, besides the following."""
REF_HOOK = "reference-transaction"
"""What git runs whenever a ref moves."""
_MOVE_HOOKS = ("post-merge", "post-index-change", REF_HOOK)
"""What git runs whenever a merge moves the branch, a fast-forward included."""

CHANGED_MAX, CHANGED_BYTES = 20_000, 4 * 2**20
"""Of the names of changed files: a larger change is not looked through."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What merging `tip` into `head` would do. Nothing is touched by asking."""

    head: str
    tip: str
    tree: str
    """The merged tree; with conflicts it holds the marked files."""
    conflicts: tuple[str, ...]
    fast_forward: bool
    """The checkout has nothing that the branch does not have."""
    up_to_date: bool
    """The branch has nothing new."""


@dataclass(frozen=True, slots=True)
class Merged:
    """The checkout now stands on `commit`."""

    commit: str
    fast_forward: bool
    unlocked: bool = False
    """The index was locked by a git that was killed, and is not any more."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """Not merged: `why`, and the exact shell commands that do it with everything the repository relies on."""

    why: str
    commands: tuple[str, ...]


def preview(repo: Repository, branch: str) -> Preview:
    """Return what `take` would do now with a branch, or with the full name of a ref. Raises NotFound when there is none."""
    git, place = repo.git, repo.checkout
    name = branch if branch.startswith("refs/") else f"refs/heads/{branch}"
    tip = git.run(repo.store, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", accept=(0, 1, 128))
    if tip.code != 0:
        raise NotFound("no such branch", on=branch)
    head = git.run(place, "rev-parse", "--verify", "HEAD^{commit}").text
    base = git.run(place, "merge-base", head, tip.text, accept=(0, 1)).text
    tree, conflicts = tree_merge.merge(git, Source(place), head, tip.text)
    return Preview(head, tip.text, tree, conflicts, fast_forward=base == head, up_to_date=base == tip.text)


def has(repo: Repository, commit: str) -> bool:
    """Whether the checkout has all of a commit; of one that is gone nobody knows. Raises as `Git.run`."""
    return repo.git.run(repo.store, "merge-base", "--is-ancestor", commit, repo.head, accept=(0, 1, 128)).code == 0


def take(repo: Repository, branch: str, message: str = "", *, only: str = "", generated: Sequence[GeneratedRule] = ()) -> Merged | ByHand:
    """Merge `branch` (or a ref, by its full name) into the branch the person has checked out; with `only`, as long as it is that commit.
    No command of `generated` is run: where nothing but such files conflicts the refusal says what runs them.

    Raises Refused, with the checkout untouched, when it is dirty, detached, in the middle of something, or would conflict;
    NotFound when there is no such branch; ToolFailed when git could not write.
    """
    with repo.git.lock(repo.common_dir):
        plan = preview(repo, branch)
        if only and plan.tip != only:
            why = f"{branch} is {plan.tip[:12]} by now, and {only[:12]} was agreed to"
            raise _refused(repo, why, f"git -C {_quoted(repo)} log {shlex.quote(branch)}")
        if plan.up_to_date:
            return Merged(plan.head, fast_forward=True)
        current = _ready_checkout(repo, branch)
        bypassed = _bypassed(repo, plan)
        if bypassed:
            return ByHand(bypassed, (f"git -C {_quoted(repo)} merge {shlex.quote(branch)}",))
        refuse_dirty(repo)
        if plan.conflicts:
            raise _conflicts(repo, branch, plan, generated)
        commit = plan.tip if plan.fast_forward else _merge_commit(repo, plan, message or f"Merge branch '{branch}' into {current}")
        return Merged(commit, plan.fast_forward, unlocked=advance(repo, commit))


def fork_point(repo: Repository, into: str, tip: str, began: str | None) -> str:
    """Return the newest commit that both have; where they have none, the commit `began` at which the work of `tip` began, if known."""
    return repo.git.run(repo.store, "merge-base", into, tip, accept=(0, 1)).text or began or tip


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
    return os.fsdecode(repo.git.run(repo.store, "diff", *flags, "--end-of-options", base, tip, "--", deadline_s=BULK_S).out)


def patch(repo: Repository, base: str, tip: str, limit: int) -> bytes | None:
    """The change as text, without the content of binary files; None when it is larger than `limit` bytes, however large it is."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        file = scratch / "patch"
        flags = ("--no-ext-diff", "--no-textconv", "--no-color", f"--output={file}")
        repo.git.run(repo.store, "diff", *flags, "--end-of-options", base, tip, "--", deadline_s=BULK_S)
        return file.read_bytes() if file.stat().st_size <= limit else None


def changed(repo: Repository, base: str, tip: str) -> list[str]:
    """Paths from the root of the files that differ, at most CHANGED_MAX of them; a renamed one has both names."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        file = scratch / "names"
        flags = ("--name-only", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", f"--output={file}")
        repo.git.run(repo.store, "diff", *flags, "--end-of-options", base, tip, "--", deadline_s=BULK_S)
        with file.open("rb") as names:
            found = names.read(CHANGED_BYTES).split(b"\0")[:-1]
    return [name.decode("utf-8", "surrogateescape") for name in found[:CHANGED_MAX]]


def _ready_checkout(repo: Repository, branch: str) -> str:
    """Short name of the branch the person is on. Raises Refused when a merge there would not be what they mean."""
    doing = operation(repo.git_dir)
    if doing:
        raise _refused(repo, f"a {doing} is in progress", f"git -C {_quoted(repo)} status")
    head = repo.git.run(repo.checkout, "symbolic-ref", "-q", "HEAD", accept=(0, 1))
    if head.code:
        raise _refused(repo, "HEAD is detached", f"git -C {_quoted(repo)} switch BRANCH")
    current = head.text.removeprefix("refs/heads/")
    if current == branch:
        raise _refused(repo, f"{branch} itself is checked out there", f"git -C {_quoted(repo)} switch BRANCH")
    return current


def refuse_dirty(repo: Repository) -> None:
    """Raises Refused where tracked files have changes. Untracked files are no hindrance: git itself refuses to overwrite one."""
    changes = observe(repo.git, repo.checkout)
    paths = [os.fsdecode(path) for path in (*changes.tracked, *changes.deleted)]
    if paths:
        raise _refused(repo, f"uncommitted changes: {some_of(paths)}", f"git -C {_quoted(repo)} stash")


def _bypassed(repo: Repository, plan: Preview) -> str:
    """What a merge by us would skip here, or "": named for the person."""
    if plan.fast_forward:
        return bypassed_by_move(repo, plan.head, plan.tip)
    return bypassed_by_move(repo, plan.head, plan.tip, ("merge",), MERGE_HOOKS) or unsigned(repo)


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
    place = _hooks_dir(repo)
    return [name for name in names if os.access(place / name, os.X_OK)]


def unsigned(repo: Repository) -> str:
    """Why commits that we make would not be as the person's own, or ""."""
    return "your commits are signed, and nightcrew does not sign" if _own_setting(repo, "commit.gpgSign", "bool") == "true" else ""


def _hooks_dir(repo: Repository) -> Path:
    """Where the person's own git looks for hooks."""
    return repo.root / (_own_setting(repo, "core.hooksPath", "path") or repo.common_dir / "hooks")


def _own_setting(repo: Repository, key: str, kind: str) -> str:
    """What a key means to the person's own git, or "". Our door overrides the key itself: that is left out. Raises ToolFailed where their
    git could not read it either."""
    answer = repo.git.ask(repo.root, "config", "--show-scope", "-z", f"--type={kind}", "--get-all", key)
    if answer.code > 1:
        raise failure("config", str(repo.root), answer.code, answer.err)
    fields = answer.text.split("\0")
    found = [value for scope, value in zip(fields[::2], fields[1::2], strict=False) if scope != "command"]
    return found[-1] if found else ""


def _merge_commit(repo: Repository, plan: Preview, message: str) -> str:
    """The merge as the person would commit it: their identity, their branch as the first parent."""
    identity: dict[str, str] = {}
    for role in ("AUTHOR", "COMMITTER"):
        who = person(repo, role)
        identity |= {f"GIT_{role}_NAME": who.name, f"GIT_{role}_EMAIL": who.mail}
    argv = ("commit-tree", plan.tree, "-p", plan.head, "-p", plan.tip, "-F", "-")
    return repo.git.run(repo.store, *argv, stdin=message.encode("utf-8", "replace") + b"\n", env=identity).text


def person(repo: Repository, role: str = "AUTHOR") -> Person:
    """Who the person is to their own git. Raises Refused where it does not know."""
    answer = repo.git.ask(repo.root, "var", f"GIT_{role}_IDENT")
    if answer.code:
        hint = 'git config --global user.name "Your Name"; git config --global user.email you@example.com'
        raise _refused(repo, "git does not know who you are", hint)
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
        raise _refused(repo, error.why, f"git -C {_quoted(repo)} status") from error


def _conflicts(repo: Repository, branch: str, plan: Preview, generated: Sequence[GeneratedRule]) -> Refused:
    why = f"it would conflict in {some_of(plan.conflicts)}"
    if all(any(rule.covers(path) for rule in generated) for path in plan.conflicts):
        return _refused(repo, f"{why}, which commands make; take runs none of them", "nightcrew land NAME, which has them made anew")
    return _refused(repo, why, f"git -C {_quoted(repo)} merge {shlex.quote(branch)}")


def _refused(repo: Repository, why: str, hint: str) -> Refused:
    return Refused("nothing was merged into", on=str(repo.root), why=why, kept="your checkout as it was", hint=hint)


def _quoted(repo: Repository) -> str:
    return shlex.quote(str(repo.root))


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
