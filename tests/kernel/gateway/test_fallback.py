"""When a cheaper model answers a batch request in place of the one that it asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.types import Agent, Arrived, BreakerState, End, Ended, Fallback, LaneKey, Refusal, Send, Usage, Withdrawn
from supervisor.kernel.gateway_settings import Api, Limits
from supervisor.kernel.states import TaskClass
from tests.kernel.gateway.playbook import (
    BATCH,
    CLOSED,
    INTERACTIVE,
    LANE,
    NORMAL,
    OPEN,
    After,
    Playbook,
    ask,
    journal,
    refused,
    sent,
    upstream,
)

HAIKU = LaneKey(Api.ANTHROPIC, "haiku-4")
NIGHT = Agent("night", 1, task_class=BATCH)
SERVED = Usage(1000, 100)


def batch(ticket: int, who: Agent = NIGHT, *, lane: LaneKey = HAIKU, usd: float | None = 0.1, **facts: Any) -> Arrived:
    return ask(ticket, who, bound_usd=1.0, fallback=Fallback(lane, "haiku", ("p",), usd), **facts)


def by_fallback(ticket: int, via: str = "p", attempt: int = 1) -> Send:
    return Send(ticket, via, attempt, fallback=True)


def opened(*, night: float | None = None, **policy: Any) -> Playbook:
    """The breaker of the model that is asked was opened by a 429, for 300 s."""
    play = Playbook(Limits(), cost_per_night=night, hold_s=1e6, **policy) >> ask(1, bound_usd=0.0) << sent(1) >> refused(1, after=300.0)
    return play << journal("limit", CLOSED, OPEN)


def test_while_the_breaker_is_open_the_fallback_answers_batch_alone() -> None:
    play = opened() >> batch(2) << by_fallback(2)
    assert play >> batch(3, Agent("day", 1, task_class=NORMAL)) >> batch(4, Agent("me", 1, task_class=INTERACTIVE))
    assert play >> Ended(2, End.SERVED, SERVED)
    assert play.traffic.view(play.now).queued[LANE] == 3


def test_while_the_breaker_is_closed_the_model_itself_answers_and_again_once_a_probe_may_go() -> None:
    assert Playbook() >> batch(1) << sent(1)
    play = opened() >> Withdrawn(1) >> After(400) >> batch(2)
    assert play << journal("limit", OPEN, BreakerState.HALF_OPEN) << sent(2, probe=True)


def test_those_that_wait_when_the_breaker_opens_are_answered_by_the_fallback_and_keep_their_time() -> None:
    play = Playbook(Limits(rpm=2.5), hold_s=100.0) >> ask(1, bound_usd=0.1) << sent(1) >> batch(2) << sent(2) >> batch(3) >> After(5)
    play >> refused(2, after=300.0) << journal("limit", CLOSED, OPEN) << by_fallback(2, attempt=2) << by_fallback(3)
    tickets = play.traffic.tickets
    assert play
    assert tickets[3].deadline == tickets[1].deadline == 1100.0
    assert [budget.queued for budget in play.traffic.crew.budgets.values()] == [0, 0]


@pytest.mark.parametrize(
    ("facts", "why"),
    [({"lane": LANE}, "it shares the limit"), ({"usd": 1.0}, "it costs as much")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fallback_that_would_not_help_is_not_used(facts: dict[str, Any], why: str) -> None:
    play = opened() >> batch(2, **facts)
    assert play, why
    assert play.traffic.tickets[2].event.model == "m", why


def test_a_fallback_whose_own_breaker_is_open_is_not_used() -> None:
    play = opened() >> ask(2, lane=HAIKU) << sent(2) >> refused(2, after=300.0) << journal("limit", CLOSED, OPEN)
    assert play >> batch(3)
    assert play.traffic.tickets[3].event.model == "m"


def test_without_a_price_a_fallback_answers_only_where_no_cap_holds() -> None:
    assert opened() >> batch(2, usd=None) << by_fallback(2)
    assert opened(night=100.0) >> batch(2, usd=None)
    assert opened() >> batch(2, Agent("poor", 1, task_class=BATCH, cost_max=5.0), usd=None)
    assert opened() >> batch(2, Agent("usual", 1, task_class=BATCH, cost_max=5.0, cost_assumed=True), usd=None) << by_fallback(2)


def test_when_the_nights_cap_is_near_the_fallback_answers_at_its_own_price() -> None:
    play = Playbook(cost_per_night=10.0, fallback_at=0.5)
    play.traffic.crew.night.spent.add(4.9, play.now)
    play >> batch(1) << sent(1) >> Ended(1, End.SERVED, SERVED, cost_usd=0.2)
    assert play >> batch(2) << by_fallback(2) >> Ended(2, End.SERVED, SERVED, cost_usd=0.05)
    assert play.traffic.crew.night.spent.sum(play.now) == pytest.approx(5.15)
    assert play >> batch(3, Agent("day", 1)) << sent(3)
    assert play >> After(13 * 3600) >> batch(4) << sent(4)


def test_those_that_wait_when_the_cap_comes_near_are_answered_by_the_fallback() -> None:
    play = Playbook(Limits(rpm=1), cost_per_night=10.0, fallback_at=0.5) >> ask(1, bound_usd=6.0) << sent(1) >> batch(2)
    assert play >> Ended(1, End.SERVED, SERVED, cost_usd=5.0) << by_fallback(2)


@given(
    asked=st.lists(
        st.tuples(st.sampled_from(list(TaskClass)), st.booleans(), st.sampled_from([None, 0.1, 2.0]), st.sampled_from(list(Refusal))),
        max_size=25,
    ),
    gaps=st.lists(st.floats(0, 40), min_size=25, max_size=25),
    near=st.booleans(),
)
def test_whatever_happens_only_batch_falls_back_and_only_to_what_is_open_and_cheaper(
    asked: list[tuple[TaskClass, bool, float | None, Refusal]], gaps: list[float], near: bool
) -> None:
    play = Playbook(Limits(rpm=30), upstream(limits=Limits(rpm=30)), cost_per_night=100.0, hold_s=600.0)
    if near:
        play.traffic.crew.night.spent.add(85.0, play.now)
    events = {number: batch(number, Agent(f"a{kind}", 1, task_class=kind), usd=usd) for number, (kind, _, usd, _) in enumerate(asked)}
    for number, (_, fails, _, why) in enumerate(asked):
        said = play.tell(events[number])
        before = {pool.key.lane: pool.breaker for pool in play.traffic.view(play.now).pools}
        for one in [one for one in said if isinstance(one, Send)]:
            event = events[one.ticket]
            assert not one.fallback or event.agent.task_class is BATCH
            assert not one.fallback or (event.fallback is not None and event.fallback.bound_usd == 0.1)
            assert not one.fallback or before[HAIKU] is CLOSED
            assert not one.fallback or near or before[LANE] is not CLOSED
            play.tell(refused(one.ticket, why) if fails else Ended(one.ticket, End.SERVED, SERVED, cost_usd=0.0))
        play.tell(After(gaps[number]))
    waiting = [ticket for ticket in play.traffic.tickets.values() if ticket.where in (0, 1)]
    assert play.traffic.waiting == len(waiting) == sum(play.traffic.view(play.now).queued.values())
    for ticket in list(play.traffic.tickets):
        play.tell(Withdrawn(ticket))
    for lane in play.traffic.network.lanes.values():
        assert [(rank.count, rank.cost) for rank in lane.ranks] == [(0, 0.0)] * 3
