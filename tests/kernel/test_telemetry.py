"""How far the exporter is, which traces are sent, and what may be tried again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightcrew.plugins.otel import cursor
from supervisor.kernel import codec
from supervisor.kernel import telemetry as rules
from supervisor.kernel.names import trace_id
from supervisor.kernel.telemetry import Cursor, Terms

COUNTS = st.integers(0, 2**63 - 1)


@given(st.builds(Cursor, COUNTS, COUNTS, st.lists(COUNTS).map(tuple), COUNTS, COUNTS))
def test_a_cursor_is_read_back(one: Cursor) -> None:
    assert cursor.read(codec.dumps(one)) == one


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"journal": "x"}', "null"])
def test_what_is_no_cursor(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        cursor.read(text)


@given(st.floats(0, 1), st.floats(0, 1), st.integers(0))
def test_a_larger_sample_has_all_of_a_smaller_one(one: float, other: float, number: int) -> None:
    trace = trace_id(f"run-{number}")
    if Terms(sample=min(one, other)).takes(trace):
        assert Terms(sample=max(one, other)).takes(trace)
    assert Terms().takes(trace) and not Terms(sample=0.0).takes(trace)


def test_a_sample_is_about_its_share() -> None:
    taken = sum(Terms(sample=0.25).takes(trace_id(f"run-{number}")) for number in range(2000))
    assert 400 < taken < 600


def test_pauses_double_up_to_five_minutes() -> None:
    assert [rules.pause_s(failures) for failures in (0, 1, 2, 3, 50)] == [0.0, 2.0, 4.0, 8.0, 300.0]


@pytest.mark.parametrize(("status", "may"), [(None, True), (401, True), (404, True), (429, True), (503, True), (400, False), (413, False)])
def test_what_may_change(status: int | None, may: bool) -> None:
    assert rules.may_change(status) is may
