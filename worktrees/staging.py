"""Put one result on top of a commit, as a train of merges does."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from supervisor.kernel import train_orders
from supervisor.kernel.errors import NotFound, ToolFailed, ToolHung, some_of
from supervisor.kernel.train_orders import Method, Person, Terms
from worktrees import pack_import, repository, tree_merge
from worktrees.git import BULK_S
from worktrees.repository import File, Source, drivers
from worktrees.tree_merge import GONE, LINK, Changes

if TYPE_CHECKING:
    from worktrees.repository import Repository


# Staging
# -------
# Puts one result on top of a commit, as a train of merges does it: objects are written, no ref and no checkout changes.
#
# The same result on the same commit by the same terms makes the same commit, whoever was killed in between.


TRIES = 8
"""`git gc --prune=now` may take what no ref names yet from under a staging; the next try writes it again."""
COMMITS_MAX = 500
"""Of a result that is rebased: each costs some eight gits."""
_CRUD = "".join(map(chr, range(33))) + ".,:;<>\"\\'"
"""What git takes no name of nothing else for."""


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
    """Put `result` on top of the commit `onto`; what is checked out does not matter, nor what was changed there. Raises NotFound when the
    result's commit is gone, ToolHung and DiskFull; what git cannot merge is left with its words."""
    if not repo.commit(result.tip):
        raise NotFound("the commit of a result is gone", on=result.task, why=result.tip, hint=f"nightcrew restore {result.task}")
    base = repo.fork_point(onto, result.tip)
    if not base:
        return Left("it shares no commit with the branch")
    why = ""
    for _ in range(TRIES):
        try:
            with repository.of_commit(repo, onto) as source:
                return _staged(_Case(repo, source, base, onto, result, terms))
        except ToolHung:
            raise
        except ToolFailed as error:
            why = error.why
            pack_import.outlast(repo.common_dir)
    return Left(f"git cannot merge it: {why}")


@dataclass(frozen=True, slots=True)
class _Case:
    """One result, and the commit that it is put on."""

    repo: Repository
    source: Source
    """The attributes of `onto`."""
    base: str
    onto: str
    result: Result
    terms: Terms

    def git(self, *argv: str) -> str:
        return self.repo.run(*argv, deadline_s=BULK_S).text


def _staged(case: _Case) -> Staged | Left | Contained:
    repo, terms, onto, tip = case.repo, case.terms, case.onto, case.result.tip
    changed = tree_merge.changes(repo, case.base, tip)
    if refused := _submodules(changed) or _filtered(case, changed):
        return refused
    if (seen := tree_merge.judge(repo, onto, tip, terms.generated)).held:
        return Contained(seen.why)
    if terms.method is Method.REBASE:
        return _replayed(case, changed)
    both = _changed_twice(case, changed)
    merged = tree_merge.merge(repo, onto, tip, case.source)
    if rest := tuple(path for path in merged.conflicts if path not in both and not terms.is_generated(path)):
        return _conflict(case, rest)
    again = tuple(dict.fromkeys((*(path for path in merged.conflicts if terms.is_generated(path)), *both)))
    tree = tree_merge.as_in(repo, merged.tree, onto, again)
    if not again and tree == repo.tree(onto):
        return Contained("it changes nothing on the branch")
    parents = (onto, tip) if terms.method is Method.MERGE else (onto,)
    others = _authors(case) if terms.method is Method.SQUASH else ()
    words = train_orders.message(terms, case.result.task, case.result.title, others)
    return Staged(commit(repo, tree, parents, words, terms), terms.regenerate(again))


def commit(repo: Repository, tree: str, parents: Collection[str], words: str, terms: Terms, author: dict[str, str] | None = None) -> str:
    """A commit of the person's; with `author`, of that author's. Its moment is that of the train."""
    moment = f"@{int(terms.began)} +0000"
    env = {"GIT_COMMITTER_NAME": terms.person.name, "GIT_COMMITTER_EMAIL": terms.person.mail, "GIT_COMMITTER_DATE": moment}
    mine = {"GIT_AUTHOR_NAME": terms.person.name, "GIT_AUTHOR_EMAIL": terms.person.mail, "GIT_AUTHOR_DATE": moment}
    return repo.write_commit(tree, parents, words.encode("utf-8", "surrogateescape"), {**env, **(author or mine)})


def _submodules(changed: Changes) -> Left | None:
    links = sorted(path for path, sides in changed.items() if path == ".gitmodules" or any(side.mode == LINK for side in sides))
    if not links:
        return None
    return Left(f"it changes submodules, and nobody else may have their commits: merge it by hand ({some_of(links)})", tuple(links))


def _filtered(case: _Case, changed: Changes) -> Left | None:
    """What the result wrote into files of a filter, such as Git LFS, did not pass through it. One that was only moved or removed did."""
    there = {old.oid for old, _ in changed.values()}
    new = [path for path, (_, side) in changed.items() if side.mode != GONE and side.oid not in there]
    found = set(drivers(case.repo, new, "filter", source=case.source))
    if any(path.rpartition("/")[2] == repository.FILE for path in changed):
        with repository.of_commit(case.repo, case.result.tip) as source:
            found |= set(drivers(case.repo, new, "filter", source=source))
    if not found:
        return None
    files = tuple(sorted({path for path, *_ in found}))
    return Left(f"it changes files of {repository.listed(found)}, which nightcrew does not run: merge it by hand ({some_of(files)})", files)


