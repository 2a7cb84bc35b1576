"""What analysts find and count, the scores of it, and the line of JSON that carries it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

# Hotspots
# --------
# Where findings gather: files with how many they have of each severity.


Hot = tuple[int, int, int]
"""How many high, medium and low findings."""


def summed(parts: Iterable[tuple[str, Hot]]) -> dict[str, Hot]:
    """The numbers of each file added up, by name: the order of `parts` changes nothing."""
    found: dict[str, Hot] = {}
    for file, (high, medium, low) in parts:
        before = found.get(file, (0, 0, 0))
        found[file] = (before[0] + high, before[1] + medium, before[2] + low)
    return dict(sorted(found.items()))


def hottest(hot: Mapping[str, Hot]) -> list[tuple[str, Hot]]:
    """Files with the worst first: by high, then medium, then low findings, then by name."""
    return sorted(hot.items(), key=lambda item: (*(-number for number in item[1]), item[0]))


# Types
# -----
# What analysts find and count, and how a count is said.


class Perspective(StrEnum):
    """One way to look at a repository; the value is the analyst's name everywhere."""

    SECURITY = "security"
    COMPLEXITY = "complexity"
    DOCSTRINGS = "docstrings"
    TESTS = "tests"
    STRUCTURE = "structure"


class Severity(StrEnum):
    """How soon a finding deserves somebody's time, worst first."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


COUNTS: Mapping[Perspective, tuple[str, ...]] = {
    Perspective.SECURITY: ("issues", "ignored"),
    Perspective.COMPLEXITY: ("functions", "over", "worst"),
    Perspective.DOCSTRINGS: ("objects", "documented"),
    Perspective.TESTS: ("test_files", "test_functions"),
    Perspective.STRUCTURE: ("functions", "classes"),
}
"""What each analyst counts, beside files and lines. All of it adds up over shards but `worst`, of which the greatest counts.

security    issues: what bandit reports; ignored: its low-severity reports in test files (an assert is how a test speaks), not in issues
complexity  functions and methods; over: those whose cyclomatic complexity is above 5; worst: the highest complexity seen
docstrings  objects: modules, public classes, functions and methods outside test files; documented: those with a docstring
tests       test_files: `test_*.py`, `*_test.py`, `conftest.py`, `test.py`, `tests.py` and everything below a directory `test` or `tests`
structure   functions and methods; classes
"""


REPOSITORY = "."
"""The file of a finding that is about no single file."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth a look."""

    perspective: Perspective
    severity: Severity
    file: str
    """Relative to the repository, as text: bytes that are not UTF-8 are shown as escapes."""
    line: int
    """From 1; 0 when the finding is about the whole file."""
    code: str
    """What kind of finding, stable: a bandit id (B602) or `syntax-error`, `too-large`, `complex-function`, …"""
    message: str
    weight: int = 0
    """How much of it, where that can be said (a complexity, a number of lines): of one severity the greatest comes first."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Which part of the files: number `index` (from 1) of `of`."""

    index: int = 1
    of: int = 1

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What one analyst says of its files, or, merged, all shards of a perspective of theirs."""

    perspective: Perspective
    shard: Shard = Shard()
    files: int = 0
    """Python files looked at, unparsable ones included."""
    lines: int = 0
    unparsable: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    severities: Mapping[Severity, int] = field(default_factory=dict)
    """All findings, also those beyond the limit of `findings`."""
    findings: tuple[Finding, ...] = ()
    """The worst ones first, see `order`."""
    hot: Mapping[str, Hot] = field(default_factory=dict)
    """The files with the most findings: file -> (high, medium, low)."""


def order(finding: Finding) -> tuple[int, int, str, int, str, str]:
    """Sort key: worst first, then the greatest, then by place; complete, so that equal findings are equal in every run."""
    return (list(Severity).index(finding.severity), -finding.weight, finding.file, finding.line, finding.code, finding.message)


# Scores
# ------
# Scores, merged shards, and the line of JSON that an analyst prints. Pure.


# Scores
# ------
# Scores from 0 to 100 by stated formulas, and the health of a repository as their weighted mean.
#
# Each perspective has two scores. The plain one counts absolutely and suits a small repository; on 2,000 files it is 0 for
# everybody. The one per 1,000 lines puts the same counts in relation to size, so that a large repository can be better or worse
# than another. For perspectives that are a share already the two are the same. The health takes the ones per 1,000 lines.
#
# Below 1,000 lines the two are counted alike: one issue in 20 lines is not fifty in 1,000. Files that Python cannot parse are in no
# score; where there are no others, there is none.
#
# A function over 5 costs 15 points plainly and 5 per 1,000 lines: ordinary code has some of them everywhere (measured: Django 5.2
# has 2.6 in 1,000 lines, SymPy 1.14 has 5.0), and at 15 most of it would be 0 again.


FORMULAS: Mapping[Perspective, tuple[str, str]] = {
    Perspective.SECURITY: ("max(0, 100 - 10 x issues)", "max(0, 100 - 10 x issues per 1,000 lines)"),
    Perspective.COMPLEXITY: ("max(0, 100 - 15 x functions over 5)", "max(0, 100 - 5 x functions over 5 per 1,000 lines)"),
    Perspective.DOCSTRINGS: ("100 x documented / objects", "the same"),
    Perspective.TESTS: ("min(100, 2 x test-file %)", "the same"),
    Perspective.STRUCTURE: ("min(100, 20 x functions per file)", "the same"),
}
"""Plain and per 1,000 lines, as shown to people."""

WEIGHTS: Mapping[Perspective, int] = {
    Perspective.SECURITY: 3,
    Perspective.COMPLEXITY: 2,
    Perspective.DOCSTRINGS: 1,
    Perspective.TESTS: 2,
    Perspective.STRUCTURE: 1,
}
"""In the health. A judgement, not a measurement: what can be exploited weighs most, what is a matter of taste least."""


@dataclass(frozen=True, slots=True)
class Score:
    """Both scores of one perspective, 0 to 100 with one decimal; None when there was nothing to score."""

    plain: float | None
    per_kloc: float | None


def score(facts: Facts) -> Score:
    """Score a perspective's merged facts."""
    counts, kloc = facts.counts, facts.lines / 1000
    readable = facts.files - facts.unparsable
    if readable <= 0:
        return Score(None, None)
    match facts.perspective:
        case Perspective.SECURITY:
            return _lessened(counts["issues"], kloc, each=10, each_per_kloc=10)
        case Perspective.COMPLEXITY:
            return _lessened(counts["over"], kloc, each=15, each_per_kloc=5)
        case Perspective.DOCSTRINGS:
            return _share(100 * counts["documented"] / counts["objects"] if counts["objects"] else None)
        case Perspective.TESTS:
            return _share(2 * 100 * counts["test_files"] / facts.files)
        case Perspective.STRUCTURE:
            return _share(20 * counts["functions"] / readable)


