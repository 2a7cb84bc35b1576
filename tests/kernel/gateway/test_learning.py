"""Limits that nobody configured: how they are learned, and what is never called somebody else's use."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from supervisor.gateway.admission.bucket import INPUT, Bucket, Dimension, Owed, UpstreamBucket
from supervisor.gateway.admission.types import NOTHING_OBSERVED, Agent, Began, End, Ended, Level, Observed, Responded, Usage
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import (
    CLOSED,
    INTERACTIVE,
    LEARNING,
    MINUTE,
    THOUSAND,
    UNKNOWN,
    After,
    Playbook,
    ask,
    pool,
    said,
    sends,
    sent,
    settings,
    tokens,
    turn,
    upstream,
    upstream_level,
)

NOTHING_OWED = Owed(0.0, 0.0, 0.0, 0.0, 0.0, 0)


def test_t02_while_no_limit_is_known_one_request_proves_the_way() -> None:
    play = Playbook(UNKNOWN, LEARNING) >> [ask(n, f"a{n}", tokens=5000) for n in range(5)] << sent(0)
    assert play >> After(3)
    levels = Observed({"input": Level(20_000, 14_000, 18.0), "requests": Level(50, 49, 1.0)}, rounding=1000.0)
    assert play >> Responded(0, levels) << sent(1) << sent(2), "what is left, and no more"


def test_while_the_first_request_is_not_answered_another_one_goes_now_and_then() -> None:
    play = Playbook(UNKNOWN, LEARNING) >> [ask(n, f"a{n}") for n in range(5)] << sent(0)
    assert play >> After(15) << sent(1) >> After(14.9)
    assert play >> After(0.2) << sent(2)


def test_limits_that_are_no_longer_configured_must_be_learned_first() -> None:
    play = Playbook(MINUTE) >> ask(1) << sent(1) >> Ended(1, End.SERVED, None)
    play.tell([])
    assert play.traffic.reload(settings(LEARNING), play.now) == []
    assert play >> [ask(2), ask(3)] << sent(2)


def test_a_provider_that_says_no_limits_is_asked_freely_once_it_has_answered() -> None:
    play = Playbook(UNKNOWN, LEARNING) >> [ask(n, f"a{n}") for n in range(3)] << sent(0)
    assert play >> Ended(0, End.REJECTED, None) << sent(1), "an error that says nothing proves nothing"
    assert play >> Responded(1, NOTHING_OBSERVED) << sent(2)


def test_what_is_under_way_when_a_limit_is_learned_is_charged_to_it_and_is_nobody_elses_use() -> None:
    play = Playbook(UNKNOWN, LEARNING) >> [ask(n, f"a{n}", tokens=5000) for n in range(2)] << sent(0) >> After(15) << sent(1)
    play >> Responded(0, said(45_000, name="input")) >> Began(0, Usage(5000, 0))
    assert play
    assert upstream_level(play) == pytest.approx(40_000)
    play >> After(2) >> Responded(1, said(40_000, name="input")) >> Began(1, Usage(5000, 0))
    assert play
    assert tokens(play).outside_per_minute == 0


def test_limits_of_yesterday_let_a_little_through_until_an_answer_confirms_them() -> None:
    play = Playbook(UNKNOWN, LEARNING)
    lane = {"account": "p", "api": "anthropic", "model_class": "opus-4", "long_context": False}
    play.traffic.recall({"pools": [{**lane, "margin": 0.985, "limits": {"input": [60_000, 60_000]}}]}, play.now)
    play >> [ask(n, f"a{n}", tokens=2000) for n in range(5)] << sent(0) << sent(1) << sent(2)
    assert play >> Responded(0, said(4_000, limit=10_000, name="input"))
    assert tokens(play).limit_per_minute == 10_000
    assert upstream_level(play) == pytest.approx(0, abs=1e-6), "two more of 2000 are under way"


def test_an_answer_that_was_overtaken_changes_no_limit_back() -> None:
    play = Playbook(MINUTE, hold_s=1e5) >> [ask(1), ask(2)] << sent(1) << sent(2)
    assert play >> Responded(2, said(28_000, limit=30_000)) >> Responded(1, said(59_000, limit=60_000))
    assert tokens(play).limit_per_minute == 30_000


def test_our_own_first_guesses_open_no_breaker() -> None:
    play = Playbook(UNKNOWN, LEARNING) >> [ask(n, f"a{n}", tokens=10) for n in range(16)] << sent(0)
    found = play.tell(Responded(0, Observed({"output": Level(16_000, 16_000, 0.0)}, rounding=1000.0)))
    assert len(sends(found)) == 15
    for number in [0, *sends(found)]:
        play.tell(Began(number, Usage(10, 1)))
        play.tell(After(0.1))
    assert pool(play).breaker is CLOSED


def test_while_others_use_the_limit_what_they_take_until_the_next_answer_is_left_to_them() -> None:
    dimension = Dimension(INPUT, 60_000, 60.0, 10.0, 0.0)
    dimension.begin(Level(60_000, 30_000, 30.0), (1, 0.0), (0.0, 0.0), 0.0, 0.0)
    assert dimension.fits(30_000, 0.0, NOTHING_OWED, 0.0)
    assert not dimension.fits(31_700, 0.0, NOTHING_OWED, 4.0), "three fifths of the refill since then may be gone"
    assert dimension.fits(31_500, 0.0, NOTHING_OWED, 4.0)
    ready = dimension.fits_at(40_000, 0.0, NOTHING_OWED, 4.0)
    assert dimension.fits(40_000, 0.0, NOTHING_OWED, ready)


@given(
    st.lists(
        st.tuples(st.floats(0.0, 5.0), st.floats(1.0, 20_000.0), st.floats(0.6, 1.0), st.floats(0.0, 10.0), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    st.sampled_from([6.0, 12.0, 60.0]),
)
@example([(gap, amount, 1.0, 0.0, False) for gap, amount in [(0.0, 1.0)] * 8 + [(0.0, 10_490.0), (1.0, 1.0), (4.0, 1.0)]], 6.0)
def test_no_order_of_answers_and_no_wrong_estimate_of_ours_is_called_outside_use(
    sends: list[tuple[float, float, float, float, bool]], burst_s: float
) -> None:
    """A provider that nobody else uses: requests of any size, estimates that are up to 40 % too high, answers up to 10 s late."""
    rate = 1000.0
    real, ours = Bucket(rate, rate * burst_s, 0.0), UpstreamBucket(rate, rate * burst_s, 0.0)
    now, answers = 0.0, []
    for gap, amount, part, late_s, whole in sends:
        now += gap
        actual = amount * part
        real.take(actual, now)
        level = max(0.0, round(real.level, -3))
        answers.append((now + late_s, now, ours.send(amount, 0.0, now), level, actual - amount, whole))
        for answer in sorted(answer for answer in answers if answer[0] <= now):
            answers.remove(answer)
            _, sent_at, mark, left, wrong, _ = answer
            ours.correct(wrong, now)
            doubt = sum(abs(one[4]) for one in answers)
            if sent_at >= ours.heard_at:
                ours.heard(left, mark, sent_at, (doubt, doubt), 1000.0, now)
            assert ours.outside(now) == 0


@pytest.mark.parametrize("told", [False, True])
def test_what_is_under_way_when_a_limit_is_configured_counts_against_it(told: bool) -> None:
    play = Playbook(UNKNOWN, LEARNING)
    play.tell([ask(0), Responded(0, said(600_000, limit=600_000, name="output") if told else NOTHING_OBSERVED)])
    assert len(sends(play.tell([ask(n, f"a{n}") for n in range(1, 5)]))) == 4, "1,200 of output are expected of each"
    play.traffic.reload(settings(upstream(limits=Limits(otpm=6_000))), play.now)
    assert tokens(play).level <= 0.985 * 6_000 - 5 * 1_200
    assert play >> ask(5), "it waits"
    found = play.tell([Ended(n, End.SERVED, Usage(1000, 10)) for n in range(5)])
    assert sends(found) == [5]
    assert tokens(play).level <= 0.985 * 6_000 - 5 * 10 - 1_000


@pytest.mark.parametrize("full_in_s", [None, 1e6])
def test_nonsense_that_a_provider_said_once_holds_nobody_back_for_long(full_in_s: float | None) -> None:
    play = Playbook(UNKNOWN, LEARNING, hold_s=1e9)
    turn(play, 1, said(9e14, full_in_s=full_in_s))
    assert tokens(play).capacity <= 2 * 60_000, "no bucket holds more than two minutes"
    play.tell([ask(2, Agent("person", 1, INTERACTIVE)), Responded(2, said(30_000)), Began(2, THOUSAND), Ended(2, End.SERVED, THOUSAND)])
    assert upstream_level(play) > 29_000
    assert sends(play.tell([ask(3)]) + play.tell(After(90))) == [3]
