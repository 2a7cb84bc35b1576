"""Which branches would conflict with the checkout and with each other. Nothing is merged: git computes the merges in memory and in a
directory of ours, so neither the checkout nor the repository's objects change.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from supervisor.host.scratch import locked_directory
from supervisor.kernel.errors import DiskFull, ToolHung, one_line
from supervisor.results import conflicts
from supervisor.results.conflicts import FILES_MAX, Matrix, Pair, Side, Verdict
from supervisor.store.journal import Branch
from worktrees import tree_merge
from worktrees.git import BULK_S, Bounds, failure, last_words
from worktrees.repository import Repository
from worktrees.tree_merge import objects_aside

BATCH, BATCH_S = 200, 20.0
"""Pairs that one git merges on trial, and its deadline."""
ALONE_S = 5.0
"""Deadline of one pair alone: each of a batch that took too long."""
_BOUNDS = Bounds(memory=2**30, file=2**28)


@dataclass(frozen=True, slots=True)
class Standing:
    """What branches stand on now."""

    head: str
    """The commit that is checked out."""
    on: str
    """Its branch, or the beginning of the commit."""
    tips: Mapping[str, str]
    """The commit of each branch that is there."""
    merged: frozenset[str]
    """Branches of which the checkout has everything."""


def standing(repo: Repository, branches: Collection[str], beside: str = "", before: Standing | None = None) -> Standing:
    """By three gits, however many branches there are; by two where nothing moved since `before`, which was looked for without `beside`.
    `repo` may be some time old: where its checkout stands is looked at anew. `beside`: what is merged is looked for in that commit and not
    in the checkout's. Raises as `Git.run`."""
    head, _, name = repo.git.run(repo.checkout, "rev-parse", "HEAD^{commit}", "--symbolic-full-name", "HEAD").text.partition("\n")
    tips = _tips(repo, branches)
    on = head[:12] if name == "HEAD" else name.removeprefix("refs/heads/")
    if before is not None and not beside and (head, tips) == (before.head, before.tips):
        return Standing(head, on, tips, before.merged)
    reached = _reached(repo, set(tips.values()), beside or head) if tips else set()
    merged = frozenset(name for name, tip in tips.items() if tip in reached)
    return Standing(head, on, tips, merged)


def compare(
    repo: Repository, pairs: Sequence[Pair], until: float = math.inf, bases: Mapping[str, str] = MappingProxyType({}), head: str = ""
) -> dict[Pair, Verdict]:
    """Return what conflicts between each two commits, which exist. `until`, on the monotonic clock, ends the comparison: pairs that are
    missing in the answer were not compared.

    `bases` names, by commit, where the work of a result began; `head` is the commit of the checkout (default: as `repo` knows it). Two
    results conflict only in what each of them changed itself: when they began at different commits, a change that the person made in
    between belongs to neither.

    A pair that git cannot merge gets its reason, and costs no other pair its answer. Raises DiskFull, HostError; with `bases` also as
    `Git.run`.
    """
    with objects_aside(repo) as aside:
        trial = _Trial(aside, until)
        found = {pair: merge.verdict for pair, merge in trial.merges(pairs).items()}
        disputed = [pair for pair, verdict in found.items() if verdict.files and all(bases.get(commit) for commit in pair)]
        if disputed and time.monotonic() < until:
            own = _own_conflicts(trial, disputed, _starts(repo, disputed, bases, head or repo.head))
            found |= {pair: verdict for pair, verdict in own.items() if verdict is not None}
            disputed = [pair for pair, verdict in own.items() if verdict is None]
        return {pair: verdict for pair, verdict in found.items() if verdict.files == () or pair not in disputed}


def look(
    repo: Repository,
    branches: tuple[list[Branch], int],
    known: Mapping[Pair, Verdict],
    until: float = math.inf,
    only: str = "",
    now: Standing | None = None,
) -> Matrix:
    """As it stands now; what `known` says is not compared again. `branches` as `ledger.branches.of_project` gives them. `until`, on the
    monotonic clock, ends the comparing, and with `only` nothing is compared but what concerns that task: `Matrix.missing` says what was
    not. `now` is what the branches stand on, where the caller has just looked. Raises as `Git.run`."""
    found, beyond = branches
    now = now or standing(repo, [branch.name for branch in found])
    merged = tuple(branch.task for branch in found if branch.name in now.merged)
    there = [branch for branch in found if branch.name in now.tips and branch.name not in now.merged]
    sides, left_out = conflicts.chosen(Side(branch.task, now.tips[branch.name], branch.living) for branch in there)
    kept = conflicts.still(known, sides, now.head)
    asked = conflicts.wanted(sides, now.head, kept)
    if only:
        mine = {side.tip for side in sides if side.task == only}
        asked = [pair for pair in asked if not mine.isdisjoint(pair)]
    kept |= compare(repo, asked, until, {now.tips[branch.name]: branch.base for branch in there}, now.head)
    return Matrix(now.head, now.on, sides, kept, left_out + beyond, merged)


