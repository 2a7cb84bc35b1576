"""An agent's own caps: tokens a minute, dollars of its task, dollars of the crew's night."""

from __future__ import annotations

import random
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.budget import SlidingWindow, Slot
from supervisor.gateway.admission.types import Agent, End, Ended, Refusal, Refused, Send, Usage, Withdrawn
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import After, Playbook, ask, away, sent

FREE = Limits()
SERVED = Usage(1000, 1200)


def test_a_tpm_cap_holds_its_agent_back_and_nobody_else() -> None:
    capped = Agent("capped", 1, tpm_max=5000)
    play = Playbook(FREE) >> [ask(1, capped), ask(2, capped), ask(3, capped), ask(4, "other")] << sent(1) << sent(2) << sent(4)
    assert play >> After(59)
    assert play >> After(3) << sent(3)


def test_what_a_capped_agent_did_not_need_is_its_own_again() -> None:
    capped = Agent("capped", 1, tpm_max=5000)
    play = Playbook(FREE) >> [ask(1, capped), ask(2, capped), ask(3, capped)] << sent(1) << sent(2)
    assert play >> Ended(1, End.SERVED, Usage(200, 100)) << sent(3)


def test_no_rounding_of_dollars_stays_when_everything_has_ended() -> None:
    play = Playbook(FREE) >> [ask(1, "b", bound_usd=0.1), ask(2, "b", bound_usd=2.0), ask(3, "b")]
    play << sent(1) << sent(2) << sent(3)
    play >> [Ended(2, End.SERVED, SERVED), Ended(1, End.SERVED, SERVED)] >> ask(4, "a", bound_usd=2.0) << sent(4)
    play >> Ended(4, End.SERVED, SERVED)
    assert play.traffic.crew.night.bounds == 0.0, "by rounding: the budget of b holds 8e-17 now"
    play >> Ended(3, End.SERVED, SERVED)
    assert [budget.money.bounds for budget in play.traffic.crew.budgets.values()] == [0.0, 0.0]


@given(
    sizes=st.lists(st.integers(50, 9000), min_size=1, max_size=40),
    gaps=st.lists(st.floats(0, 20), min_size=40, max_size=40),
)
def test_no_minute_holds_more_than_the_cap_or_one_request(sizes: list[int], gaps: list[float]) -> None:
    capped = Agent("capped", 1, tpm_max=5000)
    play = Playbook(FREE, hold_s=1e6)
    went: list[tuple[float, float]] = []
    number_of_size = dict(enumerate(sizes))
    for number, size in number_of_size.items():
        sent_now = [(play.now, one) for one in play.tell(ask(number, capped, tokens=size))]
        before = play.now
        while play.now < before + gaps[number]:
            sent_now += [(play.now, one) for one in play.tell(After(1.0))]
        for when, command in sent_now:
            assert isinstance(command, Send)
            ticket = play.traffic.tickets[command.ticket]
            went.append((when, ticket.input + ticket.output))
    for start, first in went:
        inside = [tokens for when, tokens in went if start <= when < start + 59.0]
        assert sum(inside) <= max(5000, first) + 1e-6


def test_a_request_larger_than_the_cap_goes_alone_and_is_paid_off() -> None:
    capped = Agent("capped", 1, tpm_max=2000)
    play = Playbook(FREE, hold_s=1e5) >> [ask(1, capped, tokens=3000), ask(2, capped, tokens=500)] << sent(1)
    assert play >> Ended(1, End.SERVED, Usage(3000, 1200)) >> After(120)
    assert play >> After(63) << sent(2)


