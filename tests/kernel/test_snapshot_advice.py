"""Whether a snapshot pays: the arithmetic by properties, the words by example."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.snapshots import SETUP_WORTH_S, WORK_WORTH_S, Times, advise

seconds = st.floats(0, 1e5, allow_subnormal=False)
times = st.builds(Times, seconds, seconds, seconds, seconds)
runs = st.integers(0, 10**6)


def total(each: float, once: float, number: int) -> float:
    return once + number * each


@given(times, runs)
def test_what_it_saves_is_the_difference_of_both_bills(found: Times, number: int) -> None:
    cold = total(found.setup_s + found.work_s, 0.0, number)
    warm = total(found.fork_s + found.work_s, found.setup_s + found.freeze_s, number)
    assert advise(found, number).saved_s == pytest.approx(cold - warm, abs=1e-6 * max(1.0, cold, warm))


@given(times, runs)
def test_it_breaks_even_exactly_at_the_run_it_says(found: Times, number: int) -> None:
    first = advise(found, number).from_run
    if first is None:
        assert found.setup_s <= found.fork_s or (found.setup_s + found.freeze_s) / (found.setup_s - found.fork_s) >= 1e9
    else:
        assert advise(found, first - 1).saved_s <= 0 < advise(found, first).saved_s


@given(times, runs)
def test_it_pays_only_when_it_saves_time_and_the_set_up_and_the_work_are_worth_it(found: Times, number: int) -> None:
    said = advise(found, number)
    worth = found.setup_s >= SETUP_WORTH_S and found.work_s >= WORK_WORTH_S
    assert said.pays == (worth and said.from_run is not None and number >= said.from_run)
    assert said.why.startswith("yes" if said.pays else ("no:", "not for", "usually not"))
    assert not said.pays or said.saved_s > 0


@given(times, runs)
def test_one_run_never_pays_and_more_runs_never_pay_less(found: Times, number: int) -> None:
    assert not advise(found, 1).pays
    assert not advise(found, number).pays or advise(found, number + 1).pays


@pytest.mark.parametrize(
    ("found", "number", "words"),
    [
        (Times(90, 2, 0.01, 60), 10, "yes, from run 2 on: a fork of 10ms for a set-up of 1m30s; over 10 runs it saves 13m28s of 25m"),
        (Times(90, 2, 0.01, 60), 1, "not for 1 run: a fork of 10ms for a set-up of 1m30s pays from run 2 on"),
        (Times(4.9, 1, 0.01, 60), 99, "usually not: a set-up of 4.9s is under 5s; it would pay from run 2 on"),
        (Times(90, 2, 0.01, 0.2), 99, "usually not: work of 200ms is better given to one agent in pieces; it would pay from run 2 on"),
        (Times(6, 1, 6, 60), 99, "no: a fork of 6s for a set-up of 6s saves nothing, however often"),
    ],
)
def test_the_answer_is_in_plain_words(found: Times, number: int, words: str) -> None:
    assert advise(found, number).why == words


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize("place", range(4))
def test_times_that_nobody_measured_are_refused(bad: float, place: int) -> None:
    with pytest.raises(ValueError, match="finite"):
        advise(Times(*(bad if number == place else 1.0 for number in range(4))), 5)
    with pytest.raises(ValueError, match="finite"):
        advise(Times(1, 1, 1, 1), -1)