def health(scores: Mapping[Perspective, Score]) -> float | None:
    """The weighted mean of the scores per 1,000 lines that exist; None when there is none."""
    known = {name: found.per_kloc for name, found in scores.items() if found.per_kloc is not None}
    weight = sum(WEIGHTS[name] for name in known)
    return round(sum(WEIGHTS[name] * value for name, value in known.items()) / weight, 1) if weight else None


def _lessened(count: int, kloc: float, *, each: int, each_per_kloc: int) -> Score:
    per_kloc = count / max(kloc, 1.0)  # below 1,000 lines there is nothing to put in relation: 1 in 20 lines is not 50 in 1,000
    return Score(_bounded(100 - each * count), _bounded(100 - each_per_kloc * per_kloc))


def _share(value: float | None) -> Score:
    bounded = None if value is None else _bounded(value)
    return Score(bounded, bounded)


def _bounded(value: float) -> float:
    return round(float(min(100, max(0, value))), 1)


# Merge
# -----
# Many shards of a perspective become one, in an order that does not depend on who ended first.


_GREATEST = frozenset({"worst"})


def merge(parts: Iterable[Facts]) -> dict[Perspective, Facts]:
    """The facts of each perspective that has any, in the order of Perspective. A shard given twice counts once: the one with more files."""
    found: dict[Perspective, dict[Shard, Facts]] = {}
    for part in sorted(parts, key=lambda facts: (facts.shard.of, facts.shard.index, -facts.files, facts.lines)):
        found.setdefault(part.perspective, {}).setdefault(part.shard, part)
    return {name: _one(name, list(found[name].values())) for name in Perspective if name in found}


def _one(name: Perspective, parts: list[Facts]) -> Facts:
    return Facts(
        perspective=name,
        files=sum(part.files for part in parts),
        lines=sum(part.lines for part in parts),
        unparsable=sum(part.unparsable for part in parts),
        counts={count: _total(count, parts) for count in COUNTS[name]},
        severities={severity: sum(part.severities.get(severity, 0) for part in parts) for severity in Severity},
        findings=tuple(sorted((finding for part in parts for finding in part.findings), key=order)),
        hot=summed(item for part in parts for item in part.hot.items()),
    )


def _total(name: str, parts: list[Facts]) -> int:
    numbers = [part.counts.get(name, 0) for part in parts]
    return max(numbers, default=0) if name in _GREATEST else sum(numbers)


