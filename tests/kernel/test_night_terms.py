"""What the terms of a night do, told as scripts."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.kernel.crew import Task
from supervisor.kernel.decision import Collect, Command, Finish, MarkRunning, MoveNight, SetState, Start, Stop
from supervisor.kernel.events import (
    CancelAsked,
    EmergencyChanged,
    Event,
    NightBegan,
    NightsSpent,
    PauseAsked,
    ProviderChanged,
    RetryAsked,
    Secured,
    SlotsChanged,
    StartCostLearned,
    Started,
    StoodStill,
    Submitted,
    TreeGone,
)
from supervisor.kernel.night import CAP_REACHED, Night, NightSpent, NightState, NightTerms, OnCap
from supervisor.kernel.schedule import CAP_STOPPED, NIGHT_ENDED
from supervisor.kernel.states import End, TaskClass, TaskState
from tests.kernel.playbook import After, Playbook, task

UNTIL, RUN = 10_000.0, "1122-aaaa"
ENDED_AT = "the night ended at 06:30"


def of_night(name: str, order: int = 0, **facts: Any) -> Task:
    return task(name, order, night=RUN, **facts)


def began(*tasks: Task, slots: int = 4, **terms: Any) -> Playbook:
    """A night with these tasks, in its first moment; what it commanded is read."""
    night = Night(RUN, NightTerms(**{"until": UNTIL, "grace_s": 600.0, **terms}), until_words="06:30")
    book = Playbook(slots)
    book.wall = 1000.0
    book.happens(NightBegan(night), Submitted(tasks))
    return book


def commanded(book: Playbook, *events: Event) -> list[Command]:
    """What these events lead to."""
    book = book >> list(events)
    found, book._unread[:] = list(book._unread), ()
    return found


def starts(found: list[Command]) -> list[str]:
    return [command.task for command in found if isinstance(command, Start)]


def at(book: Playbook, wall: float) -> Playbook:
    book.wall = wall
    return book


def end(book: Playbook, name: str, how: End = End.DONE, epoch: int = 1) -> list[Command]:
    """One attempt from its start to its end."""
    first = commanded(book, Started(name, epoch), TreeGone(name, epoch, how, ""))
    return [*first, *commanded(book, Secured(name, epoch, how, ""))]


def test_after_its_deadline_nothing_starts_and_those_who_wait_say_the_night_and_not_each_other() -> None:
    book = began(of_night("a"), of_night("b", 1), of_night("c", 2, after=["b"]), slots=1)
    assert (
        at(book, UNTIL)
        >> After(1)
        << MoveNight(RUN, NightState.CLOSING, ENDED_AT)
        << SetState("c", TaskState.EXPIRED, ENDED_AT)
        << SetState("b", TaskState.EXPIRED, ENDED_AT)
    )
    assert end(book, "a")[-1] == MoveNight(RUN, NightState.ENDED, ENDED_AT)
    assert book.crew.nights == {}


def test_a_task_that_failed_after_the_deadline_is_not_run_again() -> None:
    book = began(of_night("a", retries=3))
    at(book, UNTIL).happens()
    assert SetState("a", TaskState.EXPIRED, ENDED_AT) in end(book, "a", End.FAILED)


def test_what_runs_gets_the_grace_and_is_then_stopped_for_good() -> None:
    book = began(of_night("a", retries=3))
    commanded(book, Started("a", 1))
    assert commanded(at(book, UNTIL)) == [MoveNight(RUN, NightState.CLOSING, ENDED_AT)]
    assert commanded(at(book, UNTIL + 599)) == []
    assert commanded(at(book, UNTIL + 600)) == [MoveNight(RUN, NightState.OVER, ENDED_AT), Stop("a", 1, NIGHT_ENDED)]
    book.happens(TreeGone("a", 1, End.CANCELLED, NIGHT_ENDED))
    done = commanded(book, Secured("a", 1, End.CANCELLED, NIGHT_ENDED))
    assert [type(command) for command in done] == [Finish, MoveNight]
    assert book.books.tasks["a"].state is TaskState.CANCELLED and book.crew.nights == {}


def test_a_night_whose_tasks_have_all_ended_has_ended_before_its_deadline() -> None:
    assert end(began(of_night("a")), "a")[-1] == MoveNight(RUN, NightState.ENDED, "")


def test_a_supervisor_that_begins_again_in_the_grace_goes_on_with_it() -> None:
    book = began(of_night("a"))
    commanded(book, Started("a", 1))
    at(book, UNTIL).happens()
    again = Playbook()
    again.books, again.wall = book.books, UNTIL + 700
    night = Night(RUN, NightTerms(UNTIL, 600.0), NightState.CLOSING, ENDED_AT, "06:30")
    assert commanded(again, NightBegan(night), Submitted(book.books.unfinished())) == [
        MoveNight(RUN, NightState.OVER, ENDED_AT), Stop("a", 1, NIGHT_ENDED),
    ]  # fmt: skip


def test_what_a_person_holds_outlives_the_night_and_keeps_it_from_nothing() -> None:
    book = began(of_night("asks"), of_night("held", 1), slots=1)
    commanded(book, Started("asks", 1), PauseAsked("asks"), PauseAsked("held"), StoodStill("asks", 1))
    found = commanded(at(book, UNTIL + 700))
    assert [command.state for command in found if isinstance(command, MoveNight)] == [
        NightState.CLOSING, NightState.OVER, NightState.ENDED,
    ]  # fmt: skip
    assert not any(isinstance(command, Stop | SetState) for command in found)
    assert {held.state for held in book.books.tasks.values()} == {TaskState.RUNNING, TaskState.PAUSED}


def test_what_is_not_of_the_night_goes_on() -> None:
    book = began(of_night("a"), task("day", 1), slots=0)
    at(book, UNTIL).happens()
    assert starts(commanded(book, SlotsChanged(4))) == ["day"]


def test_a_task_of_the_night_that_is_asked_for_again_next_morning_runs() -> None:
    book = began(of_night("a"), slots=0)
    at(book, UNTIL).happens()
    assert book.books.tasks["a"].state is TaskState.EXPIRED and book.crew.nights == {}
    assert starts(commanded(book, Submitted((book.books.tasks["a"],)), RetryAsked("a"), SlotsChanged(4))) == ["a"]


def test_nothing_of_the_night_moves_while_everything_is_stopped() -> None:
    book = began(of_night("a"))
    commanded(book, Started("a", 1), EmergencyChanged(True))
    assert commanded(at(book, UNTIL + 1000)) == []
    assert Stop("a", 1, NIGHT_ENDED) in commanded(book, EmergencyChanged(False))


# Parallel -------------------------------------------------------------------------------------------------------------------------


def test_so_many_of_its_agents_live_at_once_and_the_other_slots_are_for_others() -> None:
    book = Playbook(8)
    book.wall = 1000.0
    night = Night(RUN, NightTerms(parallel=2))
    tasks = [of_night(f"n{number}", number, priority=90) for number in range(5)]
    found = commanded(book, NightBegan(night), Submitted((*tasks, task("day1", 7), task("day2", 8))))
    assert sorted(starts(found)) == ["day1", "day2", "n0", "n1"]
    assert starts(end(book, "n0")) == ["n2"]


def test_an_agent_that_a_person_holds_leaves_its_place_to_the_next() -> None:
    book = began(of_night("a"), of_night("b", 1), parallel=1)
    assert starts(commanded(book, Started("a", 1), PauseAsked("a"), StoodStill("a", 1))) == ["b"]


@pytest.mark.parametrize("facts", [{"task_class": TaskClass.INTERACTIVE}, {"preempt": True, "priority": 90}], ids=str)
def test_a_full_night_takes_nobody_elses_slot(facts: dict[str, Any]) -> None:
    book = began(of_night("a"), task("day", 1), parallel=1, slots=2)
    found = commanded(book, Started("a", 1), Started("day", 1), Submitted((of_night("b", 2, **facts),)), SlotsChanged(1))
    assert found == [MarkRunning("a", 1), MarkRunning("day", 1), SetState("b", TaskState.READY, "")]


# The cap --------------------------------------------------------------------------------------------------------------------------


def spent(usd: float, **more: Any) -> NightsSpent:
    return NightsSpent({RUN: NightSpent(usd, **more)})


def test_no_start_when_what_is_left_is_less_than_a_start_is_expected_to_cost() -> None:
    """Beside what requests under way can cost, and what those that live are expected to spend yet."""
    tasks = [of_night(f"n{number}", number, kind="k") for number in range(9)]
    book = began(*tasks, slots=0, cost_max=10.0)
    book.happens(StartCostLearned({"k": 2.0}), spent(3.0, reserved=1.5))
    assert starts(commanded(book, SlotsChanged(9))) == ["n0", "n1"], "5.5 are left, for two"
    assert starts(commanded(book, spent(4.0, reserved=1.0, tasks={"n0": 1.0, "n1": 0.5}))) == ["n2"], "5.0, less 1.0 and 1.5 that come yet"
    assert starts(commanded(book, spent(4.0, reserved=1.0, tasks={"n0": 1.0, "n1": 0.5}))) == []


def test_who_ended_since_the_gateway_spoke_is_taken_to_have_cost_what_was_expected() -> None:
    """Else a crowd of short tasks would start on money that is gone."""
    book = began(*(of_night(f"n{number}", number, kind="k") for number in range(4)), slots=0, cost_max=10.0)
    book.happens(StartCostLearned({"k": 4.0}))
    assert starts(commanded(book, SlotsChanged(4))) == ["n0", "n1"]
    assert starts(end(book, "n0")) == [], "4.0 of it and 4.0 of n1"
    assert starts(commanded(book, spent(1.0, tasks={"n0": 1.0}))) == ["n2"], "it cost 1.0: 5.0 are left"


def test_a_kind_that_costs_less_still_fits() -> None:
    book = began(of_night("dear", kind="dear"), of_night("cheap", 1, kind="cheap"), slots=0, cost_max=10.0)
    book.happens(StartCostLearned({"dear": 5.0, "cheap": 0.5}), spent(6.0))
    assert starts(commanded(book, SlotsChanged(9))) == ["cheap"]


@pytest.mark.parametrize(
    "now",
    [spent(9.0, refused=True), spent(10.0), spent(8.5)],
    ids=["a request did not fit", "all of it is spent", "no start fits any more"],
)
def test_when_the_cap_is_reached_those_who_wait_expire_and_those_who_run_drain(now: NightsSpent) -> None:
    book = began(of_night("a", kind="k"), of_night("b", 1, kind="k"), slots=1, cost_max=10.0)
    commanded(book, Started("a", 1), StartCostLearned({"k": 2.0}))
    assert commanded(book, now) == [MoveNight(RUN, NightState.CLOSING, CAP_REACHED), SetState("b", TaskState.EXPIRED, CAP_REACHED)]
    assert commanded(at(book, UNTIL - 1)) == []
    assert end(book, "a")[-1] == MoveNight(RUN, NightState.ENDED, CAP_REACHED)


def test_a_cheap_task_that_waits_for_another_keeps_the_night_open() -> None:
    tasks = of_night("a", kind="k"), of_night("b", 1, kind="k"), of_night("c", 2, kind="cheap", after=["a"])
    book = began(*tasks, slots=1, cost_max=10.0)
    commanded(book, Started("a", 1), StartCostLearned({"k": 2.0, "cheap": 0.5}))
    assert commanded(book, spent(8.5)) == []
    assert starts([*end(book, "a"), *commanded(book, spent(9.0))]) == ["c"]


def test_or_are_stopped_at_once() -> None:
    book = began(of_night("a"), cost_max=10.0, on_cap=OnCap.STOP)
    commanded(book, Started("a", 1))
    assert commanded(book, spent(10.0)) == [
        MoveNight(RUN, NightState.CLOSING, CAP_REACHED), MoveNight(RUN, NightState.OVER, CAP_REACHED), Stop("a", 1, CAP_STOPPED),
    ]  # fmt: skip


def test_those_that_drain_are_stopped_when_the_grace_is_over() -> None:
    book = began(of_night("a"), cost_max=10.0)
    commanded(book, Started("a", 1), spent(10.0))
    assert Stop("a", 1, NIGHT_ENDED) in commanded(at(book, UNTIL + 600))


def test_money_that_is_only_reserved_closes_nothing() -> None:
    """Most requests cost a part of what they could."""
    book = began(of_night("a", kind="k"), of_night("b", 1, kind="k"), slots=1, cost_max=10.0)
    commanded(book, Started("a", 1), StartCostLearned({"k": 2.0}))
    assert commanded(book, spent(5.0, reserved=5.0)) == []


def test_an_outage_tries_no_task_of_a_night_that_is_full() -> None:
    book = began(of_night("a"), of_night("b", 1), parallel=1)
    commanded(book, Started("a", 1), ProviderChanged("down"))
    assert starts(commanded(book >> After(3600))) == []


def test_a_cancelled_task_of_a_closing_night_ends_once() -> None:
    book = began(of_night("a"))
    commanded(book, Started("a", 1))
    at(book, UNTIL).happens()
    assert commanded(book, CancelAsked("a")) == [Stop("a", 1, "cancelled")]
    assert commanded(at(book, UNTIL + 600)) == [MoveNight(RUN, NightState.OVER, ENDED_AT)]
    assert commanded(book, TreeGone("a", 1, End.CANCELLED, "cancelled")) == [Collect("a", 1, End.CANCELLED, "cancelled")]