def _changed_twice(case: _Case, changed: Collection[str]) -> tuple[str, ...]:
    """Generated files that both sides changed: what git makes of two of them by lines is no file that the command would make."""
    mine = [path for path in changed if case.terms.is_generated(path)]
    if not mine:
        return ()
    theirs = tree_merge.changes(case.repo, case.base, case.onto)
    return tuple(path for path in mine if path in theirs)


def _conflict(case: _Case, files: tuple[str, ...]) -> Left:
    if found := set(drivers(case.repo, files, "merge", source=case.source)):
        own = repository.listed(found)
        return Left(f"it conflicts in {some_of(files)}; some use {own}, which nightcrew does not run: merge it by hand", files)
    return Left(f"it conflicts in {some_of(files)}", files)


def _replayed(case: _Case, changed: Collection[str]) -> Staged | Left | Contained:
    """Each commit of the result again; one that changes nothing there is left out."""
    repo, result, terms = case.repo, case.result, case.terms
    lines = case.git("rev-list", "--reverse", "--topo-order", "--parents", f"{case.onto}..{result.tip}").splitlines()
    if len(lines) > COMMITS_MAX:
        return Left(f"it has {len(lines)} commits, and at most {COMMITS_MAX} are rebased: squash or merge it")
    tip, again = case.onto, dict[str, None]()
    for line in lines:
        oid, *parents = line.split()
        if len(parents) != 1:
            return Left(
                f"{oid[:12]} is {'a merge' if parents else 'a first commit'}, and only plain commits are rebased: squash or merge it"
            )
        merged = tree_merge.replay(repo, parents[0], tip, oid, case.source)
        if rest := tuple(path for path in merged.conflicts if not terms.is_generated(path)):
            return _conflict(case, rest)
        again |= dict.fromkeys(merged.conflicts)
        if (tree := tree_merge.as_in(repo, merged.tree, tip, merged.conflicts)) != repo.tree(tip):
            tip = commit(repo, tree, (tip,), _own_words(case, oid), terms, _author(case, oid))
    if tip == case.onto and not again:
        return Contained("it changes nothing on the branch")
    again |= dict.fromkeys(_changed_twice(case, changed))
    if tip == case.onto:  # all that it changed is generated: what is made anew needs a commit
        tip = commit(repo, repo.tree(tip), (tip,), train_orders.message(terms, result.task, result.title), terms)
    return Staged(tip, terms.regenerate(tuple(again)))


def _own_words(case: _Case, oid: str) -> str:
    return train_orders.signed(case.git("show", "-s", "--format=%B", "--encoding=UTF-8", oid), case.terms, case.result.task)


def _author(case: _Case, oid: str) -> dict[str, str]:
    name, mail, date = case.git("show", "-s", "--format=%an%x00%ae%x00%ad", "--date=raw", "--encoding=UTF-8", oid).split("\0")
    return {"GIT_AUTHOR_NAME": name if name.strip(_CRUD) else "unknown", "GIT_AUTHOR_EMAIL": mail, "GIT_AUTHOR_DATE": f"@{date}"}


def _authors(case: _Case) -> tuple[Person, ...]:
    out = case.git("log", "--no-show-signature", "--format=%an%x00%ae", "--encoding=UTF-8", f"{case.onto}..{case.result.tip}")
    pairs = [line.split("\0") for line in out.split("\n")]
    return tuple(dict.fromkeys(Person(*pair) for pair in pairs if len(pair) == 2))


# Generated
# ---------
# Puts the files that a command made anew into the staged commit of a result. The command itself ran as a task, in a sandbox.
#
# What that task left is a stranger's: of its files those count that a rule makes, and only as plain files. Anything else is a
# reason to leave the result out, and never part of the branch.


_PLAIN = frozenset({"100644", "100755"})
"""git's modes of a file that is no link."""


def finish(repo: Repository, staged: str, made: str, terms: Terms) -> Staged | Left:
    """`staged` with the generated files as the commit `made` has them, which a task left that ran the commands in a worktree at `staged`.
    Parents, author, message and moment stay, so the same arguments give the same commit.

    Raises NotFound when `made` is gone, and as `Git.run`.
    """
    if not repo.commit(made):
        raise NotFound("the commit with the generated files is gone", on=made)
    changed = {path: new for path, (_, new) in tree_merge.changes(repo, staged, made).items()}
    if others := train_orders.foreign(changed, terms):
        return _left("what makes the generated files also changed files that no rule names", others)
    if odd := [path for path, new in changed.items() if new.mode not in _PLAIN and new.mode != GONE]:
        return _left("what makes the generated files left something else than a file", odd)
    if gone := [path for path, new in changed.items() if new.mode == GONE and terms.must_exist(path)]:
        return _left("what makes the generated files removed one that a rule names", gone)
    return Staged(_amended(repo, staged, changed) if changed else staged)


def _left(why: str, files: Sequence[str]) -> Left:
    return Left(f"{why}: {some_of(files)}", tuple(files))


def _amended(repo: Repository, staged: str, files: Mapping[str, File]) -> str:
    """The same commit, byte for byte, with another tree."""
    tree = tree_merge.replaced(repo, staged, {path: None if new.mode == GONE else new for path, new in files.items()})
    _, _, rest = repo.run("cat-file", "commit", staged).out.partition(b"\n")
    text = b"tree " + os.fsencode(tree) + b"\n" + rest
    return repo.run("hash-object", "-t", "commit", "-w", "--stdin", stdin=text).text
