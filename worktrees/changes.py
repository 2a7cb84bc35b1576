"""What a worktree holds that no commit holds: git's own answer, made complete and safe to ask.

Two verbs, `status` and `ls-files`, both told to look at nested repositories from outside only: entering one would obey its
configuration, which an agent wrote. `ls-files` finds what `status` cannot see: files hidden by assume-unchanged or
skip-worktree, and submodules that somebody filled.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from worktrees.git import BULK_S, Git, Place

_GITLINK = b"160000"
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
    """The changes at `place`, two git processes. Raises ToolFailed when git cannot use HEAD or the index there."""
    env = {"GIT_INDEX_FILE": str(index)} if index is not None else {}
    argv = ["--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty"]
    argv.append("--ignored=matching" if ignored else "--ignored=no")
    status = git.run(place, "status", *argv, env=env, deadline_s=BULK_S)
    listed = git.run(place, "ls-files", "-v", "--stage", "-z", env=env)
    return _combine(place.top, status.out, listed.out, tuple(line for line in status.err.splitlines() if _UNREAD in line))


def _combine(top: Path, status: bytes, listed: bytes, warnings: tuple[str, ...]) -> Changes:
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


def _special(top: Path, listed: bytes) -> tuple[tuple[bytes, ...], frozenset[bytes]]:
    """Hidden files, and gitlinks that hold a repository, from `ls-files -v --stage -z`: `<tag> <mode> <oid> <stage>\\t<path>`."""
    hidden, gitlinks = [], set()
    for line in listed.split(b"\0"):
        facts, _, path = line.partition(b"\t")
        if facts[2:8] == _GITLINK:
            if _holds_repository(top, path):
                gitlinks.add(path)
        elif facts[:1].islower() or (facts[:1] == b"S" and os.path.lexists(top / os.fsdecode(path))):
            hidden.append(path)
    return tuple(hidden), frozenset(gitlinks)


def _holds_repository(top: Path, path: bytes) -> bool:
    """A `.git` lies there, and no symbolic link on the way leads out of the worktree."""
    full = top
    for part in os.fsdecode(path).split("/"):
        full /= part
        if full.is_symlink():
            return False
    return os.path.lexists(full / ".git")
