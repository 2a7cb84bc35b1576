"""Buckets, what headers teach, and the forecast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.gateway.bucket import Bucket
from supervisor.core.gateway.dimension import TOKENS, Dimension
from supervisor.core.gateway.events import Began, Ended, Refused, Responded
from supervisor.core.gateway.nouns import Api, DimensionView, End, LaneKey, Level, Observed, PoolView, Refusal, Usage, Window
from supervisor.core.gateway.ramp import Ramp
from supervisor.core.gateway.settings import Limits
from tests.core.gateway.playbook import CLOSED, HALF_OPEN, OPEN, After, Playbook, ask, journal, sent, upstream

MINUTE = Limits(tpm=60_000)
THOUSAND = Usage(1000, 0)


@given(st.lists(st.tuples(st.floats(-50, 200), st.floats(-500, 2000), st.booleans()), max_size=50), st.floats(0.1, 100), st.floats(1, 1000))
def test_a_bucket_is_never_fuller_than_its_capacity_nor_gives_more_than_it_gained(
    acts: list[tuple[float, float, bool]], rate: float, capacity: float
) -> None:
    bucket, now, latest, taken = Bucket(rate, capacity, 0.0), 0.0, 0.0, 0.0
    for gap, amount, tuned in acts:
        now += gap
        latest = max(latest, now)
        if amount > 0 and bucket.wait_s(amount, now) == 0 and amount <= bucket.capacity:
            taken += amount
            bucket.take(amount, now)
        elif tuned:
            bucket.tune(rate, capacity, now)
        assert bucket.level <= bucket.capacity
    assert taken <= capacity + rate * latest + 1e-3


def test_a_bucket_without_a_rate_is_never_waited_for_and_more_than_it_holds_waits_until_it_is_full() -> None:
    empty, slow = Bucket(0.0, 10.0, 0.0), Bucket(1.0, 10.0, 0.0)
    empty.take(5.0, 0.0)
    slow.take(5.0, 0.0)
    assert empty.wait_s(6.0, 0.0) == float("inf")
    assert (slow.wait_s(6.0, 0.0), slow.wait_s(99.0, 0.0), slow.wait_s(5.0, 0.0)) == (1.0, 5.0, 0.0)


def test_the_ramp_doubles_in_10_s_at_first_and_in_30_s_for_an_hour_after_a_refusal() -> None:
    def climb(ramp: Ramp, now: float) -> list[int]:
        """How many are in flight after each second, when all that may go do."""
        flying, found = 0, []
        for second in range(61):
            while ramp.allows(flying, now + second):
                flying += 1
                ramp.sent(flying)
            found.append(flying)
        return [found[0], found[10], found[20], found[30], found[60]]

    ramp = Ramp(0.0)
    assert climb(ramp, 0.0) == [16, 32, 64, 128, 1024]
    ramp.restart(100.0, careful=True)
    assert climb(ramp, 100.0) == [2, 2, 2, 4, 8]
    assert climb(ramp, 2000.0) == [2, 2, 2, 4, 8], "idle: from its bottom again"
    assert climb(ramp, 5000.0) == [16, 32, 64, 128, 1024]


def test_a_ramp_that_is_not_used_does_not_rise() -> None:
    ramp = Ramp(0.0)
    for second in range(0, 100, 5):
        assert ramp.allows(3, float(second))
        ramp.sent(4)
    assert ramp.ceiling == 16


# What headers teach ---------------------------------------------------------------------------------------------------------------


def said(remaining: float | None = None, limit: float | None = 60_000, full_in_s: float | None = None, name: str = "tokens") -> Observed:
    return Observed({name: Level(limit, remaining, full_in_s)}, rounding=1000.0)


def tokens(play: Playbook) -> DimensionView:
    return pool(play).dimensions[-1]


def pool(play: Playbook) -> PoolView:
    return play.traffic.view(play.now).pools[0]


def turn(play: Playbook, ticket: int, observed: Observed, usage: Usage = THOUSAND) -> None:
    """One request that is served; the headers come with its first byte."""
    play >> ask(ticket) << sent(ticket) >> Responded(ticket, observed) >> Began(ticket, usage) >> Ended(ticket, End.SERVED, usage)
    assert play


def test_limits_that_nobody_configured_are_learned_with_their_level() -> None:
    play = Playbook() >> [ask(1), ask(2)] << sent(1) << sent(2) >> Responded(1, said(40_000, name="input"))
    assert play
    (dimension,) = pool(play).dimensions
    assert (dimension.name, dimension.limit_per_minute) == ("input", 60_000)
    assert dimension.level == pytest.approx(40_000)
    assert play >> Refused(2, Refusal.UNREACHABLE) >> After(1.2) << sent(2, attempt=2)


def test_the_sum_that_anthropic_repeats_is_no_limit_of_its_own() -> None:
    levels = {
        "input": Level(80_000, 79_000),
        "output": Level(16_000, 16_000),
        "tokens": Level(96_000, 95_000),
        "requests": Level(1000, 999),
    }
    play = Playbook()
    turn(play, 1, Observed(levels, rounding=1000.0))
    assert [dimension.name for dimension in pool(play).dimensions] == ["requests", "input", "output"]
    assert Playbook() >> ask(1) << sent(1) >> Responded(1, said(5.0, limit=-3)) >> Responded(1, Observed({"tokens": Level()}))


def test_where_learning_is_off_headers_change_nothing() -> None:
    play = Playbook(MINUTE, upstream(limits=MINUTE, learn=False))
    turn(play, 1, said(5, limit=10))
    turn(play, 2, said(5, limit=10))
    assert tokens(play).limit_per_minute == 60_000
    assert tokens(play).level == pytest.approx(0.985 * 60_000 - 2000)
    play >> ask(3) << sent(3) >> Refused(3, Refusal.RATE_LIMITED, said(5, limit=10)) << journal("limit", CLOSED, OPEN)
    assert tokens(play).limit_per_minute == 60_000


def test_a_changed_limit_is_followed_and_never_above_the_users_own() -> None:
    play = Playbook(MINUTE)
    turn(play, 1, said(29_000, limit=30_000))
    assert tokens(play).limit_per_minute == 30_000
    assert tokens(play).capacity == pytest.approx(0.985 * 30_000)
    turn(play, 2, said(119_000, limit=120_000))
    assert tokens(play).limit_per_minute == 60_000
    assert tokens(play).capacity == pytest.approx(0.985 * 60_000)


def test_more_that_is_left_than_we_thought_there_could_be_is_a_larger_bucket() -> None:
    play = Playbook(MINUTE)
    turn(play, 1, said(90_000))
    assert tokens(play).capacity == pytest.approx(0.985 * 90_000)


def test_a_smaller_bucket_is_learned_from_when_it_will_be_full() -> None:
    play = Playbook(MINUTE)
    for ticket in range(3):
        turn(play, ticket, said(14_000, full_in_s=1.0))
        play >> After(10)
    assert tokens(play).capacity == pytest.approx(0.985 * 15_000)
    turn(play, 9, said(10_000, full_in_s=5.0))
    assert tokens(play).capacity == pytest.approx(0.985 * 15_000)


def test_rounding_is_no_outside_use() -> None:
    play = Playbook(MINUTE, margin=1.0)
    left = 60_000.0
    for ticket in range(60):
        left = min(60_000, left + 2000) - 1000
        turn(play, ticket, said(round(left / 1000) * 1000))
        play >> After(2)
        assert tokens(play).outside_per_minute == 0
    assert tokens(play).level == tokens(play).capacity


def test_outside_use_is_learned_as_a_rate_and_forgotten_when_it_ends() -> None:
    play, ticket, left = Playbook(MINUTE, patient_hold_s=1e5), 0, 60_000.0
    for _ in range(60):  # somebody takes 20,000 of the 60,000 a minute
        left = min(60_000.0, left + 2000 - 667) - 1500
        ticket += 1
        turn(play, ticket, said(round(left, -3)), Usage(1500, 0))
        play >> After(2)
    assert tokens(play).outside_per_minute == pytest.approx(20_000, rel=0.25)
    for _ in range(60):
        left = min(60_000.0, left + 2000) - 1950
        ticket += 1
        turn(play, ticket, said(round(left, -3)), Usage(1950, 0))
        play >> After(2)
    assert tokens(play).outside_per_minute < 3000
    for _ in range(5):
        play >> After(100) >> ask(ticket + 1) << sent(ticket + 1) >> Ended(ticket + 1, End.SERVED, None)
        ticket += 1
    assert tokens(play).outside_per_minute == 0


def test_when_nothing_is_heard_outside_use_is_believed_less_and_less_so_that_nobody_waits_for_ever() -> None:
    dimension = Dimension(TOKENS, 60_000, 60.0, 0.0)
    dimension.tune(1.0, 0.0)
    dimension.outside = 800.0
    dimension.tune(1.0, 0.0)
    assert dimension.bucket.rate == 200
    assert dimension.doubt(19.0) == 20.0
    assert (dimension.doubt(20.0), dimension.outside) == (40.0, 400.0)
    assert (dimension.doubt(500.0), dimension.outside) == (float("inf"), 0.0)


def test_headers_of_requests_that_were_sent_before_the_last_one_heard_say_nothing_new() -> None:
    play = Playbook(MINUTE) >> [ask(1), ask(2)] << sent(1) << sent(2)
    play >> Responded(2, said(58_000)) >> Began(2, Usage(1000, 0)) >> Responded(1, said(30_000)) >> Began(1, Usage(1000, 0))
    assert play
    assert tokens(play).level > 50_000


def test_what_others_took_at_once_is_taken_from_our_level_at_once() -> None:
    play = Playbook(MINUTE) >> ask(1) << sent(1) >> Responded(1, said(20_000)) >> Began(1, Usage(1000, 0))
    assert play
    assert tokens(play).level == pytest.approx(20_000 - 1200)


def test_other_providers_count_an_estimate_at_once_and_are_compared_at_once() -> None:
    lane = LaneKey(Api.OPENAI, "gpt-5")
    other = upstream(limits=MINUTE)
    play = Playbook(MINUTE, type(other)("p", Api.OPENAI, "http://127.0.0.1", limits=MINUTE))
    play >> ask(1, lane=lane) << sent(1) >> Responded(1, Observed({"tokens": Level(60_000, 20_000)}))
    assert play
    assert tokens(play).level == pytest.approx(20_000 - 1200)


def test_the_breaker_opens_before_the_limit_when_others_leave_less_than_what_is_on_its_way() -> None:
    play = Playbook(MINUTE) >> [ask(n, f"a{n}") for n in range(10)] << sent(0)
    for number in range(1, 10):
        play << sent(number)
    play >> Responded(0, said(5_000)) >> Began(0, Usage(1000, 0))
    play << journal("limit", CLOSED, OPEN, why="tokens would be gone within 10 s")
    view = pool(play)
    assert view.breaker is OPEN
    assert view.opens_in_s == pytest.approx((6_000 + 4_000 + 12_000) / 1000, abs=0.2)
    assert play >> ask(10) >> After(5)


def test_a_wrong_estimate_opens_it_too_and_a_planned_debt_does_not() -> None:
    play = Playbook(MINUTE) >> ask(1) << sent(1) >> Began(1, Usage(70_000, 0)) << journal("limit", CLOSED, OPEN)
    assert play
    play = Playbook(MINUTE) >> ask(1, tokens=100_000) << sent(1) >> Began(1, Usage(100_000, 0))
    assert play


def test_a_refusal_that_says_what_is_left_empties_only_what_is_short() -> None:
    play = Playbook(Limits(rpm=60, itpm=60_000)) >> ask(1) << sent(1)
    levels = {"requests": Level(60, 0), "input": Level(60_000, 50_000)}
    play >> Refused(1, Refusal.RATE_LIMITED, Observed(levels, retry_after_s=1.0)) << journal("limit", CLOSED, OPEN)
    requests, given = pool(play).dimensions
    assert requests.level == 0
    assert given.level == pytest.approx(50_000)


def test_time_to_exhaustion_is_shown_while_more_is_spent_than_comes() -> None:
    play = Playbook(MINUTE, margin=1.0)
    assert pool_after(play, 0) is None
    for ticket in range(1, 11):
        turn(play, ticket, said(), Usage(4000, 0))
    assert pool(play).exhausted_in_s is None, "nothing is in flight"
    assert play >> ask(11, tokens=0) << sent(11)
    assert pool(play).exhausted_in_s == pytest.approx((20_000 - 4000) / (40_000 / 15 - 1000), rel=0.01)
    play >> After(31)
    assert pool(play).exhausted_in_s is None


def pool_after(play: Playbook, ticket: int) -> float | None:
    turn(play, ticket, said(), Usage(1, 0))
    return pool(play).exhausted_in_s


def test_outside_use_that_nothing_confirms_for_two_minutes_is_believed_half() -> None:
    dimension = Dimension(TOKENS, 60_000, 60.0, 0.0)
    dimension.outside = 400.0
    dimension.tune(1.0, 0.0)
    for second in range(0, 125, 5):
        mark = dimension.send(0.0, 0.0, float(second))
        dimension.heard(Level(60_000, round(mark, -3)), mark, second, 0.0, 1000.0, float(second))
    assert dimension.outside == 200.0


def test_headers_may_leave_out_what_they_like() -> None:
    play = Playbook(Limits(rpm=60), hold_s=1e4)
    turn(play, 1, said(limit=6_000))
    assert tokens(play).level == tokens(play).capacity == pytest.approx(0.985 * 6000)
    windows = (Window("5h", 1.0, 100.0, spent=True),)
    play >> ask(2) << sent(2) >> Refused(2, Refusal.RATE_LIMITED, Observed(windows=windows, retry_after_s=1.0))
    play << journal("limit", CLOSED, OPEN)
    assert play >> After(99)
    assert pool(play).windows[0].resets_in_s == 1.0


def test_what_others_took_once_is_not_taken_again_by_the_next_header() -> None:
    play = Playbook(MINUTE) >> [ask(1), ask(2)] << sent(1) << sent(2)
    play >> Responded(1, said(29_000)) >> Began(1, THOUSAND) >> Responded(2, said(28_000)) >> Began(2, THOUSAND)
    assert play
    assert tokens(play).level == pytest.approx(28_000 - 2 * 1200)


def test_our_own_wrong_estimate_is_nobody_elses_use() -> None:
    play = Playbook(MINUTE) >> [ask(1), ask(2)] << sent(1) << sent(2)
    play >> Responded(1, said(50_000)) >> Began(1, Usage(10_000, 0)) >> Responded(2, said(49_000)) >> Began(2, THOUSAND)
    assert play
    assert tokens(play).level == pytest.approx(min(0.985 * 60_000 - 11_000, 49_000) - 2 * 1200)


def test_what_is_reserved_grows_with_output_that_was_seen() -> None:
    play = Playbook(MINUTE) >> [ask(1), ask(2)] << sent(1) << sent(2) >> Began(1, Usage(1000, 5000))
    assert play
    assert tokens(play).reserved == 5000 + 2200


def mirror(play: Playbook) -> float:
    return play.traffic.network.pools()[0].dimensions[-1].mirror.advance(play.now)


def test_what_a_refusal_took_from_the_level_is_not_taken_again_by_headers_of_requests_sent_before() -> None:
    play = Playbook(MINUTE, hold_s=1e5) >> [ask(n) for n in range(4)] << sent(0) << sent(1) << sent(2) << sent(3)
    refused = Observed({"tokens": Level(60_000, 0)}, retry_after_s=3.0, rounding=1000.0)
    play >> Refused(2, Refusal.RATE_LIMITED, refused) << journal("limit", CLOSED, OPEN)
    for ticket, remaining in ((0, 2000), (1, 1000), (3, 0)):
        play >> Responded(ticket, said(remaining)) >> Began(ticket, THOUSAND) >> Ended(ticket, End.SERVED, THOUSAND)
    assert play
    assert mirror(play) == pytest.approx(0, abs=1000)
    assert play >> After(3.9) << journal("limit", OPEN, HALF_OPEN) << sent(2, attempt=2, probe=True)


def test_a_smaller_bucket_is_nobody_elses_use() -> None:
    play = Playbook(MINUTE)
    for ticket in range(4):
        turn(play, ticket, said(14_000, full_in_s=1.0))
        assert tokens(play).outside_per_minute == 0
        assert tokens(play).level <= 14_000
        play >> After(20)
    assert tokens(play).capacity == pytest.approx(0.985 * 15_000)


def test_headers_of_requests_sent_before_a_smaller_bucket_was_learned_are_compared_with_it() -> None:
    play = Playbook(MINUTE) >> [ask(n) for n in range(6)] << sent(0) << sent(1) << sent(2) << sent(3) << sent(4) << sent(5)
    for ticket in range(6):
        play >> Responded(ticket, said(14_000 - 1000 * ticket, full_in_s=1.0 + ticket)) >> Began(ticket, THOUSAND)
    assert play
    assert mirror(play) == pytest.approx(9_000, abs=1000)
