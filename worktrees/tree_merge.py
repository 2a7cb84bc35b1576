"""Merges of two commits beside every checkout."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.features.review.gate_files import RESTORED, Flag
from supervisor.host.scratch import locked_directory
from worktrees import pack_import, patches
from worktrees.git import BULK_S, IDENTITY, Git, Place
from worktrees.repository import Repository, Source

# Tree merge
# ----------
# Merges of two commits beside every checkout, by `git merge-tree`: objects are written, and nothing else.
#
# No merge driver, filter or hook runs: a file with a driver of its own that both sides changed is a conflict.


GONE, LINK = "000000", "160000"
"""git's mode of a file that is not there, and of a commit of another repository."""
_FLAGS = ("--write-tree", "--name-only", "-z", "--no-messages")
DIFF = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-commit-id")
"""What differs between two trees, file by file; a renamed one is one that went and one that came."""
_MADE_UP = re.compile("~(?:[0-9a-f]{40}|[0-9a-f]{64})(?:_[0-9]+)?$")
"""Where git puts a file whose place a directory has."""
_NAMES_AT_ONCE = 500
_MOMENT = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}


@dataclass(frozen=True, slots=True)
class Side:
    """Mode and oid of a file, as git writes them."""

    mode: str
    oid: str


def merge(git: Git, source: Source, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
    """The merged tree of two commits and the files that conflict, as `os.fsdecode` text; with conflicts the tree holds the marked files.
    The attributes of `source` count (`merge=union`). Raises as `Git.run`."""
    answer = git.run(source.place, "merge-tree", *_FLAGS, ours, theirs, env=source.env, accept=(0, 1), deadline_s=BULK_S)
    tree, *names = answer.text.split("\0")
    return tree, named(names) if answer.code else ()


def replay(git: Git, source: Source, base: str, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
    """The same of the change from `base` to `theirs` on top of `ours`, whatever their histories are. The commits are made for git to find
    the base by: `merge-tree --merge-base` came with git 2.40."""
    root = _commit(git, source.place, base)
    one, two = (_commit(git, source.place, rev, root) for rev in (ours, theirs))
    return merge(git, source, one, two)


def named(names: Iterable[str]) -> tuple[str, ...]:
    """The files that git says conflict, each once, by the names that people know them by."""
    return tuple(dict.fromkeys(_MADE_UP.sub("", name) for name in names if name))


def our_commit(git: Git, place: Place, tree: str, parent: str, words: str) -> str:
    """A commit of nobody and of no moment: the same arguments give the same one."""
    argv = ("commit-tree", tree, *(("-p", parent) if parent else ()), "-m", words)
    return git.run(place, *argv, env={**IDENTITY, **_MOMENT}).text


def _commit(git: Git, place: Place, rev: str, parent: str = "") -> str:
    return our_commit(git, place, f"{rev}^{{tree}}", parent, "side")


def changes(repo: Repository, old: str, new: str) -> dict[str, tuple[Side, Side]]:
    """Of each file that differs, what it is in `old` and in `new`; a renamed one has both names."""
    fields = repo.git.run(repo.store, *DIFF, old, new, deadline_s=BULK_S).text.split("\0")[:-1]
    found = {}
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old_oid, new_oid, _ = facts.removeprefix(":").split(" ")
        found[path] = (Side(old_mode, old_oid), Side(new_mode, new_oid))
    return found


def sides(repo: Repository, commit: str, paths: Iterable[str]) -> dict[str, Side]:
    """Those of the files that `commit` has."""
    names = list(dict.fromkeys(paths))
    found: dict[str, Side] = {}
    for first in range(0, len(names), _NAMES_AT_ONCE):  # a command line has an end
        asked = names[first : first + _NAMES_AT_ONCE]
        rows = repo.git.run(repo.store, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *asked, deadline_s=BULK_S).text.split("\0")[:-1]
        for row in rows:
            facts, _, path = row.partition("\t")
            mode, _, oid = facts.split(" ")
            found[path] = Side(mode, oid)
    return {path: found[path] for path in names if path in found}


def replaced(repo: Repository, tree: str, files: Mapping[str, Side | None]) -> str:
    """The tree (or that of the commit) `tree` with these files in the place of its own; None removes one. Without any it is `tree`."""
    if not files:
        return tree
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        env = {"GIT_INDEX_FILE": str(scratch / "index")}
        repo.git.run(repo.store, "read-tree", tree, env=env, deadline_s=BULK_S)
        zero = "0" * len(repo.head)
        rows = [f"{side.mode} {side.oid}\t{path}\0" if side else f"0 {zero}\t{path}\0" for path, side in files.items()]
        repo.git.run(repo.store, "update-index", "-z", "--index-info", stdin="".join(rows).encode("utf-8", "surrogateescape"), env=env)
        return repo.git.run(repo.store, "write-tree", env=env, deadline_s=BULK_S).text


# Aside
# -----
# A door to git that writes every new object into a directory of ours: to find out what would come of something, and leave no trace.


class _Aside(Git):
    """As `git`, with further variables for every verb."""

    def __init__(self, git: Git, more: Mapping[str, str]) -> None:
        self.__dict__.update(git.__dict__)
        self._more = dict(more)

    def environment(self, place: Place) -> dict[str, str]:
        return {**super().environment(place), **self._more}


@contextlib.contextmanager
def objects_aside(repo: Repository) -> Iterator[Repository]:
    """The repository as it is, for reading and for objects that are gone afterwards. No ref may be moved with it."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as place:
        more = pack_import.environment(Path(place), repo.common_dir / "objects")
        yield replace(repo, git=_Aside(repo.git, more))


# Hardened gate
# -------------
# A merged tree whose gate is the one that was there before the result: what the result weakened is as it was, and its own work
# stays.
#
# A result that passes only with the gate that it changed itself is not what was asked for. So the gate runs twice then, and both
# must pass.


def hardened(repo: Repository, staged: str, before: str, flags: Sequence[Flag]) -> str | None:
    """A commit on `staged` in which the files that weaken the gate are as in `before`, the commit that `staged` was put on; None when there
    are none, or all are as before. A file that `before` lacks is gone there; one that was renamed has its old name. The same arguments give
    the same commit. Raises as `Git.run`."""
    paths = {flag.path for flag in flags if flag.weakens and flag.kind in RESTORED}
    if not paths:
        return None
    moved = {change.path: change.old_path for change in patches.read_gate_changes(repo, before, staged) if change.old_path}
    paths |= {moved[path] for path in paths if path in moved}
    there = sides(repo, before, sorted(paths))
    files: dict[str, Side | None] = {path: there.get(path) for path in sorted(paths)}
    tree = replaced(repo, staged, files)
    if tree == repo.git.run(repo.store, "rev-parse", "--verify", f"{staged}^{{tree}}").text:
        return None
    return our_commit(repo.git, repo.store, tree, staged, "nightcrew: the gate as it was before this result")
