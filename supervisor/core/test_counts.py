"""How many tests passed, from the closing lines of what a test program printed. Pure; what it does not know for sure is None.

Each form is one program's own closing line, told by more than a number and a word. Where a program closes once for each of several parts
(cargo, go), its parts are added up; what only the end of a log shows is a part of them, and then nobody knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

_ESCAPE = re.compile(r"\x1b\[[0-9;]{0,20}m")
LINE_MAX = 400


@dataclass(frozen=True, slots=True)
class TestCounts:
    """Of one run of tests."""

    by: str
    """Which program said it."""
    passed: int
    failed: int

    def shape(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def read(said: str, *, whole: bool = True) -> TestCounts | None:
    """What the end of a log says, or all of it where it is `whole`. None where no program is known by its closing line, or two of them are:
    their sum could count twice."""
    lines = clean_lines(said)
    found = [counts for reader in (_pytest, _unittest, _jest, *((_cargo, _go) if whole else ())) if (counts := reader(lines)) is not None]
    return found[0] if len(found) == 1 else None


def clean_lines(said: str) -> list[str]:
    """Each line without colours and the space around it, cut where no closing line is that long."""
    return [_ESCAPE.sub("", line[:LINE_MAX]).strip() for line in said.splitlines()]


_PYTEST = re.compile(r"=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.:]+s?(?: \([\d:]+\))? ?=*")
_PYTEST_PART = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)")


def _pytest(lines: list[str]) -> TestCounts | None:
    closing = _last(lines, _PYTEST)
    if closing is None:
        return None
    parts = closing.group(1).rstrip(", ").split(", ")
    counts = {match.group(2): int(match.group(1)) for part in parts if (match := _PYTEST_PART.fullmatch(part))}
    if len(counts) != len(parts) or not counts.keys() & {"passed", "failed", "error", "errors"}:
        return None
    return TestCounts("pytest", counts.get("passed", 0), sum(counts.get(name, 0) for name in ("failed", "error", "errors")))


_UNITTEST = re.compile(r"Ran (\d+) tests? in [\d.]+s")
_UNITTEST_END = re.compile(r"(OK|FAILED)(?: \(([a-z0-9=, ]+)\))?")


def _unittest(lines: list[str]) -> TestCounts | None:
    ran, end = _last(lines, _UNITTEST), _last(lines, _UNITTEST_END)
    if ran is None or end is None:
        return None
    odd = {name.strip(): int(number) for name, number in re.findall(r"([a-z ]+)=(\d+)", end.group(2) or "")}
    failed = odd.get("failures", 0) + odd.get("errors", 0)
    without = sum(number for name, number in odd.items() if name in ("skipped", "expected failures", "unexpected successes"))
    return TestCounts("unittest", max(0, int(ran.group(1)) - failed - without), failed)


_JEST = re.compile(r"Tests:? +((?:\d+ [a-z]+, )*)(\d+) total")
_VITEST = re.compile(r"Tests +((?:\d+ [a-z]+(?: \| )?)+) \((\d+)\)")


def _jest(lines: list[str]) -> TestCounts | None:
    for name, pattern, between in (("jest", _JEST, ", "), ("vitest", _VITEST, " | ")):
        if closing := _last(lines, pattern):
            counts = {part.split()[1]: int(part.split()[0]) for part in closing.group(1).split(between) if part.strip()}
            return TestCounts(name, counts.get("passed", 0), counts.get("failed", 0))
    return None


_CARGO = re.compile(r"test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; \d+ ignored; \d+ measured; \d+ filtered out.*")


def _cargo(lines: list[str]) -> TestCounts | None:
    closings = [match for line in lines if (match := _CARGO.fullmatch(line))]
    if not closings:
        return None
    return TestCounts("cargo", sum(int(one.group(1)) for one in closings), sum(int(one.group(2)) for one in closings))


_GO = re.compile(r"--- (PASS|FAIL|SKIP): (\S+) \([\d.]+s\)")
_GO_BEGINS = re.compile(r"=== RUN\s+(\S+)")


def _go(lines: list[str]) -> TestCounts | None:
    """Of `go test -v` alone: without it no test that passed is named. Subtests count as their tests do."""
    ends = {match.group(2): match.group(1) for line in lines if (match := _GO.fullmatch(line))}
    begun = {match.group(1) for line in lines if (match := _GO_BEGINS.fullmatch(line))}
    if not begun or begun != ends.keys():
        return None
    return TestCounts("go test", list(ends.values()).count("PASS"), list(ends.values()).count("FAIL"))


def _last(lines: list[str], pattern: re.Pattern[str]) -> re.Match[str] | None:
    matched: Callable[[str], re.Match[str] | None] = pattern.fullmatch
    return next(filter(None, map(matched, reversed(lines))), None)
