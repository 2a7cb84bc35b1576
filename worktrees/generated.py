"""Puts the files that a command made anew into the staged commit of a result. The command itself ran as a task, in a sandbox.

What that task left is a stranger's: of its files those count that a rule makes, and only as plain files. Anything else is a reason to
leave the result out, and never part of the branch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from supervisor.core import landing_terms
from supervisor.core.errors import NotFound, some_of
from supervisor.core.landing_terms import Terms
from worktrees import tree_merge
from worktrees.repository import Repository
from worktrees.staging import Left, Staged
from worktrees.tree_merge import GONE, Side

_PLAIN = frozenset({"100644", "100755"})
"""git's modes of a file that is no link."""


def finish(repo: Repository, staged: str, made: str, terms: Terms) -> Staged | Left:
    """`staged` with the generated files as the commit `made` has them, which a task left that ran the commands in a worktree at `staged`.
    Parents, author, message and moment stay, so the same arguments give the same commit.

    Raises NotFound when `made` is gone, and as `Git.run`.
    """
    if repo.git.run(repo.store, "cat-file", "-t", made, accept=(0, 128)).text != "commit":
        raise NotFound("the commit with the generated files is gone", on=made)
    changed = {path: new for path, (_, new) in tree_merge.changes(repo, staged, made).items()}
    if others := landing_terms.foreign(changed, terms):
        return _left("what makes the generated files also changed files that no rule names", others)
    if odd := [path for path, new in changed.items() if new.mode not in _PLAIN and new.mode != GONE]:
        return _left("what makes the generated files left something else than a file", odd)
    if gone := [path for path, new in changed.items() if new.mode == GONE and terms.must_exist(path)]:
        return _left("what makes the generated files removed one that a rule names", gone)
    return Staged(_amended(repo, staged, changed) if changed else staged)


def _left(why: str, files: Sequence[str]) -> Left:
    return Left(f"{why}: {some_of(files)}", tuple(files))


def _amended(repo: Repository, staged: str, files: Mapping[str, Side]) -> str:
    """The same commit, byte for byte, with another tree."""
    tree = tree_merge.replaced(repo, staged, {path: None if new.mode == GONE else new for path, new in files.items()})
    _, _, rest = repo.git.run(repo.store, "cat-file", "commit", staged).out.partition(b"\n")
    text = b"tree " + os.fsencode(tree) + b"\n" + rest
    return repo.git.run(repo.store, "hash-object", "-t", "commit", "-w", "--stdin", stdin=text).text
