"""Verdicts on new work, and their reasons."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.events import PressureChanged, SlotsChanged, TrafficChanged
from supervisor.kernel.pressure import ADMIT, Conditions, Decision, Held, Limits, Pressure, Traffic, Verdict, held, of_start, of_submission
from supervisor.kernel.states import TaskClass
from tests.kernel.test_decide_traffic import at_work, offered

BATCH, NORMAL, INTERACTIVE = TaskClass.BATCH, TaskClass.NORMAL, TaskClass.INTERACTIVE
PART = st.none() | st.floats(0, 1)
PRESSURE = st.builds(Pressure, st.none() | st.floats(0, 1e3), PART, PART, PART, PART, st.sampled_from(["", "", "no answer"]))
TRAFFIC = st.builds(Traffic, st.floats(0, 1e4), st.booleans(), st.sampled_from(["", "", "it is down"]))


def codes(pressure: Pressure, before: Held | None = None, **limits: Any) -> dict[TaskClass, str]:
    found = held(before or {}, Traffic(), pressure, Limits(**limits), 5.0)
    assert all(verdict.decision is Decision.DEFER and verdict.words for verdict in found.values())
    return {name: verdict.code for name, verdict in found.items()}


def under(name: str, value: float) -> Pressure:
    """Of one kind."""
    facts: dict[str, Any] = {name: value}
    return Pressure(**facts)


@pytest.mark.parametrize(
    ("code", "fine", "busy", "very_busy"),
    [
        ("load", 49.9, 50.0, 100.0),
        ("memory", 0.91, 0.92, 0.96),
        ("memory_stall", 0.09, 0.1, 0.3),
        ("io_stall", 0.79, 0.8, 0.95),
        ("processes", 0.79, 0.8, 0.9),
    ],
)
def test_under_pressure_batch_tasks_are_held_back_first_and_then_normal_ones(code: str, fine: float, busy: float, very_busy: float) -> None:
    assert codes(under(code, fine)) == {}
    assert codes(under(code, busy)) == {BATCH: code}
    assert codes(under(code, very_busy)) == {BATCH: code, NORMAL: code}


@pytest.mark.parametrize(("code", "held_at", "just_below", "calm"), [("memory", 0.92, 0.9, 0.89), ("load", 50.0, 38.0, 37.0)])
def test_a_class_is_let_go_again_well_below_where_it_was_held(code: str, held_at: float, just_below: float, calm: float) -> None:
    before = held({}, Traffic(), under(code, held_at), Limits(), 5.0)
    assert codes(under(code, just_below)) == {}
    assert codes(under(code, just_below), before) == {BATCH: code}
    assert codes(under(code, calm), before) == {}


def test_batch_does_not_start_while_normal_is_not_let_go_yet() -> None:
    before = held({}, Traffic(parked=True), Pressure(io_stall=0.95), Limits(), 1.0)
    before[NORMAL] = held({}, Traffic(), Pressure(io_stall=0.95), Limits(), 1.0)[NORMAL]
    found = held(before, Traffic(), Pressure(io_stall=0.5), Limits(), 2.0)
    assert {name: verdict.code for name, verdict in found.items()} == {BATCH: "io_stall", NORMAL: "io_stall"}


def test_what_cannot_be_looked_at_is_never_healthy_and_what_is_not_there_is_no_reason() -> None:
    assert codes(Pressure()) == {}
    assert codes(Pressure(trouble="its memory cannot be looked at")) == {BATCH: "unknown", NORMAL: "unknown"}


def test_when_the_nights_money_is_nearly_spent_nobody_begins_what_cannot_be_paid() -> None:
    for spent, expected in ((None, {}), (0.94, {}), (0.95, {BATCH, NORMAL})):
        found = held({}, Traffic(night=spent), Pressure(), Limits(), 0.0)
        assert found.keys() == set(expected) and {verdict.code for verdict in found.values()} <= {"cost"}


def test_the_load_need_not_count() -> None:
    assert codes(Pressure(load=1e6), load_max=0.0) == {}
    assert codes(Pressure(load=5.0), load_max=4.0) == {BATCH: "load"}


@given(TRAFFIC, PRESSURE, PRESSURE)
def test_batch_is_held_whenever_normal_is_and_interactive_never(traffic: Traffic, before: Pressure, now: Pressure) -> None:
    found = held(held({}, traffic, before, Limits(), 1.0), traffic, now, Limits(), 2.0)
    assert INTERACTIVE not in found
    assert NORMAL not in found or BATCH in found
    assert all(verdict.since in (1.0, 2.0) for verdict in found.values())


@given(TRAFFIC, PRESSURE)
def test_the_same_look_twice_says_the_same(traffic: Traffic, pressure: Pressure) -> None:
    first = held({}, traffic, pressure, Limits(), 1.0)
    assert held(first, traffic, pressure, Limits(), 2.0) == first


def test_pressure_holds_a_living_crew_back_and_lets_it_go() -> None:
    book, started = offered(at_work(0.0) >> PressureChanged(memory=0.95))
    assert started == ["interactive", "normal"]
    assert {name: verdict.code for name, verdict in book.crew.held_back.items()} == {BATCH: "memory"}
    book = book >> TrafficChanged(40.0)
    assert book.crew.held_back[BATCH].code == "models", "one reason does not hide behind the other"
    book = book >> TrafficChanged(0.0)
    assert book.crew.held_back[BATCH].code == "memory", "nor take the other away"


def test_fewer_slots_end_nobody_and_start_nobody() -> None:
    _, started = offered(at_work(0.0, slots=4) >> SlotsChanged(2))
    assert started == ["interactive"]
    _, started = offered(at_work(0.0, slots=4) >> SlotsChanged(1))
    assert started == []
    _, started = offered(at_work(0.0, slots=1) >> SlotsChanged(3))
    assert started == ["interactive", "normal"]


def test_a_run_is_refused_when_too_many_tasks_wait_already() -> None:
    limits = Limits(waiting_max=10)
    assert of_submission(0, 10, limits) is of_submission(9, 1, limits) is ADMIT
    refused = of_submission(9, 2, limits)
    assert (refused.decision, refused.code) == (Decision.REFUSE, "queue_full")
    assert "9 tasks" in refused.words and "waiting_max (10)" in refused.words


def test_who_is_ready_waits_for_what_decides_first() -> None:
    closed, models, slots = (Verdict(Decision.DEFER, code, code) for code in ("disk", "models", "slots"))
    assert of_start(BATCH, Conditions(closed, {BATCH: models}, slots)) is closed
    assert of_start(BATCH, Conditions(ADMIT, {BATCH: models}, slots)) is models
    assert of_start(NORMAL, Conditions(ADMIT, {BATCH: models}, slots)) is slots
    assert of_start(NORMAL, Conditions()) is ADMIT
