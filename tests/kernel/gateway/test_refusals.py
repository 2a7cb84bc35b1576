"""What becomes of requests that the provider refuses, and of its pool. Battery N01-N03, N05, N13."""

from __future__ import annotations

from itertools import pairwise

import pytest

from supervisor.gateway.admission.types import (
    NOTHING_OBSERVED,
    End,
    Ended,
    Journal,
    Observed,
    Refusal,
    Refused,
    Responded,
    Send,
    Tick,
    TurnAway,
    Usage,
    Window,
    Withdrawn,
)
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import (
    CLOSED,
    HALF_OPEN,
    OPEN,
    SERVED,
    SMALL,
    After,
    Playbook,
    alert,
    ask,
    away,
    journal,
    margin,
    refused,
    sends,
    sent,
    upstream,
)


def test_n01_a_429_freezes_the_pool_for_retry_after_and_everybody_is_held() -> None:
    play = Playbook(Limits(tpm=60_000), margin=1.0) >> [ask(1, "a"), ask(2, "b")] << sent(1) << sent(2)
    play >> refused(1, after=30.0) << journal("limit", CLOSED, OPEN, why="rate limited")
    assert play >> [ask(3, "c"), Ended(2, End.SERVED, SERVED)] >> After(30)
    assert play >> After(1.1) << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)
    play >> Responded(1, NOTHING_OBSERVED) << journal("limit", HALF_OPEN, CLOSED) << sent(3)
    assert play


@pytest.mark.parametrize(("said", "seconds"), [(None, 1), (0.0, 0), (1e9, 3600), (-5.0, 0)])
def test_n01_an_absurd_or_missing_retry_after_is_made_reasonable(said: float | None, seconds: float) -> None:
    play = Playbook(Limits(tpm=600_000), patient_hold_s=1e5, hold_s=1e5) >> ask(1) << sent(1) >> refused(1, after=said)
    play << journal("limit", CLOSED, OPEN)
    assert play >> After(seconds)
    assert play >> After(1.1) << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)


def test_refusals_of_requests_sent_before_the_first_one_cut_the_margin_once() -> None:
    play = Playbook(Limits(tpm=600_000))
    assert len(play.tell([ask(n, f"a{n}") for n in range(5)])) == 5
    play >> [refused(n, after=2.0) for n in range(5)] << journal("limit", CLOSED, OPEN)
    assert margin(play) == pytest.approx(0.985 * 0.97)


def test_the_margin_falls_to_its_floor_and_recovers_in_clean_minutes() -> None:
    play = Playbook(Limits(tpm=600_000), hold_s=1e4)
    play.tell(ask(0))
    for _ in range(12):
        play.tell(refused(0, after=1.0))
        play.tell(After(3))
    assert margin(play) == 0.85
    play.tell(Ended(0, End.SERVED, SERVED))
    play >> After(600) >> ask(1) << sent(1)
    assert margin(play) == pytest.approx(0.90, abs=0.006)
    play >> Ended(1, End.SERVED, SERVED) >> After(6000) >> ask(2) << sent(2)
    assert margin(play) == 0.985


def test_backoff_without_retry_after_doubles_to_30_s() -> None:
    play = Playbook(Limits(tpm=6_000_000), hold_s=1e4)
    play.tell(ask(0))
    waits = []
    for _ in range(8):
        before = play.now
        play.tell(refused(0))
        while not sends(play.tell(After(0.1))):
            pass
        waits.append(play.now - before)
    assert waits == pytest.approx([1, 2, 4, 8, 16, 30, 30, 30], abs=1.2)


