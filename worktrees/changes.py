"""The changes of a worktree that are in no commit: git's own answer, made complete and safe to ask for.

`git status` is told to look at nested repositories from outside only: entering one would obey its configuration, which an agent wrote. The
index tells what it cannot see: files hidden by assume-unchanged or skip-worktree, and submodules that somebody filled. It is read here, a
process less; one of an unusual form is left to `git ls-files`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from supervisor.host.foreign import open_plain
from worktrees import registration
from worktrees.backends.index import GITLINK, Entry, entries
from worktrees.git import BULK_S, Git, Place

_INDEX_MAX = 64 * 2**20
"""Bytes: half a million files."""
_UNREAD = "could not open directory"
_FIELDS_BEFORE_PATH = {b"1": 8, b"u": 10}


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths are bytes relative to the top of the worktree, as git gives them."""

    head: str | None
    """Commit that HEAD stands on; None when its branch has no commit."""
    branch: str | None
    """Full name of the ref HEAD is on, or None when it is detached."""
    tracked: tuple[bytes, ...] = ()
    """Changed, staged or unmerged."""
    deleted: tuple[bytes, ...] = ()
    """Tracked, but no longer a file there: gone, or below something that became a link."""
    untracked: tuple[bytes, ...] = ()
    hidden: tuple[bytes, ...] = ()
    """Tracked files whose changes git was told not to notice."""
    nested: tuple[bytes, ...] = ()
    """Directories with a repository of their own, without a slash at the end; a submodule that was filled is one."""
    ignored: tuple[bytes, ...] = ()
    """A whole ignored directory is one entry that ends in a slash; empty unless asked for."""
    warnings: tuple[str, ...] = ()
    """Directories that git could not read; what else it says on stderr hides no file."""

    @property
    def files(self) -> tuple[bytes, ...]:
        """All that differs from what git knows, nested repositories apart."""
        return (*self.tracked, *self.deleted, *self.untracked, *self.hidden)


def observe(git: Git, place: Place, *, ignored: bool = False, index: Path | None = None) -> Changes:
    """The changes at `place`, one git process or two. Raises ToolFailed when git cannot use HEAD or the index there."""
    env = {"GIT_INDEX_FILE": str(index)} if index is not None else {}
    argv = ["--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty"]
    argv.append("--ignored=matching" if ignored else "--ignored=no")
    status = git.run(place, "status", *argv, env=env, deadline_s=BULK_S)
    listed = _read(index or place.git_dir / "index", status.out)
    if listed is None:
        listed = list(_listed(git.run(place, "ls-files", "-v", "--stage", "-z", env=env).out))
    found = _combine(place.top, status.out, listed, tuple(line for line in status.err.splitlines() if _UNREAD in line))
    return replace(found, nested=(*found.nested, *_ignored_worktrees(place, found.nested))) if place.is_ours else found


def _ignored_worktrees(place: Place, nested: Iterable[bytes]) -> list[bytes]:
    """Worktrees that an agent added below a directory that git ignores, where `git status` does not look: their files are work."""
    top, seen = place.work_tree or place.common_dir, [os.fsdecode(path) for path in nested]
    return [
        os.fsencode(path)
        for path in sorted(registration.inside(place.common_dir, top))
        if not any(path == other or path.startswith(f"{other}/") for other in seen) and _holds_repository(place.top, os.fsencode(path))
    ]


def _read(index: Path, status: bytes) -> list[Entry] | None:
    """What `_special` must look at; None when git must be asked."""
    oid = status.partition(b"# branch.oid ")[2].partition(b"\0")[0]
    if len(oid) not in (40, 64):
        return None  # a branch without a commit: nobody said how long the names of objects are
    try:
        with open_plain(index) as file:
            data = file.read(_INDEX_MAX + 1)
        return None if len(data) > _INDEX_MAX else [entry for entry in entries(data, len(oid) // 2) if _is_special(entry)]
    except (OSError, ValueError):
        return None


def _listed(rows: bytes) -> Iterator[Entry]:
    """From `ls-files -v --stage -z`: `<tag> <mode> <oid> <stage>\\t<path>`."""
    for row in filter(None, rows.split(b"\0")):
        facts, _, path = row.partition(b"\t")
        yield Entry(0, int(facts[2:8], 8), facts[:1].islower(), facts[:1] in b"Ss", path)


def _is_special(entry: Entry) -> bool:
    return entry.mode == GITLINK or entry.is_valid or entry.is_skipped


def _combine(top: Path, status: bytes, listed: Iterable[Entry], warnings: tuple[str, ...]) -> Changes:
    heads: dict[bytes, str] = {}
    tracked: list[bytes] = []
    deleted: list[bytes] = []
    untracked: list[bytes] = []
    nested: list[bytes] = []
    skipped: list[bytes] = []
    for entry in status.split(b"\0"):
        kind, _, rest = entry.partition(b" ")
        if kind == b"#":
            key, _, value = rest.partition(b" ")
            heads[key] = os.fsdecode(value)
        elif kind in _FIELDS_BEFORE_PATH:
            missing = kind == b"1" and rest[1:2] == b"D"
            (deleted if missing else tracked).append(entry.split(b" ", _FIELDS_BEFORE_PATH[kind])[-1])
        elif kind == b"?":
            (nested if rest.endswith(b"/") else untracked).append(rest.rstrip(b"/"))
        elif kind == b"!":
            skipped.append(rest)
    hidden, gitlinks = _special(top, listed)
    oid, name = heads.get(b"branch.oid", "(initial)"), heads.get(b"branch.head", "(detached)")
    return Changes(
        head=None if oid == "(initial)" else oid,
        branch=None if name == "(detached)" else f"refs/heads/{name}",
        tracked=tuple(path for path in tracked if path not in gitlinks),
        deleted=tuple(deleted),
        untracked=tuple(untracked),
        hidden=hidden,
        nested=(*nested, *sorted(gitlinks)),
        ignored=tuple(skipped),
        warnings=warnings,
    )


def _special(top: Path, listed: Iterable[Entry]) -> tuple[tuple[bytes, ...], frozenset[bytes]]:
    """Hidden files, and gitlinks that hold a repository."""
    hidden, gitlinks = [], set()
    for entry in listed:
        if entry.mode == GITLINK:
            if _holds_repository(top, entry.path):
                gitlinks.add(entry.path)
        elif entry.is_valid or (entry.is_skipped and os.path.lexists(top / os.fsdecode(entry.path))):
            hidden.append(entry.path)
    return tuple(hidden), frozenset(gitlinks)


def _holds_repository(top: Path, path: bytes) -> bool:
    """A `.git` lies there, and no symbolic link on the way leads out of the worktree."""
    full = top
    for part in os.fsdecode(path).split("/"):
        full /= part
        if full.is_symlink():
            return False
    return os.path.lexists(full / ".git")
