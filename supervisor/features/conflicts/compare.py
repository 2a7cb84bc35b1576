"""Which branches would conflict with the checkout and with each other. Nothing is merged: git computes the merges in memory and in a
directory of ours, so neither the checkout nor the repository's objects change.

Two branches are merged on trial only where they touch something of one another: the same file, a file where the other has a directory, or
a directory out of which the other moved or deleted something.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from supervisor.features.conflicts.rules import FILES_MAX, Verdict
from supervisor.host.scratch import locked_directory
from supervisor.kernel.errors import DiskFull, ToolHung, one_line
from worktrees import tree_merge
from worktrees.git import BULK_S, Answer, Bounds, failure, last_words
from worktrees.repository import Repository

PAIRS_MAX = 600
"""Trial merges of branches with each other, 1 ms each on a quiet machine. Of more, those of the first branches are made."""

BATCH, BATCH_S = 200, 20.0
"""Pairs that one git merges on trial, and its deadline."""
ALONE_S = 5.0
"""Deadline of one pair alone: each of a batch that took too long."""
_BOUNDS = Bounds(memory=2**30, file=2**28)
_ANY = tuple(range(-64, 256))  # signals are negative

Pair = tuple[str, str]


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


@dataclass(frozen=True, slots=True)
class Conflicts:
    """By branch, as it was named. Names of files are `os.fsdecode` text."""

    head: str
    """The commit that is checked out."""
    gone: frozenset[str] = frozenset()
    """There is no such branch any more."""
    merged: frozenset[str] = frozenset()
    """The checkout has all of it."""
    with_head: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files in which it conflicts with the checkout; only branches that do."""
    with_others: Mapping[Pair, tuple[str, ...]] = field(default_factory=dict)
    """The same of two branches."""
    not_tried: int = 0
    """Pairs beyond PAIRS_MAX, and those that git could not merge."""


def look(repo: Repository, branches: Collection[str], base: str) -> Conflicts:
    """Return what would conflict now, for branches that began at the commit `base` or later. The number of gits does not grow with the
    number of branches that merge cleanly. Raises as `Git.run`."""
    tips = _tips(repo, branches)
    gone = frozenset(branches) - tips.keys()
    reached = _reached(repo, set(tips.values()), repo.head)
    merged = frozenset(name for name, tip in tips.items() if tip in reached)
    left = {name: tip for name, tip in tips.items() if name not in merged}
    if not left:
        return Conflicts(repo.head, gone, merged)
    pairs = _touching(repo, left, base)
    tried = pairs[:PAIRS_MAX]
    wanted = [(repo.head, tip) for tip in left.values()] + [(left[one], left[two]) for one, two in tried]
    found = compare(repo, list(dict.fromkeys(wanted)), bases=dict.fromkeys(left.values(), base))
    with_head = {name: found[repo.head, tip].files for name, tip in left.items() if found[repo.head, tip].files}
    with_others = {(one, two): verdict.files for one, two in tried if (verdict := found[left[one], left[two]]).files}
    unknown = sum(1 for pair in wanted if found[pair].why)
    return Conflicts(repo.head, gone, merged, with_head, with_others, len(pairs) - len(tried) + unknown)


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
    with locked_directory(repo.git.scratch(), "nightcrew.") as objects:
        found = {pair: merge.verdict for pair, merge in _merges(repo, pairs, objects, until).items()}
        disputed = [pair for pair, verdict in found.items() if verdict.files and all(bases.get(commit) for commit in pair)]
        if disputed and time.monotonic() < until:
            own = _own_conflicts(_Trial(repo, objects, until), disputed, _starts(repo, disputed, bases, head or repo.head))
            found |= {pair: verdict for pair, verdict in own.items() if verdict is not None}
            disputed = [pair for pair, verdict in own.items() if verdict is None]
        return {pair: verdict for pair, verdict in found.items() if verdict.files == () or pair not in disputed}


