"""What analysts find and count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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