def test_a_task_stops_before_it_would_cost_more_than_it_may() -> None:
    poor = Agent("poor", 1, cost_max=1.0)
    play = Playbook(FREE) >> [ask(1, poor, bound_usd=0.6), ask(2, poor, bound_usd=0.6), ask(3, "rich", bound_usd=50.0)]
    play << sent(1) << sent(3) >> Ended(1, End.SERVED, SERVED, cost_usd=0.3) << sent(2)
    assert play >> Ended(2, End.SERVED, SERVED, cost_usd=0.2) >> ask(4, poor, bound_usd=0.6) << away(4, 402)
    assert play >> ask(5, poor, bound_usd=0.5) << sent(5) >> Ended(5, End.CUT, None) >> ask(6, poor, bound_usd=0.01) << away(6, 402)
    assert next(agent for agent in play.traffic.view(play.now).agents if agent.name == "poor").cost_usd == 1.0


def test_a_waiting_request_is_turned_away_when_what_was_in_flight_took_all() -> None:
    poor = Agent("poor", 1, cost_max=1.0)
    play = Playbook(FREE) >> [ask(1, poor, bound_usd=0.6), ask(2, poor, bound_usd=0.6)] << sent(1)
    assert play >> Ended(1, End.SERVED, SERVED, cost_usd=0.6) << away(2, 402)


def test_what_the_task_cost_before_a_restart_counts_also_for_one_that_is_known() -> None:
    poor = Agent("poor", 1, cost_max=1.0)
    play = Playbook(FREE)
    play.traffic.crew.spent("poor", 0.9)
    assert play >> ask(1, poor, bound_usd=0.2) << away(1, 402)
    play.traffic.crew.spent("poor", 0.5)
    assert play >> ask(2, poor, bound_usd=0.2) << sent(2)


def test_a_task_that_used_up_its_engine_seconds_is_refused_by_engines_alone() -> None:
    slow = Agent("slow", 1, engine_seconds_max=10.0)
    play = Playbook(FREE) >> ask(1, slow, to_engine=True) << sent(1)
    assert play >> Ended(1, End.SERVED, SERVED, engine_s=9.5) >> ask(2, slow, to_engine=True) << sent(2)
    assert play >> Ended(2, End.CLIENT_GONE, None, engine_s=1.0) >> ask(3, slow, to_engine=True) << away(3, 402)
    assert play >> ask(4, slow) << sent(4) >> ask(5, "other", to_engine=True) << sent(5)


def test_a_waiting_request_is_refused_once_the_engine_seconds_are_used_up() -> None:
    slow = Agent("slow", 1, engine_seconds_max=10.0, tokens_max=100_000)
    play = (
        Playbook(FREE) >> [ask(1, slow, to_engine=True, bound_tokens=60_000), ask(2, slow, to_engine=True, bound_tokens=60_000)] << sent(1)
    )
    assert play >> Ended(1, End.SERVED, SERVED, tokens=10, engine_s=10.0) << away(2, 402)


def test_engine_seconds_from_before_a_restart_count() -> None:
    slow = Agent("slow", 1, engine_seconds_max=10.0)
    play = Playbook(FREE)
    play.traffic.crew.spent("slow", 0.0, 0.0, 10.0)
    play.traffic.crew.past("slow", 0.0, 5.0, play.now)
    assert play >> ask(1, slow, to_engine=True) << away(1, 402)


def test_without_a_price_a_cap_cannot_be_kept_and_the_request_says_so() -> None:
    play = (
        Playbook(FREE)
        >> ask(1, Agent("poor", 1, cost_max=1.0))
        << away(1, 402, why='m has no known price, so cost_max cannot be kept; give it one in the settings: [prices."m"]')
    )
    assert play >> ask(2) << sent(2) >> Ended(2, End.SERVED, SERVED)


def test_what_only_its_kind_says_holds_for_models_of_a_known_price() -> None:
    usual = Agent("usual", 1, cost_max=1.0, cost_assumed=True)
    assert usual.capped and not usual.strict
    play = Playbook(FREE) >> ask(1, usual) << sent(1) >> Ended(1, End.SERVED, SERVED)
    assert play >> ask(2, usual, bound_usd=0.6) << sent(2) >> Ended(2, End.SERVED, SERVED, cost_usd=0.6)
    assert play >> ask(3, usual, bound_usd=0.6) << away(3, 402) >> ask(4, usual) << sent(4)


