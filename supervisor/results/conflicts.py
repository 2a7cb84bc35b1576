"""How the results of a project stand to each other and to the person's branch: conflicts, what is known of them, their text and JSON.

Each comparison is of a pair of commits. A pair is compared again when one of its commits moved, and two results that conflict also when
the person's branch moved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from supervisor.host import files, untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, one_line, some_of
from supervisor.kernel.format import listed, many
from supervisor.kernel.states import TaskState
from supervisor.store.queries import TaskView

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


# Book
# ----
# What is known, in a file. The supervisor alone writes it; commands that look take from it what they need not find out. It may be
# lost: then everything is compared once more.


SCHEMA = 1
_BYTES_MAX = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Book:
    """What the file has."""

    matrix: Matrix = field(default_factory=lambda: Matrix("", "", ()))
    told: Told = frozenset()


def load(path: Path) -> Book:
    """What is known; nothing where there is no file, or one that cannot be read."""
    try:
        data = untrusted_fs.read_plain(path, _BYTES_MAX)
        return _read(json.loads(data)) if data else Book()
    except (NightcrewError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return Book()


def save(path: Path, book: Book) -> None:
    """Write it, whole or not at all. Raises DiskFull, HostError."""
    matrix = book.matrix
    tips = sorted({tip for one in matrix.known for tip in one})
    number = {tip: place for place, tip in enumerate(tips)}
    rows = [[number[one], number[two], *_row(verdict)] for (one, two), verdict in matrix.known.items()]
    shape = {
        "schema": SCHEMA, "base": matrix.base, "on": matrix.on, "left_out": matrix.left_out, "merged": matrix.merged,
        "sides": [[side.task, side.tip, side.living] for side in matrix.sides],
        "tips": tips, "pairs": rows, "told": sorted(book.told),
    }  # fmt: skip
    files.private_dir(path.parent.parent)
    files.private_dir(path.parent)
    files.atomic_write(path, json.dumps(shape, separators=(",", ":")).encode(), durable=False)


def _row(verdict: Verdict) -> list[Any]:
    """Nothing of a clean merge, which most are."""
    return [] if verdict == CLEAN else [list(verdict.files), verdict.more, verdict.why]


def _read(shape: Mapping[str, Any]) -> Book:
    if shape["schema"] != SCHEMA:
        return Book()
    sides = tuple(Side(str(task), str(tip), living is True) for task, tip, living in shape["sides"])
    tips = [str(tip) for tip in shape["tips"]]
    known = {pair(tips[one], tips[two]): _verdict(*row) for one, two, *row in shape["pairs"]}
    told = frozenset((str(one), str(two), str(name)) for one, two, name in shape["told"])
    merged = tuple(map(str, shape["merged"]))
    return Book(Matrix(str(shape["base"]), str(shape["on"]), sides, known, int(shape["left_out"]), merged), told)


def _verdict(names: list[str] | None = None, more: int = 0, why: str = "") -> Verdict:
    return Verdict(tuple(map(str, names or ())), int(more), str(why))


# Text
# ----


def shape(matrix: Matrix, only: Collection[str] = ()) -> dict[str, Any]:
    """As `--json` has it; `only`: what concerns one of these tasks."""
    found = named(matrix, only)
    return {
        "base": {"commit": matrix.base, "branch": matrix.on},
        "results": [{"task": side.task, "commit": side.tip, "living": side.living} for side in matrix.sides],
        "conflicts": [_shape(one) for one in found if not one.verdict.why],
        "unknown": [{"task": one.one, "with": one.two or None, "why": one.verdict.why} for one in found if one.verdict.why],
        "merged": list(matrix.merged),
        "not_compared": matrix.missing(),
        "left_out": matrix.left_out,
    }


def _shape(one: Conflict) -> dict[str, Any]:
    files = [os.fsencode(name).decode("utf-8", "replace") for name in one.verdict.files]
    return {"task": one.one, "with": one.two or None, "files": files, "more": one.verdict.more}


def known(where: Home, project: str) -> Matrix:
    """How the results of a project stand to each other, as the supervisor found it last: for whoever shows it and starts no git."""
    return load(where.conflicts(project)).matrix


def of_tasks(matrix: Matrix, tasks: Collection[str]) -> dict[str, Any] | None:
    """As a report of these tasks has it; None where none of them has anything to merge."""
    if not tasks or not set(tasks) & {side.task for side in matrix.sides}:
        return None
    found = shape(matrix, tasks)
    return {key: found[key] for key in ("base", "conflicts", "unknown", "not_compared")}


def sentence(found: Mapping[str, Any]) -> str:
    """Of `of_tasks`, all but the lists."""
    count, unknown, missing = len(found["conflicts"]), len(found["unknown"]), found["not_compared"]
    said = f"Each result was merged on trial into {found['base']['branch']} and with the others, without touching anything: "
    said += many(count, "conflict") if count else "no conflict"
    said += f"; {unknown} could not be compared" if unknown else ""
    return f"{said}{f'; {missing} not compared yet' if missing else ''}."


def files_of(row: Mapping[str, Any]) -> str:
    """Of a row of `of_tasks`, for people; the names are a stranger's."""
    return listed([one_line(name) for name in row["files"]], NAMED, row["more"])


