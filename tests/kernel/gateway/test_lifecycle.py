"""When a gateway is started, believed, and given up."""

from __future__ import annotations

import pytest

from supervisor.gateway.lifecycle import HUNG_S, PAUSE_MAX_S, START_S, STEADY_S, UNANSWERED, ProcessWatch


def state(watch: ProcessWatch) -> str:
    return "ready" if watch.ready else "failing" if watch.failing else "not ready"


def ready(now: float = 0.0) -> ProcessWatch:
    watch = ProcessWatch()
    watch.started(now)
    assert watch.answered(now)
    return watch


def ask_in_vain(watch: ProcessWatch, begin: float, end: float, step: float = 0.5) -> float | None:
    """Questions that nobody answers, each taking `step`; when the watch gives up."""
    now = begin
    while now < end:
        if watch.unanswered(now, now + step):
            return now + step
        now += step
    return None


def test_it_may_be_started_at_once_and_is_ready_when_it_answers() -> None:
    watch = ProcessWatch()
    assert watch.may_start_at == 0.0
    watch.started(1000.0)
    assert state(watch) == "not ready"
    assert watch.answered(1000.4)
    assert state(watch) == "ready"
    assert not watch.answered(1002.4), "that it is ready is no news any more"


def test_a_gateway_that_does_not_answer_is_believed_for_ten_seconds_and_then_given_up() -> None:
    watch = ready()
    assert ask_in_vain(watch, 100.0, 100.0 + HUNG_S - 0.5) is None
    assert state(watch) == "ready"
    assert ask_in_vain(watch, 100.0 + HUNG_S - 0.5, 200.0) == 100.0 + HUNG_S
    assert state(watch) == "not ready"


def test_an_answer_in_between_begins_the_time_anew() -> None:
    watch = ready()
    assert ask_in_vain(watch, 100.0, 109.0) is None
    assert not watch.answered(109.0)
    assert ask_in_vain(watch, 109.0, 118.5) is None
    assert ask_in_vain(watch, 118.5, 130.0) == 119.0


def test_one_that_is_starting_gets_longer_and_one_that_was_found_does_not() -> None:
    starting, found = ProcessWatch(), ProcessWatch()
    starting.started(50.0)
    assert ask_in_vain(starting, 50.0, 100.0) == 50.0 + START_S
    assert ask_in_vain(found, 50.0, 100.0) == 50.0 + HUNG_S


def test_few_questions_are_no_evidence_however_long_they_took() -> None:
    """We ourselves were stopped for ten minutes: the question was late, not the answer."""
    watch = ready()
    for number in range(1, UNANSWERED):
        assert not watch.unanswered(100.0, 700.0 + number)
    assert watch.unanswered(700.0, 710.0)


def test_the_first_death_costs_no_pause_and_a_crash_loop_ever_longer_ones() -> None:
    watch, now, pauses = ready(), 1000.0, []
    watch.answered(1000.0)
    for _ in range(9):
        watch.died(now)
        pauses.append(watch.may_start_at - now)
        now = watch.may_start_at + 1.0
        watch.started(now)
    assert pauses == [0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, PAUSE_MAX_S, PAUSE_MAX_S]


def test_only_a_second_young_death_is_called_failing() -> None:
    watch = ProcessWatch()
    watch.started(0.0)
    watch.died(1.0)
    assert state(watch) == "not ready"
    watch.started(1.0)
    watch.answered(2.0)
    watch.died(3.0)
    assert state(watch) == "failing"


@pytest.mark.parametrize(("lived", "failing"), [(STEADY_S - 1, True), (STEADY_S, False)])
def test_a_steady_life_makes_good_for_the_deaths_before(lived: float, failing: bool) -> None:
    watch = ProcessWatch()
    for now in (1.0, 2.0):
        watch.started(now)
        watch.died(now + 0.5)
    watch.started(10.0)
    watch.answered(11.0)
    watch.answered(11.0 + lived)
    assert watch.failing is failing
    watch.died(11.0 + lived)
    assert watch.failing is failing
