"""Puts one result on top of a commit, as a train of merges does it: objects are written, no ref and no checkout changes.

The same result on the same commit by the same terms makes the same commit, whoever was killed in between.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from supervisor.core import landing_terms
from supervisor.core.errors import NotFound, some_of
from supervisor.core.landing_terms import Method, Person, Terms
from worktrees import equivalence, tree_merge
from worktrees.attributes import drivers
from worktrees.git import BULK_S
from worktrees.repository import Repository
from worktrees.tree_merge import LINK, Side

COMMITS_MAX = 500
"""Of a result that is rebased: each costs four gits."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one task made."""

    task: str
    tip: str
    """Commit."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Staged:
    """The result is on top."""

    commit: str
    regenerate: tuple[str, ...] = ()
    """Commands that must run in a worktree at `commit`, in this order, before it is what it should be; see `generated.finish`."""


@dataclass(frozen=True, slots=True)
class Left:
    """The result cannot be put there."""

    why: str
    files: tuple[str, ...] = ()
    """`os.fsdecode` text."""


@dataclass(frozen=True, slots=True)
class Contained:
    """The commit has all of it already."""

    why: str


def stage(repo: Repository, onto: str, result: Result, terms: Terms) -> Staged | Left | Contained:
    """Put `result` on top of the commit `onto`. Raises NotFound when the result's commit is gone, and as `Git.run`."""
    if repo.git.run(repo.store, "cat-file", "-t", result.tip, accept=(0, 128)).text != "commit":
        raise NotFound("the commit of a result is gone", on=result.task, why=result.tip, hint=f"nightcrew restore {result.task}")
    base = repo.git.run(repo.store, "merge-base", onto, result.tip, accept=(0, 1)).text
    if not base:
        return Left("it shares no commit with the branch")
    if base == result.tip:
        return Contained("its commits are on the branch")
    changed = tree_merge.changes(repo, base, result.tip)
    if links := sorted(path for path, (_, new) in changed.items() if new.mode == LINK):
        return Left("it changes which commit a submodule stands on, and nobody else may have that commit", tuple(links))
    if equivalence.judge(repo.git, repo.store, onto, result.tip).held:
        return Contained("its changes are on the branch as patches")
    if terms.method is Method.REBASE:
        return _replayed(repo, base, onto, result, terms)
    both = _changed_twice(repo, base, onto, changed, terms)
    tree, conflicts = tree_merge.merge(repo, onto, result.tip)
    if rest := tuple(path for path in conflicts if path not in both and not terms.is_generated(path)):
        return _conflict(repo, rest)
    again = tuple(dict.fromkeys((*(path for path in conflicts if terms.is_generated(path)), *both)))
    tree = _kept(repo, tree, onto, again)
    if not again and tree == _tree(repo, onto):
        return Contained("it changes nothing on the branch")
    parents = (onto, result.tip) if terms.method is Method.MERGE else (onto,)
    others = _authors(repo, base, result.tip) if terms.method is Method.SQUASH else ()
    words = landing_terms.message(terms, result.task, result.title, others)
    return Staged(commit(repo, tree, parents, words, terms), terms.regenerate(again))


def commit(repo: Repository, tree: str, parents: Collection[str], words: str, terms: Terms, author: dict[str, str] | None = None) -> str:
    """A commit of the person's; with `author`, of that author's. Its moment is that of the train."""
    moment = f"@{int(terms.began)} +0000"
    env = {"GIT_COMMITTER_NAME": terms.person.name, "GIT_COMMITTER_EMAIL": terms.person.mail, "GIT_COMMITTER_DATE": moment}
    mine = {"GIT_AUTHOR_NAME": terms.person.name, "GIT_AUTHOR_EMAIL": terms.person.mail, "GIT_AUTHOR_DATE": moment}
    argv = ("commit-tree", tree, *(word for parent in parents for word in ("-p", parent)), "-F", "-")
    return repo.git.run(repo.store, *argv, stdin=words.encode("utf-8", "surrogateescape"), env={**env, **(author or mine)}).text


