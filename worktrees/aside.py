"""A door to git that writes every new object into a directory of ours: to find out what would come of something, and leave no trace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from supervisor.host.scratch import locked_directory
from worktrees import quarantine
from worktrees.git import Git, Place
from worktrees.repository import Repository


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
        more = quarantine.environment(Path(place), repo.common_dir / "objects")
        yield replace(repo, git=_Aside(repo.git, more))
