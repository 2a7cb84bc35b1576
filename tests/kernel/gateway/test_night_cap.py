"""What the tasks of one night may cost together."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.types import Agent, End, Ended, NightCap, Refusal, Refused, Send, TurnAway, Usage, Withdrawn
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import After, Playbook, ask, away, sent

FREE, SERVED = Limits(), Usage(1000, 1200)
CAP = NightCap("1122-aaaa", 1.0)
A, B = (Agent(f"1122-aaaa/{name}", 1, night=CAP) for name in "ab")


def test_what_one_task_spends_is_gone_for_the_others_and_only_for_those_of_its_night() -> None:
    play = Playbook(FREE) >> [ask(1, A, bound_usd=0.7), ask(2, B, bound_usd=0.6), ask(3, "day", bound_usd=50.0)]
    play << sent(1) << sent(3)
    assert play >> Ended(1, End.SERVED, SERVED, cost_usd=0.5) << away(2, 402)
    assert play >> ask(4, B, bound_usd=0.5) << sent(4)


def test_a_request_waits_for_what_others_of_the_night_may_leave() -> None:
    play = Playbook(FREE) >> [ask(1, A, bound_usd=0.7), ask(2, B, bound_usd=0.6)] << sent(1)
    assert play >> After(100)
    assert play >> Ended(1, End.SERVED, SERVED, cost_usd=0.1) << sent(2)


def test_a_request_of_an_unknown_price_is_refused_since_its_night_could_not_be_kept() -> None:
    assert Playbook(FREE) >> ask(1, A, bound_usd=None) << away(1, 402)


def test_a_request_that_is_larger_than_the_cap_says_nothing_of_the_others() -> None:
    play = Playbook(FREE) >> ask(1, A, bound_usd=2.0) << away(1, 402)
    assert not play.traffic.crew.nights[CAP.run].refused
    assert play >> ask(2, B, bound_usd=0.2) << sent(2)


def test_it_is_told_once_what_a_night_spent_before_the_start() -> None:
    play = Playbook(FREE)
    play.traffic.crew.night_of(CAP, 0.9)
    play.traffic.crew.night_of(CAP, 0.0)
    assert play >> ask(1, A, bound_usd=0.2) << away(1, 402)
    assert play.traffic.crew.nights[CAP.run].refused


def test_the_answer_to_a_retry_gives_a_night_back_the_bound_of_what_a_dead_gateway_sent() -> None:
    play = Playbook(FREE)
    play.traffic.crew.night_of(CAP, 0.9)  # a bound of 0.9, of which 0.05 were charged
    play >> ask(1, A, bound_usd=0.1) << sent(1) >> Ended(1, End.SERVED, SERVED, cost_usd=0.02)
    play.traffic.crew.recost(A.name, -0.03, 0.0, play.now, 0.85)
    assert math.isclose(play.traffic.crew.nights[CAP.run].spent.sum(play.now), 0.04)


def test_a_task_that_is_asked_for_again_when_its_night_has_ended_has_no_cap_of_it() -> None:
    play = Playbook(FREE)
    play.traffic.crew.night_of(CAP, 1.0)
    assert play >> ask(1, Agent(A.name, 2), bound_usd=5.0) << sent(1)


STEPS = st.lists(st.tuples(st.integers(0, 4), st.floats(0.001, 0.4), st.floats(0.0, 1.0), st.integers(0, 4)), min_size=1, max_size=60)


@given(STEPS)
def test_what_is_spent_and_reserved_is_never_more_than_the_cap(steps: list[tuple[int, float, float, int]]) -> None:
    """Whatever the order: each step asks for one agent of the night, then something happens to the oldest request in flight."""
    play = Playbook(FREE, hold_s=1e6)
    bounds: dict[int, float] = {}
    flying: list[int] = []
    spent = 0.0
    for number, (agent, bound, part, what) in enumerate(steps):
        bounds[number] = bound
        told = play.tell(ask(number, Agent(f"1122-aaaa/{agent}", 1, night=CAP), bound_usd=bound))
        if flying and what:
            first = flying.pop(0)
            cost = bounds[first] * part
            events = (Ended(first, End.SERVED, SERVED, cost_usd=cost), Refused(first, Refusal.OVERLOADED), Withdrawn(first))
            spent += (cost, 0.0, bounds[first])[what % 3]
            told += play.tell(events[what % 3])
        flying += [command.ticket for command in told if isinstance(command, Send)]
        assert spent + sum(bounds[ticket] for ticket in flying) <= CAP.cost_max + 1e-6
        assert all(command.status == 402 for command in told if isinstance(command, TurnAway))
