"""The one line of JSON that an analyst prints.

    {"schema": 1, "analyst": "security", "shard": [1, 3], "files": 120, "lines": 34000, "unparsable": 1,
     "counts": {"issues": 4, "ignored": 80}, "severities": {"high": 1, "medium": 2, "low": 1},
     "findings": [["high", "a/b.py", 12, "B602", "subprocess call with shell=True", 0], …], "hot": {"a/b.py": [1, 0, 0], …}}

An analyst is a program like any other: whatever it prints is checked here, and nothing in it is believed beyond its shape.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from supervisor.core.analysis.hotspots import Hot, hottest, summed
from supervisor.core.analysis.types import COUNTS, Facts, Finding, Perspective, Severity, Shard, order

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
