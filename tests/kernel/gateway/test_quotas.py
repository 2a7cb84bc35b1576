"""Tickets: never more than the quota allows, in order, and in turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.features.quotas.rules import Grant, Quotas
from supervisor.kernel.gateway_settings import Quota

SEARCH = Quota("search", 60.0, 60.0, burst=2.0)


def waiters(quotas: Quotas, now: float) -> list[int]:
    return [grant.waiter for grant in quotas.granted(now)]


def test_a_new_quota_is_full_and_then_gives_one_ticket_a_period() -> None:
    quotas = Quotas([SEARCH], 100.0)
    assert [quotas.take("search", 100.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert quotas.take("search", 100.25) == pytest.approx(0.75)
    assert [quotas.take("search", 101.0) for _ in range(2)] == [0.0, pytest.approx(1.0)]
    assert quotas.names == {"search"}


def test_a_name_that_is_none_of_them() -> None:
    with pytest.raises(KeyError):
        Quotas([SEARCH], 0.0).take("serch", 0.0)


def test_tickets_of_a_long_period_gather_however_seldom_one_looks() -> None:
    quotas = Quotas([Quota("daily", 24.0, 86400.0, burst=24.0)], 0.0, {"daily": 0.0})
    assert quotas.levels(7200.0) == {"daily": pytest.approx(2.0)}
    assert [quotas.take("daily", 7200.0) for _ in range(3)] == [0.0, 0.0, pytest.approx(3600.0)]
    assert quotas.levels(1e9) == {"daily": 24.0}


def test_a_clock_that_goes_back_changes_nothing() -> None:
    quotas = Quotas([SEARCH], 1000.0, {"search": 0.0})
    assert quotas.take("search", 400.0) == pytest.approx(1.0)
    assert quotas.take("search", 1001.0) == 0.0


@pytest.mark.parametrize(("had", "has"), [(-5.0, 0.0), (0.5, 0.5), (99.0, 2.0)])
def test_what_was_left_is_taken_over_within_bounds(had: float, has: float) -> None:
    assert Quotas([SEARCH], 0.0, {"search": had, "gone": 7.0}).levels(0.0) == {"search": has}


def test_a_burst_below_one_would_never_give_a_ticket() -> None:
    assert Quotas([Quota("search", 60.0, 60.0, burst=0.1)], 0.0).take("search", 0.0) == 0.0


def test_tasks_take_turns_and_each_ones_waiters_are_served_in_order() -> None:
    quotas = Quotas([SEARCH], 0.0, {"search": 0.0})
    for number, party in enumerate(["hog", "hog", "hog", "other", "third", "other"]):
        quotas.wait("search", party, number)
    assert [waiters(quotas, float(second)) for second in range(1, 8)] == [[0], [3], [4], [1], [5], [2], []]


def test_who_comes_without_waiting_does_not_overtake_those_who_wait() -> None:
    quotas = Quotas([SEARCH], 0.0, {"search": 0.0})
    quotas.wait("search", "a", 1)
    quotas.wait("search", "a", 2)
    assert quotas.take("search", 1.5) == pytest.approx(1.5), "two are before it, and one and a half tickets are there"
    assert quotas.granted(2.0) == [Grant("search", 1), Grant("search", 2)]
    assert quotas.next_s("search", 2.0) == pytest.approx(1.0)


def test_who_leaves_is_passed_over() -> None:
    quotas = Quotas([SEARCH], 0.0, {"search": 0.0})
    for number, party in enumerate(["a", "b", "b"]):
        quotas.wait("search", party, number)
    quotas.leave("search", 1)
    quotas.leave("search", 0)
    quotas.leave("search", 0)
    assert waiters(quotas, 2.0) == [2]
    assert quotas.take("search", 2.0) == 0.0


def test_it_says_when_it_is_to_be_asked_again() -> None:
    slow = Quota("slow", 1.0, 60.0)
    quotas = Quotas([SEARCH, slow], 0.0, {"search": 0.0, "slow": 0.0})
    assert quotas.wakes_at(0.0) is None
    quotas.wait("slow", "a", 1)
    assert quotas.wakes_at(10.0) == pytest.approx(60.0)
    quotas.wait("search", "a", 2)
    assert quotas.wakes_at(0.5) == pytest.approx(1.0)
    due = quotas.wakes_at(0.5)
    assert due is not None and waiters(quotas, due - 1e-13) == [2], "a timer may fire a rounding error early"


@given(
    limit=st.floats(0.1, 100),
    period=st.floats(0.5, 86400),
    burst=st.floats(1, 50),
    steps=st.lists(st.tuples(st.floats(0, 500), st.sampled_from(["take", "a", "b", "c", "serve", "leave"])), max_size=60),
)
def test_no_window_ever_gives_more_than_the_quota_and_nobody_waits_beside_a_ticket(
    limit: float, period: float, burst: float, steps: list[tuple[float, str]]
) -> None:
    quotas = Quotas([Quota("q", limit, period, burst)], 0.0)
    now, given_at, served = 0.0, list[float](), set[int]()
    waiting: dict[int, str] = {}
    for number, (seconds, what) in enumerate(steps):
        now += seconds
        if what == "take":
            given_at += [now] if quotas.take("q", now) == 0.0 else []
        elif what == "leave" and waiting:
            gone = next(iter(waiting))
            quotas.leave("q", gone)
            del waiting[gone]
        elif what in ("a", "b", "c"):
            quotas.wait("q", what, number)
            waiting[number] = what
        for grant in quotas.granted(now):
            assert grant.waiter in waiting and grant.waiter not in served
            assert min(one for one, party in waiting.items() if party == waiting[grant.waiter]) == grant.waiter
            served.add(grant.waiter)
            del waiting[grant.waiter]
            given_at.append(now)
        level = quotas.levels(now)["q"]
        assert 0.0 - 1e-3 <= level <= burst
        assert not waiting or level < 1.0
    for first, begin in enumerate(given_at):
        for last, end in enumerate(given_at[first:], first):
            assert last - first + 1 <= burst + (end - begin) * limit / period + 1e-3
