"""Walking a tree that is ours, and taking its fingerprint."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.host.foreign import remove_tree

_WRITE = 0o222


def walk(top: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every entry below `top`, parents before what is in them: its path relative to `top`, and its lstat. Links are not followed."""
    pending = [""]
    while pending:
        prefix = pending.pop()
        with os.scandir(top / prefix) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            name = f"{prefix}{entry.name}"
            yield name, entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                pending.append(f"{name}/")


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a frozen tree is recognised by."""

    digest: str
    """Over each entry's path, kind, permissions but for writing, and size and time or target."""
    files: int
    size: int
    """Bytes of all regular files."""
    foreign: str
    """The first entry that is not owned by this user and group, "" when there is none."""


def fingerprint(top: Path) -> Fingerprint:
    """Reads names and stats only, not contents: about 0.2 s for 13,000 entries. Raises OSError."""
    digest, files, size, foreign = hashlib.sha256(), 0, 0, ""
    owner = (os.geteuid(), os.getegid())
    for name, seen in walk(top):
        facts = f"{seen.st_mode & ~_WRITE:o}"
        if stat.S_ISREG(seen.st_mode):
            files, size = files + 1, size + seen.st_size
            facts += f" {seen.st_size} {seen.st_mtime_ns}"
        elif stat.S_ISLNK(seen.st_mode):
            facts += f" {(top / name).readlink()}"
        digest.update(os.fsencode(f"{facts} {name}\0"))
        if not foreign and (seen.st_uid, seen.st_gid) != owner:
            foreign = name
    return Fingerprint(digest.hexdigest(), files, size, foreign)


def write_protect(top: Path) -> None:
    """Take away the permission to write of every file and directory below `top`, and of `top`. Raises OSError."""
    for name, seen in [*walk(top), ("", top.lstat())]:
        if not stat.S_ISLNK(seen.st_mode):
            (top / name).chmod(stat.S_IMODE(seen.st_mode) & ~_WRITE)


remove = remove_tree