@dataclass(frozen=True, slots=True)
class _Merge:
    """A merge on trial: its tree, with conflict markers where it is not clean, and what conflicts."""

    verdict: Verdict
    tree: str = ""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Where objects of trial merges are written, and until when."""

    repo: Repository
    objects: Path
    until: float

    def merges(self, pairs: Iterable[Pair]) -> dict[Pair, _Merge]:
        return _merges(self.repo, list(dict.fromkeys(pairs)), self.objects, self.until)

    def trees(self, commits: Iterable[str]) -> dict[str, str]:
        """Return the tree of each commit."""
        names = list(dict.fromkeys(commits))
        asked = "".join(f"{name}^{{tree}}\n" for name in names).encode()
        rows = self.repo.git.run(self.repo.store, "cat-file", "--batch-check=%(objectname)", stdin=asked).text.splitlines()
        return {name: row for name, row in zip(names, rows, strict=True) if " " not in row}

    def commits(self, wanted: Iterable[Pair]) -> dict[Pair, str]:
        """Write a commit for each tree and parent; git of 2.39 merges on a base of our choice only when that is the parent of both."""
        made = list(dict.fromkeys(wanted))
        files = [self.objects / f"commit-{number}" for number in range(len(made))]
        for file, (tree, parent) in zip(files, made, strict=True):
            file.write_text(f"tree {tree}\nparent {parent}\nauthor n <n> 0 +0000\ncommitter n <n> 0 +0000\n\n", "ascii")
        asked = b"".join(os.fsencode(file) + b"\n" for file in files)
        flags = ("-w", "-t", "commit", "--no-filters", "--stdin-paths")
        env = _environment(self.repo, self.objects)
        rows = self.repo.git.run(self.repo.store, "hash-object", *flags, stdin=asked, env=env, deadline_s=BULK_S).text.split()
        for file in files:
            file.unlink()
        return dict(zip(made, rows, strict=True))


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
    is_older = functools.cache(functools.partial(_is_older, trial.repo))  # thousands of pairs have few starts
    disputes = [dispute for pair in pairs if (dispute := _dispute(pair, starts, is_older)) is not None]
    if not disputes:
        return {}
    trees = trial.trees([*starts, *starts.values()])
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
        answer = repo.git.run(repo.store, "merge-base", tip, head, bases[tip], accept=(0, 1, 128)).text.split()
        if answer:
            found[tip] = answer[0]
    return found


def _is_older(repo: Repository, one: str, two: str) -> bool:
    return repo.git.run(repo.store, "merge-base", "--is-ancestor", one, two, accept=(0, 1)).code == 0


def _dispute(pair: Pair, starts: Mapping[str, str], is_older: Callable[[str, str], bool]) -> _Dispute | None:
    """Return how the two began; None where they began at the same commit, or where that is not known."""
    one, two = pair
    first, second = starts.get(one, ""), starts.get(two, "")
    if not first or not second or first == second:
        return None
    if is_older(second, first):
        return _Dispute(pair, two, one, second, first)
    return _Dispute(pair, one, two, first, second)


def _merges(repo: Repository, pairs: Sequence[Pair], objects: Path, until: float) -> dict[Pair, _Merge]:
    """Merge each pair of commits on trial, in batches; pairs that are missing in the answer did not get their turn in time."""
    found: dict[Pair, _Merge] = {}
    todo = [list(pairs[first : first + BATCH]) for first in range(0, len(pairs), BATCH)]
    while todo and time.monotonic() < until:
        batch = todo.pop(0)
        try:
            done = _judged(repo, batch, objects)
        except ToolHung as error:
            if len(batch) > 1:
                todo[:0] = [[one] for one in batch]
                continue
            done = {batch[0]: _Merge(Verdict(why=one_line(error.why or error.what)))}
        found |= done
        if rest := [one for one in batch if one not in done]:
            todo.insert(0, rest)
    return found


def _judged(repo: Repository, batch: Sequence[Pair], objects: Path) -> dict[Pair, _Merge]:
    """Return the answer for the whole batch, or for the pairs up to the first that git cannot merge, and for that one."""
    answer = _merge(repo, batch, objects, deadline_s=BATCH_S if len(batch) > 1 else ALONE_S)
    found = {
        one: _Merge(Verdict(files[:FILES_MAX], max(0, len(files) - FILES_MAX)), tree)
        for one, (tree, files) in zip(batch, _records(answer.out), strict=False)
    }
    if len(found) == len(batch):
        return found
    if isinstance(error := failure("merge-tree", str(repo.root), answer.code, answer.err, [objects]), DiskFull):
        raise error
    why = one_line(last_words(answer.err)) or f"git merge-tree ended with status {answer.code}"
    return {**found, batch[len(found)]: _Merge(Verdict(why=why))}


def _tips(repo: Repository, branches: Iterable[str]) -> dict[str, str]:
    names = list(dict.fromkeys(branches))
    if not names:
        return {}
    asked = "".join(f"refs/heads/{name}^{{commit}}\n" for name in names)
    rows = repo.git.run(repo.store, "cat-file", "--batch-check=%(objectname)", stdin=os.fsencode(asked)).text.splitlines()
    return {name: row for name, row in zip(names, rows, strict=True) if " " not in row}


def _reached(repo: Repository, tips: set[str], head: str) -> set[str]:
    """Those that the checkout's commit reaches: the others are what it lacks."""
    asked = "".join(f"{tip}\n" for tip in sorted(tips)) + f"^{head}\n"
    lacks = repo.git.run(repo.store, "rev-list", "--stdin", stdin=asked.encode(), deadline_s=BULK_S).text.splitlines()
    return tips.difference(lacks)