def test_n02_a_wall_of_529_for_15_minutes_fails_nobody_but_by_the_hold_budget() -> None:
    """20 agents come back when they were told to; the wall ends, and all are served."""
    play = Playbook(Limits(tpm=600_000), hold_s=240.0)
    body: dict[int, int] = {}
    back = dict.fromkeys(range(20), play.now)
    sent_at: list[tuple[float, bool]] = []
    served: set[int] = set()
    journal_of: list[Journal] = []
    while len(served) < 20:
        assert play.now < 1000 + 900 + 400
        due = [number for number, when in back.items() if when <= play.now]
        for number in due:
            del back[number]
            body[len(body)] = number
        asked = [ask(ticket, f"a{body[ticket]}", body_key=f"k{body[ticket]}") for ticket in range(len(body) - len(due), len(body))]
        unread = play.tell(asked) + play.tell(After(0.5))
        while unread:
            command = unread.pop(0)
            if isinstance(command, Send):
                sent_at.append((play.now, command.probe))
                wall = play.now < 1900
                unread += play.tell(refused(command.ticket, Refusal.OVERLOADED) if wall else Ended(command.ticket, End.SERVED, SERVED))
                served |= set() if wall else {body[command.ticket]}
            elif isinstance(command, TurnAway):
                assert command.status == 429
                assert 1 <= (command.retry_after_s or 0) <= 60
                back[body[command.ticket]] = play.now + (command.retry_after_s or 0)
            elif isinstance(command, Journal):
                journal_of.append(command)
    walled = [(when, probe) for when, probe in sent_at if when < 1900]
    probes = [when for when, probe in walled if probe]
    assert len(walled) - len(probes) <= 20, "once each before it opened"
    assert len(probes) > 25
    assert min(later - earlier for earlier, later in pairwise(probes[6:])) >= 29.5
    assert {one.breaker for one in journal_of} == {"failures"}
    assert all("overloaded" in one.why or one.after is CLOSED for one in journal_of)


def test_n03_half_open_with_50_waiters_sends_one_probe_then_ramps() -> None:
    play = Playbook(Limits(tpm=60_000_000)) >> ask(0) << sent(0) >> refused(0, after=5.0) << journal("limit", CLOSED, OPEN)
    assert play >> [ask(n, f"a{n}") for n in range(1, 51)] >> After(4.9)
    assert play >> After(1) << journal("limit", OPEN, HALF_OPEN) << sent(0, attempt=2, probe=True) >> After(19)
    in_flight = [1 + len(sends(play.tell(Responded(0, NOTHING_OBSERVED))))]
    for _ in range(3):
        in_flight.append(in_flight[-1] + len(sends(play.tell(After(30)))))
    assert in_flight == [2, 4, 8, 16]


def test_a_probe_that_is_refused_opens_it_again_and_one_that_goes_away_lets_the_next_try() -> None:
    play = Playbook(Limits(tpm=6_000_000)) >> [ask(0), ask(1, "b")] << sent(0) << sent(1) >> refused(0, after=5.0)
    play << journal("limit", CLOSED, OPEN) >> Ended(1, End.SERVED, SERVED) >> After(6)
    (
        play
        << journal("limit", OPEN, HALF_OPEN)
        << sent(0, attempt=2, probe=True)
        >> refused(0, after=7.0)
        << journal("limit", HALF_OPEN, OPEN)
    )
    assert play >> ask(2, "c") >> After(6.9)
    play >> After(1) << journal("limit", OPEN, HALF_OPEN) << sent(0, attempt=3, probe=True)
    play >> Ended(0, End.CLIENT_GONE, None) << journal("limit", HALF_OPEN, OPEN) << journal("limit", OPEN, HALF_OPEN) << sent(2, probe=True)
    assert play >> Ended(2, End.REJECTED, None) << journal("limit", HALF_OPEN, CLOSED)


def test_a_failure_is_tried_again_at_its_old_place_and_others_go_on() -> None:
    play = Playbook(Limits(tpm=60_000_000)) >> [ask(1, "a"), ask(2, "b")] << sent(1) << sent(2) >> refused(1, Refusal.SERVER_ERROR)
    play >> ask(3, "c") << sent(3) >> After(1.2) << sent(1, attempt=2)
    play >> refused(1, Refusal.UNREACHABLE) >> After(2.3) << sent(1, attempt=3) >> Ended(1, End.SERVED, SERVED)
    assert play >> Withdrawn(2)