@dataclass(frozen=True, slots=True)
class _Merge:
    """A merge on trial: its tree, with conflict markers where it is not clean, and what conflicts."""

    verdict: Verdict
    tree: str = ""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Trial merges, whose objects are gone afterwards."""

    repo: Repository
    until: float

    def merges(self, pairs: Iterable[Pair]) -> dict[Pair, _Merge]:
        """Merge each pair of commits, in batches. Pairs that are missing in the answer did not get their turn in time."""
        wanted, found = list(dict.fromkeys(pairs)), dict[Pair, _Merge]()
        todo = [wanted[first : first + BATCH] for first in range(0, len(wanted), BATCH)]
        while todo and time.monotonic() < self.until:
            batch = todo.pop(0)
            try:
                done = self._judged(batch)
            except ToolHung as error:
                if len(batch) > 1:
                    todo[:0] = [[one] for one in batch]
                    continue
                done = {batch[0]: _Merge(Verdict(why=one_line(error.why or error.what)))}
            found |= done
            if rest := [one for one in batch if one not in done]:
                todo.insert(0, rest)
        return found

    def _judged(self, batch: Sequence[Pair]) -> dict[Pair, _Merge]:
        """Return the answer for the whole batch, or for the pairs up to the first that git cannot merge, and for that one."""
        merged, answer = tree_merge.merge_pairs(self.repo, batch, BATCH_S if len(batch) > 1 else ALONE_S, _BOUNDS)
        found = {
            pair: _Merge(Verdict(one.conflicts[:FILES_MAX], max(0, len(one.conflicts) - FILES_MAX)), one.tree)
            for pair, one in zip(batch, merged, strict=False)
        }
        if len(found) == len(batch):
            return found
        if isinstance(error := failure("merge-tree", str(self.repo.root), answer.code, answer.err, [self.repo.git.scratch()]), DiskFull):
            raise error
        why = one_line(last_words(answer.err)) or f"git merge-tree ended with status {answer.code}"
        return {**found, batch[len(found)]: _Merge(Verdict(why=why))}

    def commits(self, wanted: Iterable[Pair]) -> dict[Pair, str]:
        """Write a commit for each tree and parent; git of 2.39 merges on a base of our choice only when that is the parent of both."""
        made = list(dict.fromkeys(wanted))
        with locked_directory(self.repo.git.scratch(), "nightcrew.") as scratch:
            files = [scratch / f"commit-{number}" for number in range(len(made))]
            for file, (tree, parent) in zip(files, made, strict=True):
                file.write_text(f"tree {tree}\nparent {parent}\nauthor n <n> 0 +0000\ncommitter n <n> 0 +0000\n\n", "ascii")
            asked = b"".join(os.fsencode(file) + b"\n" for file in files)
            flags = ("-w", "-t", "commit", "--no-filters", "--stdin-paths")
            return dict(zip(made, self.repo.run("hash-object", *flags, stdin=asked, deadline_s=BULK_S).text.split(), strict=True))


@dataclass(frozen=True, slots=True)
class _Dispute:
    """Two results that conflict and began at different commits: `old` began at `since`, `new` at the later commit `onto`."""

    pair: Pair
    old: str
    new: str
    since: str
    onto: str


def _own_conflicts(trial: _Trial, pairs: Sequence[Pair], starts: Mapping[str, str]) -> dict[Pair, Verdict | None]:
    """Return the conflicts between the own changes of each two results: None for pairs that were not compared in time, no entry for pairs
    whose answer stays as it is. `starts` names, by commit, where a result's own changes begin."""
    is_older = functools.cache(lambda one, two: trial.repo.has(two, one))  # thousands of pairs have few starts
    disputes = [dispute for pair in pairs if (dispute := _dispute(pair, starts, is_older)) is not None]
    if not disputes:
        return {}
    trees = trial.repo.trees([*starts, *starts.values()])
    made = trial.commits((trees[commit], each.since) for each in disputes for commit in (each.onto, each.old))
    moves = {each: (made[trees[each.onto], each.since], made[trees[each.old], each.since]) for each in disputes}
    moved = trial.merges(moves.values())  # what `old` changed itself, put on where `new` began
    found: dict[Pair, Verdict | None] = {each.pair: None for each, move in moves.items() if move not in moved}
    ready = {each: moved[move].tree for each, move in moves.items() if move in moved and moved[move].tree}
    made = trial.commits((tree, each.onto) for each, own in ready.items() for tree in (own, trees[each.new]))
    last = {each: (made[own, each.onto], made[trees[each.new], each.onto]) for each, own in ready.items()}
    merged = trial.merges(last.values())
    return found | {each.pair: merged[pair].verdict if pair in merged else None for each, pair in last.items()}


def _starts(repo: Repository, pairs: Iterable[Pair], bases: Mapping[str, str], head: str) -> dict[str, str]:
    """Return where the own changes of each result begin: at its base, or later where its agent merged what the checkout has."""
    found = {}
    for tip in sorted({commit for pair in pairs for commit in pair}):
        answer = repo.run("merge-base", tip, head, bases[tip], accept=(0, 1, 128)).text.split()
        if answer:
            found[tip] = answer[0]
    return found


def _dispute(pair: Pair, starts: Mapping[str, str], is_older: Callable[[str, str], bool]) -> _Dispute | None:
    """Return how the two began; None where they began at the same commit, or where that is not known."""
    one, two = pair
    first, second = starts.get(one, ""), starts.get(two, "")
    if not first or not second or first == second:
        return None
    if is_older(second, first):
        return _Dispute(pair, two, one, second, first)
    return _Dispute(pair, one, two, first, second)


def _tips(repo: Repository, branches: Iterable[str]) -> dict[str, str]:
    names = list(dict.fromkeys(branches))
    if not names:
        return {}
    asked = "".join(f"refs/heads/{name}^{{commit}}\n" for name in names)
    rows = repo.run("cat-file", "--batch-check=%(objectname)", stdin=os.fsencode(asked)).text.splitlines()
    return {name: row for name, row in zip(names, rows, strict=True) if " " not in row}


def _reached(repo: Repository, tips: set[str], head: str) -> set[str]:
    """Those that the checkout's commit reaches: the others are what it lacks."""
    asked = "".join(f"{tip}\n" for tip in sorted(tips)) + f"^{head}\n"
    lacks = repo.run("rev-list", "--stdin", stdin=asked.encode(), deadline_s=BULK_S).text.splitlines()
    return tips.difference(lacks)
