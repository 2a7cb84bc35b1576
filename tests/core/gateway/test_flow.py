"""What becomes of requests: the flow, as a script of events and commands. Battery N01-N03, N12, N13, N17."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from supervisor.core.gateway.commands import Command, Journal, Send, TurnAway
from supervisor.core.gateway.events import Arrived, Began, Ended, Event, Refused, Responded, Tick, Withdrawn
from supervisor.core.gateway.nouns import NOTHING_OBSERVED, Agent, End, Observed, Refusal, Usage, Window
from supervisor.core.gateway.settings import Limits
from tests.core.gateway.playbook import (
    BATCH,
    CLOSED,
    HALF_OPEN,
    INTERACTIVE,
    OPEN,
    After,
    Playbook,
    alert,
    ask,
    away,
    journal,
    sent,
    upstream,
)  # fmt: skip

SMALL = Limits(tpm=6_000)
"""100 tokens a second: one first request of 1000 tokens (2200 with its expected output) every 22 s, and two at the start."""
SERVED = Usage(1000, 1200)


def refused(ticket: int, why: Refusal = Refusal.RATE_LIMITED, after: float | None = None, **facts: object) -> Refused:
    return Refused(ticket, why, Observed(retry_after_s=after, **facts))  # type: ignore[arg-type]


def test_a_request_that_fits_is_sent_at_once_and_one_that_does_not_waits_for_the_refill() -> None:
    assert (
        Playbook(SMALL, margin=1.0)
        >> [ask(1), ask(2), ask(3)]
        << sent(1)
        << sent(2)
        >> Ended(1, End.SERVED, SERVED)
        >> After(5.9)
        >> After(0.2)
        << sent(3)
    )


def test_what_was_reserved_and_not_needed_is_given_back() -> None:
    assert Playbook(SMALL) >> [ask(1), ask(2), ask(3)] << sent(1) << sent(2) >> Ended(1, End.SERVED, Usage(100, 100)) << sent(3)


def test_the_input_is_settled_when_it_is_known_and_the_output_at_the_end() -> None:
    play = Playbook(SMALL) >> [ask(1), ask(2), ask(3)] << sent(1) << sent(2) >> Began(1, Usage(100, 1)) << sent(3)
    assert play
    assert _level(play) == pytest.approx(0.985 * 6000 - 2 * 2200 - 1300 - 0, abs=1)


def test_after_the_hold_budget_it_gets_429_and_its_place_is_kept() -> None:
    assert (
        Playbook(SMALL, hold_s=10.0)
        >> [ask(1, "x"), ask(2, "y"), ask(3, "a", body_key="a3"), ask(4, "b")]
        << sent(1)
        << sent(2)
        >> After(4)
        >> [ask(5, "c"), Began(1, Usage(3000, 0))]
        >> After(6)
        << away(3, 429, retry_after_s=pytest.approx(18, abs=1))
        << away(4, 429)
        >> After(1)
        >> ask(6, "a", body_key="a3")
        >> After(3)
        << away(5, 429)
        >> [ask(7, "d"), Ended(2, End.SERVED, Usage(0, 0)), Ended(1, End.SERVED, Usage(0, 0))]
        << sent(6)
        << sent(7)
    )


def test_a_place_is_kept_for_a_client_that_gave_up_waiting_and_only_for_a_while() -> None:
    def again_after(seconds: float) -> list[int]:
        play = Playbook(SMALL) >> ask(1, "x", tokens=40_000) << sent(1) >> ask(3, "a", body_key="k")
        play >> [Withdrawn(3), Ended(1, End.SERVED, Usage(0, 0))] >> ask(2, "x", tokens=40_000) << sent(2)
        assert play >> ask(4, "b") >> After(seconds) >> ask(5, "a", body_key="k")
        return _sends(play.tell(Ended(2, End.SERVED, Usage(0, 0))))

    assert again_after(100) == [5, 4]
    assert again_after(130) == [4, 5]


def test_a_request_that_comes_back_goes_before_a_newer_one_with_the_same_tag() -> None:
    play = Playbook(SMALL, hold_s=5.0) >> [ask(1), ask(2)] << sent(1) << sent(2)
    play >> ask(3, "b", body_key="k") >> After(5) << away(3, 429) >> ask(4, "c") >> ask(5, "b", body_key="k")
    tags = [play.traffic.tickets[ticket].start for ticket in (4, 5)]
    assert tags[0] == tags[1]
    assert [agent.place for agent in play.traffic.view(play.now).agents if agent.queued] == [1, 2]
    assert play >> [Ended(1, End.REJECTED, None)] << sent(5)


def test_a_place_belongs_to_its_class_and_is_charged_once() -> None:
    batch = Agent("a", 1, BATCH)
    play = Playbook(SMALL) >> [ask(1), ask(2), ask(3, body_key="k")] << sent(1) << sent(2) >> Withdrawn(3) >> ask(4, batch, body_key="k")
    play >> Withdrawn(4) >> ask(5, body_key="k") >> Withdrawn(5)
    assert play
    assert play >> After(1000)


def test_patient_agents_are_held_longer() -> None:
    patient = Agent("p", 1, patient=True)
    assert (
        Playbook(SMALL, hold_s=5.0, patient_hold_s=50.0)
        >> [ask(1, tokens=20_000), ask(3, patient), ask(4, "b")]
        << sent(1)
        >> After(5)
        << away(4, 429)
        >> After(40)
        >> After(5.1)
        << away(3, 429, retry_after_s=60)
    )


def test_a_full_queue_answers_at_once_n17() -> None:
    play = Playbook(SMALL, queue_max=2) >> [ask(1), ask(2), ask(3), ask(4), ask(5)] << sent(1) << sent(2) << away(5, 429)
    assert play
    assert play >> Withdrawn(3) >> ask(6)


def test_who_goes_away_frees_its_place() -> None:
    assert (
        Playbook(SMALL)
        >> [ask(1), ask(2), ask(3), ask(4)]
        << sent(1)
        << sent(2)
        >> [Withdrawn(3), Withdrawn(3), Ended(3, End.SERVED, None)]
        >> Ended(1, End.SERVED, Usage(0, 0))
        << sent(4)
    )


def test_a_client_that_goes_away_while_it_is_served_is_settled_with_what_was_seen() -> None:
    play = Playbook(SMALL) >> ask(1) << sent(1) >> Began(1, Usage(700, 5)) >> Ended(1, End.CLIENT_GONE, Usage(700, 90))
    assert play
    assert _level(play) == pytest.approx(0.985 * 6000 - 790)


@pytest.mark.parametrize("event", [Withdrawn(1), Ended(1, End.CLIENT_GONE, None), Ended(1, End.CUT, None), Ended(1, End.SERVED, None)])
def test_without_a_usage_the_reservation_stands(event: Ended | Withdrawn) -> None:
    play = Playbook(SMALL) >> ask(1) << sent(1) >> event
    assert play
    assert _level(play) == pytest.approx(0.985 * 6000 - 2200)


def test_output_that_was_seen_is_never_taken_back_without_a_usage() -> None:
    play = Playbook(SMALL) >> ask(1) << sent(1) >> Began(1, Usage(1000, 3000)) >> Ended(1, End.CUT, None)
    assert play
    assert _level(play) == pytest.approx(0.985 * 6000 - 4000)


def test_a_rejected_request_costs_nothing() -> None:
    play = Playbook(Limits(tpm=6000, rpm=60)) >> ask(1) << sent(1) >> Ended(1, End.REJECTED, None)
    assert play
    requests, tokens = play.traffic.view(play.now).pools[0].dimensions
    assert tokens.level == tokens.capacity
    assert requests.level == requests.capacity - 1


def test_events_of_unknown_tickets_and_in_any_order_are_passed_over() -> None:
    strangers: list[Event] = [Began(9, Usage()), Ended(9, End.SERVED, None), Responded(9, NOTHING_OBSERVED), refused(9), Withdrawn(9)]
    assert (
        Playbook(SMALL)
        >> [*strangers, Tick()]
        >> [ask(1), ask(1), ask(2), ask(3)]
        << sent(1)
        << sent(2)
        >> [Responded(3, NOTHING_OBSERVED), Began(3, Usage()), refused(3)]
        >> [
            Responded(1, NOTHING_OBSERVED),
            Began(1, Usage(1000, 0)),
            Began(1, Usage(5, 0)),
            Ended(1, End.SERVED, SERVED),
            Began(1, Usage()),
        ]
    )


def test_a_request_that_nobody_serves_is_told_so() -> None:
    assert Playbook(SMALL) >> ask(1, via=("other",)) << away(1, 503, why="no upstream serves m") >> ask(2, via=()) << away(2, 503)


# Refusals -------------------------------------------------------------------------------------------------------------------------


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
    assert _margin(play) == pytest.approx(0.985 * 0.97)


def test_the_margin_falls_to_its_floor_and_recovers_in_clean_minutes() -> None:
    play = Playbook(Limits(tpm=600_000), hold_s=1e4)
    play.tell(ask(0))
    for _ in range(12):
        play.tell(refused(0, after=1.0))
        play.tell(After(3))
    assert _margin(play) == 0.85
    play.tell(Ended(0, End.SERVED, SERVED))
    play >> After(600) >> ask(1) << sent(1)
    assert _margin(play) == pytest.approx(0.90, abs=0.006)
    play >> Ended(1, End.SERVED, SERVED) >> After(6000) >> ask(2) << sent(2)
    assert _margin(play) == 0.985


def test_backoff_without_retry_after_doubles_to_30_s() -> None:
    play = Playbook(Limits(tpm=6_000_000), hold_s=1e4)
    play.tell(ask(0))
    waits = []
    for _ in range(8):
        before = play.now
        play.tell(refused(0))
        while not _sends(play.tell(After(0.1))):
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
    in_flight = [1 + len(_sends(play.tell(Responded(0, NOTHING_OBSERVED))))]
    for _ in range(3):
        in_flight.append(in_flight[-1] + len(_sends(play.tell(After(30)))))
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


@pytest.mark.parametrize(("said", "seconds"), [(None, 300.0), (40.0, 40.0)])
def test_a_spent_window_without_a_reset_is_asked_again(said: float | None, seconds: float) -> None:
    play = Playbook(Limits(), hold_s=1e4) >> ask(1) << sent(1) >> refused(1, Refusal.WINDOW_SPENT, said) << journal("limit", CLOSED, OPEN)
    assert play >> After(seconds - 0.1)
    assert play >> After(0.2) << journal("limit", OPEN, HALF_OPEN) << sent(1, attempt=2, probe=True)


def test_a_window_that_a_served_request_shows_as_spent_parks_before_the_first_refusal() -> None:
    spent = Observed(windows=(Window("5h", 1.0, 60.0, spent=True),))
    assert Playbook(Limits()) >> ask(1) << sent(1) >> Responded(1, spent) << journal("limit", CLOSED, OPEN) >> ask(2) >> After(60)


def test_n13_a_refused_key_stops_the_upstream_with_one_alert_and_no_retry() -> None:
    play = Playbook(SMALL) >> [ask(1), ask(2), ask(3)] << sent(1) << sent(2) >> refused(1, Refusal.KEY_REFUSED)
    play << alert(about="key refused p") << away(1, 503) << away(3, 503)
    play >> ask(4) << away(4, 503) >> refused(2, Refusal.KEY_REFUSED) << away(2, 503)
    assert play >> After(10_000)
    assert play.traffic.view(play.now).pools[0].breaker_why == "key refused"
    assert play.traffic.reload(play.settings, play.now) == []
    assert play >> ask(5) << sent(5)


def test_a_refused_key_of_a_probe_gives_the_probe_back() -> None:
    play = Playbook(Limits(), upstream("p", account="x"), upstream("q", account="x")) >> ask(1, via=("p", "q")) << sent(1)
    play >> refused(1, after=1.0) << journal("limit", CLOSED, OPEN) >> After(3)
    (
        play
        << journal("limit", OPEN, HALF_OPEN)
        << sent(1, attempt=2, probe=True)
        >> refused(1, Refusal.KEY_REFUSED)
        << journal("limit", HALF_OPEN, OPEN)
        << alert()
    )
    play << journal("limit", OPEN, HALF_OPEN) << sent(1, "q", attempt=3, probe=True)
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


# Order and share ------------------------------------------------------------------------------------------------------------------


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
    assert _level(play) == pytest.approx(0.985 * 6000 - 51_200 + 0, abs=250)
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
        return len(_sends(play.tell([ask(number, "n") for number in range(10, 30)])))

    person = ask(1, Agent("person", 1, INTERACTIVE))
    assert normal_sent() == 10
    assert normal_sent(person) == 7
    assert normal_sent(person, After(899)) == 8
    assert normal_sent(person, After(901)) == 10


def _level(play: Playbook) -> float:
    return play.traffic.view(play.now).pools[0].dimensions[-1].level


def _margin(play: Playbook) -> float:
    margin: float = play.traffic.learned()["pools"][0]["margin"]
    return margin


def _sends(commands: list[Command]) -> list[int]:
    return [command.ticket for command in commands if isinstance(command, Send)]
