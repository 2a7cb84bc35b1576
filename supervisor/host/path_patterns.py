"""Files of a repository that patterns name. The patterns come with a clone, so whatever they match must lie in it: no link leads out."""

from __future__ import annotations

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


def _plain(root: Path, pattern: str) -> Iterator[str]:
    for path in root.glob(pattern):
        inside = path.relative_to(root)
        if ".." in inside.parts or any(part.casefold() == ".git" for part in inside.parts):
            continue
        steps = [root.joinpath(*inside.parts[:number]) for number in range(1, len(inside.parts) + 1)]
        if not any(step.is_symlink() for step in steps) and path.is_file():
            yield str(inside)
