"""Which branches would conflict with the checkout and with each other. Nothing is merged: git computes the merges in memory and in a
directory of ours, so neither the checkout nor the repository's objects change.

Two branches are merged on trial only where they touch something of one another: the same file, a file where the other has a directory, or
a directory out of which the other moved or deleted something.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path, PurePosixPath

from supervisor.core.conflicts import FILES_MAX, Verdict
from supervisor.core.errors import DiskFull, ToolHung, one_line
from supervisor.host.scratch import locked_directory
from worktrees import tree_merge
from worktrees.failures import failure, last_words
from worktrees.git import BULK_S, Answer, Bounds
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
    """Pairs beyond PAIRS_MAX."""


def look(repo: Repository, branches: Collection[str], base: str) -> Conflicts:
    """What would conflict now, of branches that began at the commit `base` or later. Starts five gits, however many branches there are.
    Raises as `Git.run`; ToolFailed also when git is older than 2.39."""
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
    found = _merges(repo, wanted)
    with_head = {name: files for name, files in zip(left, found, strict=False) if files}
    with_others = {pair: files for pair, files in zip(tried, found[len(left) :], strict=True) if files}
    return Conflicts(repo.head, gone, merged, with_head, with_others, len(pairs) - len(tried))


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


def compare(repo: Repository, pairs: Sequence[Pair], until: float = math.inf) -> dict[Pair, Verdict]:
    """What conflicts between each two commits, which exist. `until`, on the monotonic clock, ends it: what is missing was not compared.

    A pair that git cannot merge has its reason, and costs no other pair its answer. Raises DiskFull, HostError.
    """
    found: dict[Pair, Verdict] = {}
    with locked_directory(repo.git.scratch(), "nightcrew.") as objects:
        todo = [list(pairs[first : first + BATCH]) for first in range(0, len(pairs), BATCH)]
        while todo and time.monotonic() < until:
            batch = todo.pop(0)
            try:
                done = _judged(repo, batch, objects)
            except ToolHung as error:
                if len(batch) > 1:
                    todo[:0] = [[one] for one in batch]
                    continue
                done = {batch[0]: Verdict(why=one_line(error.why or error.what))}
            found |= done
            if rest := [one for one in batch if one not in done]:
                todo.insert(0, rest)
    return found


def _judged(repo: Repository, batch: Sequence[Pair], objects: Path) -> dict[Pair, Verdict]:
    """Of a batch all, or those up to the first that git cannot merge, and that one."""
    answer = _merge(repo, batch, objects, accept=_ANY, bounds=_BOUNDS, deadline_s=BATCH_S if len(batch) > 1 else ALONE_S)
    names = _records(answer.out)
    found = {one: Verdict(files[:FILES_MAX], max(0, len(files) - FILES_MAX)) for one, files in zip(batch, names, strict=False)}
    if len(found) == len(batch):
        return found
    if isinstance(error := failure("merge-tree", str(repo.root), answer.code, answer.err, [objects]), DiskFull):
        raise error
    why = one_line(last_words(answer.err)) or f"git merge-tree ended with status {answer.code}"
    return {**found, batch[len(found)]: Verdict(why=why)}


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


def _merges(repo: Repository, pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Of each pair of commits the files in which they conflict."""
    with locked_directory(repo.git.scratch(), "nightcrew.") as objects:
        return _records(_merge(repo, pairs, objects, deadline_s=BULK_S).out)


def _merge(
    repo: Repository,
    pairs: Sequence[Pair],
    objects: Path,
    *,
    deadline_s: float,
    accept: tuple[int, ...] = (0,),
    bounds: Bounds | None = None,
) -> Answer:
    """All pairs by one git, which writes what it merges into `objects`. It ends at the first pair that it cannot merge."""
    asked = "".join(f"{one} {two}\n" for one, two in pairs).encode()
    flags = ("--write-tree", "--stdin", "--name-only", "--no-messages")
    env = {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(repo)}
    env["GIT_CONFIG_PARAMETERS"] = "'core.fsync=none'"  # as `git -c` says it: these objects are thrown away
    return repo.git.run(repo.checkout, "merge-tree", *flags, stdin=asked, env=env, accept=accept, deadline_s=deadline_s, bounds=bounds)


def _records(out: bytes) -> list[tuple[str, ...]]:
    """What git says of each pair: 1 when it is clean, the tree, the names, and an empty word. One that was cut off does not count."""
    words, found = iter(os.fsdecode(out).split("\0")[:-1]), []
    for clean in words:
        try:
            _tree = next(words)
            names = list(iter(words.__next__, ""))
        except StopIteration:
            break
        found.append(() if clean == "1" else tree_merge.named(names))
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
