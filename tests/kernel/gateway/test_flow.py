"""What becomes of requests: the flow, as a script of events and commands. Battery N17."""

from __future__ import annotations

import pytest

from supervisor.gateway.admission.types import NOTHING_OBSERVED, Agent, Began, End, Ended, Event, Responded, Tick, Usage, Withdrawn
from supervisor.kernel.gateway_settings import Limits
from tests.kernel.gateway.playbook import (
    BATCH,
    SERVED,
    SMALL,
    After,
    Playbook,
    ask,
    away,
    level,
    refused,
    sends,
    sent,
)


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
    assert level(play) == pytest.approx(0.985 * 6000 - 2 * 2200 - 1300 - 0, abs=1)


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
        return sends(play.tell(Ended(2, End.SERVED, Usage(0, 0))))

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
    assert level(play) == pytest.approx(0.985 * 6000 - 790)


@pytest.mark.parametrize("event", [Withdrawn(1), Ended(1, End.CLIENT_GONE, None), Ended(1, End.CUT, None), Ended(1, End.SERVED, None)])
def test_without_a_usage_the_reservation_stands(event: Ended | Withdrawn) -> None:
    play = Playbook(SMALL) >> ask(1) << sent(1) >> event
    assert play
    assert level(play) == pytest.approx(0.985 * 6000 - 2200)


def test_output_that_was_seen_is_never_taken_back_without_a_usage() -> None:
    play = Playbook(SMALL) >> ask(1) << sent(1) >> Began(1, Usage(1000, 3000)) >> Ended(1, End.CUT, None)
    assert play
    assert level(play) == pytest.approx(0.985 * 6000 - 4000)


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
