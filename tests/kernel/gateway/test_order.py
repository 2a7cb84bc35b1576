"""Who goes first, and how much everybody gets. Battery N12."""

from __future__ import annotations

from collections import Counter

import pytest

from supervisor.gateway.admission.types import Agent, Arrived, Began, End, Ended, Send, Usage
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import (
    BATCH,
    CLOSED,
    INTERACTIVE,
    SERVED,
    SMALL,
    After,
    Playbook,
    ask,
    level,
    sends,
    sent,
)


def test_interactive_goes_before_normal_before_batch() -> None:
    waiting = [ask(3, Agent("c", 1, BATCH)), ask(4, Agent("d", 1)), ask(5, Agent("e", 1, INTERACTIVE))]
    play = Playbook(SMALL) >> [ask(1), ask(2), *waiting] << sent(1) << sent(2)
    play >> Ended(1, End.SERVED, Usage(0, 0)) << sent(5) >> Ended(2, End.SERVED, Usage(0, 0)) << sent(4)
    assert play >> After(30) << sent(3)


def test_a_big_request_is_not_overtaken_by_small_ones_of_its_class() -> None:
    play = Playbook(SMALL) >> [ask(1, "a", tokens=3000), ask(2, "b", tokens=4000), ask(3, "c", tokens=10)] << sent(1)
    assert play >> After(30)
    assert play >> After(10) << sent(2)


def test_a_request_larger_than_the_bucket_goes_when_it_is_full_and_leaves_a_debt() -> None:
    play = Playbook(SMALL) >> [ask(1), ask(2, "b", tokens=50_000)] << sent(1)
    assert play >> Ended(1, End.SERVED, Usage(0, 0)) << sent(2)
    assert level(play) == pytest.approx(0.985 * 6000 - 51_200 + 0, abs=250)
    assert play.traffic.view(play.now).pools[0].breaker is CLOSED
    assert play >> Began(2, Usage(50_000, 1)) >> Ended(2, End.SERVED, Usage(50_000, 1200)) >> ask(3) >> After(230)


def serve(play: Playbook, asked: list[Arrived], seconds: float, step: float = 1.0) -> Counter[str]:
    """Everything that is sent is served at once, exactly as expected. Gives how often each agent was."""
    agents = {one.ticket: one.agent.name for one in asked}
    served: Counter[str] = Counter()
    unread = play.tell(asked)
    for _ in range(round(seconds / step)):
        while unread:
            command = unread.pop(0)
            assert isinstance(command, Send)
            served[agents[command.ticket]] += 1
            unread += play.tell(Ended(command.ticket, End.SERVED, SERVED))
        unread = play.tell(After(step))
    return served


def test_n12_two_hundred_at_a_tenth_of_the_budget_get_an_equal_share() -> None:
    """40 agents with 5 requests each; 8000 of 80,000 tokens are left."""
    play = Playbook(Limits(tpm=80_000), margin=1.0) >> ask(0, "other", tokens=70_800) << sent(0)
    got = serve(play, [ask(1 + number, f"a{number % 40}") for number in range(200)], seconds=180)
    tokens = 2200 * got.total()
    room = 8000 + 180 * 80_000 / 60
    assert 0.97 * room <= tokens <= room
    assert min(got.values()) >= 0.5 * got.total() / 40
    assert len(got) == 40


def test_who_took_more_than_was_expected_starts_later_next_time() -> None:
    play = Playbook(Limits(tpm=60_000)) >> [ask(1, "a"), ask(2, "b"), ask(3, "c", tokens=57_000)] << sent(1) << sent(2)
    play >> [Began(1, Usage(30_000, 0)), ask(4, "a"), ask(5, "b")]
    assert play >> After(60) << sent(3) << sent(5) << sent(4)


def test_a_heavier_agent_gets_more() -> None:
    heavy, light = Agent("heavy", 1, weight=3.0), Agent("light", 1)
    play = Playbook(Limits(tpm=60_000), hold_s=1e5) >> ask(1000, "first", tokens=57_000) << sent(1000)
    got = serve(play, [ask(n, heavy if n % 2 else light) for n in range(400)], seconds=100)
    assert got["heavy"] == pytest.approx(3 * got["light"], abs=3)
    assert got.total() > 40


def test_the_lower_classes_get_their_floor_however_much_is_asked_above() -> None:
    agents = [Agent("person", 1, INTERACTIVE), Agent("batch", 1, BATCH)]
    got = serve(Playbook(Limits(tpm=60_000), hold_s=1e5), [ask(n, agents[n % 2]) for n in range(1000)], seconds=600)
    assert got["batch"] / got.total() == pytest.approx(0.2, abs=0.02)


def test_batch_gets_its_floor_of_what_normal_takes() -> None:
    agents = [Agent("person", 1, INTERACTIVE), Agent("batch", 1, BATCH), Agent("day", 1)]
    got = serve(Playbook(Limits(tpm=60_000), hold_s=1e5), [ask(n, agents[n % 3]) for n in range(1800)], seconds=1200)
    assert [got[agent.name] / got.total() for agent in agents] == pytest.approx([0.8, 0.04, 0.16], abs=0.02)


def test_headroom_is_kept_for_interactive_agents_while_there_are_any() -> None:
    def normal_sent(*before: Arrived | After) -> int:
        play = Playbook(Limits(tpm=22_000), margin=1.0, headroom=0.15)
        for one in before:
            play.tell(one)
        return len(sends(play.tell([ask(number, "n") for number in range(10, 30)])))

    person = ask(1, Agent("person", 1, INTERACTIVE))
    assert normal_sent() == 10
    assert normal_sent(person) == 7
    assert normal_sent(person, After(899)) == 8
    assert normal_sent(person, After(901)) == 10
