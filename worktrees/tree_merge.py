"""The one merge of two commits, beside every checkout."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.host.scratch import locked_directory
from supervisor.kernel.gate_files import RESTORED, Flag
from worktrees import pack_import, patches
from worktrees.git import BULK_S, IDENTITY, Answer, Bounds, Git, Place
from worktrees.repository import File, Repository, Source, files

# Tree merge
# ----------
# `git merge-tree` merges two commits: it writes objects, and nothing else. Every merge of nightcrew is one of these: `take`, a train of
# merges, the matrix of conflicts, the merge of a map, and the comparison of histories.
#
# No merge driver, filter or hook runs: a file with a driver of its own that both sides changed is a conflict.


GONE, LINK = "000000", "160000"
"""git's mode of a file that is not there, and of a commit of another repository."""
_FLAGS = ("--write-tree", "--name-only", "--no-messages")
_DIFF = ("diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--no-commit-id")
"""What differs between two trees, file by file; a renamed file is one that went and one that came."""
_MADE_UP = re.compile("~(?:[0-9a-f]{40}|[0-9a-f]{64})(?:_[0-9]+)?$")
"""Where git puts a file whose place a directory has."""
_MOMENT = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
_ANY = tuple(range(-64, 256))  # signals are negative


@dataclass(frozen=True, slots=True)
class Merged:
    """What git makes of two commits."""

    tree: str
    """With conflicts it holds the marked files."""
    conflicts: tuple[str, ...] = ()
    """Files, each once, by the names that people know them by, as `os.fsdecode` text."""


def merge(repo: Repository, ours: str, theirs: str, source: Source | None = None) -> Merged:
    """Merge two commits. The attributes of `source` count (`merge=union`); by default those of no checkout. Raises as `Git.run`."""
    place, env = (source.place, source.env) if source is not None else (repo.store, None)
    answer = repo.git.run(place, "merge-tree", *_FLAGS, "-z", ours, theirs, env=env, accept=(0, 1), deadline_s=BULK_S)
    tree, *names = answer.text.split("\0")
    return Merged(tree, _named(names) if answer.code else ())


def replay(repo: Repository, base: str, ours: str, theirs: str, source: Source | None = None) -> Merged:
    """Merge the change from `base` to `theirs` into `ours`, whatever their histories are. Commits are made for git to find the base by:
    `merge-tree --merge-base` came with git 2.40."""
    root = our_commit(repo, repo.tree(base), "", "side")
    one, two = (our_commit(repo, repo.tree(rev), root, "side") for rev in (ours, theirs))
    return merge(repo, one, two, source)


def merge_pairs(repo: Repository, pairs: Sequence[tuple[str, str]], deadline_s: float, bounds: Bounds) -> tuple[list[Merged], Answer]:
    """Merge each pair of commits by one git, with the attributes of the checkout, and return what it made with its answer. It ends at the
    first pair that it cannot merge. Raises ToolHung."""
    asked = "".join(f"{one} {two}\n" for one, two in pairs).encode()
    argv = ("merge-tree", *_FLAGS, "--stdin")
    answer = repo.git.run(repo.checkout, *argv, stdin=asked, accept=_ANY, deadline_s=deadline_s, bounds=bounds)
    return list(_records(answer.out)), answer


def _records(out: bytes) -> Iterator[Merged]:
    """Git prints for each pair 1 when the merge is clean, the tree, the names, and an empty word. A record that was cut off does not
    count."""
    for record in os.fsdecode(out).split("\0\0")[:-1]:
        clean, tree, *names = record.split("\0")
        yield Merged(tree, () if clean == "1" else _named(names))


def _named(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_MADE_UP.sub("", name) for name in names if name))


def our_commit(repo: Repository, tree: str, parent: str, words: str) -> str:
    """Write a commit of nobody and of no moment: the same arguments give the same commit."""
    return repo.write_commit(tree, [parent] if parent else [], f"{words}\n".encode(), {**IDENTITY, **_MOMENT})


Changes = dict[str, tuple[File, File]]
"""Of each file that differs, what it was and what it is; a renamed one has both names. A file that is not there has the mode `GONE`."""


def changes(repo: Repository, old: str, new: str) -> Changes:
    """Return what differs between two commits or trees. Raises as `Git.run`."""
    return next(_changes(repo.run(*_DIFF, old, new, deadline_s=BULK_S).text), {})


def changes_of_pairs(repo: Repository, pairs: Sequence[tuple[str, str]]) -> list[Changes]:
    """Return the same of each pair of trees, by one process."""
    asked = "".join(f"{old} {new}\n" for old, new in pairs if old != new)
    sections = _changes(repo.run(*_DIFF, "--stdin", stdin=asked.encode(), deadline_s=BULK_S).text if asked else "")
    return [next(sections) if old != new else {} for old, new in pairs]


def _changes(text: str) -> Iterator[Changes]:
    """Read what `diff-tree` prints. With `--stdin` a line with both trees stands before the rows of each pair."""
    fields = text.split("\0")[:-1]
    found: Changes = {}
    for facts, path in zip(fields[::2], fields[1::2], strict=True):
        if not facts.startswith(":") and found:
            yield found
            found = {}
        old_mode, new_mode, old_oid, new_oid, _ = facts.rpartition(":")[2].split(" ")
        found[path] = (File(old_mode, old_oid), File(new_mode, new_oid))
    if found:
        yield found


def replaced(repo: Repository, tree: str, changed: Mapping[str, File | None]) -> str:
    """Return the tree (or that of the commit) `tree` with these files in the place of its own; None removes one. Without any it is
    `tree`."""
    if not changed:
        return tree
    with locked_directory(repo.git.scratch(), "nightcrew.") as scratch:
        env = {"GIT_INDEX_FILE": str(scratch / "index")}
        repo.run("read-tree", tree, env=env, deadline_s=BULK_S)
        zero = "0" * len(repo.head)
        rows = [f"{file.mode} {file.oid}\t{path}\0" if file else f"0 {zero}\t{path}\0" for path, file in changed.items()]
        repo.run("update-index", "-z", "--index-info", stdin="".join(rows).encode("utf-8", "surrogateescape"), env=env)
        return repo.run("write-tree", env=env, deadline_s=BULK_S).text


def as_in(repo: Repository, tree: str, commit: str, paths: Collection[str]) -> str:
    """Return `tree` with these files as `commit` has them; those that it lacks are gone."""
    there = files(repo, commit, paths)
    return replaced(repo, tree, {path: there.get(path) for path in paths})


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
        unsynced = {"GIT_CONFIG_PARAMETERS": "'core.fsync=none'"}  # as `git -c` says it
        yield replace(repo, git=_Aside(repo.git, {**more, **unsynced}))


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
    tree = as_in(repo, staged, before, sorted(paths))
    return None if tree == repo.tree(staged) else our_commit(repo, tree, staged, "nightcrew: the gate as it was before this result")
