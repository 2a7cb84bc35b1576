"""Several accounts, routes, what is shown, and what is carried over a restart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from supervisor.gateway.admission import breaker, traffic
from supervisor.gateway.admission.breaker import TRANSITIONS, Breaker, backoff_s
from supervisor.gateway.admission.budget import Estimator
from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import (
    NOTHING_OBSERVED,
    Agent,
    Arrived,
    Began,
    BreakerState,
    End,
    Ended,
    LaneKey,
    Level,
    Observed,
    PoolKey,
    Refusal,
    Refused,
    Responded,
    Send,
    Tick,
    Usage,
    Window,
)
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Limits
from tests.kernel.gateway.playbook import (
    BATCH,
    CLOSED,
    HALF_OPEN,
    INTERACTIVE,
    LANE,
    LEARNING,
    OPEN,
    UNKNOWN,
    After,
    Playbook,
    ask,
    away,
    journal,
    sent,
    settings,
    upstream,
)  # fmt: skip

SMALL = Limits(tpm=6_000)
BOTH = ("p", "q")
SERVED = Usage(1000, 1200)


def two(**policy: float) -> Playbook:
    return Playbook(SMALL, upstream("p", SMALL), upstream("q", SMALL), **policy)


def test_two_accounts_are_balanced_by_headroom() -> None:
    play = two() >> [ask(n, f"a{n}", via=BOTH) for n in range(5)]
    assert play << sent(0, "p") << sent(1, "q") << sent(2, "p") << sent(3, "q")


def test_a_session_stays_where_its_prompt_is_cached_while_there_is_room() -> None:
    play = two() >> ask(1, via=BOTH, session="s") << sent(1, "p") >> Ended(1, End.SERVED, Usage(100, 100, cache_write=900))
    play >> ask(2, via=BOTH, session="s", tokens=1100) << sent(2, "p") >> Ended(2, End.SERVED, Usage(100, 100, cache_read=1000))
    play >> ask(3, via=BOTH, session="s") << sent(3, "p") >> ask(4, "b", via=BOTH, tokens=3000) << sent(4, "q")
    assert play >> After(300) >> ask(5, "b", via=BOTH, tokens=3000) << sent(5, "p")


def test_what_is_cached_is_not_reserved_but_on_another_account() -> None:
    play = two() >> ask(1, via=BOTH, session="s") << sent(1, "p") >> Ended(1, End.SERVED, Usage(100, 1000, cache_write=900))
    play >> ask(2, via=BOTH, session="s") << sent(2, "p")
    assert play.traffic.tickets[2].input < 300
    play >> Ended(2, End.CUT, Usage(6000, 0)) << journal("limit", CLOSED, OPEN) >> ask(3, via=BOTH, session="s") << sent(3, "q")
    assert play.traffic.tickets[3].input > 900
    counted = Playbook(SMALL, upstream("p", SMALL, cached_counts=True)) >> ask(1, session="s") << sent(1)
    counted >> Ended(1, End.SERVED, Usage(100, 1000, cache_read=900)) >> ask(2, session="s") << sent(2)
    assert counted.traffic.tickets[2].input > 900
    assert counted.traffic.network.pools()[0].settled_input == 1000


def test_upstreams_of_one_account_share_its_limit() -> None:
    play = Playbook(SMALL, upstream("p", SMALL, account="x"), upstream("q", SMALL, account="x")) >> [ask(n, via=BOTH) for n in range(3)]
    assert play << sent(0, "p") << sent(1, "p")
    assert [str(pool.key) for pool in play.traffic.view(play.now).pools] == ["x/anthropic/opus-4"]


def test_a_parked_account_holds_back_only_those_that_can_go_nowhere_else() -> None:
    parked = Observed(windows=(Window("5h", 1.0, 18_000.0, spent=True),))
    play = two(hold_s=1e5) >> [ask(1, via=("p",)), ask(2, "b", via=BOTH)] << sent(1, "p") << sent(2, "q")
    play >> Refused(1, Refusal.WINDOW_SPENT, parked) << journal("limit", CLOSED, OPEN) >> ask(3, "c", via=BOTH) << sent(3, "q")
    assert play >> ask(4, "d", via=("q",)) >> After(30) << sent(4, "q")


def test_the_first_in_order_claims_the_pools_that_it_waits_for() -> None:
    play = two() >> [ask(n, f"a{n}", via=BOTH) for n in range(4)] << sent(0, "p") << sent(1, "q") << sent(2, "p") << sent(3, "q")
    play >> [ask(5, "big", via=("p",), tokens=4000), ask(6, "any", via=BOTH), ask(7, "small", via=("p",), tokens=1)]
    assert play >> After(10) << sent(6, "q")
    assert play >> After(60) << sent(5, "p") << sent(7, "p")


def test_long_contexts_and_other_models_have_limits_of_their_own() -> None:
    long = LaneKey(Api.ANTHROPIC, "opus-4", long_context=True)
    play = Playbook(SMALL) >> [ask(1), ask(2), ask(3), ask(4, lane=long), ask(5, lane=LaneKey(Api.ANTHROPIC, "haiku-4"))]
    assert play << sent(1) << sent(2) << sent(4) << sent(5)


def test_reserving_max_tokens_is_for_upstreams_that_count_them() -> None:
    play = Playbook(SMALL, upstream("p", Limits(itpm=60_000, otpm=8_000), reserve_max_tokens=True))
    play >> [ask(1, max_tokens=5000), ask(2, max_tokens=5000), ask(3)] << sent(1)
    assert play >> Ended(1, End.SERVED, SERVED) << sent(2) << sent(3)


def test_costs_are_compared_in_the_scarcest_dimension() -> None:
    """Outputs are ten times as scarce as inputs here: who writes much waits longer."""
    play = Playbook(Limits(itpm=600_000, otpm=6_000, rpm=600), hold_s=1e5)
    play >> ask(0, "x", tokens=10) << sent(0) >> ask(1, "x", tokens=10)
    play.tell([ask(2 + n, f"{'long' if n % 2 else 'short'}", max_tokens=1200 if n % 2 else 300) for n in range(80)])
    wrote = {"long": 0, "short": 0}
    for _ in range(600):
        for command in play.tell(After(1)):
            assert isinstance(command, Send)
            event = play.traffic.tickets[command.ticket].event
            if event.agent.name != "x":
                wrote[event.agent.name] += event.max_tokens or 0
            play.tell([])
            assert command.attempt == 1
            unread = play.traffic.handle(Ended(command.ticket, End.SERVED, Usage(1000, event.max_tokens or 1200)), play.now)
            assert unread == []
        if min(wrote.values()) > 9000:
            break
    assert wrote["long"] == pytest.approx(wrote["short"], abs=1500)


# What is shown --------------------------------------------------------------------------------------------------------------------


def test_the_view_shows_agents_places_and_what_a_wait_would_be() -> None:
    person, night = Agent("person", 1, INTERACTIVE, weight=2.0), Agent("night", 1, BATCH, tpm_max=50_000)
    play = Playbook(SMALL, margin=1.0, headroom=0.0) >> [ask(1), ask(2), ask(3, night), ask(4), ask(5, person)] << sent(1) << sent(2)
    assert play >> After(5)
    view = play.traffic.view(play.now)
    shown = {agent.name: agent for agent in view.agents}
    assert [(shown[name].place, shown[name].queued, shown[name].in_flight) for name in ("person", "a", "night")] == [
        (1, 1, 0), (2, 1, 2), (3, 1, 0)
    ]  # fmt: skip
    assert (shown["a"].used_tpm, shown["a"].waiting_s, shown["night"].cap_tpm) == (4400, 5.0, 50_000)
    assert [shown[name].share_tpm for name in ("person", "a", "night")] == [3000, 1500, 1500]
    assert view.queued == {LANE: 3}
    assert view.delay_s[LANE] == pytest.approx(1.0 + (2200 + 2200) / 100)
    assert view.pools[0].exhausted_in_s is None
    assert view.pools[0].opens_in_s is None
    assert view.pools[0].dimensions[0].saturation == pytest.approx(1 - 2100 / 6000)
    assert str(LANE) in str(view.pools[0].key)


def test_the_view_of_trouble() -> None:
    play = Playbook(Limits(), hold_s=1e4) >> ask(1) << sent(1) >> Refused(1, Refusal.RATE_LIMITED, Observed(retry_after_s=30.0))
    play << journal("limit", CLOSED, OPEN)
    shown = play.traffic.view(play.now)
    assert (shown.pools[0].breaker, shown.pools[0].breaker_why, shown.agents[0].share_tpm) == (OPEN, "rate limited", None)
    assert shown.pools[0].opens_in_s == pytest.approx(30.6, abs=0.5)
    assert shown.delay_s[LANE] == pytest.approx(30.6, abs=0.5)
    play >> After(31) << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)
    shown = play.traffic.view(play.now)
    assert (shown.pools[0].breaker, shown.pools[0].opens_in_s) == (HALF_OPEN, None)
    assert shown.delay_s[LANE] == pytest.approx(20.0, abs=1)


def test_the_view_of_a_failure() -> None:
    play = Playbook(Limits(), hold_s=1e4)
    play.tell([ask(n) for n in range(5)])
    play.tell([Refused(n, Refusal.OVERLOADED, detail="529") for n in range(5)])
    assert play.traffic.view(play.now).pools[0].breaker_why == "overloaded: 529"


# Breaker --------------------------------------------------------------------------------------------------------------------------


def test_the_table_is_the_one_in_its_head() -> None:
    lines = Path(breaker.__file__).read_text().splitlines()
    rows = [line.removeprefix("#").split() for line in lines if line.startswith("#     ")]
    rows = [row for row in rows if row[0] in set(BreakerState)]
    assert {(BreakerState(row[0]), row[1]): BreakerState(row[2]) for row in rows} == TRANSITIONS


def test_a_breaker_refuses_impossible_events() -> None:
    with pytest.raises(KeyError):
        Breaker("limit").well()
    assert [backoff_s(times) for times in (1, 2, 5, 6, 7, 99)] == [1, 2, 16, 30, 30, 30]


# Estimates ------------------------------------------------------------------------------------------------------------------------


def test_an_estimate_learns_bytes_a_token_and_output_per_agent_and_model() -> None:
    estimator, event = Estimator(), ask(1, tokens=3000)
    first = estimator.guess(event, 0.0)
    assert first.input == pytest.approx(3000)
    assert first.output == 1200
    for _ in range(20):
        estimator.saw_input(event, first.habit, "p", Usage(2500), 0.0)
        first.habit.saw_output(400)
    learned = estimator.guess(event, 0.0)
    assert learned.input == pytest.approx(2500, rel=0.02)
    assert learned.output == pytest.approx(400, rel=0.05)
    assert estimator.guess(ask(2, "new", tokens=3000), 0.0).input == pytest.approx(2500 * 1.2, rel=0.1), "the model's, with more caution"
    assert estimator.guess(ask(3, max_tokens=7), 0.0).output == 7
    assert estimator.guess(ask(4, tokens=0, max_tokens=0), 0.0).output == 1
    estimator.saw_input(event, learned.habit, "p", Usage(0), 0.0)
    assert estimator.guess(event, 0.0).input == pytest.approx(learned.input)


def take(estimator: Estimator, agent: str, body_bytes: int, tokens: int, times: int = 1) -> None:
    """So many turns of an agent with a body of that many bytes, which took so many tokens."""
    event = Arrived(1, Agent(agent, 1), LANE, "m", ("p",), body_bytes)
    for _ in range(times):
        estimator.saw_input(event, estimator.guess(event, 0.0).habit, "p", Usage(tokens), 0.0)


def guessed(estimator: Estimator, agent: str, body_bytes: int) -> float:
    return estimator.guess(Arrived(1, Agent(agent, 1), LANE, "m", ("p",), body_bytes), 0.0).input


@pytest.mark.parametrize(("body_bytes", "tokens"), [(100, 95_000), (100_000, 95_000), (1_000_000, 1_500), (1, 10**9)])
def test_one_odd_turn_changes_little_of_what_is_expected_of_the_next(body_bytes: int, tokens: int) -> None:
    for turns in (0, 1, 10):
        estimator = Estimator()
        take(estimator, "a", 36_000, 10_000, turns)
        take(estimator, "a", body_bytes, tokens)
        assert 10_000 <= guessed(estimator, "new", 36_000) <= 13_000
        if (turns, body_bytes) != (0, 1_000_000):  # alone, it may well be what this agent always sends, and too little is soon corrected
            assert 10_000 <= guessed(estimator, "a", 36_000) <= 15_000
        take(estimator, "a", 36_000, 10_000, 2)
        assert 10_000 <= guessed(estimator, "a", 36_000) <= 15_000


def test_new_agents_begin_like_most_and_not_like_the_one_that_asks_most() -> None:
    estimator = Estimator()
    take(estimator, "images", 1_000_000, 1_500, 50)
    assert guessed(estimator, "images", 1_000_000) < 2_000
    assert guessed(estimator, "new", 36_000) == pytest.approx(12_000)
    for agent in "abc":
        take(estimator, agent, 36_000, 15_000, 3)
    assert guessed(estimator, "another", 36_000) == pytest.approx(18_000)
    estimator.forget(1e6)
    assert guessed(estimator, "later", 36_000) == pytest.approx(18_000), "what a model is like stays"


def test_what_no_body_shows_is_expected_of_an_agent_that_had_it_more_than_once() -> None:
    """Context that the provider keeps, files and pictures by their address: tokens that are not in the bytes."""
    estimator = Estimator()
    take(estimator, "a", 3_600, 91_000, 3)
    assert guessed(estimator, "a", 3_600) == pytest.approx(91_000, rel=0.01)
    take(estimator, "a", 36_000, 10_000, 3)
    assert guessed(estimator, "a", 36_000) == pytest.approx(10_000, rel=0.2)


def test_a_cache_is_believed_in_for_five_minutes_and_until_it_missed() -> None:
    estimator, event = Estimator(), ask(1, session="s")
    habit = estimator.guess(event, 0.0).habit
    estimator.saw_input(event, habit, "p", Usage(100, cache_write=900), 0.0)
    warm = estimator.guess(event, 300.0)
    assert (warm.home, warm.warm < 400) == ("p", True)
    assert estimator.guess(event, 301.0).home == ""
    estimator.saw_input(event, habit, "p", Usage(1000), 0.0)
    assert estimator.guess(event, 0.0).home == ""


# Restart --------------------------------------------------------------------------------------------------------------------------


def test_what_was_learned_and_spent_is_carried_over_a_restart() -> None:
    play = Playbook(UNKNOWN, LEARNING) >> ask(1) << sent(1)
    levels = Observed({"tokens": Level(60_000, 59_000)}, rounding=1000.0)
    play >> Responded(1, levels) >> Began(1, Usage(500, 0)) >> Ended(1, End.SERVED, Usage(500, 100))
    learned = json.loads(json.dumps(play.traffic.learned()))
    again = Traffic(play.settings, 5.0)
    again.recall(learned, 5.0)
    key = PoolKey("p", LANE)
    gone = PoolKey("gone", LANE)
    traffic.restore(
        again.network, again.crew, [(key, 1.0, Usage(20_000, 1000), "a"), (key, 300.0, Usage(50_000), "a"), (gone, 1.0, Usage(5), "a")], 5.0
    )
    (shown,) = again.view(5.0).pools
    assert shown.dimensions[0].limit_per_minute == 60_000
    assert shown.dimensions[0].level == pytest.approx(59_000 - 21_000 + 1000)
    deaf = Traffic(settings(upstream("p", learn=False)), 5.0)
    deaf.recall(learned, 5.0)
    assert [pool.dimensions for pool in deaf.view(5.0).pools] == [()]
    assert again.learned()["estimates"] == learned["estimates"]
    traffic.restore(again.network, again.crew, [], 5.0)
    assert again.handle(ask(1, tokens=1000), 5.0) != []


def test_a_limit_that_only_the_user_said_is_not_remembered_but_read_again() -> None:
    play = Playbook(SMALL) >> ask(1) << sent(1)
    again = Traffic(settings(upstream("p", Limits(tpm=60_000))), 5.0)
    again.recall(json.loads(json.dumps(play.traffic.learned())), 5.0)
    assert again.handle(ask(1), 5.0) == [sent(1)]
    assert again.view(5.0).pools[0].dimensions[0].limit_per_minute == 60_000


def test_an_agents_own_minute_is_carried_over_a_restart() -> None:
    key, capped, other = PoolKey("p", LANE), Agent("capped", 1, tpm_max=5000), Agent("other", 1, tpm_max=5000)
    play = Playbook(Limits(), hold_s=1e4)
    charges = [(key, 90.0, Usage(9000), "capped"), (key, 1.0, Usage(50, 450), "capped"), (key, 30.0, Usage(2000, 0, 9000, 1000), "capped")]
    traffic.restore(play.traffic.network, play.traffic.crew, [*charges, (key, 1.0, Usage(5000), "another")], play.now)
    play >> ask(1, other) << sent(1) >> ask(2, capped)
    assert play.traffic.view(play.now).agents[-1].used_tpm == 3500
    assert play >> After(29)
    assert play >> After(3) << sent(2)


POOL = {"account": "p", "api": "anthropic", "model_class": "m", "long_context": False, "margin": 1, "limits": {}}


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"pools": 3, "estimates": 3},
        {"pools": [3, {}, {**POOL, "api": "x"}], "estimates": {"models": 3, "habits": [3, [1]]}},
        {"pools": [{**POOL, "limits": {"tokens": [-1, 5]}}]},
        {"pools": [{**POOL, "account": "?"}]},
        {"pools": [{**POOL, "limits": {"?": [1, 5]}}]},
    ],
)
def test_what_is_not_understood_of_an_older_memory_is_left_out(nonsense: dict[str, object]) -> None:
    traffic = Traffic(settings(upstream("p")), 0.0)
    traffic.recall(nonsense, 0.0)
    assert [pool.dimensions for pool in traffic.view(0.0).pools if pool.dimensions] == []
    assert traffic.handle(ask(1), 0.0) == [sent(1)]


def test_other_settings_are_taken_over_while_streams_go_on() -> None:
    play = Playbook(SMALL, hold_s=1e5) >> [ask(1), ask(2), ask(3)] << sent(1) << sent(2)
    more = settings(upstream("other"), upstream("p", Limits(tpm=60_000, rpm=60)), headroom=0.0, cost_per_night=100.0)
    assert play.traffic.reload(more, play.now) == [away(3, 402)], "its price is not known"
    assert [dimension.limit_per_minute for dimension in play.traffic.view(play.now).pools[0].dimensions] == [60_000, 60]
    assert play >> Ended(1, End.SERVED, Usage(1, 1), cost_usd=1.0)
    assert play.traffic.reload(GatewaySettings(), play.now) == []
    assert play >> ask(4) << away(4, 503)


@pytest.mark.parametrize("learn", [False, True])
def test_a_limit_that_the_user_changes_counts_at_once_and_levels_are_kept(learn: bool) -> None:
    play = Playbook(SMALL, upstream("p", SMALL, learn=learn), margin=1.0) >> ask(1) << sent(1) >> Ended(1, End.SERVED, Usage(1000, 1000))
    for tpm, level in ((60_000, 4_000), (3_000, 3_000), (6_000, 3_000)):
        play.traffic.reload(settings(upstream("p", Limits(tpm=tpm), learn=learn), margin=1.0), play.now)
        (shown,) = play.traffic.view(play.now).pools[0].dimensions
        assert (shown.limit_per_minute, shown.capacity, shown.level) == (tpm, tpm, level)


def test_a_limit_that_the_provider_said_stays_and_the_users_binds_when_it_is_less() -> None:
    play = Playbook(SMALL, upstream("p", SMALL), margin=1.0) >> ask(1) << sent(1)
    play >> Responded(1, Observed({"tokens": Level(6_000, 5_000)})) >> Began(1, Usage(1000, 0))
    for tpm, limit in ((60_000, 6_000), (3_000, 3_000), (60_000, 6_000)):
        play.traffic.reload(settings(upstream("p", Limits(tpm=tpm)), margin=1.0), play.now)
        assert play.traffic.view(play.now).pools[0].dimensions[0].limit_per_minute == limit
    play.traffic.reload(settings(upstream("p", Limits(tpm=60_000), learn=False), margin=1.0), play.now)
    assert play.traffic.view(play.now).pools[0].dimensions[0].limit_per_minute == 60_000


def test_a_limit_that_the_user_takes_away_is_none_any_more() -> None:
    play = Playbook(SMALL, upstream("p", Limits(rpm=60, tpm=6_000)), hold_s=1e5) >> [ask(1), ask(2), ask(3)] << sent(1) << sent(2)
    assert play.traffic.reload(settings(upstream("p", Limits(rpm=60))), play.now) == [sent(3)]
    assert [dimension.name for dimension in play.traffic.view(play.now).pools[0].dimensions] == ["requests"]
    assert play >> Responded(1, Observed({"requests": Level(60, 58)})) >> Began(1, Usage(1000, 0))
    assert play >> Ended(1, End.SERVED, SERVED)


def test_agents_that_are_long_gone_are_forgotten_but_not_what_they_spent() -> None:
    poor = Agent("poor", 1, cost_max=1.0)
    play = Playbook(Limits()) >> ask(1, poor, bound_usd=0.9, session="s") << sent(1)
    play >> Ended(1, End.SERVED, Usage(100, 10, cache_write=50), cost_usd=0.9) >> After(4000) >> Tick()
    assert play.traffic.crew.budgets == {}
    assert play >> ask(2, poor, bound_usd=0.2) << away(2, 402)
    assert play >> Responded(1, NOTHING_OBSERVED)
