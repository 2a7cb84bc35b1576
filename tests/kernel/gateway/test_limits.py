"""Buckets, what headers teach, and the forecast."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.gateway.admission.breaker import Ramp
from supervisor.gateway.admission.bucket import RESERVE_MOST, Bucket, UpstreamBucket
from supervisor.gateway.admission.types import Began, End, Ended, LaneKey, Level, Observed, Refusal, Refused, Responded, Usage, Window
from supervisor.kernel.gateway_settings import Api, Limits
from tests.kernel.gateway.playbook import (
    CLOSED,
    HALF_OPEN,
    LEARNING,
    MINUTE,
    OPEN,
    THOUSAND,
    UNKNOWN,
    After,
    Playbook,
    ask,
    journal,
    pool,
    said,
    sends,
    sent,
    tokens,
    turn,
    upstream,
    upstream_level,
)


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


def test_the_ramp_doubles_in_7_s_at_first_and_in_30_s_for_an_hour_after_a_refusal() -> None:
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
    assert climb(ramp, 0.0) == [16, 32, 64, 256, 4096]
    ramp.restart(100.0, careful=True)
    assert climb(ramp, 100.0) == [2, 2, 2, 4, 8]
    assert climb(ramp, 2000.0) == [2, 2, 2, 4, 8], "idle: from its bottom again"
    assert climb(ramp, 5000.0) == [16, 32, 64, 256, 4096]


def test_a_ramp_that_is_not_used_does_not_rise() -> None:
    ramp = Ramp(0.0)
    for second in range(0, 100, 5):
        assert ramp.allows(3, float(second))
        ramp.sent(4)
    assert ramp.ceiling == 16


# What headers teach ---------------------------------------------------------------------------------------------------------------


def test_limits_that_nobody_configured_are_learned_with_their_level() -> None:
    play = Playbook(UNKNOWN, LEARNING) >> ask(1) << sent(1) >> Responded(1, said(40_000, name="input"))
    assert play
    (dimension,) = pool(play).dimensions
    assert (dimension.name, dimension.limit_per_minute) == ("input", 60_000)
    assert dimension.level == pytest.approx(40_000 - 1000), "what is left, less the rounding"


def test_the_sum_that_anthropic_repeats_is_no_limit_of_its_own() -> None:
    levels = {
        "input": Level(80_000, 79_000),
        "output": Level(16_000, 16_000),
        "tokens": Level(96_000, 95_000),
        "requests": Level(1000, 999),
    }
    play = Playbook(UNKNOWN, LEARNING)
    turn(play, 1, Observed(levels, rounding=1000.0))
    assert [dimension.name for dimension in pool(play).dimensions] == ["requests", "input", "output"]
    assert (
        Playbook(UNKNOWN, LEARNING) >> ask(1) << sent(1) >> Responded(1, said(5.0, limit=-3)) >> Responded(1, Observed({"tokens": Level()}))
    )


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
    """The reset may be off by a second, the remaining by 500: the smallest bucket that agrees with all answers is believed."""
    play = Playbook(MINUTE)
    turn(play, 1, said(14_000, full_in_s=1.0))
    assert tokens(play).capacity == pytest.approx(0.985 * 13_500)
    play >> After(10)
    turn(play, 2, said(12_000, full_in_s=4.0))
    assert tokens(play).capacity == pytest.approx(0.985 * 14_500)
    play >> After(10)
    turn(play, 3, said(10_000, full_in_s=5.0))
    assert tokens(play).capacity == pytest.approx(0.985 * 14_500)


def test_rounding_is_no_outside_use() -> None:
    play = Playbook(MINUTE, margin=1.0)
    left = 60_000.0
    for ticket in range(60):
        left = min(60_000, left + 2000) - 1000
        turn(play, ticket, said(round(left / 1000) * 1000))
        play >> After(2)
        assert tokens(play).outside_per_minute == 0
    assert tokens(play).level > 57_000


def test_outside_use_is_learned_as_a_rate_and_forgotten_when_it_ends() -> None:
    play, ticket, left = Playbook(MINUTE, patient_hold_s=1e5), 0, 60_000.0
    for _ in range(60):  # somebody takes 20,000 of the 60,000 a minute
        left = min(60_000.0, left + 2000 - 667) - 1500
        ticket += 1
        turn(play, ticket, said(round(left, -3)), Usage(1500, 0))
        play >> After(2)
    assert tokens(play).outside_per_minute == pytest.approx(20_000, rel=0.1)
    for _ in range(40):
        left = min(60_000.0, left + 2000) - 1950
        ticket += 1
        turn(play, ticket, said(round(left, -3)), Usage(1950, 0))
        play >> After(2)
    assert tokens(play).outside_per_minute < 600


def test_when_nothing_is_heard_outside_use_is_forgotten_in_a_minute_so_that_nobody_waits_for_ever() -> None:
    upstream = UpstreamBucket(1000.0, 60_000.0, 0.0)
    for second in range(0, 60, 2):
        mark = upstream.send(100.0, 0.0, float(second))
        upstream.heard(30_000 - 2000 * (second / 2), mark, float(second), (0.0, 0.0), 0.0, float(second))
    at_the_end = upstream.outside(58.0)
    assert at_the_end > 500
    assert 0 < upstream.outside(90.0) < at_the_end
    assert upstream.outside(120.0) == 0


def test_headers_of_requests_that_were_sent_before_the_last_one_heard_say_nothing_new() -> None:
    play = Playbook(MINUTE) >> [ask(1), ask(2)] << sent(1) << sent(2)
    play >> Responded(2, said(58_000)) >> Began(2, Usage(1000, 0)) >> Responded(1, said(30_000)) >> Began(1, Usage(1000, 0))
    assert play
    assert tokens(play).level > 50_000


def test_how_output_is_counted_is_not_forgotten_by_answers_that_say_nothing_of_it() -> None:
    upstream, left = UpstreamBucket(1000.0, 60_000.0, 0.0), 60_000.0
    for second in range(20):  # output is being written in every other second, and what is left does not know of it
        mark = upstream.send(0.0, 5_000.0 * (second % 2), float(second))
        upstream.heard(left, mark, float(second), (0.0, 0.0), 0.0, float(second))
    learned = upstream.counted(1.0)
    assert learned < 0.1
    for second in range(20, 50_000):
        mark = upstream.send(1000.0, 0.0, float(second))
        upstream.heard(59_000.0, mark, float(second), (0.0, 0.0), 1000.0, float(second))
    assert upstream.counted(1.0) == pytest.approx(learned)


def test_what_others_took_at_once_is_taken_from_our_level_at_once() -> None:
    play = Playbook(MINUTE) >> ask(1) << sent(1) >> Responded(1, said(20_000)) >> Began(1, Usage(1000, 0))
    assert play
    reserve = 1000 + RESERVE_MOST * 60_000
    assert upstream_level(play) == pytest.approx(20_500)
    assert tokens(play).level == pytest.approx(20_500 - 1200 - 1000 - min(10 * tokens(play).outside_per_minute / 60, reserve))


def test_other_providers_count_an_estimate_at_once_and_are_compared_at_once() -> None:
    lane = LaneKey(Api.OPENAI, "gpt-5")
    other = upstream(limits=MINUTE)
    play = Playbook(MINUTE, type(other)("p", Api.OPENAI, "http://127.0.0.1", limits=MINUTE))
    play >> ask(1, lane=lane) << sent(1) >> Responded(1, Observed({"tokens": Level(60_000, 20_000)}))
    assert play
    assert upstream_level(play) == pytest.approx(20_000)


def test_the_breaker_opens_before_the_limit_when_others_will_take_what_is_left() -> None:
    play = Playbook(MINUTE) >> [ask(n, f"a{n}") for n in range(10)] << sent(0)
    for number in range(1, 10):
        play << sent(number)
    play >> Responded(0, said(5_000)) >> Began(0, Usage(1000, 0))
    play << journal("limit", CLOSED, OPEN, why="tokens would be gone within 10s")
    view = pool(play)
    assert view.breaker is OPEN
    assert view.opens_in_s
    assert play >> ask(10) >> After(view.opens_in_s - 0.1)


def test_a_breaker_that_opened_by_its_forecast_closes_without_a_probe_when_the_level_is_back() -> None:
    play = Playbook(MINUTE, hold_s=1e4) >> ask(1) << sent(1) >> Began(1, Usage(70_000, 0)) << journal("limit", CLOSED, OPEN)
    play >> Ended(1, End.SERVED, Usage(70_000, 0)) >> [ask(2), ask(3)] >> After(60)
    assert play << journal("limit", OPEN, CLOSED, why="what was forecast did not happen") << sent(2) << sent(3)


def test_a_breaker_that_opened_because_others_took_more_than_the_limit_gives_tries_again_within_a_minute() -> None:
    """What others take is what they took in the last minute: nobody knows more of the next one."""
    play, left = Playbook(MINUTE, hold_s=1e9), 60_000.0
    for ticket in range(30):
        left = min(60_000.0, left + 2000) - 500 - 1800
        turn(play, ticket, said(round(left, -3)), Usage(500, 0))
        play >> After(2)
    play >> ask(30, tokens=500) << sent(30) >> Responded(30, said(0)) >> Began(30, Usage(500, 0))
    play << journal("limit", CLOSED, OPEN, why="tokens would be gone within 10s") >> Ended(30, End.SERVED, Usage(500, 0))
    assert tokens(play).outside_per_minute > 60_000
    assert play.traffic.view(play.now).agents[0].share_tpm in (None, 0.0), "nothing is left to share"
    assert play >> ask(31, tokens=500) >> After(61) << journal("limit", OPEN, CLOSED) << sent(31)


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


def test_headers_may_leave_out_what_they_like() -> None:
    play = Playbook(Limits(rpm=60), hold_s=1e4)
    turn(play, 1, said(limit=6_000))
    assert tokens(play).capacity == 6000
    assert tokens(play).level == pytest.approx(6000 - 600), "nothing is known of it but the limit"
    windows = (Window("5h", 1.0, 100.0, spent=True),)
    play >> ask(2) << sent(2) >> Refused(2, Refusal.RATE_LIMITED, Observed(windows=windows, retry_after_s=1.0))
    play << journal("limit", CLOSED, OPEN)
    assert play >> After(99)
    assert pool(play).windows[0].resets_in_s == 1.0


def test_what_others_took_once_is_not_taken_again_by_the_next_header() -> None:
    play = Playbook(MINUTE) >> [ask(1), ask(2)] << sent(1) << sent(2)
    play >> Responded(1, said(29_000)) >> Began(1, THOUSAND) >> Responded(2, said(28_000)) >> Began(2, THOUSAND)
    assert play
    assert upstream_level(play) == pytest.approx(28_500)


def test_our_own_wrong_estimate_is_nobody_elses_use() -> None:
    play = Playbook(MINUTE) >> [ask(1), ask(2)] << sent(1) << sent(2)
    play >> Responded(1, said(50_000)) >> Began(1, Usage(10_000, 0)) >> Responded(2, said(49_000)) >> Began(2, THOUSAND)
    assert play
    assert upstream_level(play) == pytest.approx(49_000, abs=500)
    assert tokens(play).outside_per_minute == 0


def test_what_is_reserved_grows_with_output_that_was_seen() -> None:
    play = Playbook(MINUTE) >> [ask(1), ask(2)] << sent(1) << sent(2) >> Began(1, Usage(1000, 5000))
    assert play
    assert tokens(play).reserved == 5000 + 2200


def test_what_a_refusal_took_from_the_level_is_not_taken_again_by_headers_of_requests_sent_before() -> None:
    play = Playbook(MINUTE, hold_s=1e5) >> [ask(n) for n in range(4)] << sent(0) << sent(1) << sent(2) << sent(3)
    refused = Observed({"tokens": Level(60_000, 0)}, retry_after_s=3.0, rounding=1000.0)
    play >> Refused(2, Refusal.RATE_LIMITED, refused) << journal("limit", CLOSED, OPEN)
    for ticket, remaining in ((0, 2000), (1, 1000), (3, 0)):
        play >> Responded(ticket, said(remaining)) >> Began(ticket, THOUSAND) >> Ended(ticket, End.SERVED, THOUSAND)
    assert play
    assert upstream_level(play) == pytest.approx(0, abs=1000)
    assert play >> After(25) << journal("limit", OPEN, HALF_OPEN) << sent(2, attempt=2, probe=True)


def test_a_bucket_whose_reset_nobody_says_is_as_large_as_what_was_seen_in_it() -> None:
    """A provider with a bucket of 6 s that says no reset: it is full again and again, and nobody else uses it."""
    play, real = Playbook(UNKNOWN, LEARNING), Bucket(1000.0, 6_000.0, 1000.0)
    for ticket in range(40):
        real.take(1000.0, play.now)
        turn(play, ticket, said(round(real.level, -3), name="input"))
        play >> After(3)
        assert tokens(play).outside_per_minute == 0
    assert 4_000 <= tokens(play).capacity <= 6_500
    assert pool(play).breaker is CLOSED


def test_a_bucket_of_one_request_is_seen_although_nothing_is_ever_left_in_it() -> None:
    play, real = Playbook(UNKNOWN, LEARNING, hold_s=1e5), Bucket(5 / 60, 1.0, 1000.0)
    for ticket in range(10):
        found = play.tell(ask(ticket))
        while not sends(found):
            found += play.tell(After(1))
        assert sends(found) == [ticket]
        assert real.advance(play.now) >= 1.0, "it would have been refused"
        real.take(1.0, play.now)
        play >> Responded(ticket, Observed({"requests": Level(5, float(int(real.level)), 12.0)})) >> Began(ticket, THOUSAND)
        play >> Ended(ticket, End.SERVED, THOUSAND)
    requests = pool(play).dimensions[0]
    assert requests.capacity < 1.5
    assert requests.outside_per_minute == 0


def test_a_smaller_bucket_is_nobody_elses_use() -> None:
    play = Playbook(MINUTE)
    for ticket in range(4):
        turn(play, ticket, said(14_000, full_in_s=1.0))
        assert tokens(play).outside_per_minute == 0
        assert tokens(play).level <= 14_000
        play >> After(20)
    assert tokens(play).capacity == pytest.approx(0.985 * 13_500)


def test_headers_of_requests_sent_before_a_smaller_bucket_was_learned_are_compared_with_it() -> None:
    play = Playbook(MINUTE) >> [ask(n) for n in range(6)] << sent(0) << sent(1) << sent(2) << sent(3) << sent(4) << sent(5)
    for ticket in range(6):
        play >> Responded(ticket, said(14_000 - 1000 * ticket, full_in_s=1.0 + ticket)) >> Began(ticket, THOUSAND)
    assert play
    assert upstream_level(play) == pytest.approx(9_000, abs=1000)
    assert tokens(play).outside_per_minute == 0
