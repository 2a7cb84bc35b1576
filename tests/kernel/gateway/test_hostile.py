"""What one bad request, agent, upstream or name must not do to the others."""

from __future__ import annotations

from itertools import pairwise

import pytest

from supervisor.gateway.admission.traffic import LANES_MOST
from supervisor.gateway.admission.types import (
    NOTHING_OBSERVED,
    Agent,
    Began,
    End,
    Ended,
    LaneKey,
    Observed,
    Refusal,
    Refused,
    Responded,
    Send,
    Tick,
    TurnAway,
    Usage,
    Withdrawn,
)
from supervisor.kernel.gateway_settings import Api, Limits
from tests.kernel.gateway.playbook import (
    BATCH,
    CLOSED,
    HALF_OPEN,
    LANE,
    OPEN,
    After,
    Playbook,
    ask,
    away,
    journal,
    sent,
    settings,
    upstream,
)
from tests.kernel.gateway.world import Fate, World

FREE = Limits(tpm=60_000_000)
BOTH = ("p", "q")
SERVED = Usage(1000, 1200)


def refused(ticket: int, why: Refusal = Refusal.RATE_LIMITED, after: float | None = 1.0, detail: str = "") -> Refused:
    return Refused(ticket, why, Observed(retry_after_s=after), detail)


@pytest.mark.parametrize("why", [Refusal.RATE_LIMITED, Refusal.SERVER_ERROR])
def test_one_request_that_is_always_refused_is_answered_and_the_others_go_on(why: Refusal) -> None:
    """Five agents that always ask, answered after 0.3 s, beside it for 10 minutes."""
    play, number, served, due, answered = Playbook(FREE, hold_s=1e4), 1, 0, list[tuple[float, int]](), list[TurnAway]()
    unread = play.tell([ask(0, "bad", body_key="bad"), *(ask(n, f"a{n}") for n in range(1, 6))])
    number, sends = 6, 0
    for _ in range(6000):
        while unread:
            command = unread.pop(0)
            if isinstance(command, TurnAway):
                answered.append(command)
            elif isinstance(command, Send) and command.ticket == 0:
                sends += 1
                unread += play.tell(refused(0, why))
            elif isinstance(command, Send):
                due.append((play.now + 0.3, command.ticket))
        for when, ticket in [one for one in due if one[0] <= play.now]:
            due.remove((when, ticket))
            served += 1
            unread += play.tell([Ended(ticket, End.SERVED, Usage(1000, 10)), ask(number, f"a{number % 5}")])
            number += 1
        unread += play.tell(After(0.1))
    assert [(one.ticket, one.status) for one in answered] == [(0, 429)]
    assert "served others" in answered[0].why
    assert sends <= 8
    assert served > 600 * 5 * 0.5
    assert play.traffic.learned()["pools"][0]["margin"] > 0.985 * 0.97**3
    assert not play.traffic._places.kept


def test_from_its_second_refusal_on_another_request_is_the_next_probe() -> None:
    play = Playbook(FREE) >> ask(0) << sent(0) >> refused(0) << journal("limit", CLOSED, OPEN) >> ask(1, "b") >> After(2)
    play << journal("limit", OPEN, HALF_OPEN) << sent(0, attempt=2, probe=True) >> refused(0) << journal("limit", HALF_OPEN, OPEN)
    play >> After(2) << journal("limit", OPEN, HALF_OPEN) << sent(1, probe=True) >> Responded(1, NOTHING_OBSERVED)
    play << journal("limit", HALF_OPEN, CLOSED) >> After(6) << sent(0, attempt=3) >> refused(0)
    assert play.traffic.view(play.now).pools[0].breaker is CLOSED
    assert play >> After(7.9)
    assert play >> After(0.2) << sent(0, attempt=4)


def test_whoever_is_alone_is_the_probe_each_time() -> None:
    play = Playbook(FREE) >> ask(0) << sent(0)
    for attempt in range(2, 6):
        play.tell(refused(0))
        assert [one.attempt for one in play.tell(After(2.0)) if isinstance(one, Send)] == [attempt]


def test_beside_a_dead_upstream_nobody_waits() -> None:
    play = Playbook(FREE, upstream("p"), upstream("q"))
    for number in range(20):
        unread = play.tell(ask(number, via=BOTH))
        for _ in range(2):
            if unread and any(isinstance(one, Send) and one.upstream == "q" for one in unread):
                unread = play.tell(refused(number, Refusal.UNREACHABLE, None))
            (send,) = (one for one in unread if isinstance(one, Send)) if unread else (None,)
            if send and send.upstream == "p":
                break
        assert send is not None
        assert send.upstream == "p", number
        if number % 3:
            play.tell(Ended(number, End.SERVED, SERVED))
        play.tell(After(3))


