"""Results of which is known beforehand, for every subset, whether they merge and whether their gate passes. No code is the product's."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable
from dataclasses import dataclass

Pair = frozenset[str]
LINES = 40
MIDDLE = 20


@dataclass(frozen=True, slots=True)
class Result:
    """One task: the commands that make its commits, how much they change, and what it comes after by its plan."""

    name: str
    size: int
    after: tuple[str, ...]
    planted: tuple[str, ...]

    @property
    def command(self) -> str:
        """Two commits: a line in a file of its own, then its mark, its bulk and what was planted."""
        work = (
            f"mkdir -p m; echo {self.name} >m/{self.name}",
            f"seq {self.size} | sed 's/^/{self.name} /' >bulk-{self.name}",
            *self.planted,
        )
        first = (f"sed -i '{MIDDLE}s/.*/{self.name} was here/' own-{self.name}", f"git commit -qam 'first of {self.name}'")
        last = ("git add -A", f"git commit -qm 'work of {self.name}'", 'git rev-parse HEAD >"$NIGHTCREW_OUT/head"')
        return "set -e; " + "; ".join((*first, *work, *last))


@dataclass(frozen=True, slots=True)
class Books:
    """What was planted: pairs that conflict in a file, and pairs that the gate refuses though each passes alone."""

    results: dict[str, Result]
    conflicts: frozenset[Pair]
    breaks: frozenset[Pair]
    files: dict[str, str]
    """The commit that all begin with."""

    @property
    def gate(self) -> str:
        """Refuses a tree that holds the marks of both of such a pair."""
        pairs = " ".join(sorted(":".join(sorted(pair)) for pair in self.breaks))
        return f'for p in {pairs}; do if test -e "m/${{p%:*}}" && test -e "m/${{p#*:}}"; then exit 3; fi; done; sleep 0.2'

    def order(self, names: Collection[str]) -> list[str]:
        """As documented: each after those that it comes after, else the smallest first."""
        left, found = set(names), list[str]()
        while left:
            free = (name for name in left if not left.intersection(self.results[name].after))
            found.append(min(free, key=lambda name: self.results[name].size))
            left.remove(found[-1])
        return found

    def outcome(self, names: Collection[str], changed_by_a_person: Collection[str] = ()) -> dict[str, str]:
        """Of each `landed`, or why not, when one is tried after the other. A person may have changed the line of some."""
        said: dict[str, str] = {}
        for name in self.order(names):
            there = [other for other, state in said.items() if state == "landed"]
            said[name] = self._why(name, names, there, changed_by_a_person)
        return said

    def _why(self, name: str, names: Collection[str], there: list[str], changed: Collection[str]) -> str:
        if any(other in names and other not in there for other in self.results[name].after):
            return "after"
        pairs = {frozenset((name, other)) for other in there}
        if name in changed or pairs & self.conflicts:
            return "conflict"
        return "gate" if pairs & self.breaks else "landed"


def drawn(rng: random.Random, count: int, share: float = 0.25) -> Books:
    """Books of so many results; of all pairs about this share is planted with something."""
    names = [f"r{number}" for number in range(count)]
    pairs = list(itertools.combinations(names, 2))
    conflicts = _some(rng, pairs, share / 2)
    planted: dict[str, list[str]] = {name: [] for name in names}
    files = {f"own-{name}": _lines(name) for name in names}
    for number, (one, other) in enumerate(conflicts):
        files[f"both-{number}"] = _lines("both")
        for name, command in zip((one, other), _clash(rng, number, one, other), strict=True):
            planted[name].append(command)
    sizes = rng.sample(range(1, 2 * count), count)
    results = {
        name: Result(name, size * 10 * LINES, _before(rng, names[:number]), tuple(planted[name]))
        for number, (name, size) in enumerate(zip(names, sizes, strict=True))
    }
    return Books(results, frozenset(map(frozenset, conflicts)), frozenset(map(frozenset, _some(rng, pairs, share / 2))), files)


def _some(rng: random.Random, pairs: Iterable[tuple[str, str]], share: float) -> list[tuple[str, str]]:
    return [pair for pair in pairs if rng.random() < share]


def _before(rng: random.Random, earlier: list[str]) -> tuple[str, ...]:
    return (rng.choice(earlier),) if earlier and rng.random() < 0.25 else ()


def _clash(rng: random.Random, number: int, one: str, other: str) -> tuple[str, str]:
    """Commands of two results of which git cannot merge the second one."""
    return rng.choice(
        (
            (f"sed -i '{MIDDLE}s/.*/{one}/' both-{number}", f"sed -i '{MIDDLE}s/.*/{other}/' both-{number}"),
            (f"echo {one} >new-{number}", f"echo {other} >new-{number}"),
            (f"git rm -q both-{number}", f"sed -i '{MIDDLE}s/.*/{other}/' both-{number}"),
        )
    )


def _lines(word: str) -> str:
    return "".join(f"{word} {number}\n" for number in range(LINES))
