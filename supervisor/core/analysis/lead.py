"""The lead: what the analysts said becomes one health score, what to fix first, and what to do next. Deterministic and offline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from supervisor.core.analysis import scores, speedup
from supervisor.core.analysis.hotspots import hottest, summed
from supervisor.core.analysis.merge import merge
from supervisor.core.analysis.scores import Score
from supervisor.core.analysis.speedup import Figures, Phase
from supervisor.core.analysis.types import REPOSITORY, Facts, Finding, Perspective, Severity, many, order
from supervisor.core.states import FINAL

SCHEMA = 1
MAX_ISSUES = 20
MAX_HOT_SPOTS = 30
MAX_ACTIONS = 6


@dataclass(frozen=True, slots=True)
class Told:
    """What one analyst's task came to."""

    task: str
    perspective: Perspective
    shard: str
    phase: Phase
    state: str
    reason: str
    """Why it did not end well; empty when it did."""
    facts: Facts | None
    """None unless it is done and said what an analyst says."""

    @property
    def over(self) -> bool:
        """Whether it has ended, however it ended. One that has not is no failure."""
        return self.state in FINAL


def summary(told: Iterable[Told], found: Figures | None) -> dict[str, Any]:
    """The summary as a JSON object of schema 1: the lead's one line, and `summary` of report.json. The same input in any order gives
    the same bytes."""
    crew = sorted((one for one in told if one.phase is Phase.CREW), key=lambda one: one.task)
    asked = _by_perspective(crew)
    facts = merge(one.facts for one in crew if one.facts is not None)
    points = {name: scores.score(merged) for name, merged in facts.items()}
    files, lines = _extent(facts, asked)
    failed = [one for one in crew if one.facts is None and one.over]
    left = sum(not one.over for one in crew)
    return {
        "schema": SCHEMA,
        "health": scores.health(points),
        "weights": {str(name): scores.WEIGHTS[name] for name in asked},
        "files": files,
        "lines": lines,
        "perspectives": [_perspective(name, facts.get(name), points.get(name), tasks) for name, tasks in asked.items()],
        "issues": list(map(_shown, issues(facts.values()))),
        "hot_spots": hot_spots(facts.values()),
        "actions": actions(facts, points, failed, left),
        "failed": list(map(_failure, failed)),
        "parallel": "The analysts are still at work." if left else speedup.plainly(found),
    }


def _by_perspective(crew: Sequence[Told]) -> dict[Perspective, list[Told]]:
    """The perspectives that were asked for, in their order."""
    found: dict[Perspective, list[Told]] = {name: [] for name in Perspective}
    for one in crew:
        found[one.perspective].append(one)
    return {name: tasks for name, tasks in found.items() if tasks}


def _extent(facts: Mapping[Perspective, Facts], asked: Mapping[Perspective, Sequence[Told]]) -> tuple[int, int]:
    """Files and lines of the repository: of a perspective whose shards all answered, or else of the one that saw most."""
    whole = [facts[name] for name, tasks in asked.items() if all(one.facts is not None for one in tasks)]
    seen = whole or list(facts.values())
    return max((one.files for one in seen), default=0), max((one.lines for one in seen), default=0)


def issues(facts: Iterable[Facts]) -> list[Finding]:
    """The top issues to fix: worst severity first, and of one severity no perspective takes all places while another has some."""
    ranked: list[tuple[int, int, int, Finding]] = []
    for one in facts:
        seen: dict[Severity, int] = {}
        for finding in sorted(one.findings, key=order):
            seen[finding.severity] = place = seen.get(finding.severity, 0) + 1
            rank = list(Severity).index(finding.severity)
            ranked.append((rank, place, list(Perspective).index(finding.perspective), finding))
    return [finding for *_, finding in sorted(ranked, key=lambda item: (*item[:3], order(item[3])))[:MAX_ISSUES]]


def hot_spots(facts: Iterable[Facts]) -> list[dict[str, Any]]:
    """The files with the most findings over all perspectives, worst first."""
    hot = summed(item for one in facts for item in one.hot.items())
    return [{"file": file, "high": high, "medium": medium, "low": low} for file, (high, medium, low) in hottest(hot)[:MAX_HOT_SPOTS]]