# Analyst json
# ------------
# The one line of JSON that an analyst prints.
#
#     {"schema": 1, "analyst": "security", "shard": [1, 3], "files": 120, "lines": 34000, "unparsable": 1,
#      "counts": {"issues": 4, "ignored": 80}, "severities": {"high": 1, "medium": 2, "low": 1},
#      "findings": [["high", "a/b.py", 12, "B602", "subprocess call with shell=True", 0], …], "hot": {"a/b.py": [1, 0, 0], …}}
#
# An analyst is a program like any other: whatever it prints is checked here, and nothing in it is believed beyond its shape.


SCHEMA = 1
MAX_LINE = 60_000
"""Bytes: of an agent's output 64 KiB are kept."""
MAX_FINDINGS = 120
MAX_HOT = 60
"""What one line carries at most of findings and of hot files; the counts are complete."""
MAX_TEXT = 160
MAX_FILE = 200
MAX_CODE = 40
_MAX_COUNT = 2**53


class WireError(ValueError):
    """The line is no analyst's; the message says what is wrong with it."""


def write(facts: Facts) -> str:
    """One line of ASCII, at most MAX_LINE bytes, without its newline. Longer texts are cut, what is beyond the limits is left out."""
    limit = MAX_FINDINGS
    while len(line := _line(facts, limit)) > MAX_LINE:
        limit = 3 * limit // 4  # names and messages that are not ASCII take up to twelve bytes a character
    return line


def _line(facts: Facts, limit: int) -> str:
    # Made printable before they are put in order, so that whoever reads the line finds them in order.
    shown = (replace(one, file=tail(one.file, MAX_FILE), message=cut(one.message, MAX_TEXT)) for one in facts.findings)
    worst = sorted(shown, key=order)[:limit]
    # By the names as they are shown: two files that look the same are one, and nothing of them is lost.
    hot = hottest(summed((tail(file, MAX_FILE), numbers) for file, numbers in facts.hot.items()))[: min(limit, MAX_HOT)]
    shape = {
        "schema": SCHEMA,
        "analyst": str(facts.perspective),
        "shard": [facts.shard.index, facts.shard.of],
        "files": facts.files,
        "lines": facts.lines,
        "unparsable": facts.unparsable,
        "counts": {name: facts.counts.get(name, 0) for name in COUNTS[facts.perspective]},
        "severities": {str(severity): facts.severities.get(severity, 0) for severity in Severity},
        "findings": [[str(one.severity), one.file, one.line, one.code, one.message, one.weight] for one in worst],
        "hot": {file: list(numbers) for file, numbers in hot},
    }
    return json.dumps(shape, ensure_ascii=True, separators=(",", ":"))


def read(shape: Any) -> Facts:
    """What `write` wrote, from the parsed JSON. Raises WireError."""
    if not isinstance(shape, dict) or shape.get("schema") != SCHEMA:
        raise WireError("it is no analyst's result of schema 1")
    try:
        perspective = Perspective(shape["analyst"])
        index, of = shape["shard"]
        shard = Shard(_count(index), _count(of))
        if not 1 <= shard.index <= shard.of:
            raise WireError(f"there is no shard {shard}")
        return Facts(
            perspective=perspective,
            shard=shard,
            files=_count(shape["files"]),
            lines=_count(shape["lines"]),
            unparsable=_count(shape["unparsable"]),
            counts={name: _count(shape["counts"][name]) for name in COUNTS[perspective]},
            severities={severity: _count(shape["severities"][severity]) for severity in Severity},
            findings=tuple(sorted((_finding(perspective, row) for row in shape["findings"][:MAX_FINDINGS]), key=order)),
            hot={cut(str(file), MAX_FILE): _hot(numbers) for file, numbers in list(shape["hot"].items())[:MAX_HOT]},
        )
    except WireError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"it is no analyst's result: {type(error).__name__}: {error}") from None


def cut(text: str, size: int) -> str:
    """At most `size` characters, printable: control characters and lone surrogates become escapes."""
    shown = _printable(text[: size + 1])
    return shown if len(shown) <= size else f"{shown[: size - 1]}…"


def tail(text: str, size: int) -> str:
    """As `cut`, of a path: its end is what tells two files apart."""
    shown = _printable(text[-size - 1 :])
    return shown if len(shown) <= size else f"…{shown[1 - size :]}"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii") for char in text)


def _finding(perspective: Perspective, row: Any) -> Finding:
    severity, file, line, code, message, weight = row
    return Finding(
        perspective,
        Severity(severity),
        cut(str(file), MAX_FILE),
        _count(line),
        cut(str(code), MAX_CODE),
        cut(str(message), MAX_TEXT),
        _count(weight),
    )


def _hot(numbers: Any) -> Hot:
    high, medium, low = numbers
    return (_count(high), _count(medium), _count(low))


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_COUNT:
        raise WireError(f"{value!r} is no count")
    return value