def of_task(found: Mapping[str, Any] | None, task: str) -> list[str]:
    """Of `of_tasks`, with whom one of them conflicts: `main in src/a.py`."""
    rows = found["conflicts"] if found else ()
    on = found["base"]["branch"] if found else ""
    return [
        f"{row['with'] or on if row['task'] == task else row['task']} in {files_of(row)}"
        for row in rows
        if task in (row["task"], row["with"])
    ]


def named(matrix: Matrix, only: Collection[str]) -> list[Conflict]:
    """The conflicts that concern one of these tasks; all of them where none is named."""
    return [one for one in matrix.conflicts() if not only or not set(only).isdisjoint(one.tasks)]


def lines(matrix: Matrix, only: Collection[str] = ()) -> Iterator[str]:
    """`1121-k3f9/lint  1121-k3f9/api  src/a.py`, one of each conflict; the person's branch has its own name."""
    found = named(matrix, only)
    rows = [(one_line(one.one), one_line(one.two or matrix.on), _said(one)) for one in found]
    left, right = (max((len(row[place]) for row in rows), default=0) for place in (0, 1))
    yield from (f"{one:<{left}}  {two:<{right}}  {said}" for one, two, said in rows)


def _said(one: Conflict) -> str:
    return f"not known: {one_line(one.verdict.why)}" if one.verdict.why else one.files()


def summary(matrix: Matrix) -> str:
    """`12 results and main: 3 conflicts`, and what is not in that."""
    found = matrix.conflicts()
    known, unknown = [one for one in found if not one.verdict.why], [one for one in found if one.verdict.why]
    count = len(matrix.sides)
    said = f"{many(count, 'result')} and {one_line(matrix.on)}: "
    said += many(len(known), "conflict") if known else "no conflict"
    rest = {
        f"{len(unknown)} could not be compared": unknown,
        f"{matrix.missing()} not compared yet": matrix.missing(),
        f"{matrix.left_out} older results left out": matrix.left_out,
        f"{len(matrix.merged)} {'has' if len(matrix.merged) == 1 else 'have'} nothing that {one_line(matrix.on)} lacks": matrix.merged,
    }
    return "; ".join([said, *(words for words, holds in rest.items() if holds)])


def beside(found: Iterable[Conflict], on: str) -> dict[str, str]:
    """Of each task with whom its work conflicts, in few words: `conflicts with lint in src/a.py`."""
    by_task: dict[str, list[str]] = {}
    for one in found:
        for task, other in ((one.one, one.two or on), (one.two, one.one)):
            if task and not one.verdict.why:
                by_task.setdefault(task, []).append(f"{_short(other, task)} in {one.files(1)}")
    return {task: f"conflicts with {words[0]}" + (f", {len(words) - 1} others" if words[1:] else "") for task, words in by_task.items()}


def of_one(matrix: Matrix, task: str) -> list[str]:
    """With whom the work of a task conflicts, and where: `with lint in src/a.py`."""
    found = [one for one in matrix.conflicts() if task in one.tasks and not one.verdict.why]
    return [f"with {one_line(next((other for other in one.tasks if other != task), matrix.on))} in {one.files()}" for one in found]


def of_living(where: Home, views: Sequence[TaskView]) -> dict[str, str]:
    """`beside` for those that run, or for the only one, as the supervisor found it last: it keeps that up to date while somebody works."""
    running = [view for view in views if view.state is TaskState.RUNNING or len(views) == 1]
    words: dict[str, str] = {}
    for project in {view.project for view in running}:
        matrix = known(where, project)
        words |= beside(matrix.conflicts(), matrix.on)
    return {view.id: words[view.id] for view in running if view.id in words}


def _short(other: str, task: str) -> str:
    """Without the run where that is the same."""
    run = task.partition("/")[0]
    return one_line(other.removeprefix(f"{run}/"))
