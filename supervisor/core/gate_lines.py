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
    re.compile(r"[ \t]*(?:it|test|specify|scenario|@test)(?:\.\w+)? ?\(?[ \t]*['\"`]([^'\"`]+)"),
    re.compile(r"[ \t]*(?:public )?function (test\w+)\("),
    re.compile(r"TEST(?:_F|_P)?\((\w+,[ \t]*\w+)\)"),
)
_MARKS = re.compile(r"[ \t]*(?:#\[(?:\w+::)?test\]|@(?:Parameterized)?Test\b|\[(?:Fact|Theory|Test|TestMethod)\b)")
"""A mark on the line before a test."""
_SKIPS = re.compile(
    r"pytest\.(?:mark\.)?(?:skip|xfail|importorskip)|unittest\.(?:skip|expectedFailure)|@skip\b|self\.skipTest\("
    r"|raise SkipTest|__test__ = False|\b(?:it|test|describe|context|suite)\.(?:skip|only|todo|failing)\b"
    r"|\b(?:xit|xtest|xdescribe|xcontext|fit|fdescribe)[ (]|\bt\.Skip(?:f|Now)?\(|^//(?:go:build|[ \t]?\+build) ignore|#\[ignore"
    r"|@Disabled\b|@Ignore\b|\bAssume\.|assumeTrue\(|\[(?:Fact|Theory)\(Skip|\[(?:Ignore|Explicit)\b|markTest(?:Skipped|Incomplete)\("
    r"|GTEST_SKIP\(|\bDISABLED_|@(?:module|describe)?tag :skip|,[ \t]*(?:skip|pending):?[ \t]*(?:=>)?[ \t]*(?:true|['\"])"
    r"|^[ \t]*(?:skip|pending)[ \t]*(?:$|\(?['\"])|^exit 0\b|collect_ignore|deselect\b|--ignore[= ]|norecursedirs"
)
_ASSERTS = re.compile(
    r"[ \t]*(?:assert\b|self\.assert\w+|self\.fail\(|with pytest\.raises|pytest\.raises\(|expect\("
    r"|assert_\w+|assert(?:[A-Z]\w*)?!?\(|refute\b|assert\.\w+\(|require\.\w+\(|t\.(?:Error|Fatal)f?\(|Assert\.\w+|\$this->assert\w+"
    r"|(?:EXPECT|ASSERT)_\w+\(|should\b|\w+\.should\b|set -[a-z]*e|(?:\[\[?|test) [^|]*\|\| *(?:exit|return|fail|die)\b)"
)
_TRUE = r"(?:True|true|TRUE|1|not False)"
_EMPTY_ASSERTS = re.compile(
    rf"[ \t]*(?:assert {_TRUE}|(?:self\.|\$this->|Assert\.)?(?:assert|Is)?True\({_TRUE}\)|expect\(true\)\.to(?:Be|Equal)\(true\)"
    rf"|expect\(true\)\.to (?:be|eq)(?:_truthy|\(true\)| true)|assert!\(true\)|assert\.ok\(true\)|(?:assert|require)\.True\(t, true\)"
    rf"|(?:EXPECT|ASSERT)_TRUE\(true\)|assert [^#]* or True)[ \t;]*(?:$|#|//)"
)
_SUPPRESSIONS = re.compile(
    r"# noqa|# type: ignore|# pyright: ignore|# pragma: no cover|# pylint: disable|# nosec|# fmt: off|eslint-disable"
    r"|@ts-(?:ignore|nocheck|expect-error)|istanbul ignore|c8 ignore|//\s?nolint|#!?\[allow\(|@SuppressWarnings"
    r"|@Suppress\(|rubocop:disable|NOLINT|biome-ignore|prettier-ignore|shellcheck disable"
)
_EXITS = re.compile(
    r"\bos\.(?:_exit|abort|exec[lv]\w*)\b|\bfrom os import [^#]*\b(?:_exit|abort|exec[lv]\w*)\b|\bos\.kill(?:pg)?\(\s?os\.getp(?:id|grp)\("
    r"|\bsignal\.raise_signal\b|\breallyExit\(|\bprocess\.(?:abort\(|kill\(process\.pid\b)|getRuntime\(\)\.halt\("
)
_LOWER_IS_WEAKER = re.compile(
    r"(fail[_-]under|cov-fail-under|min(?:imum)?[_-]coverage|coverageThreshold)[\"']?\s?[:= ]\s?([0-9]{1,6}(?:\.[0-9]{1,4})?)"
)
_HIGHER_IS_WEAKER = re.compile(r"(max-warnings|max[_-]?failures|maxfail|max-complexity)[\"']?\s?[:= ]\s?([0-9]{1,6})")
_LOWER_OF_GATE = re.compile(r"(branches|functions|lines|statements|--threshold)[\"']?\s?[:= ]\s?([0-9]{1,6}(?:\.[0-9]{1,4})?)")
_HIGHER_OF_GATE = re.compile(r"(reruns|retries)[\"']?\s?[:= ]\s?([0-9]{1,6})")
"""Words that mean a limit only in files about tests and checks."""


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


def marks(lines: Iterable[str]) -> bool:
    """Whether one of them marks a test: where a language has tests amid its code."""
    return any(_MARKS.match(line) or "#[ignore" in line for line in _cut(lines))


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


def exits(lines: Iterable[str]) -> int:
    """Lines that end their process at once, so that nothing after them fails."""
    return sum(bool(_EXITS.search(line)) for line in _cut(lines))


def loosened(removed: Iterable[str], added: Iterable[str], *, about_gate: bool) -> list[str]:
    """Limits that were made easier to meet, in words. `about_gate`: the file is about tests and checks."""
    before, after = _limits(removed, about_gate=about_gate), _limits(added, about_gate=about_gate)
    return [
        f"{key} from {old:g} to {after[key, lower]:g}"
        for (key, lower), old in before.items()
        if (key, lower) in after and (after[key, lower] < old if lower else after[key, lower] > old)
    ]


def _limits(lines: Iterable[str], *, about_gate: bool) -> dict[tuple[str, bool], float]:
    patterns = [(_LOWER_IS_WEAKER, True), (_HIGHER_IS_WEAKER, False)]
    patterns += [(_LOWER_OF_GATE, True), (_HIGHER_OF_GATE, False)] if about_gate else []
    found = {}
    for line in _cut(lines):
        for pattern, lower in patterns:
            if match := pattern.search(line):
                found[match.group(1), lower] = float(match.group(2))
    return found
