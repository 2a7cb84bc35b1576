"""The one spelling of figures, in Python and on the page; and that no other module has a spelling of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel import format as figures

ROOT = Path(__file__).parents[2]
SPELLINGS: dict[str, list[tuple[Any, str]]] = {
    "duration": [
        (None, "-"),
        (-5, "0s"),
        (0, "0s"),
        (0.0004, "0ms"),
        (0.04, "40ms"),
        (0.5, "500ms"),
        (0.9999, "1s"),
        (4.24, "4.2s"),
        (7, "7s"),
        (9.96, "10s"),
        (12.4, "12s"),
        (59.6, "1m"),
        (200, "3m20s"),
        (300, "5m"),
        (3605, "1h"),
        (7500, "2h05m"),
        (86400 * 4 + 3 * 3600, "4d03h"),
    ],
    "age": [(None, "-"), (-0.4, "0s"), (0.9, "0s"), (7.9, "7s"), (59.9, "59s"), (200.9, "3m20s")],
    "size": [
        (0, "0 B"),
        (512, "512 B"),
        (1536, "1.5 KiB"),
        (384 << 20, "384 MiB"),
        (1 << 30, "1.0 GiB"),
        (33608000000, "31.3 GiB"),
        (500 << 30, "500 GiB"),
    ],
    "short": [(None, "-"), (0, "0"), (840, "840"), (1234, "1.2k"), (61_000, "61k"), (999_600, "1.0M"), (3_400_000, "3.4M")],
    "money": [(None, "-"), (0, "$0.00"), (4.21, "$4.21"), (0.25, "$0.25"), (0.0123, "$0.0123"), (0.123, "$0.123"), (12, "$12.00")],
    "percent": [(None, "-"), (0.644, "64%"), (-0.001, "0%")],
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_one_spelling(name: str) -> None:
    spell = getattr(figures, name)
    assert [spell(value) for value, _ in SPELLINGS[name]] == [shown for _, shown in SPELLINGS[name]]


def test_numbers_of_things_and_lists() -> None:
    assert [figures.many(count, "file") for count in (0, 1, 2800)] == ["0 files", "1 file", "2,800 files"]
    assert [figures.listed(parts) for parts in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]
    assert figures.listed(["a", "b", "c"], 2) == "a, b and 1 more"
    assert figures.listed(["a"], more=1200) == "a and 1,200 more"


def test_moments() -> None:
    assert (figures.rfc3339(None), figures.rfc3339(1e9 + 0.5)) == (None, "2001-09-09T01:46:40.500Z")
    assert figures.stamped("2026-11-01T00:30:00+02:00", UTC) == "2026-10-31 22:30 UTC"
    assert (figures.stamped(None), figures.stamped("soon")) == ("-", "soon")


@given(st.floats(0, 99 * 86400))
def test_a_duration_is_short_and_says_at_least_what_its_unit_can(seconds: float) -> None:
    units = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"([\d.]+)(ms|[smhd])", said := figures.duration(seconds))
    assert len(said) <= 6 and abs(sum(float(number) * units[unit] for number, unit in parts) - seconds) <= max(1, seconds / 20)


def test_the_page_spells_them_as_the_terminal_does() -> None:
    shared = ("age",)
    cases = [(name, value) for name in shared for value, _ in SPELLINGS[name]]
    script = f"""
        import * as figures from "{ROOT / "supervisor/views/web/static/format.js"}";
        console.log(JSON.stringify({json.dumps(cases)}.map(([name, value]) => figures[name](value))));
    """
    done = subprocess.run(["node", "--input-type=module", "-e", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    said = ["-" if shown is None else shown for shown in json.loads(done.stdout)]
    wanted = [shown for name in shared for _, shown in SPELLINGS[name]]
    assert list(zip(cases, said, strict=True)) == list(zip(cases, wanted, strict=True))


SECOND = re.compile(
    r"""
      :,?[^{}"]*\.\d+[fg]\}\ ?(?:s|ms|min|h|seconds|minutes|hours|[KMG]i?B)(?!\w)  # a duration or a size
    | \}\ (?:s|min|seconds|minutes)\b
    | :,?\.\df\}[kM](?!\w)
    | \$\{[^{}]*:[^{}]*f\}  # dollars
    | (?:'s'|''|"s"|"")\ if\ [^{}]{1,60}?\ else\ (?:'s'|''|"s"|"")\}  # a plural
    | len\([^()]*\)\ -\ \w+\}\ more'  # a list
    | //\ ?(?:3600|86_?400)\}
    | Math\.(?:floor|round)\([^()]*/\ ?(?:60|1024)\)
    """,
    re.VERBOSE,
)
ROOMS = ("agents", "memory", "nightcrew", "supervisor", "worktrees")
ELSEWHERE = (
    "supervisor/kernel/format.py",
    "supervisor/views/web/static/format.js",
    "nightcrew/plugins/bench",  # tables of aligned figures
    "nightcrew/plugins/sim",  # what providers send
)
ALLOWED = {
    "minutes by the limit of",  # a range of minutes with a decimal
}


def second_formatters(text: str) -> Iterator[str]:
    """Lines that spell a figure by themselves."""
    yield from (line.strip() for line in text.splitlines() if SECOND.search(line) and not any(words in line for words in ALLOWED))


def test_there_is_no_second_formatter() -> None:
    files = [file for room in ROOMS for file in (ROOT / room).rglob("*") if file.suffix in {".py", ".js", ".j2"}]
    ours = [(str(file.relative_to(ROOT)), file) for file in files]
    found = [
        f"{name}: {line}" for name, file in ours if not name.startswith(ELSEWHERE) for line in second_formatters(file.read_text("utf-8"))
    ]
    assert found == [], "write it with supervisor.kernel.format"


@pytest.mark.parametrize(
    "line",
    [
        'f"took {value:.1f} s"',
        'f"{value / 2**30:.1f} GiB"',
        'f"${usd:.2f}"',
        """f"{count} file{'s' if count != 1 else ''}\"""",
        'f"in {wait} s"',
        'f"{whole // 3600}h"',
        "`${Math.round(bytes / 1024)} KiB`",
        "`${Math.floor(s / 60)}m`",
        """f" and {len(names) - SHOWN} more' if x\"""",
    ],
)
def test_a_second_formatter_is_found(line: str) -> None:
    assert list(second_formatters(line))