def test_a_failing_request_can_be_withdrawn_and_is_answered_when_its_time_is_over() -> None:
    play = Playbook(Limits(tpm=60_000_000), hold_s=2.5) >> [ask(1, "a"), ask(2, "b")] << sent(1) << sent(2)
    play >> [refused(1, Refusal.OVERLOADED), refused(2, Refusal.OVERLOADED)] >> Withdrawn(1)
    assert play >> After(2.3) << sent(2, attempt=2) >> After(1) >> refused(2, Refusal.OVERLOADED) << away(2, 429)


def test_waiting_for_the_next_try_ends_with_the_hold_budget() -> None:
    play = (
        Playbook(Limits(tpm=60_000_000), hold_s=3.0)
        >> ask(1, body_key="k")
        << sent(1)
        >> Refused(1, Refusal.OVERLOADED, Observed(retry_after_s=20.0))
    )
    assert play >> After(3.0) << away(1, 429) >> ask(2, body_key="k") << sent(2)


def test_cut_streams_count_as_failures_n05() -> None:
    play = Playbook(Limits(tpm=60_000_000))
    play.tell([ask(n, f"a{n}") for n in range(6)])
    for number in range(4):
        play >> Responded(number, NOTHING_OBSERVED) >> Ended(number, End.CUT, Usage(1000, 5))
    assert play
    play >> Responded(4, NOTHING_OBSERVED) >> Ended(4, End.CUT, Usage(1000, 5)) << journal("failures", CLOSED, OPEN, why="streams are cut")
    assert play >> ask(9) >> After(0.9)
    play >> After(0.2) << journal("failures", OPEN, HALF_OPEN) << sent(9, probe=True) >> Ended(9, End.CUT, None)
    assert play << journal("failures", HALF_OPEN, OPEN)


def test_a_spend_cap_ends_turns_cleanly_with_one_alert_and_is_tried_again_later() -> None:
    play = Playbook(SMALL, hold_s=1e4) >> [ask(1), ask(2), ask(3)] << sent(1) << sent(2) >> refused(1, Refusal.SPEND_CAP)
    play << alert(about="spend cap p") << journal("limit", CLOSED, OPEN, why="spend cap reached") << away(1, 402) << away(3, 402)
    play >> refused(2, Refusal.SPEND_CAP) << away(2, 402)
    play >> ask(4) << away(4, 402) >> After(901)
    play >> ask(5) << journal("limit", OPEN, HALF_OPEN) << sent(5, probe=True) >> ask(6)
    play >> Responded(5, NOTHING_OBSERVED) << journal("limit", HALF_OPEN, CLOSED) << sent(6)
    assert play


def test_with_another_account_a_spend_cap_turns_nobody_away() -> None:
    play = Playbook(Limits(), upstream("p", SMALL), upstream("q", SMALL)) >> ask(1, via=("p", "q")) << sent(1)
    play >> refused(1, Refusal.SPEND_CAP) << alert() << journal("limit", CLOSED, OPEN) << sent(1, "q", attempt=2)
    assert play


def test_a_spent_window_parks_the_pool_until_its_reset_and_goes_on_by_itself() -> None:
    spent = (Window("5h", 1.0, 600.0, spent=True), Window("7d", 0.4, 9e4, spent=False))
    play = Playbook(Limits(), hold_s=1e4) >> [ask(1), ask(2)] << sent(1) << sent(2) >> refused(1, Refusal.WINDOW_SPENT, windows=spent)
    play << journal("limit", CLOSED, OPEN, why="subscription window 5h is spent")
    assert play >> ask(3) >> After(600)
    view = play.traffic.view(play.now).pools[0]
    assert view.breaker is OPEN
    assert [(window.resets_in_s, window.spent) for window in view.windows] == [(0.0, False), (89_400.0, False)]
    play >> After(1.1) << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)
    play >> Responded(1, Observed(windows=(Window("5h", 0.01, 18_000.0, spent=False),))) << journal("limit", HALF_OPEN, CLOSED)
    assert play >> Ended(2, End.SERVED, SERVED) << sent(3)


