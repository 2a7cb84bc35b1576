"""What single lines of tests say, in the languages that agents write most: which test begins here, which is skipped, what is asserted.

Every expression is tried on the first LINE_MAX characters of a line and looks at each once: the lines are a stranger's. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LINE_MAX = 500

_BEGINS = (
    re.compile(r"[ \t]*(?:async )?def (test\w*)"),
    re.compile(r"func ((?:Test|Benchmark|Fuzz|Example)\w*)\("),
    re.compile(r"[ \t]*(?:it|test|specify|scenario)(?:\.\w+)? ?\(?[ \t]*['\"`]([^'\"`]+)"),
)
_MARKS = re.compile(r"[ \t]*(?:#\[(?:\w+::)?test\]|@(?:Parameterized)?Test\b|\[(?:Fact|Theory|Test|TestMethod)\b)")
"""A mark on the line before a test."""
_SKIPS = re.compile(
    r"pytest\.(?:mark\.)?(?:skip|xfail|importorskip)|unittest\.(?:skip|expectedFailure)|@skip\b|self\.skipTest\("
    r"|raise SkipTest|\b(?:it|test|describe|context|suite)\.(?:skip|only|todo|failing)\b|\b(?:xit|xtest|xdescribe"
    r"|fit|fdescribe)\(|\bt\.Skip(?:f|Now)?\(|#\[ignore|@Disabled\b|@Ignore\b|\bAssume\.|assumeTrue\(|\[(?:Fact"
    r"|Theory)\(Skip|\[Ignore\b|collect_ignore|deselect\b|--ignore[= ]|norecursedirs"
)
_ASSERTS = re.compile(
    r"[ \t]*(?:assert\b|self\.assert\w+|self\.fail\(|with pytest\.raises|pytest\.raises\(|expect\("
    r"|assert(?:_\w+)?!?\(|assert\.\w+\(|require\.\w+\(|t\.(?:Error|Fatal)f?\(|Assert\.\w+|should\b|\w+\.should\b"
    r"|assertThat\()"
)
_EMPTY_ASSERTS = re.compile(
    r"[ \t]*(?:assert (?:True|1|not False)|self\.assertTrue\(True\)|expect\(true\)\.to(?:Be|Equal)\(true\)"
    r"|assert!\(true\)|assert\.ok\(true\))[ \t;]*(?:$|#|//)"
)
_SUPPRESSIONS = re.compile(
    r"# noqa|# type: ignore|# pyright: ignore|# pragma: no cover|# pylint: disable|# nosec|# fmt: off|eslint-disable"
    r"|@ts-(?:ignore|nocheck|expect-error)|istanbul ignore|c8 ignore|//\s?nolint|#!?\[allow\(|@SuppressWarnings"
    r"|@Suppress\(|rubocop:disable|NOLINT|biome-ignore|prettier-ignore|shellcheck disable"
)
_LOWER_IS_WEAKER = re.compile(
    r"(fail[_-]under|cov-fail-under|min(?:imum)?[_-]coverage|coverageThreshold|branches|functions|lines|statements"
    r"|--threshold)[\"']?\s?[:= ]\s?([0-9]{1,6}(?:\.[0-9]{1,4})?)"
)
_HIGHER_IS_WEAKER = re.compile(r"(max-warnings|max[_-]?failures|maxfail|max-complexity|reruns|retries)[\"']?\s?[:= ]\s?([0-9]{1,6})")


def _cut(lines: Iterable[str]) -> Iterable[str]:
    return (line[:LINE_MAX] for line in lines)


def tests(lines: Iterable[str]) -> list[str]:
    """The tests that begin in these lines, by their names; one that has a mark and no name that is known is `test`."""
    found = []
    for line in _cut(lines):
        named = next((match for pattern in _BEGINS if (match := pattern.match(line))), None)
        if named is not None:
            found.append(named.group(1))
        elif _MARKS.match(line):
            found.append("test")
    return found


def skips(lines: Iterable[str]) -> int:
    """Lines that keep a test from running or from counting."""
    return sum(bool(_SKIPS.search(line)) for line in _cut(lines))


def asserts(lines: Iterable[str]) -> int:
    """Lines that assert something, but for those that cannot fail."""
    return sum(bool(_ASSERTS.match(line)) and not _EMPTY_ASSERTS.match(line) for line in _cut(lines))


def empty_asserts(lines: Iterable[str]) -> int:
    """Assertions that cannot fail."""
    return sum(bool(_EMPTY_ASSERTS.match(line)) for line in _cut(lines))


def suppressions(lines: Iterable[str]) -> int:
    """Lines that tell a checker to look away."""
    return sum(bool(_SUPPRESSIONS.search(line)) for line in _cut(lines))


def loosened(removed: Iterable[str], added: Iterable[str]) -> list[str]:
    """Limits that were made easier to meet, in words."""
    before, after = _limits(removed), _limits(added)
    return [
        f"{key} from {old:g} to {after[key, lower]:g}"
        for (key, lower), old in before.items()
        if (key, lower) in after and (after[key, lower] < old if lower else after[key, lower] > old)
    ]


def _limits(lines: Iterable[str]) -> dict[tuple[str, bool], float]:
    found = {}
    for line in _cut(lines):
        for pattern, lower in ((_LOWER_IS_WEAKER, True), (_HIGHER_IS_WEAKER, False)):
            if match := pattern.search(line):
                found[match.group(1), lower] = float(match.group(2))
    return found
