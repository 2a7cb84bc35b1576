"""Which results of a project to compare with each other and with the person's branch, and what of it is news. Pure.

Each comparison is of a pair of commits. A pair is compared again when one of its commits moved, and two results that conflict also when
the person's branch moved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from supervisor.kernel.errors import some_of

SIDES_MAX = 100
"""Results that are compared: 4,950 pairs, 0.6 ms each. Of more, those of living agents come first, then the newest."""
FILES_MAX = 20
"""Files of one conflict that are named."""

NAMED = 5
"""Files that a line for people names."""

Pair = tuple[str, str]
"""Two commits, in the order of their names."""
Told = frozenset[tuple[str, str, str]]
"""What was told: two tasks, or a task and "" for the person's branch, and a file."""


@dataclass(frozen=True, slots=True)
class Side:
    """A task and the commit that its branch stands on."""

    task: str
    tip: str
    living: bool
    """Its agent is at work."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of merging two commits on trial."""

    files: tuple[str, ...] = ()
    """Those that conflict, at most FILES_MAX, as `os.fsdecode` text."""
    more: int = 0
    why: str = ""
    """Why it is not known; empty: it is."""


CLEAN = Verdict()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two tasks whose work conflicts, or a task (`one`) and the person's branch."""

    one: str
    two: str
    """Empty: the person's branch."""
    verdict: Verdict

    @property
    def tasks(self) -> tuple[str, ...]:
        """Those that are part of it."""
        return (self.one, self.two) if self.two else (self.one,)

    def files(self, shown: int = NAMED) -> str:
        """`src/a.py, src/b.py and 3 more`, for people; the names are a stranger's."""
        return some_of(self.verdict.files, shown, self.verdict.more)


@dataclass(frozen=True, slots=True)
class Matrix:
    """How the results of a project stand to each other."""

    base: str
    """The commit that the person's checkout stands on."""
    on: str
    """Its branch, or the beginning of the commit."""
    sides: tuple[Side, ...]
    known: Mapping[Pair, Verdict] = field(default_factory=dict)
    left_out: int = 0
    """Results beyond SIDES_MAX."""
    merged: tuple[str, ...] = ()
    """Tasks of which the checkout has everything already, or that have committed nothing."""

    def conflicts(self) -> list[Conflict]:
        """Everything that is no clean merge, also what could not be found out; the person's branch first."""
        asked = [(side, None) for side in self.sides] + list(combinations(self.sides, 2))
        found = [(one, two, self.known.get(pair(one.tip, two.tip if two else self.base), CLEAN)) for one, two in asked]
        return [Conflict(one.task, two.task if two else "", verdict) for one, two, verdict in found if verdict != CLEAN]

    def missing(self) -> int:
        """Pairs that were not compared yet."""
        return len(wanted(self.sides, self.base, self.known))

    def concerned(self, before: Matrix) -> set[str]:
        """Tasks of whose conflicts somebody should be told: those at work, and those that were or came up since `before`. What had long
        ended is no news."""
        living = {side.task for one in (self, before) for side in one.sides if side.living}
        known = {*before.merged, *(side.task for side in before.sides)}
        return living | ({side.task for side in self.sides} - known if before.base else set())


def pair(one: str, two: str) -> Pair:
    """Of two commits, in whatever order."""
    return (one, two) if one < two else (two, one)


def chosen(sides: Iterable[Side]) -> tuple[tuple[Side, ...], int]:
    """Those that are compared, and how many are left out. The sides come newest first."""
    found = sorted(sides, key=lambda side: not side.living)
    return tuple(found[:SIDES_MAX]), max(0, len(found) - SIDES_MAX)


def wanted(sides: Sequence[Side], base: str, known: Collection[Pair]) -> list[Pair]:
    """The pairs of commits that must be compared now: with the person's branch first, then those of living agents."""
    tips = list(dict.fromkeys(side.tip for side in sorted(sides, key=lambda side: not side.living)))
    asked = [pair(tip, base) for tip in tips if tip != base] + [pair(one, two) for one, two in combinations(tips, 2)]
    return [one for one in asked if one not in known]


def still(known: Mapping[Pair, Verdict], sides: Iterable[Side], base: str) -> dict[Pair, Verdict]:
    """Return what is worth remembering: verdicts about pairs whose commits both still stand. When the person's branch has moved, conflicts
    between results are looked for again: a part of one may have been merged."""
    stand = {base, *(side.tip for side in sides)}
    moved = not any(base in one for one in known)
    return {one: verdict for one, verdict in known.items() if stand.issuperset(one) and not (moved and verdict.files)}


def news(found: Iterable[Conflict], concerned: Collection[str], told: Told) -> list[Conflict]:
    """The conflicts of tasks that are `concerned` (those that live, or did a moment ago), with the files that nobody was told of."""
    fresh = []
    for one in found:
        files = tuple(name for name in one.verdict.files if (one.one, one.two, name) not in told)
        if files and not one.verdict.why and not set(concerned).isdisjoint(one.tasks):
            fresh.append(Conflict(one.one, one.two, Verdict(files, one.verdict.more)))
    return fresh


def after(told: Told, fresh: Iterable[Conflict], tasks: Collection[str]) -> Told:
    """What was told when these were told too; of tasks that are among `tasks` no more it is forgotten."""
    both = told | {(one.one, one.two, name) for one in fresh for name in one.verdict.files}
    return frozenset(row for row in both if row[0] in tasks and (not row[1] or row[1] in tasks))
