"""The stated formulas, at their ends and in between."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.results import findings
from supervisor.results.findings import COUNTS, Facts, Perspective, Score

SECURITY, COMPLEXITY, DOCSTRINGS, TESTS, STRUCTURE = Perspective


def facts(perspective: Perspective, files: int = 10, lines: int = 2000, **counts: int) -> Facts:
    return Facts(perspective, files=files, lines=lines, counts={name: counts.get(name, 0) for name in COUNTS[perspective]})


@pytest.mark.parametrize(
    ("found", "plain", "per_kloc"),
    [
        (facts(SECURITY, issues=0), 100.0, 100.0),
        (facts(SECURITY, issues=3), 70.0, 85.0),
        (facts(SECURITY, issues=11), 0.0, 45.0),
        (facts(SECURITY, issues=1000), 0.0, 0.0),
        (facts(SECURITY, issues=5, ignored=99, lines=0), 50.0, 50.0),
        (facts(SECURITY, issues=2, lines=21), 80.0, 80.0),
        (replace(facts(SECURITY, issues=0), unparsable=10), None, None),
        (replace(facts(STRUCTURE, functions=8), unparsable=2), 20.0, 20.0),
        (facts(COMPLEXITY, over=2, functions=9), 70.0, 95.0),
        (facts(COMPLEXITY, over=7), 0.0, 82.5),
        (facts(DOCSTRINGS, objects=8, documented=6), 75.0, 75.0),
        (facts(DOCSTRINGS, objects=0), None, None),
        (facts(TESTS, test_files=2), 40.0, 40.0),
        (facts(TESTS, test_files=6), 100.0, 100.0),
        (facts(STRUCTURE, functions=7), 14.0, 14.0),
        (facts(STRUCTURE, functions=500), 100.0, 100.0),
        (facts(STRUCTURE, files=0), None, None),
    ],
)
def test_scores(found: Facts, plain: float | None, per_kloc: float | None) -> None:
    assert findings.score(found) == Score(plain, per_kloc)


def test_the_health_is_the_weighted_mean_of_what_is_known() -> None:
    assert findings.health({}) is None
    assert findings.health({TESTS: Score(None, None)}) is None
    assert findings.health({SECURITY: Score(0.0, 100.0), DOCSTRINGS: Score(1.0, 0.0), TESTS: Score(None, None)}) == 75.0
    assert findings.health({name: Score(0.0, 50.0) for name in Perspective}) == 50.0


def test_every_perspective_has_a_formula_a_weight_and_counts() -> None:
    assert set(findings.FORMULAS) == set(findings.WEIGHTS) == set(COUNTS) == set(Perspective)
