"""Which branches would conflict with the checkout and with each other. Nothing is merged: git computes the merges in memory and in a
directory of ours, so neither the checkout nor the repository's objects change.

Two branches are merged on trial only where they touch something of one another: the same file, a file where the other has a directory, or
a directory out of which the other moved or deleted something.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import PurePosixPath

from supervisor.host.scratch import locked_directory
from worktrees.git import BULK_S
from worktrees.repository import Repository

PAIRS_MAX = 600
"""Trial merges of branches with each other, 1 ms each on a quiet machine. Of more, those of the first branches are made."""

Pair = tuple[str, str]


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
    reached = _reached(repo, set(tips.values()))
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


def _tips(repo: Repository, branches: Iterable[str]) -> dict[str, str]:
    names = list(dict.fromkeys(branches))
    if not names:
        return {}
    asked = "".join(f"refs/heads/{name}^{{commit}}\n" for name in names)
    rows = repo.git.run(repo.store, "cat-file", "--batch-check=%(objectname)", stdin=os.fsencode(asked)).text.splitlines()
    return {name: row for name, row in zip(names, rows, strict=True) if " " not in row}


def _reached(repo: Repository, tips: set[str]) -> set[str]:
    """Those that the checkout's commit reaches: the others are what it lacks."""
    asked = "".join(f"{tip}\n" for tip in sorted(tips)) + f"^{repo.head}\n"
    lacks = repo.git.run(repo.store, "rev-list", "--stdin", stdin=asked.encode(), deadline_s=BULK_S).text.splitlines()
    return tips.difference(lacks)


def _merges(repo: Repository, pairs: Sequence[Pair]) -> list[tuple[str, ...]]:
    """Of each pair of commits the files in which they conflict."""
    asked = "".join(f"{one} {two}\n" for one, two in pairs).encode()
    flags = ("--write-tree", "--stdin", "--name-only", "--no-messages")
    with locked_directory(repo.git.scratch(), "nightcrew.") as objects:
        env = {"GIT_OBJECT_DIRECTORY": str(objects), "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(repo)}
        env["GIT_CONFIG_PARAMETERS"] = "'core.fsync=none'"  # as `git -c` says it: these objects are thrown away
        words = iter(repo.git.run(repo.store, "merge-tree", *flags, stdin=asked, env=env, deadline_s=BULK_S).text.split("\0"))
    found = []
    for _ in pairs:  # each: 1 when it is clean, the tree, the names, and an empty word
        clean, _tree = next(words), next(words)
        names = tuple(iter(words.__next__, ""))
        found.append(() if clean == "1" else names)
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
