"""What a worker's items change, one commit an item, each from the same base: what an item finds does not depend on which came before it.

For `--merge`. The commit of an item has the base as its parent, and the worker's branch reaches it by a commit of no change whose parents
are the one before it and the item's; so the worktree stands at the base's files between items, and is clean. An item that failed leaves
nothing, and one that made a repository inside the worktree has failed: a commit would have only an id of it that nobody can look up.
"""

from __future__ import annotations

import json

from agents.mapper.executors import Item, Result, done, failed
from agents.mapper.worktree import Worktree
from supervisor.core.errors import ToolFailed, one_line

_LINK = "160000"
"""git's mode of a commit of another repository."""


class _RepositoryInside(Exception):
    """Its path."""


class Edits:
    """Of one attempt, in its worktree; `name` is the map's id. Raises ToolFailed."""

    def __init__(self, tree: Worktree, name: str) -> None:
        self._tree, self._name = tree, name
        self._base = tree.git("rev-parse", "HEAD").strip()
        self._files = tree.git("rev-parse", "HEAD^{tree}").strip()
        self._head = self._base

    def kept(self, item: Item, result: Result) -> Result:
        """The result with the commit that holds what the item changed, and the base's files restored. A failed one leaves nothing."""
        if not result.ok:
            self._tree.clean()
            return result
        try:
            commit = self._commit(item)
        except _RepositoryInside as error:
            self._tree.clean()
            return failed(f"it made a git repository of its own, which no commit can hold: {error}")
        return done({"output": json.loads(result.text), "base": self._base, "commit": commit})

    def _commit(self, item: Item) -> str | None:
        """Of everything that the item changed and git does not ignore; None when that is nothing."""
        git = self._tree.git
        self._tree.unhide()
        self._add()
        files = git("write-tree").strip()
        if files == self._files:
            self._tree.clean()
            return None
        rows = git("diff-tree", "-r", "-z", "--raw", "--no-renames", self._files, files).split("\0")
        if links := [path for facts, path in zip(rows[::2], rows[1::2], strict=False) if facts.split(" ")[1] == _LINK]:
            raise _RepositoryInside(links[0])
        about = f"map {self._name}: item {item.index}"
        message = f"{one_line(item.text)[:200] or about}\n\nNightcrew-Map: {self._name}\nNightcrew-Item: {item.index}\n"
        made = git("commit-tree", files, "-p", self._base, "-m", message).strip()
        self._head = git("commit-tree", self._files, "-p", self._head, "-p", made, "-m", about).strip()
        self._tree.advance(self._head)
        return made

    def _add(self) -> None:
        try:
            self._tree.git("add", "-A")
        except ToolFailed:  # so it is of a repository without a commit
            others = self._tree.git("ls-files", "-z", "--others", "--exclude-standard").split("\0")
            if inside := [path for path in others if path.endswith("/")]:
                raise _RepositoryInside(inside[0]) from None
            raise