def test_a_window_whose_reset_comes_while_the_machine_sleeps_is_tried_on_waking() -> None:
    spent = (Window("5h", 1.0, 18_000.0, spent=True),)
    play = Playbook(Limits(), hold_s=1e5) >> ask(1) << sent(1) >> refused(1, Refusal.WINDOW_SPENT, windows=spent)
    play << journal("limit", CLOSED, OPEN, why="subscription window 5h is spent")
    assert play >> After(10) >> Tick(slept_s=3600.0)
    view = play.traffic.view(play.now).pools[0]
    assert [(window.resets_in_s, window.spent) for window in view.windows] == [(14_390.0, True)]
    assert play >> Tick(slept_s=14_400.0) << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)


@pytest.mark.parametrize(("said", "seconds"), [(None, 300.0), (40.0, 40.0)])
def test_a_spent_window_without_a_reset_is_asked_again(said: float | None, seconds: float) -> None:
    play = Playbook(Limits(), hold_s=1e4) >> ask(1) << sent(1) >> refused(1, Refusal.WINDOW_SPENT, said) << journal("limit", CLOSED, OPEN)
    assert play >> After(seconds - 0.1)
    assert play >> After(0.2) << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)


def test_a_window_that_a_served_request_shows_as_spent_parks_before_the_first_refusal() -> None:
    spent = Observed(windows=(Window("5h", 1.0, 60.0, spent=True),))
    assert Playbook(Limits()) >> ask(1) << sent(1) >> Responded(1, spent) << journal("limit", CLOSED, OPEN) >> ask(2) >> After(60)


def test_n13_a_key_that_is_refused_twice_stops_the_upstream_with_one_alert() -> None:
    play = Playbook(SMALL) >> [ask(1), ask(2), ask(3)] << sent(1) << sent(2)
    assert play >> refused(1, Refusal.KEY_REFUSED) << sent(3), "nobody is told before it is confirmed"
    assert play >> refused(2, Refusal.KEY_REFUSED), "it was sent before the first refusal was known: that is the same one"
    play >> After(1) << sent(1, attempt=2) >> refused(1, Refusal.KEY_REFUSED)
    play << alert(about="key refused p") << away(1, 503) << away(2, 503)
    play >> ask(4) << away(4, 503) >> refused(3, Refusal.KEY_REFUSED) << away(3, 503)
    assert play >> After(10_000)
    assert play.traffic.view(play.now).pools[0].breaker_why == "key refused"
    assert play.traffic.reload(play.settings, play.now) == []
    assert play >> ask(5) << sent(5) >> refused(5, Refusal.KEY_REFUSED), "and confirmed anew"


def test_another_request_confirms_a_refused_key() -> None:
    play = Playbook() >> ask(1) << sent(1) >> refused(1, Refusal.KEY_REFUSED) >> After(0.5) >> ask(2, "b") << sent(2)
    play >> refused(2, Refusal.KEY_REFUSED) << alert(about="key refused p") << away(2, 503) << away(1, 503)
    assert play


def test_one_refusal_while_others_are_served_with_the_same_key_stops_nobody() -> None:
    play = Playbook() >> [ask(1, "a"), ask(2, "b")] << sent(1) << sent(2) >> refused(1, Refusal.KEY_REFUSED)
    play >> Responded(2, NOTHING_OBSERVED) >> After(1) << sent(1, attempt=2)
    assert play >> refused(1, Refusal.KEY_REFUSED), "2 was served meanwhile: this is a first refusal"
    assert play >> Ended(2, End.SERVED, SERVED) >> After(2) << sent(1, attempt=3) >> Ended(1, End.SERVED, SERVED)


def test_a_request_that_alone_is_refused_gets_its_answer_and_closes_nothing() -> None:
    """Two agents whose requests the provider always answers 401, beside one that is served."""
    play, ticket, bad, turned_away = Playbook(), 10, {1, 2}, []
    unread = play.tell([ask(1, "a"), ask(2, "b")])
    while bad:
        assert play.now < 1000 + 600
        for command in unread:
            assert isinstance(command, Send | TurnAway), command
            if isinstance(command, TurnAway):
                assert (command.status, command.retry_after_s) == (429, 60)
                turned_away.append(command.ticket)
        refusals = [refused(number, Refusal.KEY_REFUSED) for number in sends(unread) if number in bad]
        ticket += 1
        unread = play.tell(refusals) + play.tell(ask(ticket, "c")) + play.tell(After(0.25))
        unread += play.tell(Ended(ticket, End.SERVED, SERVED)) + play.tell(After(0.25))
        bad -= set(turned_away)
    assert sorted(turned_away) == [1, 2]


