"""What becomes of a task when an attempt of it has ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.recovery import REBOOTED
from supervisor.kernel.retry import BACKOFF_CAP_S, NEW, RESTARTS_MAX, WITHIN_S, Ended, Tally, after, backoff_s, luck
from supervisor.kernel.states import TASK_TRANSITIONS, End, TaskState

NOW = 1_700_000_000.0
GATE = "gate: exit code 1"


@pytest.mark.parametrize(
    ("end", "cause", "tally", "retries", "event", "charged"),
    [
        (End.DONE, "", Tally(9, 9), 0, "done", Tally(9, 9)),
        (End.CANCELLED, "", Tally(), 9, "cancelled", Tally()),
        (End.FAILED, "", Tally(), 0, "failed", Tally(1)),
        (End.FAILED, "", Tally(), 1, "run again", Tally(1)),
        (End.FAILED, "", Tally(1), 1, "failed", Tally(2)),
        (End.TIMEOUT, "", Tally(), 1, "run again", Tally(1)),
        (End.TIMEOUT, "", Tally(1), 1, "failed", Tally(2)),
        (End.FAILED, GATE, Tally(), 0, "run again", Tally(0, 1)),
        (End.FAILED, GATE, Tally(0, 1), 0, "failed", Tally(1, 1)),
        (End.FAILED, GATE, Tally(0, 1), 1, "run again", Tally(1, 1)),
        (End.LOST, "", Tally(9), 0, "run again", Tally(9)),
    ],
)
def test_what_an_end_does_to_its_task(end: End, cause: str, tally: Tally, retries: int, event: str, charged: Tally) -> None:
    then = after(tally, retries, Ended(end, cause, NOW))
    assert (then.event, then.tally.failures, then.tally.gates) == (event, charged.failures, charged.gates)
    assert then.tally.restarts == ((NOW,) if event == "run again" else ())
    assert after(tally, retries, Ended(end, cause, NOW, unwanted=True)).event == ("cancelled" if event == "run again" else event)
    assert event in TASK_TRANSITIONS[TaskState.RUNNING]


def again_and_again(end: End, every_s: float, retries: int = 100, ends: int = 50) -> tuple[list[float], str, str]:
    """Pauses between the attempts of a task that ends so each time after `every_s`, and the event and the reason that end it."""
    pauses: list[float] = []
    tally, now = NEW, NOW
    for _ in range(1, ends):
        now += every_s
        then = after(tally, retries, Ended(end, "exit code 1", now))
        if then.event != "run again":
            return pauses, then.event, then.reason
        tally, now = then.tally, now + then.delay_s
        pauses.append(then.delay_s)
    return pauses, "", ""


@pytest.mark.parametrize("end", [End.FAILED, End.LOST, End.TIMEOUT])
def test_one_that_dies_at_once_for_ever_is_quarantined_after_five_restarts_p08(end: End) -> None:
    pauses, event, reason = again_and_again(end, 0.1)
    assert pauses == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert (event, reason) == ("restarted too often", f"ended 6 times within 10m, at last {end}: exit code 1")


def test_one_that_dies_now_and_then_goes_on_as_long_as_its_retries() -> None:
    assert again_and_again(End.LOST, WITHIN_S / RESTARTS_MAX)[1:] == ("", "")
    pauses, event, _ = again_and_again(End.FAILED, WITHIN_S / RESTARTS_MAX, retries=8)
    assert (len(pauses), event, max(pauses)) == (8, "failed", 256.0)


def test_an_end_in_an_outage_costs_nothing() -> None:
    spent = Tally(3, 1, tuple(NOW - number for number in range(RESTARTS_MAX, 0, -1)))
    for end, cause in ((End.FAILED, ""), (End.FAILED, GATE), (End.LOST, ""), (End.TIMEOUT, "")):
        then = after(spent, 0, Ended(end, cause, NOW, free=True))
        assert (then.event, then.tally, then.delay_s) == ("run again", spent, 2.0)
    assert after(spent, 0, Ended(End.LOST, "", NOW, unwanted=True, free=True)).event == "cancelled"
    assert after(spent, 0, Ended(End.DONE, "", NOW, free=True)).event == "done"


def test_a_restart_of_the_machine_costs_nothing_however_often() -> None:
    spent = Tally(3, 1, tuple(NOW - number for number in range(RESTARTS_MAX, 0, -1)))
    then = after(spent, 0, Ended(End.LOST, REBOOTED, NOW))
    assert (then.event, then.tally, then.delay_s) == ("run again", spent, 2.0)
    assert after(spent, 0, Ended(End.LOST, "its runner died", NOW)).event == "restarted too often"
    assert after(spent, 0, Ended(End.LOST, REBOOTED, NOW, unwanted=True)).event == "cancelled"


@given(st.integers(-10, 10**9), st.floats(0, 1), st.integers(1, 99), st.text(max_size=20))
def test_jitter_only_shortens_and_by_no_more_than_its_share(count: int, jitter: float, epoch: int, name: str) -> None:
    assert backoff_s(count) * (1 - jitter) <= backoff_s(count, jitter) <= backoff_s(count) <= BACKOFF_CAP_S
    spread = after(NEW, 0, Ended(End.LOST, "", NOW), jitter * luck(name, epoch)).delay_s
    assert 2.0 * (1 - jitter) <= spread <= 2.0


def test_a_crew_that_died_together_does_not_come_back_together() -> None:
    back = {after(NEW, 0, Ended(End.LOST, "", NOW), 0.25 * luck(f"a{number}", 1)).delay_s for number in range(100)}
    assert len(back) > 90
    assert max(back) - min(back) > 0.4


@given(st.lists(st.floats(0, 1e10), max_size=9).map(tuple))
def test_a_clock_that_was_changed_holds_nothing_back(restarts: tuple[float, ...]) -> None:
    then = after(Tally(restarts=restarts), 0, Ended(End.LOST, "", NOW))
    assert all(NOW - WITHIN_S < at <= NOW for at in then.tally.restarts)


def test_backoff_doubles_from_two_seconds_to_five_minutes() -> None:
    assert [backoff_s(count) for count in range(1, 10)] == [2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert backoff_s(0) == 2
    assert backoff_s(10**9) == BACKOFF_CAP_S