def actions(facts: Mapping[Perspective, Facts], points: Mapping[Perspective, Score], failed: Sequence[Told], left: int = 0) -> list[str]:
    """What to do next, most urgent first; never empty. `left` is how many analysts have not ended yet."""
    found = [
        *_for_failed(failed),
        *_for_security(facts.get(Perspective.SECURITY)),
        *_for_unparsable(facts),
        *_for_complexity(facts.get(Perspective.COMPLEXITY)),
        *_for_tests(facts.get(Perspective.TESTS), points.get(Perspective.TESTS)),
        *_for_docstrings(facts.get(Perspective.DOCSTRINGS), points.get(Perspective.DOCSTRINGS)),
        *_for_structure(facts.get(Perspective.STRUCTURE)),
    ]
    if not found:
        files = max((one.files for one in facts.values()), default=0)
        if left:
            return [f"Wait: {many(left, 'analyst')} still at work."]
        found = ["Nothing urgent was found." if files else "There are no Python files here, so there was nothing to look at."]
    return found[:MAX_ACTIONS]


def _for_failed(failed: Sequence[Told]) -> Iterable[str]:
    if failed:
        names = " ".join(one.task for one in failed)
        yield f"The picture is not whole: {many(len(failed), 'analyst')} failed ({failed[0].reason}). Run again: nightcrew retry {names}"


def _for_security(facts: Facts | None) -> Iterable[str]:
    if facts is None:
        return
    for severity in (Severity.HIGH, Severity.MEDIUM):
        if number := facts.severities.get(severity, 0):
            first = next((finding for finding in facts.findings if finding.severity is severity), None)
            start = f", first {_place(first)} ({first.code})" if first else ""
            yield f"Look at {many(number, f'{severity}-severity security finding')}{start}."
            return


def _for_unparsable(facts: Mapping[Perspective, Facts]) -> Iterable[str]:
    broken = [finding for one in facts.values() for finding in one.findings if finding.code == "syntax-error"]
    if broken:
        number = max(one.unparsable for one in facts.values())
        yield f"Mend or exclude {many(number, 'file')} that Python cannot parse, first {_place(min(broken, key=order))}."


def _for_complexity(facts: Facts | None) -> Iterable[str]:
    if facts is not None and (worst := next((f for f in facts.findings if f.code == "complex-function"), None)):
        yield f"Split the most complex function: {_place(worst)}: {worst.message}."


def _for_tests(facts: Facts | None, point: Score | None) -> Iterable[str]:
    if facts is None or point is None or point.plain is None or point.plain >= 50:
        return
    if facts.counts["test_files"] == 0:
        yield f"Write a first test: there is none beside {many(facts.files, 'Python file')}."
    else:
        share = 100 * facts.counts["test_files"] / facts.files
        yield f"Write more tests: {share:.0f} % of the files are tests; 50 % would score 100."


def _for_docstrings(facts: Facts | None, point: Score | None) -> Iterable[str]:
    if facts is None or point is None or point.plain is None or point.plain >= 60:
        return
    worst = facts.findings[0] if facts.findings else None
    start = f"; begin with {worst.file}" if worst else ""
    yield f"Document what others call: {point.plain:.0f} % of the public modules, classes and functions have a docstring{start}."


def _for_structure(facts: Facts | None) -> Iterable[str]:
    if facts is not None and (
        worst := next((f for f in facts.findings if f.severity is not Severity.LOW and f.code != "syntax-error"), None)
    ):
        yield f"Divide {_place(worst)}: {worst.message}."


def _perspective(name: Perspective, facts: Facts | None, point: Score | None, told: Sequence[Told]) -> dict[str, Any]:
    lacking = sorted((one for one in told if one.facts is None), key=lambda one: one.over, reverse=True)  # a failure says more than a wait
    state = "done" if not lacking else "partial" if facts else "failed" if lacking[0].over else "running"
    return {
        "name": str(name),
        "state": state,
        "reason": lacking[0].reason if lacking else "" if facts and facts.files else "no Python files",
        "score": point.plain if point else None,
        "score_per_kloc": point.per_kloc if point else None,
        "formula": scores.FORMULAS[name][0],
        "formula_per_kloc": scores.FORMULAS[name][1],
        "files": facts.files if facts else 0,
        "counts": dict(facts.counts) if facts else {},
        "severities": {str(key): number for key, number in facts.severities.items()} if facts else {},
        "unparsable": facts.unparsable if facts else 0,
        "shards": len(told),
    }


def _shown(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "perspective": str(finding.perspective), "severity": str(finding.severity)}


def _failure(one: Told) -> dict[str, Any]:
    return {"task": one.task, "perspective": str(one.perspective), "shard": one.shard, "reason": one.reason}


def _place(finding: Finding) -> str:
    file = "(repository)" if finding.file == REPOSITORY else finding.file
    return f"{file}:{finding.line}" if finding.line else file
