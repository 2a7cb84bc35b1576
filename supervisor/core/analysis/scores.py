"""Scores from 0 to 100 by stated formulas, and the health of a repository as their weighted mean.

Each perspective has two scores. The plain one counts absolutely and suits a small repository; on 2,000 files it is 0 for everybody.
The one per 1,000 lines puts the same counts in relation to size, so that a large repository can be better or worse than another. For
perspectives that are a share already the two are the same. The health takes the ones per 1,000 lines.

Below 1,000 lines the two are counted alike: one issue in 20 lines is not fifty in 1,000. Files that Python cannot parse are in no score;
where there are no others, there is none.

A function over 5 costs 15 points plainly and 5 per 1,000 lines: ordinary code has some of them everywhere (measured: Django 5.2 has 2.6 in
1,000 lines, SymPy 1.14 has 5.0), and at 15 most of it would be 0 again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.core.analysis.types import Facts, Perspective

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