def test_a_request_that_all_upstreams_refused_makes_its_pause() -> None:
    play = Playbook(FREE, upstream("p"), upstream("q")) >> ask(1, via=BOTH) << sent(1, "p") >> refused(1, Refusal.OVERLOADED)
    play << sent(1, "q", attempt=2) >> refused(1, Refusal.OVERLOADED)
    assert play >> After(0.9)
    assert play >> After(0.3) << sent(1, "p", attempt=3)


def test_one_batch_agent_that_has_one_request_at_a_time_gets_its_share() -> None:
    """Three normal agents beside it; all ask again at once when they were served, after 8 s. Requests of 2500 tokens, 30,000 a minute."""
    world = World(settings(upstream("p", Limits(tpm=30_000)), hold_s=1e5))
    number, batch = 0, Agent("batch", 1, BATCH)

    def arrive(agent: Agent) -> None:
        nonlocal number
        number += 1
        owner[number] = agent.name
        world.arrive(world.now, ask(number, agent, tokens=2400, max_tokens=100), Fate(Usage(2400, 100), 1.0, 7.0))

    owner: dict[int, str] = {}
    again: set[int] = set()

    def ask_again() -> None:
        for ticket in [ticket for ticket in world.ended if ticket not in again]:
            again.add(ticket)
            arrive(batch if owner[ticket] == "batch" else Agent(owner[ticket], 1))

    world.after_each = ask_again
    for name in "abc":
        arrive(Agent(name, 1))
    arrive(batch)
    world.run(until=1200)
    went = [(when, owner[ticket]) for when, ticket in world.sent if when > 1]
    for until in (600, 900, 1200):
        names = [name for when, name in went if when <= until]
        assert names.count("batch") / len(names) == pytest.approx(0.2, abs=0.03)
    turns = [when for when, name in went if name == "batch"]
    while turns[0] < 100:  # before the share begins to count, with the bucket's first minute
        del turns[0]
    assert turns[0] < 120
    assert max(later - earlier for earlier, later in pairwise(turns)) < 35
    person = [when for when, name in went if name != "batch"]
    assert max(later - earlier for earlier, later in pairwise(person)) < 12


def test_what_a_class_did_not_ask_for_is_not_saved_up() -> None:
    play = Playbook(Limits(tpm=60_000), hold_s=1e5)
    lane = play.traffic.network.lane(LANE)
    play.tell([ask(n, "day") for n in range(100)])
    play.tell(ask(1000, Agent("batch", 1, BATCH)))
    play.tell(Withdrawn(1000))
    for second in range(600):
        for one in play.tell(After(1)):
            if isinstance(one, Send):
                play.tell([Ended(one.ticket, End.SERVED, SERVED), ask(2000 + second * 10 + one.attempt, "day")])
    assert lane.ranks[2].owed <= 15 * 1000


def test_one_agent_cannot_fill_the_queue() -> None:
    play = Playbook(Limits(tpm=6_000), queue_max=3) >> [ask(n, "hog") for n in range(5)] << sent(0) << sent(1)
    play >> ask(5, "hog") << away(5, 429) >> ask(6, "new") << away(4, 429) >> ask(7, "third") << away(3, 429)
    assert play >> ask(8, "fourth") << away(7, 429) >> ask(9, "hog") << away(9, 429)


def test_after_tiny_answers_a_tpm_cap_still_holds_large_ones_back() -> None:
    capped = Agent("capped", 1, tpm_max=10_000)
    play = Playbook(FREE, hold_s=1e5)
    for number in range(8):
        play.tell([ask(number, capped, tokens=10, max_tokens=8000), Ended(number, End.SERVED, Usage(10, 1))])
    play.tell(After(120))
    went = play.tell([ask(100 + number, capped, tokens=10, max_tokens=8000) for number in range(300)])
    assert [one.ticket for one in went if isinstance(one, Send)] == [100, 101, 102, 103, 104], "together 4 caps more than expected"
    ended = play.tell([Ended(number, End.SERVED, Usage(10, 8000)) for number in (100, 101, 102, 103, 104)])
    assert [one.ticket for one in ended if isinstance(one, Send)] == [105], "before the second one passed the cap"
    assert play.tell(After(179)) == [], "40,000 are the caps of four minutes"
    assert play.tell(After(70)) != []


def test_output_that_comes_late_counts_in_the_minute_in_which_it_is_known() -> None:
    capped = Agent("capped", 1, tpm_max=2_500)
    play = Playbook(FREE, hold_s=1e5) >> ask(1, capped, tokens=100) << sent(1) >> Began(1, Usage(100, 1)) >> After(78)
    play >> Ended(1, End.SERVED, Usage(100, 5000)) >> ask(2, capped, tokens=100)
    assert play.traffic.view(play.now).agents[0].used_tpm == pytest.approx(3800)
    assert play >> After(59)
    assert play >> After(70) << sent(2)