def test_a_task_stops_before_it_would_take_more_tokens_than_it_may() -> None:
    short = Agent("short", 1, tokens_max=10_000)
    play = Playbook(FREE) >> [ask(1, short, bound_tokens=6000), ask(2, short, bound_tokens=6000), ask(3, "other", bound_tokens=10**6)]
    play << sent(1) << sent(3) >> Ended(1, End.SERVED, SERVED, tokens=2200) << sent(2)
    play >> Ended(2, End.SERVED, SERVED, tokens=2200) >> ask(4, short, bound_tokens=6000)
    why = "tokens_max of the task short is 10,000: 4,400 are taken, and this request can take at most 6,000; "
    assert play << away(4, 402, why=why + "a smaller max_tokens lowers that")
    assert play >> ask(5, short, bound_tokens=5600) << sent(5) >> Ended(5, End.CUT, None) >> ask(6, short, bound_tokens=1) << away(6, 402)


def test_tokens_of_before_a_restart_count_and_a_correction_of_them() -> None:
    short, play = Agent("short", 1, tokens_max=1000), Playbook(FREE)
    play.traffic.crew.spent("short", 0.0, 900)
    assert play >> ask(1, short, bound_tokens=200) << away(1, 402)
    play.traffic.crew.recost("short", 0.0, -300, play.now)
    assert play >> ask(2, short, bound_tokens=200) << sent(2)


@given(st.lists(st.tuples(st.integers(1, 4000), st.floats(0, 1), st.booleans()), max_size=40), st.integers(1, 20_000))
def test_no_order_of_requests_takes_more_than_tokens_max(asked: list[tuple[int, float, bool]], cap: int) -> None:
    short, play, took, under_way = Agent("short", 1, tokens_max=cap), Playbook(FREE, hold_s=1e6), 0, dict[int, tuple[int, float]]()
    for number, (bound, part, end_one) in enumerate(asked):
        under_way |= {
            one.ticket: asked[one.ticket][:2] for one in play.tell(ask(number, short, bound_tokens=bound)) if isinstance(one, Send)
        }
        while under_way and (end_one or number == len(asked) - 1):
            ticket, (most, part) = under_way.popitem()
            took += int(most * part)
            said = play.tell(Ended(ticket, End.SERVED, SERVED, tokens=int(most * part)))
            under_way |= {one.ticket: asked[one.ticket][:2] for one in said if isinstance(one, Send)}
            end_one = False
        assert took + sum(most for most, _ in under_way.values()) <= cap
    assert play.traffic.crew.meet(short, play.now).tokens.spent == took if asked else True


def test_a_refused_request_costs_nothing() -> None:
    poor = Agent("poor", 1, cost_max=1.0)
    play = Playbook(FREE) >> ask(1, poor, bound_usd=0.6) << sent(1) >> Refused(1, Refusal.OVERLOADED) >> ask(2, poor, bound_usd=0.6)
    play << sent(2) >> After(1.2)
    assert play >> Withdrawn(1) >> Ended(2, End.SERVED, SERVED, cost_usd=0.1) >> ask(3, poor, bound_usd=0.9) << sent(3)


