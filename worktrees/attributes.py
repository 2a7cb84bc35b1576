"""Which attributes files have, by the `.gitattributes` of the person's checkout or of a commit. Nothing that they name is run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from worktrees.git import BULK_S
from worktrees.repository import Repository

_BUILT_IN = frozenset({"unspecified", "set", "unset"})
_MERGES = frozenset({"text", "binary", "union"})


def drivers(repo: Repository, paths: Iterable[str], *names: str) -> Iterator[tuple[str, str, str]]:
    """Path, attribute and value of each file for which one of these attributes names something of its own: a filter, a merge driver."""
    asked = "".join(f"{path}\0" for path in paths)
    if asked:
        yield from _own(repo.git.run(repo.checkout, "check-attr", "-z", "--stdin", *names, stdin=os.fsencode(asked)).text)


def drivers_in(repo: Repository, commit: str, index: Path, *names: str) -> Iterator[tuple[str, str, str]]:
    """The same of all files of a commit, by its own `.gitattributes`. `index`: a file that may be written."""
    env, place = {"GIT_INDEX_FILE": str(index)}, repo.store
    repo.git.run(place, "read-tree", commit, env=env, deadline_s=BULK_S)
    paths = repo.git.run(place, "ls-files", "-z", env=env, deadline_s=BULK_S).out
    if paths:
        yield from _own(
            repo.git.run(place, "check-attr", "--cached", "-z", "--stdin", *names, stdin=paths, env=env, deadline_s=BULK_S).text
        )


def _own(answer: str) -> Iterator[tuple[str, str, str]]:
    said = answer.split("\0")
    for path, name, value in zip(said[::3], said[1::3], said[2::3], strict=False):
        if value not in _BUILT_IN and not (name == "merge" and value in _MERGES):
            yield path, name, value
