"""Agents whose turns wait much longer than the others' of their class: raised, by so much and no more, and seen."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission import queue
from supervisor.gateway.admission.queue import RAISE_MOST, Latency
from supervisor.gateway.admission.types import Agent, AgentView, Command, End, Ended, Send, Usage
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import After, Playbook, ask

LONG_S = 1200
LIMIT = Limits(tpm=60_000)


def talk(play: Playbook, agents: Mapping[Agent, tuple[int, int]], seconds: int) -> Counter[str]:
    """Agents with so many requests of so many tokens at once, each followed by the next when it is served. What each took of the limit."""
    numbers, asked, took = itertools.count(1), dict[int, Agent](), Counter[str]()

    def another(agent: Agent) -> list[Command]:
        number = next(numbers)
        asked[number] = agent
        return play.tell(ask(number, agent, tokens=agents[agent][1]))

    unread = [said for agent, (at_once, _) in agents.items() for _ in range(at_once) for said in another(agent)]
    for _ in range(seconds):
        while unread:
            command = unread.pop(0)
            assert isinstance(command, Send), "nobody waits long enough to be turned away"
            agent = asked.pop(command.ticket)
            took[agent.name] += agents[agent][1]
            unread += play.tell(Ended(command.ticket, End.SERVED, Usage(agents[agent][1], 0)))
            unread += another(agent)
        unread = play.tell(After(1))
    return took


def seen(play: Playbook) -> dict[str, AgentView]:
    return {view.name: view for view in play.traffic.view(play.now).agents}


SMALL = {Agent(name, 1): (1, 1000) for name in "abc"}


def test_whose_turns_wait_much_longer_is_raised_and_takes_half_as_much_again_at_most() -> None:
    play = Playbook(LIMIT)
    took = talk(play, {**SMALL, Agent("long", 1): (1, 8000)}, LONG_S)
    views = seen(play)
    assert views["long"].raised == RAISE_MOST and [views[name].raised for name in "abc"] == [1.0] * 3
    assert views["long"].turn_wait_s > 2 * max(views[name].turn_wait_s for name in "abc")
    share = took["long"] / took.total()
    assert 0.28 < share <= RAISE_MOST / (RAISE_MOST + 3) + 0.01, "beside three equal ones it would have a quarter"


def test_who_sends_many_at_once_waits_for_itself() -> None:
    play = Playbook(LIMIT)
    talk(play, {**SMALL, Agent("many", 1): (20, 1000)}, LONG_S)
    assert [view.raised for view in seen(play).values()] == [1.0] * 4


@pytest.mark.parametrize("less", [Agent("less", 1, weight=0.25), Agent("less", 1, tpm_max=2000.0)])
def test_who_is_meant_to_have_less_is_not_raised(less: Agent) -> None:
    play = Playbook(LIMIT)
    talk(play, {**SMALL, less: (1, 1000)}, LONG_S)
    assert [view.raised for view in seen(play).values()] == [1.0] * 4


def told(found: Latency, waits: Mapping[str, float], now: float) -> float:
    """Each agent's turns wait so long, ten each; the time after."""
    for _ in range(10):
        now += queue.LOOK_S
        for name, seconds in waits.items():
            found.sent(name, now - seconds, 1.0, now)
    return now


def test_it_ends_when_the_turns_wait_as_long_as_the_others() -> None:
    found = Latency()
    now = told(found, {"a": 3, "b": 3, "c": 3, "d": 9}, 0.0)
    assert found.raised("d") == pytest.approx(1.5) and found.raised("a") == 1.0
    for _ in range(40):
        now = told(found, {"a": 3, "b": 3, "c": 3, "d": 3}, now)
    assert found.raised("d") == 1.0
    assert found.raised("nobody") == 1.0


def test_short_waits_and_few_agents_raise_nobody() -> None:
    short, few = Latency(), Latency()
    told(short, {"a": 0, "b": 0, "c": 0, "d": 4.9}, 0.0)
    told(few, {"a": 1, "b": 9}, 0.0)
    assert short.raised("d") == few.raised("b") == 1.0


def test_who_is_away_is_forgotten() -> None:
    found = Latency()
    now = told(found, {"a": 3, "b": 3, "c": 3, "gone": 9}, 0.0)
    for _ in range(40):
        now = told(found, {"a": 3, "b": 3, "c": 3}, now)
    assert "gone" not in found.agents


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.floats(-10, 1e6), st.floats(0.01, 1e3), st.booleans()), max_size=200))
def test_a_raise_is_bounded_whatever_is_measured(sends: list[tuple[str, float, float, bool]]) -> None:
    found, now = Latency(), 0.0
    for name, waited, weight, counts in sends:
        now += 7.0
        found.sent(name, now - waited, weight, now, counts=counts)
        assert all(1.0 <= found.raised(each) <= RAISE_MOST for each in "abcde")