def test_while_a_refused_key_is_confirmed_another_account_serves() -> None:
    play = Playbook(Limits(), upstream("p"), upstream("q")) >> ask(1, via=("p", "q")) << sent(1)
    assert play >> refused(1, Refusal.KEY_REFUSED) << sent(1, "q", attempt=2)


def test_a_refused_key_of_a_probe_gives_the_probe_back() -> None:
    play = Playbook(Limits(), upstream("p", account="x"), upstream("q", account="x")) >> ask(1, via=("p", "q")) << sent(1)
    play >> refused(1, after=1.0) << journal("limit", CLOSED, OPEN) >> After(3)
    play << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)
    play >> refused(1, Refusal.KEY_REFUSED) << journal("limit", HALF_OPEN, OPEN) >> After(2)
    play << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=3, probe=True)
    play >> refused(1, Refusal.KEY_REFUSED) << journal("limit", HALF_OPEN, OPEN) << alert() >> After(8)
    play << journal("limit", OPEN, HALF_OPEN) << sent(1, "q", attempt=4, probe=True)
    assert play


def test_the_failure_probe_that_meets_a_429_closes_the_one_and_opens_the_other() -> None:
    play = Playbook(Limits(), hold_s=1e4)
    play.tell([ask(n, f"a{n}") for n in range(5)])
    play >> [refused(n, Refusal.OVERLOADED) for n in range(5)] << journal("failures", CLOSED, OPEN)
    play >> After(1.3) << journal("failures", OPEN, HALF_OPEN) << sent(0, attempt=2, probe=True)
    play >> refused(0, after=3.0) << journal("limit", CLOSED, OPEN) << journal("failures", HALF_OPEN, CLOSED)
    play >> After(3.5) << journal("limit", OPEN, HALF_OPEN) << sent(0, attempt=3, probe=True)
    play >> refused(0, Refusal.SERVER_ERROR) << journal("limit", HALF_OPEN, OPEN)
    assert play << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)


@pytest.mark.parametrize(("why", "then"), [(Refusal.WINDOW_SPENT, "subscription window spent"), (Refusal.SPEND_CAP, "spend cap reached")])
def test_a_failure_probe_that_meets_a_limit_shows_that_the_provider_works(why: Refusal, then: str) -> None:
    play = Playbook(Limits(), hold_s=1e4)
    play.tell([ask(n, f"a{n}") for n in range(5)])
    play >> [refused(n, Refusal.OVERLOADED) for n in range(5)] << journal("failures", CLOSED, OPEN) >> After(1.3)
    play << journal("failures", OPEN, HALF_OPEN) << sent(0, attempt=2, probe=True)
    told = play.tell(refused(0, why))
    changes = [(one.breaker, one.after, one.why) for one in told if isinstance(one, Journal)]
    assert changes == [("limit", OPEN, then), ("failures", CLOSED, "the probe was served")]


def test_a_spent_window_is_extended_by_nobody_who_was_sent_before() -> None:
    play = Playbook(Limits(), hold_s=1e4) >> [ask(1), ask(2)] << sent(1) << sent(2) >> refused(1, Refusal.WINDOW_SPENT, 40.0)
    play << journal("limit", CLOSED, OPEN) >> After(20) >> refused(2, Refusal.WINDOW_SPENT, 40.0)
    assert play >> After(21) << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)


def test_a_request_counts_when_the_provider_was_asked() -> None:
    play = Playbook(Limits(rpm=60, tpm=60_000), hold_s=1e4) >> [ask(1), ask(2)] << sent(1) << sent(2)
    assert play >> [refused(1, Refusal.UNREACHABLE), refused(2, Refusal.OVERLOADED)]
    requests, tokens = play.traffic.view(play.now).pools[0].dimensions
    assert (requests.capacity - requests.level, tokens.capacity - tokens.level) == (1, 0)
