"""Files of a repository that patterns name. The patterns come with a clone, so whatever they match must lie in it: no link leads out."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_FILES = 10_000
"""Of one list of patterns: `**` in a tree of dependencies is a mistake."""


def files(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """Paths, relative to `root` and sorted, of the plain files that any of `patterns` (globs) matches: nothing of git's own, and nothing
    that is reached by a symbolic link. Raises ValueError when there are more than 10,000."""
    found: set[str] = set()
    for pattern in patterns:
        for path in _plain(root, pattern):
            found.add(path)
            if len(found) > MAX_FILES:
                raise ValueError(f"{pattern!r} matches more than {MAX_FILES} files")
    return tuple(sorted(found))


def digests(root: Path, patterns: Iterable[str]) -> dict[str, str]:
    """Of each of `files`, the SHA-256 of its content; of one that cannot be read, or vanishes meanwhile, what the kernel says."""
    return {path: _digest(root / path) for path in files(root, patterns)}


def _plain(root: Path, pattern: str) -> Iterator[str]:
    for path in root.glob(pattern):
        inside = path.relative_to(root)
        if ".." in inside.parts or any(part.casefold() == ".git" for part in inside.parts):
            continue
        steps = [root.joinpath(*inside.parts[:number]) for number in range(1, len(inside.parts) + 1)]
        if not any(step.is_symlink() for step in steps) and path.is_file():
            yield str(inside)


def _digest(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # by now it could be a pipe
    except OSError as error:
        return f"unreadable: {error.strerror}"
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return "unreadable: not a plain file"
        return hashlib.file_digest(file, "sha256").hexdigest()
