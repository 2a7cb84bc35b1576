"""Which attributes files have, by the `.gitattributes` of the person's checkout. Nothing that they name is run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from worktrees.repository import Repository

_BUILT_IN = frozenset({"unspecified", "set", "unset"})
_MERGES = frozenset({"text", "binary", "union"})


def drivers(repo: Repository, paths: Iterable[str], *names: str) -> Iterator[tuple[str, str, str]]:
    """Path, attribute and value of each file for which one of these attributes names something of its own: a filter, a merge driver."""
    asked = "".join(f"{path}\0" for path in paths)
    if not asked:
        return
    said = repo.git.run(repo.checkout, "check-attr", "-z", "--stdin", *names, stdin=os.fsencode(asked)).text.split("\0")
    for path, name, value in zip(said[::3], said[1::3], said[2::3], strict=False):
        if value not in _BUILT_IN and not (name == "merge" and value in _MERGES):
            yield path, name, value
