"""Noticing that somebody changed the parts of a repository that git obeys: its configuration, hooks and attributes."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from supervisor.host.foreign import open_plain
from worktrees.repository import Repository

_READ_MAX = 2**20
_FILES = ("config", "config.worktree", "info/attributes", "info/exclude", "info/grafts", "objects/info/alternates")


def config_guard(repo: Repository) -> dict[str, str]:
    """A fingerprint: name of each file that steers git (relative to the common directory) -> digest of its kind, mode and text.

    Symbolic links count by where they point and are not followed; of a file beyond 1 MiB the size and time count as well.
    """
    return {
        name: _digest(repo.common_dir / name) for name in (*_FILES, *_hooks(repo.common_dir)) if os.path.lexists(repo.common_dir / name)
    }


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Names that were added, removed or altered between two fingerprints, sorted."""
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _hooks(common: Path) -> Iterator[str]:
    folder = common / "hooks"
    if folder.is_symlink():
        yield "hooks"
    elif folder.is_dir():
        yield from (f"hooks/{name}" for name in sorted(entry.name for entry in folder.iterdir()))


def _digest(file: Path) -> str:
    seen = file.lstat()
    facts = f"{seen.st_mode:o}"
    if stat.S_ISLNK(seen.st_mode):
        return _hash(facts, os.fsencode(file.readlink()))
    if not stat.S_ISREG(seen.st_mode):
        return _hash(facts, b"")
    if seen.st_size > _READ_MAX:
        facts += f" {seen.st_size} {seen.st_mtime_ns}"
    try:
        with open_plain(file) as data:
            return _hash(facts, data.read(_READ_MAX))
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _hash(facts: str, data: bytes) -> str:
    return hashlib.sha256(facts.encode() + b"\0" + data).hexdigest()
