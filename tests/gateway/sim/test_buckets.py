"""The provider's limit is a limit: whatever is asked, and whenever, it grants no more than its burst and its rate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightcrew.plugins.sim.account import Bucket, Meter, Window
from supervisor.kernel.gateway_settings import Limits

STEPS = st.lists(st.tuples(st.floats(0, 100), st.integers(0, 300), st.integers(1, 5000)), max_size=60)
"""(seconds until the next request, its output, its input)."""


@given(steps=STEPS, per_minute=st.integers(60, 6000), burst_s=st.floats(1, 120))
def test_no_window_of_any_length_grants_more_than_burst_and_rate(
    steps: list[tuple[float, int, int]], per_minute: int, burst_s: float
) -> None:
    meter = Meter(Limits(itpm=per_minute), burst_s, now=0.0)
    now, granted, capacity = 0.0, [], per_minute / 60 * burst_s
    for pause, _, wanted in steps:
        now += pause
        amount = min(wanted, capacity)
        if meter.ask({"input": amount}, now) is None:
            granted.append((now, amount))
    for first, (began, _) in enumerate(granted):
        for last in range(first, len(granted)):
            total = sum(amount for _, amount in granted[first : last + 1])
            assert total <= capacity + (granted[last][0] - began) * per_minute / 60 + 1e-6


@given(steps=STEPS, per_minute=st.integers(60, 6000))
def test_a_request_larger_than_the_bucket_is_granted_only_when_it_is_full_and_paid_back(
    steps: list[tuple[float, int, int]], per_minute: int
) -> None:
    meter = Meter(Limits(itpm=per_minute), 60.0, now=0.0)
    now, total, largest = 0.0, 0, 0
    for pause, _, amount in steps:
        now += pause
        full = meter.buckets["input"].full_in_s(now) == 0
        if meter.ask({"input": amount}, now) is None:
            assert amount <= per_minute or full
            total, largest = total + amount, max(largest, amount)
    assert total <= max(per_minute, largest) + now * per_minute / 60 + 1e-6


@given(steps=STEPS)
def test_what_it_says_of_the_wait_is_true(steps: list[tuple[float, int, int]]) -> None:
    limits = Limits(rpm=20, itpm=3000, otpm=600)
    meter, now = Meter(limits, 60.0, now=0.0), 0.0
    for pause, output, amount in steps:
        now += pause
        cost = {"requests": 1, "input": amount, "output": output}
        before = {name: bucket.level(now) for name, bucket in meter.buckets.items()}
        short = meter.ask(cost, now)
        if short is not None:
            assert {name: bucket.level(now) for name, bucket in meter.buckets.items()} == before, "a refused request takes nothing"
            assert meter.ask(cost, now + short.wait_s * 0.99 - 1e-6) is not None, "it could have come earlier"
            now += short.wait_s + 1e-6
            assert meter.ask(cost, now) is None, "it came when it was told to"


def test_a_bucket_in_debt_grants_nothing_until_it_is_paid() -> None:
    bucket = Bucket(per_minute=60, capacity=60, now=0)
    bucket.draw(100, now=0)
    assert bucket.level(0) == -40
    assert bucket.wait_s(1, now=0) == 41
    assert bucket.level(41) == 1


def test_what_is_given_back_never_passes_the_capacity_and_a_clock_that_goes_back_adds_nothing() -> None:
    bucket = Bucket(per_minute=60, capacity=60, now=100)
    bucket.draw(-1000, now=100)
    assert bucket.level(100) == 60
    bucket.draw(60, now=100)
    assert bucket.level(40) == 0
    assert bucket.level(110) == 10


def test_the_dimension_that_holds_longest_is_named() -> None:
    meter = Meter(Limits(rpm=60, itpm=60), 60, now=0)
    meter.charge({"requests": 60, "input": 100}, now=0)
    short = meter.ask({"requests": 1, "input": 1}, now=0)
    assert short is not None
    assert (short.dimension, short.wait_s) == ("input", 41)


def test_a_cut_limit_takes_what_is_above_it_and_a_dimension_can_come_and_go() -> None:
    meter = Meter(Limits(itpm=6000, rpm=10), 60, now=0)
    meter.change(Limits(itpm=600, otpm=60), now=0)
    assert {name: bucket.level(0) for name, bucket in meter.buckets.items()} == {"input": 600, "output": 60}


def test_what_was_gained_before_a_change_was_gained_at_the_old_rate() -> None:
    bucket = Bucket(per_minute=60, capacity=60, now=0)
    bucket.draw(60, now=0)
    bucket.change(per_minute=6000, capacity=6000, now=10)
    assert (bucket.level(10), bucket.level(11)) == (10, 110)


def test_a_window_opens_with_its_first_use_and_is_empty_again_after_its_reset() -> None:
    window = Window("5h", tokens=100, seconds=50)
    assert (window.utilization(7), window.resets_in_s(7)) == (0, 0)
    window.use(80, now=10)
    window.use(30, now=20)
    assert window.utilization(59) == pytest.approx(1.1)
    assert window.resets_in_s(59) == 1
    assert window.utilization(60) == 0
    window.use(10, now=70)
    assert (window.utilization(70), window.resets_in_s(70)) == (0.1, 50)
