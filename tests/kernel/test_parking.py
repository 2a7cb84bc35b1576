"""A task whose agent met a spent limit: parked until the moment that was said, by the wall clock, and then run again at no cost."""

from __future__ import annotations

import pytest

from supervisor.kernel import recovery, retry
from supervisor.kernel.crew import Crew
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import Command, Finish, SetState, Start
from supervisor.kernel.events import CancelAsked, Event, NightBegan, ResumeAsked, Secured, Started, TreeGone
from supervisor.kernel.night import Night, NightTerms
from supervisor.kernel.retry import RESTARTS_MAX, Ended, Tally
from supervisor.kernel.states import End, TaskState
from tests.kernel.playbook import After, Playbook, submitted, task

NOW, OPENS = 1_795_417_000.0, 1_795_424_200.0
"""Two hours apart."""
CAUSE = recovery.spent(OPENS)
CAUSE_OF_NEXT = "lost: its limit is spent until 2026-11-23T08:56:40Z"


def parked(slots: int = 1) -> Playbook:
    """One whose only task has met a spent limit."""
    book = Playbook(slots)
    book.wall = NOW
    book.happens(submitted(task("a")))
    book.happens(Started("a", 1))
    book.happens(TreeGone("a", 1, End.LOST, CAUSE))
    return book >> Secured("a", 1, End.LOST, CAUSE) << Finish("a", 1, End.LOST, CAUSE, TaskState.PARKED, 7200.0)


AGAIN: list[Command] = [SetState("a", TaskState.READY, ""), Start("a", 2, CAUSE_OF_NEXT)]


def test_it_waits_until_the_limit_opens_and_its_slot_goes_on() -> None:
    book = parked()
    assert book >> submitted(task("b", 1)) << SetState("b", TaskState.READY, "") << Start("b", 1, "")
    for event in (Started("b", 1), TreeGone("b", 1, End.DONE, ""), Secured("b", 1, End.DONE, "")):
        book.happens(event)
    book.wall = OPENS - 0.5
    assert book >> After(7199.5)
    book.wall = OPENS
    assert book >> After(0.5) << AGAIN[0] << AGAIN[1]


@pytest.mark.parametrize(("wall", "goes_on"), [(NOW - 3600, False), (OPENS + 3600, True)], ids=["back", "forward"])
def test_it_follows_the_wall_clock_when_that_is_set(wall: float, goes_on: bool) -> None:
    book = parked()
    book.wall = wall
    book >> After(1.0 if goes_on else 86_400.0)
    for command in AGAIN if goes_on else []:
        book << command
    assert book


def test_a_person_lets_it_go_on_at_once_and_can_end_it() -> None:
    assert parked() >> ResumeAsked("a") << AGAIN[0] << AGAIN[1]
    assert parked() >> CancelAsked("a") << SetState("a", TaskState.CANCELLED, "cancelled")


def test_it_costs_nothing_and_is_no_restart() -> None:
    spent = Tally(3, 1, tuple(NOW - number for number in range(RESTARTS_MAX, 0, -1)))
    then = retry.after(spent, 0, Ended(End.LOST, CAUSE, NOW))
    assert (then.event, then.tally, then.delay_s) == ("park", spent, 7200.0)
    assert retry.after(spent, 0, Ended(End.LOST, CAUSE, OPENS + 9)).delay_s == 0.0, "it opened while its work was secured"
    assert retry.after(spent, 0, Ended(End.LOST, CAUSE, NOW, unwanted=True)).event == "cancelled"
    assert recovery.spent_until(End.FAILED, CAUSE) == recovery.spent_until(End.LOST, "its runner died") == 0.0


def test_a_whole_crew_that_meets_it_is_no_outage() -> None:
    book = Playbook(8)
    book.wall = NOW
    names = [f"t{number}" for number in range(8)]
    book.happens(submitted(*(task(name, number) for number, name in enumerate(names))))
    book.happens(*(Started(name, 1) for name in names))
    book.happens(*(TreeGone(name, 1, End.LOST, CAUSE) for name in names))
    book.happens(*(Secured(name, 1, End.LOST, CAUSE) for name in names))
    assert book.crew.health.outage is None
    assert {held.state for held in book.books.tasks.values()} == {TaskState.PARKED}


def test_the_end_of_its_night_ends_it_too() -> None:
    crew = Crew(slots=1)
    steps: list[tuple[float, list[Event]]] = [
        (NOW, [NightBegan(Night("n", NightTerms(until=NOW + 3600))), submitted(task("a", night="n"))]),
        (NOW, [Started("a", 1), TreeGone("a", 1, End.LOST, CAUSE)]),
        (NOW, [Secured("a", 1, End.LOST, CAUSE)]),
        (NOW + 3600, []),
    ]
    for wall, events in steps:
        change, commands = decide(crew, events, wall - NOW, wall)
        crew.apply(change)
    assert SetState("a", TaskState.EXPIRED, "the night ended at ") in commands
    assert not crew.tasks and not crew.nights
