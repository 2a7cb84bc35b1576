"""Merges a finished branch into the person's checkout, and shows its change.

The merge is computed beside the checkout, so a conflict is known before anything is touched; what is left is a fast-forward,
which git does as one guarded step. Where a hardened git would skip something the repository relies on (filters such as Git
LFS, hooks, signed commits), nothing is merged: the person gets the commands.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import NotFound, Refused, ToolFailed, ToolHung, some_of
from supervisor.core.landing_terms import GeneratedRule, Person
from supervisor.host.scratch import locked_directory
from worktrees import attributes, stale_lock, tree_merge
from worktrees.attributes import Source, drivers
from worktrees.changes import observe
from worktrees.failures import failure
from worktrees.git import BULK_S
from worktrees.repository import Repository, operation
from worktrees.tree_merge import GONE

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
    if any(path.rpartition("/")[2] == attributes.FILE for path in paths):
        with attributes.of_commit(repo, new) as source:
            used |= set(drivers(repo, paths, "filter", *more, source=source))
    if used:
        return f"files use {attributes.listed(used)}, which nightcrew does not run"
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
        if "index.lock" not in error.why or not stale_lock.remove(repo.git_dir, repo.root):
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
