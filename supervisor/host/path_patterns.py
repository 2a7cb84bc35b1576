"""Files of a repository that patterns name. The patterns come with a clone, so whatever they match must lie in it: no link leads out.

They are those of `core.path_globs`, see `names_files` there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from supervisor.core.path_globs import is_below, normalised

MAX_FILES = 10_000
"""Of one list of patterns: `**` in a tree of dependencies is a mistake."""


def files(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """Paths, relative to `root` and sorted, of the plain files that any of `patterns` (globs) matches: nothing of git's own, and nothing
    that is reached by a symbolic link. Raises ValueError for what is no pattern, and when
    there are more than 10,000."""
    found: set[str] = set()
    for pattern in patterns:
        for path in _plain(root, pattern):
            found.add(path)
            if len(found) > MAX_FILES:
                raise ValueError(f"{pattern!r} matches more than {MAX_FILES} files")
    return tuple(sorted(found))


def _plain(root: Path, pattern: str) -> Iterator[str]:
    form = normalised(pattern)
    for path in [root] if form == "**" else root.glob(form):
        inside = path.relative_to(root)
        if any(map(_is_git, inside.parts)):
            continue
        steps = [root.joinpath(*inside.parts[:number]) for number in range(1, len(inside.parts) + 1)]
        if any(step.is_symlink() for step in steps):
            continue
        if path.is_file():
            yield str(inside)
        elif is_below(pattern):
            yield from _below(root, path)


def _below(root: Path, directory: Path) -> Iterator[str]:
    for place, directories, names in os.walk(directory):
        directories[:] = (name for name in directories if not _is_git(name))
        for path in (Path(place, name) for name in names if not _is_git(name)):
            if not path.is_symlink() and path.is_file():
                yield str(path.relative_to(root))


def _is_git(name: str) -> bool:
    return name.casefold() == ".git"
