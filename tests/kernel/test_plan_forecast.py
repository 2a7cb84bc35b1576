"""When a plan will have ended and what it will have cost, and that nobody is told more than is known."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.kernel.account import Expected, Range, forecast, measured, misfit
from supervisor.kernel.capacity import KNOWN
from tests.rounds import examples

SECONDS = st.floats(0.1, 1e4)


@st.composite
def spans(draw: st.DrawFn, *, unknown: bool = True) -> Range:
    low, likely, high = sorted(draw(st.tuples(SECONDS, SECONDS, SECONDS)))
    if unknown and draw(st.integers(0, 4)) == 0:
        return Range(high=draw(st.sampled_from([None, high])))
    return Range(low, likely, high)


@st.composite
def plans(draw: st.DrawFn, *, unknown: bool = True) -> list[Expected]:
    """Tasks that come after some of any others, in any order, without a circle."""
    size = draw(st.integers(0, 12))
    rank = draw(st.permutations(range(size)))
    return [
        Expected(
            str(index),
            tuple(str(other) for other in range(size) if rank[other] < rank[index] and draw(st.integers(0, 5)) == 0),
            draw(spans(unknown=unknown)),
            draw(spans(unknown=unknown)),
        )
        for index in range(size)
    ]


def longest_chain(tasks: Sequence[Expected], part: str) -> float:
    by_name = {task.name: task for task in tasks}

    def ends(name: str) -> float:
        task = by_name[name]
        return float(getattr(task.seconds, part)) + max((ends(need) for need in task.after), default=0.0)

    return max(map(ends, by_name), default=0.0)


def run(tasks: Sequence[Expected], slots: int) -> float:
    """An independent scheduler: whenever a slot is free the first task that is ready takes it, and takes what is likely."""
    left, done, living, now = list(tasks), set[str](), list[tuple[float, str]](), 0.0
    while left or living:
        while len(living) < slots and (task := next((one for one in left if set(one.after) <= done), None)):
            left.remove(task)
            heapq.heappush(living, (now + (task.seconds.likely or 0.0), task.name))
        now, name = heapq.heappop(living)
        done.add(name)
    return now


@settings(max_examples=examples(40))
@given(plans(unknown=False), st.integers(1, 8))
def test_a_real_schedule_ends_between_the_bounds(tasks: list[Expected], slots: int) -> None:
    found = forecast(tasks, slots, "cap")
    exact = [Expected(task.name, task.after, Range(*[task.seconds.likely] * 3)) for task in tasks]  # type: ignore[arg-type]
    end, certain = run(exact, slots), forecast(exact, slots, "cap").end
    assert certain.low - 1e-6 <= end <= (certain.high or 0.0) + 1e-6
    assert found.end.likely is not None and end <= found.end.likely + 1e-6


@settings(max_examples=examples(40))
@given(plans(), st.integers(1, 8))
def test_no_end_is_before_the_longest_chain_and_low_likely_and_high_are_in_order(tasks: list[Expected], slots: int) -> None:
    found = forecast(tasks, slots, "cap")
    assert found.end.low >= longest_chain(tasks, "low") - 1e-6
    for part in ("likely", "high"):
        if all(getattr(task.seconds, part) is not None for task in tasks):
            assert getattr(found.end, part) >= longest_chain(tasks, part) - 1e-6
    for span in (found.end, found.cost, *found.ends.values(), *found.costs.values()):
        known = [number for number in (span.low, span.likely, span.high) if number is not None]
        assert all(one <= other + 1e-6 for one, other in itertools.pairwise(known))


@settings(max_examples=examples(40))
@given(plans(), st.integers(1, 8))
def test_more_slots_are_never_later(tasks: list[Expected], slots: int) -> None:
    few, more = forecast(tasks, slots, "cap"), forecast(tasks, slots + 1, "cap")
    for name, span in few.ends.items():
        for part in ("low", "likely", "high"):
            then, now = getattr(span, part), getattr(more.ends[name], part)
            assert (then is None) is (now is None)
            assert then is None or now <= then + 1e-6


@settings(max_examples=examples(40))
@given(plans(), st.integers(1, 8))
def test_what_one_task_takes_unknown_makes_the_whole_unknown(tasks: list[Expected], slots: int) -> None:
    found = forecast(tasks, slots, "cap")
    assert (found.end.likely is None) is any(task.seconds.likely is None for task in tasks)
    assert (found.cost.high is None) is any(task.dollars.high is None for task in tasks)
    assert set(found.ends) == {task.name for task in tasks}


@settings(max_examples=examples(40))
@given(plans(), st.floats(0, 1e5))
def test_what_fits_is_known_to_fit(tasks: list[Expected], bound: float) -> None:
    ends = forecast(tasks, 2, "cap").ends
    found = misfit(ends, bound)
    fits = set(ends) - set(found.out) - set(found.maybe) - set(found.unknown)
    assert all((ends[name].high or 0.0) <= bound and ends[name].high is not None for name in fits)
    assert all((ends[name].likely if ends[name].likely is not None else ends[name].low) > bound for name in found.out)  # type: ignore[operator]
    assert not set(found.unknown) & {name for name, span in ends.items() if span.likely is not None}


def test_a_chain_binds_and_many_beside_each_other_are_bound_by_slots() -> None:
    each = Range(50.0, 60.0, 90.0)
    chain = [Expected(str(index), (str(index - 1),) if index else (), each) for index in range(4)]
    assert forecast(chain, 4, "cores").binding == "chain"
    assert forecast(chain, 4, "cores").end == Range(200.0, 240.0, 360.0)
    beside = [Expected(str(index), (), each) for index in range(40)]
    found = forecast(beside, 4, "tokens")
    assert found.binding == "tokens"
    assert found.end == Range(500.0, 60.0 + 39 * 60.0 / 4, 90.0 + 39 * 90.0 / 4)
    assert forecast([Expected("x")], 4, "cap").binding == "cap"  # nobody knows how long it takes


def test_an_expectation_is_a_mean_and_never_above_its_bound() -> None:
    few = [10.0] * (KNOWN - 1)
    assert measured(few) == Range()
    assert measured(few, 100.0) == Range(high=100.0)
    assert measured([*few, 60.0]) == Range(10.0, 20.0, 60.0)
    assert measured([*few, 60.0], 15.0) == Range(10.0, 15.0, 15.0)
    assert measured([1.0] * 99 + [1e6]).likely == 10000.99  # a mean beyond nine of ten is the high end too
    assert measured([1.0] * 99 + [1e6]).high == 10000.99