def test_a_probe_that_is_silent_lets_one_more_go_every_20_s() -> None:
    play = Playbook(FREE) >> ask(0) << sent(0) >> refused(0) << journal("limit", CLOSED, OPEN) >> [ask(n, f"a{n}") for n in range(1, 9)]
    play >> After(2) << journal("limit", OPEN, HALF_OPEN) << sent(0, attempt=2, probe=True)
    assert play >> After(18)
    play >> After(2) << journal("limit", HALF_OPEN, HALF_OPEN) << sent(1, probe=True)
    assert play >> After(18)
    play >> Responded(0, NOTHING_OBSERVED)
    play << journal("limit", HALF_OPEN, CLOSED)
    assert play
    assert play.traffic.view(play.now).pools[0].breaker is CLOSED


def test_one_of_two_probes_that_goes_away_leaves_it_to_the_other() -> None:
    play = Playbook(FREE) >> ask(0) << sent(0) >> refused(0) << journal("limit", CLOSED, OPEN) >> [ask(1, "b"), ask(2, "c")] >> After(2)
    play << journal("limit", OPEN, HALF_OPEN) << sent(0, attempt=2, probe=True) >> After(20) << journal("limit", HALF_OPEN, HALF_OPEN)
    assert play << sent(1, probe=True) >> Withdrawn(0) << journal("limit", HALF_OPEN, HALF_OPEN)
    play >> refused(1) << journal("limit", HALF_OPEN, OPEN)
    assert play


def test_what_can_never_fit_its_cost_cap_is_told_so_when_it_comes() -> None:
    poor = Agent("poor", 1, cost_max=1.0)
    play = Playbook(Limits(tpm=6_000), cost_per_night=5.0) >> [ask(1, bound_usd=0.0), ask(2, bound_usd=0.0)] << sent(1) << sent(2)
    why = "cost_max of the task poor is $1.00: $0.00 is spent, and this request can cost at most $1.60; a smaller max_tokens lowers that"
    play >> ask(3, poor, bound_usd=1.6) << away(3, 402, why=why)
    why = "cost_per_night of the crew is $5.00: $0.00 is spent, and this request can cost at most $9.00; a smaller max_tokens lowers that"
    play >> ask(4, bound_usd=9.0) << away(4, 402, why=why)
    why = 'm has no known price, so cost_per_night cannot be kept; give it one in the settings: [prices."m"]'
    assert play >> ask(5) << away(5, 402, why=why)


def test_the_newest_reason_is_shown_and_no_time_when_none_decides() -> None:
    play = Playbook(FREE, hold_s=1e4) >> ask(0) << sent(0) >> refused(0) << journal("limit", CLOSED, OPEN)
    for _ in range(8):
        play.tell(After(40))
        play.tell(refused(0, Refusal.UNREACHABLE, None, "connection refused"))
    assert play.traffic.view(play.now).pools[0].breaker_why.startswith("unreachable: connection refused")
    play = Playbook(Limits(tpm=6_000)) >> ask(0) << sent(0) >> refused(0) << journal("limit", CLOSED, OPEN) >> After(3)
    shown = play.traffic.view(play.now).pools[0]
    assert (shown.opens_in_s, shown.breaker_why) == (None, "rate limited; its limit must refill before one request tries")
    play.tell(Withdrawn(0))
    assert play.traffic.view(play.now).pools[0].breaker_why == "rate limited; the next request tries"


def test_made_up_model_names_are_forgotten_and_share_a_lane_when_there_are_many() -> None:
    play, names = Playbook(FREE, upstream("p", classes={"own": Limits(tpm=1000)})), range(3 * LANES_MOST)
    for number in names:
        lane = LaneKey(Api.ANTHROPIC, f"made-up-{number}")
        play.tell([ask(number, lane=lane, model=f"made-up-{number}"), Ended(number, End.REJECTED, None)])
    assert len(play.traffic.network.lanes) == LANES_MOST + 1
    assert play >> ask(5000, lane=LaneKey(Api.ANTHROPIC, "own")) << sent(5000)
    assert len(play.traffic.network.lanes) == LANES_MOST + 2
    play >> After(1600) >> Tick()
    assert [key.model_class for key in play.traffic.network.lanes] == ["own"], "it has one in flight"
    assert len(play.traffic.network._routes) == 1
    assert len(play.traffic.learned()["estimates"]["models"]) <= 1
    assert play >> Ended(5000, End.SERVED, SERVED) >> ask(5001) << sent(5001)


def test_a_request_that_ended_is_not_kept_until_its_deadline() -> None:
    play = Playbook(Limits(tpm=6_000)) >> [ask(1), ask(2), ask(3)] << sent(1) << sent(2) >> Withdrawn(3)
    assert play
    assert all(isinstance(entry[2], int) for entry in play.traffic._deadlines._heap)
