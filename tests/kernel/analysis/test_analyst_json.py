"""The analysts' line: what is written is read, and nothing else is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.results import findings
from supervisor.results.findings import (
    COUNTS,
    MAX_FILE,
    MAX_FINDINGS,
    MAX_HOT,
    MAX_LINE,
    MAX_TEXT,
    Facts,
    Finding,
    Perspective,
    Severity,
    Shard,
    WireError,
    order,
)
from tests import data

TEXT = st.text(st.characters(), max_size=300)
COUNT = st.integers(0, 2**53)
SHARD = st.integers(1, 9).flatmap(lambda of: st.builds(Shard, st.integers(1, of), st.just(of)))


def finding(perspective: Perspective = Perspective.SECURITY, **changes: Any) -> Finding:
    return replace(Finding(perspective, Severity.LOW, "a.py", 1, "B101", "an assert"), **changes)


def whole(facts: Facts) -> Facts:
    """With every count and severity there, as `read` gives them."""
    return replace(
        facts,
        counts={name: facts.counts.get(name, 0) for name in COUNTS[facts.perspective]},
        severities={severity: facts.severities.get(severity, 0) for severity in Severity},
    )


@example(shard=Shard(1, 1), perspective=Perspective.STRUCTURE, numbers=(1, 2, 3), texts=["a" * MAX_FILE, "b" * MAX_FILE + "/c.py"])
@given(shard=SHARD, perspective=st.sampled_from(Perspective), numbers=st.tuples(COUNT, COUNT, COUNT), texts=st.lists(TEXT, max_size=20))
def test_what_is_written_is_read(shard: Shard, perspective: Perspective, numbers: tuple[int, int, int], texts: list[str]) -> None:
    found = tuple(finding(perspective, file=text, line=index, message=text) for index, text in enumerate(texts))
    facts = whole(Facts(perspective, shard, *numbers, findings=found, hot=dict.fromkeys(texts, (1, 2, 3))))
    line = findings.write(facts)
    assert line.isascii() and "\n" not in line and len(line) <= MAX_LINE
    read = findings.read(json.loads(line))
    assert findings.write(read) == line
    shown = [replace(one, file=findings.tail(one.file, MAX_FILE), message=findings.cut(one.message, MAX_TEXT)) for one in found]
    assert read.findings == tuple(sorted(shown, key=order))
    assert replace(read, findings=(), hot={}) == replace(facts, findings=(), hot={})
    assert all(one.file.isprintable() and one.message.isprintable() for one in read.findings)


def test_the_worst_are_kept_and_the_counts_are_whole() -> None:
    many = tuple(finding(line=number, severity=Severity.HIGH if number > 200 else Severity.LOW) for number in range(1, 300))
    hot = {f"{number:03}.py": (0, 0, number) for number in range(100)}
    read = findings.read(
        json.loads(findings.write(whole(Facts(Perspective.SECURITY, findings=many, hot=hot, severities={Severity.LOW: 200}))))
    )
    assert len(read.findings) == MAX_FINDINGS and read.findings[98].severity is Severity.HIGH and read.findings[99].line == 1
    assert len(read.hot) == MAX_HOT and "099.py" in read.hot and "010.py" not in read.hot
    assert read.severities[Severity.LOW] == 200


def test_long_names_in_many_bytes_fit_all_the_same() -> None:
    many = tuple(finding(line=number, file="🦊" * 300, message="漢" * 300) for number in range(1, 300))
    line = findings.write(Facts(Perspective.SECURITY, findings=many, hot={f"{number}{'🦊' * 300}": (1, 1, 1) for number in range(99)}))
    assert len(line) <= MAX_LINE
    assert len(findings.read(json.loads(line)).findings) >= 8


GOOD = json.loads(findings.write(Facts(Perspective.TESTS, findings=(finding(Perspective.TESTS),), hot={"a.py": (0, 0, 1)})))


@pytest.mark.parametrize(
    "shape",
    [
        None,
        [],
        "x",
        {},
        GOOD | {"schema": 2},
        GOOD | {"analyst": "poetry"},
        GOOD | {"shard": [0, 1]},
        GOOD | {"shard": [2, 1]},
        GOOD | {"shard": 1},
        GOOD | {"files": -1},
        GOOD | {"files": True},
        GOOD | {"files": 1.5},
        GOOD | {"lines": 2**60},
        GOOD | {"counts": {}},
        GOOD | {"counts": None},
        GOOD | {"severities": []},
        GOOD | {"findings": [["awful", "a.py", 1, "x", "y", 0]]},
        GOOD | {"findings": [["low", "a.py", "1", "x", "y", 0]]},
        GOOD | {"findings": [[]]},
        GOOD | {"findings": 7},
        GOOD | {"hot": {"a.py": [1, 2]}},
        GOOD | {"hot": [1]},
        {name: value for name, value in GOOD.items() if name != "unparsable"},
    ],
)
def test_anything_else_is_refused(shape: Any) -> None:
    with pytest.raises(WireError):
        findings.read(shape)


def test_more_than_the_limits_is_not_taken() -> None:
    rows = [["low", "a.py", number, "x" * 99, "y" * 999, 0] for number in range(1000)]
    read = findings.read(GOOD | {"findings": rows, "hot": {str(number): [1, 1, 1] for number in range(1000)}})
    assert (len(read.findings), len(read.hot)) == (MAX_FINDINGS, MAX_HOT)
    assert (len(read.findings[0].code), len(read.findings[0].message)) == (40, MAX_TEXT)


def test_a_line_of_the_first_version_is_read_for_ever() -> None:
    """Results lie in ledgers; a report of last year's run must still be written."""
    text = (Path(data.__file__).parent / "analyst-1.json").read_text().strip()
    found = findings.read(json.loads(text))
    assert (found.perspective, found.shard) == (Perspective.STRUCTURE, Shard(2, 3))
    assert found.files > 0 and found.lines > 0 and found.counts["functions"] > 0 and found.findings and found.hot
    assert findings.write(found) == text
