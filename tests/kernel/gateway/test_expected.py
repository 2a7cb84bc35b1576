"""What a request is expected to take: told with each sending, and charged when nobody learns more."""

from __future__ import annotations

import pytest

from supervisor.gateway.admission import traffic
from supervisor.gateway.admission.budget import FIRST_OUTPUT
from supervisor.gateway.admission.types import Agent, Began, End, Ended, PoolKey, Send, Usage
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import LANE, Playbook, ask, away, level, sent, upstream

WIDE = Limits(tpm=50e6)
PART = 1 / 1.2
"""`ask` adds the caution that a reservation has; an expectation has none."""


def expected(play: Playbook, ticket: int, agent: str | Agent = "a", **facts: object) -> Usage:
    """Of a request that is sent at once."""
    (send,) = play.tell(ask(ticket, agent, **facts))  # type: ignore[arg-type]
    assert isinstance(send, Send)
    return send.expected


def served(play: Playbook, ticket: int, usage: Usage) -> None:
    play.tell([Began(ticket, usage), Ended(ticket, End.SERVED, usage)])


def test_the_first_one_of_all_is_like_nothing() -> None:
    assert expected(Playbook(WIDE), 1) == Usage(round(1000 * PART), int(FIRST_OUTPUT))
    assert expected(Playbook(WIDE), 1, tokens=0, max_tokens=16) == Usage(1, 16)


def test_a_request_is_like_its_agents_others_without_the_caution_of_a_reservation() -> None:
    play = Playbook(WIDE)
    for number, output in enumerate((100, 300, 200, 400)):
        expected(play, number)
        served(play, number, Usage(500, output))
    assert expected(play, 9) == Usage(500, 250)
    ticket = play.traffic.tickets[9]
    assert ticket.input > 500 and ticket.output > 250, "more is reserved"
    assert expected(play, 10, max_tokens=90).output == 90


def test_an_agents_first_answer_is_like_the_others() -> None:
    play = Playbook(WIDE)
    for number, (agent, output) in enumerate((("a", 100), ("b", 300), ("c", 9000))):
        expected(play, number, agent)
        served(play, number, Usage(500, output))
    assert expected(play, 9, "new").output == 300
    assert expected(play, 10, "new", model="another").output == FIRST_OUTPUT


def test_what_the_account_has_cached_is_expected_from_its_cache() -> None:
    play = Playbook(WIDE, upstream(limits=WIDE), upstream("q", WIDE))
    expected(play, 1)
    served(play, 1, Usage(100, 50, 0, 700))
    assert expected(play, 2) == Usage(100, 50, 700)
    served(play, 2, Usage(100, 50, 700, 100))
    assert expected(play, 3, tokens=600) == Usage(0, 50, 500), "no more than there is"
    assert expected(play, 4, via=("q",)) == Usage(833, 50), "the other account has nothing of it"


@pytest.mark.parametrize("usd", [0.4, -0.4])
def test_a_charge_that_is_corrected_counts_against_the_caps(usd: float) -> None:
    poor = Agent("poor", 1, cost_max=2.0)
    play = Playbook(WIDE, cost_per_night=2.0)
    play.traffic.crew.recost("poor", usd, 0, play.now)
    play >> ask(1, poor, bound_usd=1.0) << sent(1) >> Ended(1, End.SERVED, Usage(10, 10), cost_usd=1.0)
    play.traffic.crew.recost("poor", usd, 0, play.now)
    assert play.traffic.crew.budgets["poor"].money.spent == pytest.approx(1.0 + usd), (
        "one that did not come is told with what its task cost"
    )
    assert play.traffic.crew.night.spent.sum(play.now) == pytest.approx(1.0 + usd)
    play >> ask(2, poor, bound_usd=0.9)
    assert play << (away(2, 402) if usd > 0 else sent(2))


def test_a_task_without_a_cap_is_shown_what_it_cost_since_the_start() -> None:
    play = Playbook(WIDE) >> ask(1, "free") << sent(1) >> Ended(1, End.SERVED, Usage(10, 10), cost_usd=0.5)
    play.traffic.crew.recost("free", -0.4, 0, play.now)
    assert play.traffic.view(play.now).agents[0].cost_usd == 0.5, "what was charged before is not in it"


def test_what_a_restart_takes_for_used_by_caution_is_no_agents() -> None:
    play, pool = Playbook(Limits(tpm=60_000)), PoolKey("p", LANE)
    traffic.restore(
        play.traffic.network, play.traffic.crew, [(pool, 0.0, Usage(output=30_000), ""), (pool, 0.0, Usage(output=300), "a")], play.now
    )
    assert level(play) < 60_000 - 30_000
    assert play >> ask(1, Agent("a", 1, tpm_max=5000)) << sent(1)