def _changed_twice(repo: Repository, base: str, onto: str, changed: Collection[str], terms: Terms) -> tuple[str, ...]:
    """Generated files that both sides changed: what git makes of two of them by lines is no file that the command would make."""
    mine = [path for path in changed if terms.is_generated(path)]
    if not mine:
        return ()
    theirs = tree_merge.changes(repo, base, onto)
    return tuple(path for path in mine if path in theirs)


def _kept(repo: Repository, tree: str, onto: str, paths: Collection[str]) -> str:
    """`tree`, with these files as `onto` has them."""
    there = tree_merge.sides(repo, onto, paths)
    wanted: dict[str, Side | None] = {path: there.get(path) for path in paths}
    return tree_merge.replaced(repo, tree, wanted)


def _conflict(repo: Repository, files: tuple[str, ...]) -> Left:
    named = sorted({f"merge={driver}" for _, _, driver in drivers(repo, files, "merge")})
    if named:
        return Left(f"it conflicts, and files use {', '.join(named)}, which nightcrew does not run: merge it by hand", files)
    return Left(f"it conflicts in {some_of(files)}", files)


def _replayed(repo: Repository, base: str, onto: str, result: Result, terms: Terms) -> Staged | Left | Contained:
    """Each commit of the result again; one that changes nothing there is left out."""
    lines = repo.git.run(repo.store, "rev-list", "--reverse", "--topo-order", "--parents", f"{base}..{result.tip}").text.splitlines()
    if len(lines) > COMMITS_MAX:
        return Left(f"it has {len(lines)} commits, and at most {COMMITS_MAX} are rebased: squash or merge it")
    tip, again = onto, dict[str, None]()
    for line in lines:
        oid, *parents = line.split()
        if len(parents) != 1:
            return Left(f"{oid[:12]} is a merge, and merges are not rebased: squash or merge it")
        tree, conflicts = tree_merge.replay(repo, parents[0], tip, oid)
        if rest := tuple(path for path in conflicts if not terms.is_generated(path)):
            return _conflict(repo, rest)
        again |= dict.fromkeys(conflicts)
        if (tree := _kept(repo, tree, tip, conflicts)) != _tree(repo, tip):
            tip = commit(repo, tree, (tip,), _own_words(repo, oid, result, terms), terms, _author(repo, oid))
    if tip == onto and not again:
        return Contained("it changes nothing on the branch")
    again |= dict.fromkeys(_changed_twice(repo, base, onto, tree_merge.changes(repo, base, result.tip), terms))
    if tip == onto:  # all that it changed is generated: what is made anew needs a commit
        tip = commit(repo, _tree(repo, onto), (onto,), landing_terms.message(terms, result.task, result.title), terms)
    return Staged(tip, terms.regenerate(tuple(again)))


def _own_words(repo: Repository, oid: str, result: Result, terms: Terms) -> str:
    said = repo.git.run(repo.store, "show", "-s", "--format=%B", oid).text.rstrip()
    return f"{said or result.task}\n\n{landing_terms.trailers(terms, result.task)}"


def _author(repo: Repository, oid: str) -> dict[str, str]:
    name, mail, date = repo.git.run(repo.store, "show", "-s", "--format=%an%x00%ae%x00%ad", "--date=raw", oid).text.split("\0")
    return {"GIT_AUTHOR_NAME": name or "unknown", "GIT_AUTHOR_EMAIL": mail, "GIT_AUTHOR_DATE": f"@{date}"}


def _authors(repo: Repository, base: str, tip: str) -> tuple[Person, ...]:
    out = repo.git.run(repo.store, "log", "--no-show-signature", "--format=%an%x00%ae", f"{base}..{tip}", deadline_s=BULK_S).text
    pairs = [line.split("\0") for line in out.splitlines()]
    return tuple(dict.fromkeys(Person(*pair) for pair in pairs if len(pair) == 2))


def _tree(repo: Repository, rev: str) -> str:
    return repo.git.run(repo.store, "rev-parse", "--verify", f"{rev}^{{tree}}").text
