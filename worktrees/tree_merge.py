"""Merges of two commits beside every checkout, by `git merge-tree`: objects are written, and nothing else.

No merge driver, filter or hook runs: a file with a driver of its own that both sides changed is a conflict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from supervisor.host.scratch import locked_directory
from worktrees.git import BULK_S, Place
from worktrees.hardening import IDENTITY
from worktrees.repository import Repository

GONE, LINK = "000000", "160000"
"""git's mode of a file that is not there, and of a commit of another repository."""
_FLAGS = ("--write-tree", "--name-only", "-z", "--no-messages")
_DIFF = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-commit-id")
_MOMENT = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}


@dataclass(frozen=True, slots=True)
class Side:
    """Mode and oid of a file, as git writes them."""

    mode: str
    oid: str


def merge(repo: Repository, ours: str, theirs: str, *, place: Place | None = None) -> tuple[str, tuple[str, ...]]:
    """The merged tree and the files that conflict, as `os.fsdecode` text; with conflicts the tree holds the marked files. The attributes of
    the person's checkout count (`merge=union`). Raises as `Git.run`."""
    answer = repo.git.run(place or repo.checkout, "merge-tree", *_FLAGS, ours, theirs, accept=(0, 1), deadline_s=BULK_S)
    tree, *names = answer.text.split("\0")
    if not answer.code:
        return tree, ()
    made_up = re.compile(f"~(?:{ours}|{theirs})(?:_[0-9]+)?$")  # where git puts a file whose place a directory has
    return tree, tuple(dict.fromkeys(made_up.sub("", name) for name in names if name))


def replay(repo: Repository, base: str, ours: str, theirs: str) -> tuple[str, tuple[str, ...]]:
    """The same of the change from `base` to `theirs` on top of `ours`, whatever their histories are. The commits are made for git to find
    the base by: `merge-tree --merge-base` came with git 2.40."""
    root = _commit(repo, base)
    one, two = (_commit(repo, rev, root) for rev in (ours, theirs))
    return merge(repo, one, two)


def _commit(repo: Repository, rev: str, parent: str = "") -> str:
    argv = ("commit-tree", f"{rev}^{{tree}}", *(("-p", parent) if parent else ()), "-m", "side")
    return repo.git.run(repo.store, *argv, env={**IDENTITY, **_MOMENT}).text


def changes(repo: Repository, old: str, new: str) -> dict[str, tuple[Side, Side]]:
    """Of each file that differs, what it is in `old` and in `new`; a renamed one has both names."""
    fields = repo.git.run(repo.store, *_DIFF, old, new, deadline_s=BULK_S).text.split("\0")[:-1]
    found = {}
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old_oid, new_oid, _ = facts.removeprefix(":").split(" ")
        found[path] = (Side(old_mode, old_oid), Side(new_mode, new_oid))
    return found


def sides(repo: Repository, commit: str, paths: Iterable[str]) -> dict[str, Side]:
    """Those of the files that `commit` has."""
    names = list(paths)
    if not names:
        return {}
    rows = repo.git.run(repo.store, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *names, deadline_s=BULK_S).text.split("\0")[:-1]
    found = {}
    for row in rows:
        facts, _, path = row.partition("\t")
        mode, _, oid = facts.split(" ")
        found[path] = Side(mode, oid)
    return {path: side for path, side in found.items() if path in set(names)}


def replaced(repo: Repository, tree: str, files: Mapping[str, Side | None]) -> str:
    """`tree` with these files in the place of its own; None removes one."""
    if not files:
        return tree
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        env = {"GIT_INDEX_FILE": str(scratch / "index")}
        repo.git.run(repo.store, "read-tree", tree, env=env, deadline_s=BULK_S)
        zero = "0" * len(repo.head)
        rows = [f"{side.mode} {side.oid}\t{path}\0" if side else f"0 {zero}\t{path}\0" for path, side in files.items()]
        repo.git.run(repo.store, "update-index", "-z", "--index-info", stdin="".join(rows).encode("utf-8", "surrogateescape"), env=env)
        return repo.git.run(repo.store, "write-tree", env=env, deadline_s=BULK_S).text
