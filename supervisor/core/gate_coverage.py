"""How much of the code the tests ran, from the closing lines of a coverage program. Pure; what it does not know for sure is None.

As `test_counts`, by each program's own form. Shares of several parts are not added up: how large each part is, is not in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from supervisor.core.test_counts import clean_lines


@dataclass(frozen=True, slots=True)
class Coverage:
    """Of one run of tests."""

    by: str
    """Which program said it."""
    percent: float
    """From 0 to 100: of lines or statements, with branches where the program puts both into one figure."""

    def shape(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def read(said: str, *, whole: bool = True) -> Coverage | None:
    """What the end of a log says, or all of it where it is `whole`. None where no program is known by its closing line, where two of them
    are, or where one says two different figures: which of them is that of the whole is not known."""
    lines = clean_lines(said)
    found = [(by, figure) for by, pattern in _CLOSINGS if (figure := _one(_figures(lines, pattern))) is not None]
    found += [("go test", figure) for figure in _go(lines) if whole]
    if len(found) != 1 or not 0.0 <= found[0][1] <= 100.0:
        return None
    return Coverage(*found[0])


_MIXED = -1.0
"""Figures that differ: known to be said, and no percentage."""
_SHARE = r"(\d{1,3}(?:\.\d{1,4})?)"
_CLOSINGS = tuple(
    (by, re.compile(pattern))
    for by, pattern in (
        # TOTAL, statements, missed, perhaps branches and partial ones, percent.
        ("coverage.py", rf"TOTAL +\d+ +\d+(?: +\d+ +\d+)? +{_SHARE}%"),
        # TOTAL, then regions, functions and lines, each with all, missed and percent; perhaps branches.
        ("llvm-cov", rf"TOTAL +\d+ +\d+ +[\d.]+%(?: +\d+ +\d+ +[\d.]+%) +\d+ +\d+ +{_SHARE}%(?: +\d+ +\d+ +(?:[\d.]+%|-))?"),
        # The row of all files: statements, branches, functions, lines. Or its summary.
        ("istanbul", rf"All files +\| +{_SHARE} +\|(?: +[\d.]+ +\|){{3}}.*|Statements +: {_SHARE}% \( \d+/\d+ \)"),
        ("lcov", rf"lines\.+: {_SHARE}% \(\d+ of \d+ lines?\)"),
        ("SimpleCov", rf"Line Coverage: {_SHARE}% \(\d+ / \d+\)|.* \d+ / \d+ LOC \({_SHARE}%\) covered\."),
        ("go tool cover", rf"total:\s+\(statements\)\s+{_SHARE}%"),
    )
)
_GO = re.compile(rf"(.*?)\s*coverage: {_SHARE}% of statements(?: in .+)?")


def _figures(lines: Iterable[str], pattern: re.Pattern[str]) -> list[float]:
    return [float(next(filter(None, match.groups()))) for line in lines if (match := pattern.fullmatch(line))]


def _one(figures: Iterable[float]) -> float | None:
    seen = set(figures)
    return None if not seen else seen.pop() if len(seen) == 1 else _MIXED


def _go(lines: Sequence[str]) -> list[float]:
    """Of `go test -cover`, which closes once for each package: known where there is one. With `-v` that is said twice. What it says of
    packages is no second figure where `go tool cover` then says that of all."""
    said = [(match.group(1), float(match.group(2))) for line in lines if (match := _GO.fullmatch(line))]
    if not said or any(_figures(lines, pattern) for by, pattern in _CLOSINGS if by == "go tool cover"):
        return []
    packages = [figure for before, figure in said if before]
    return [figure if (figure := _one(figure for _, figure in said)) is not None and len(packages) <= 1 else _MIXED]