def _merge(repo: Repository, pairs: Sequence[Pair], objects: Path, *, deadline_s: float) -> Answer:
    """Merge all pairs by one git, which writes what it merges into `objects`. It ends at the first pair that it cannot merge."""
    asked = "".join(f"{one} {two}\n" for one, two in pairs).encode()
    flags = ("--write-tree", "--stdin", "--name-only", "--no-messages")
    env = _environment(repo, objects)
    return repo.git.run(repo.checkout, "merge-tree", *flags, stdin=asked, env=env, accept=_ANY, deadline_s=deadline_s, bounds=_BOUNDS)


def _environment(repo: Repository, objects: Path) -> dict[str, str]:
    """Return the variables with which git reads the repository's objects and writes new ones into `objects`, which are thrown away."""
    found = {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(repo)}
    return {**found, "GIT_CONFIG_PARAMETERS": "'core.fsync=none'"}  # as `git -c` says it


def _records(out: bytes) -> list[tuple[str, tuple[str, ...]]]:
    """Return the tree and the conflicting files of each pair. Git prints 1 when the merge is clean, the tree, the names, and an empty word;
    a record that was cut off does not count."""
    words, found = iter(os.fsdecode(out).split("\0")[:-1]), []
    for clean in words:
        try:
            tree = next(words)
            names = list(iter(words.__next__, ""))
        except StopIteration:
            break
        found.append((tree, () if clean == "1" else tree_merge.named(names)))
    return found


def _quoted(repo: Repository) -> str:
    """The repository's objects, as git reads a list of directories: a name with a colon in it is quoted."""
    path = str(repo.common_dir / "objects")
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _touching(repo: Repository, tips: Mapping[str, str], base: str) -> list[Pair]:
    """The pairs of branches that could conflict, in the branches' order."""
    order = {name: place for place, name in enumerate(tips)}
    changes = _changes(repo, tips.values(), base)
    keys = {name: _keys(changes[tip]) for name, tip in tips.items()}
    owners: dict[str, list[str]] = {}
    for name, (own, _) in keys.items():
        for key in own:
            owners.setdefault(key, []).append(name)
    found = {pair for some in owners.values() for pair in combinations(some, 2)}
    for name, (_, within) in keys.items():
        others = {other for key in within for other in owners.get(key, ())} - {name}
        found |= {(name, other) if order[name] < order[other] else (other, name) for other in others}
    return sorted(found, key=lambda pair: (order[pair[0]], order[pair[1]]))


def _changes(repo: Repository, tips: Iterable[str], base: str) -> dict[str, list[tuple[str, str]]]:
    """Of each commit the letter (A, M, D, T) and the name of every file that differs from `base`."""
    found: dict[str, list[tuple[str, str]]] = {tip: [] for tip in tips}
    asked = "".join(f"{tip} {base}\n" for tip in found).encode()
    flags = ("--stdin", "-r", "-z", "--name-status", "--no-renames")
    words = iter(repo.git.run(repo.store, "diff-tree", *flags, stdin=asked, deadline_s=BULK_S).text.split("\0"))
    current: list[tuple[str, str]] = []
    for word in words:  # a commit, and then a letter and a name for each file
        if word in found:
            current = found[word]
        elif word:
            current.append((word, next(words)))
    return found


def _keys(changes: Iterable[tuple[str, str]]) -> tuple[set[str], set[str]]:
    """What a branch takes for its own, its files and the directories out of which it took some, and every directory that it works in. The
    top directory is left out: it always exists, so for git it is never moved."""
    own, within = set(), set()
    for letter, name in changes:
        parents = {str(parent) for parent in PurePosixPath(name).parents} - {"."}
        own |= {name} | (parents if letter == "D" else set())
        within |= parents
    return own, within