def test_the_crew_stops_before_a_night_costs_more_than_it_may() -> None:
    play = Playbook(FREE, cost_per_night=10.0)
    play.traffic.crew.night.spent.add(4.0, play.now)
    play >> [ask(1, "a", bound_usd=5.0), ask(2, "b", bound_usd=3.0), ask(3, "c", bound_usd=1.0)] << sent(1) << sent(3)
    assert play >> Ended(1, End.SERVED, SERVED, cost_usd=2.0) << sent(2)
    assert play >> Ended(2, End.SERVED, SERVED, cost_usd=2.5) >> ask(4, "d", bound_usd=1.0)
    play >> Ended(3, End.SERVED, SERVED, cost_usd=1.0) << away(4, 402) >> ask(5, "d", bound_usd=0.5) << sent(5)
    assert play >> Ended(5, End.SERVED, SERVED, cost_usd=0.5) >> ask(7, "d", bound_usd=0.5) << away(7, 402)
    assert play >> After(12 * 3600 + 700) >> ask(6, "d", bound_usd=9.0) << sent(6)


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 100), st.booleans()), max_size=60))
def test_a_sliding_sum_never_forgets_early(spent: list[tuple[float, int, bool]]) -> None:
    recent, now, exact = SlidingWindow(60.0, 1.0), 0.0, []
    for gap, amount, corrected in spent:
        now += gap
        slot = recent.add(float(amount), now)
        if corrected:
            recent.change(slot, 5.0)
            amount += 5
        exact.append((now, amount))
        true = sum(amount for when, amount in exact if now - when <= 60)
        late = sum(amount for when, amount in exact if now - when <= 61)
        assert true <= recent.sum(now) <= late
        when = recent.at_most_at(10.0, now)
        assert when >= now
        assert deepcopy(recent).sum(when) <= 10.0
    assert recent.sum(now + 62) == 0
    if spent:
        recent.change(slot, 5.0)
        assert recent.sum(now + 62) == 0, "it left the span"


@given(st.lists(st.tuples(st.floats(0, 90), st.floats(0, 900), st.floats(0, 1)), max_size=40))
def test_what_passes_a_cap_is_paid_for_by_the_minutes_after(spent: list[tuple[float, float, float]]) -> None:
    """Nothing is lost or paid twice: each minute takes at most the cap off."""
    cap, recent, now = 100.0, SlidingWindow(60.0, 1.0), 0.0
    for gap, amount, given_back in spent:
        before = recent.sum(now)
        off = before - recent.sum(now + gap)
        assert -1e-6 <= off <= cap * (int(gap / 60) + 1) + 1e-6
        now += gap
        slot = recent.add_below(cap, amount, now)
        recent.change(slot, -amount * given_back)
        assert recent.sum(now) == pytest.approx(before - off + amount * (1 - given_back))
        for room in (0.0, 40.0, cap):
            when = recent.at_most_at(room, now)
            assert when >= now
            assert deepcopy(recent).sum(when) <= room + 1e-6


def test_without_its_cap_an_agent_owes_nothing() -> None:
    capped, free = Agent("a", 1, tpm_max=2000), Agent("a", 1)
    play = Playbook(FREE, hold_s=1e5) >> [ask(1, capped, tokens=30_000)] << sent(1)
    assert play >> [ask(2, capped)] >> After(200)
    play.tell(ask(3, free))
    budget = play.traffic.crew.budgets["a"]
    assert budget.recent.sum(play.now) <= 2000 + 2200 * 2


def test_a_request_that_cost_nothing_makes_the_cost_known() -> None:
    play = Playbook(FREE) >> ask(1) << sent(1) >> Ended(1, End.SERVED, SERVED, cost_usd=0.0)
    assert play
    assert play.traffic.view(play.now).agents[0].cost_usd == 0.0


@pytest.mark.parametrize("seed", [124, 125, 126])
def test_no_giving_back_makes_the_last_minute_less_than_nothing(seed: int) -> None:
    draw = random.Random(seed)
    recent, now, counted = SlidingWindow(), 0.0, list[tuple[Slot, list[float]]]()
    for _ in range(60):
        now += draw.choice([0, 0.3, 1, 20, 70]) * draw.random()
        if draw.random() < 0.5:
            amount = draw.random() * 3000
            counted.append((recent.add_below(1000.0, amount, now), [amount]))
        elif counted:
            slot, left = draw.choice(counted)
            back = left[0] * draw.random()
            left[0] -= back
            recent.change(slot, -back)
        assert recent.sum(now) > -1e-6
