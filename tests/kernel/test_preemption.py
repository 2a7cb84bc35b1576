"""Pausing: slots that paused attempts give back, who takes whose, who goes on first, and what becomes of one that is parked."""

from __future__ import annotations

from typing import Any

from supervisor.kernel.decision import Begin, Collect, Finish, MarkRunning, Pause, Resume, SetState, Start, Stop
from supervisor.kernel.events import (
    AdmissionChanged,
    CancelAsked,
    ParkAsked,
    PauseAsked,
    ResumeAsked,
    Secured,
    Started,
    StoodStill,
    TrafficChanged,
    TreeGone,
)
from supervisor.kernel.recovery import PARKED
from supervisor.kernel.retry import NEW
from supervisor.kernel.states import End, TaskClass, TaskState, Until
from tests.kernel.playbook import After, Playbook, submitted, task

READY, WAITING, PAUSED, DONE = TaskState.READY, TaskState.WAITING, TaskState.PAUSED, TaskState.DONE
LOW, HIGH = TaskClass.BATCH, TaskClass.INTERACTIVE


def running(*names: str, slots: int = 1, **facts: Any) -> Playbook:
    """These run; no slot is free."""
    book = Playbook(slots=slots)
    for order, name in enumerate(names):
        book.happens(submitted(task(name, order, **facts)))
        book.happens(Started(name, 1))
    return book


def paused(book: Playbook, name: str) -> Playbook:
    """A person has paused it, and it stands still."""
    book.happens(PauseAsked(name))
    return stands_still(book, name)


def stands_still(book: Playbook, name: str) -> Playbook:
    book.books.stood_still(name)
    return book >> StoodStill(name, 1)


def end(book: Playbook, name: str) -> Playbook:
    book.happens(TreeGone(name, 1, End.DONE, ""))
    return book >> Secured(name, 1, End.DONE, "") << Finish(name, 1, End.DONE, "", DONE, 0.0)


def test_a_slot_is_free_once_its_agent_stands_still() -> None:
    book = running("a") >> submitted(task("b", 1)) << SetState("b", READY, "")
    assert book >> PauseAsked("a") << Pause("a", 1, Until.PERSON) >> After(100)
    assert stands_still(book, "a") << Start("b", 1, "")


def test_what_a_person_holds_stays_held_when_its_attempt_is_lost() -> None:
    book = paused(running("a"), "a")
    book.happens(TreeGone("a", 1, End.LOST, "its runner died"))
    assert book >> Secured("a", 1, End.LOST, "its runner died") << Finish("a", 1, End.LOST, "its runner died", PAUSED, 0.0) >> After(9999)
    assert book >> ResumeAsked("a") << SetState("a", WAITING, "") << SetState("a", READY, "") << Start("a", 2, "lost: its runner died")


def test_one_that_is_resumed_waits_for_a_slot_and_goes_before_what_has_not_begun() -> None:
    book = paused(running("a"), "a") >> submitted(task("b", 1), task("c", 2)) << SetState("b", READY, "") << SetState("c", READY, "")
    assert book << Start("b", 1, "") >> ResumeAsked("a") << Pause("a", 1, Until.SLOT) >> ResumeAsked("a") >> After(50)
    assert end(book, "b") << Resume("a", 1) >> After(50)


def test_one_that_is_resumed_goes_on_at_once_while_a_slot_is_free() -> None:
    book = paused(running("a", slots=2), "a")
    assert book >> ResumeAsked("a") << Resume("a", 1) >> ResumeAsked("a")


def test_it_goes_on_also_while_nothing_new_may_start() -> None:
    book = paused(running("a"), "a") >> AdmissionChanged(False)
    assert book >> ResumeAsked("a") << Resume("a", 1)


def test_one_that_is_resumed_before_it_stands_still_keeps_its_slot() -> None:
    book = running("a") >> PauseAsked("a") << Pause("a", 1, Until.PERSON)
    assert book >> ResumeAsked("a") << Resume("a", 1) >> StoodStill("a", 1) >> submitted(task("b", 1)) << SetState("b", READY, "")


def test_what_waits_is_held_back_and_judged_again_when_it_is_resumed() -> None:
    book = Playbook(slots=1) >> submitted(task("a"), task("b", 1, after=["a"])) << SetState("a", READY, "") << Start("a", 1, "")
    assert book >> PauseAsked("b") << SetState("b", PAUSED, "") >> PauseAsked("b") >> Started("a", 1) << MarkRunning("a", 1)
    assert end(book, "a") >> After(10)
    assert book >> ResumeAsked("b") << SetState("b", WAITING, "") << SetState("b", READY, "") << Start("b", 1, "")
    held = Playbook(slots=0) >> submitted(task("a")) << SetState("a", READY, "") >> PauseAsked("a") << SetState("a", PAUSED, "")
    assert held >> CancelAsked("a") << SetState("a", TaskState.CANCELLED, "cancelled before it started")


def test_one_that_is_starting_stands_still_from_its_first_step() -> None:
    book = Playbook(slots=1) >> submitted(task("a")) << SetState("a", READY, "") << Start("a", 1, "")
    assert book >> PauseAsked("a") << Pause("a", 1, Until.PERSON) >> PauseAsked("a")
    assert book >> Started("a", 1) << MarkRunning("a", 1) << Pause("a", 1, Until.PERSON)
    other = Playbook(slots=1) >> submitted(task("a", together="x")) << SetState("a", READY, "") << Start("a", 1, "")
    assert other >> PauseAsked("a") << Pause("a", 1, Until.PERSON)
    assert other >> Started("a", 1) << MarkRunning("a", 1) << Begin("a", 1) << Pause("a", 1, Until.PERSON)


def test_preempt_takes_the_slot_of_the_least_important_one() -> None:
    """It alone gets the slot, and what made room goes on as soon as one is free."""
    book = running("a", "b", slots=2)
    book.happens(submitted(task("urgent", 7, priority=90, preempt=True), task("other", 3)))
    assert book.books.tasks["b"].attempt is not None and (found := book.books.tasks["b"].attempt.paused) is not None
    assert (found.until, found.made_for) == (Until.SLOT, "urgent")
    assert book >> After(5)
    assert stands_still(book, "b") << Start("urgent", 1, "")
    assert book >> Started("urgent", 1) << MarkRunning("urgent", 1)
    assert end(book, "urgent") << Resume("b", 1) >> After(5)


def test_the_least_important_is_of_the_lowest_class_then_priority_and_the_newest_of_those() -> None:
    low = (task("b", 1, task_class=LOW), task("c", 2, task_class=LOW))
    book = Playbook(slots=4)
    book.happens(submitted(task("a", 0, priority=1), *low, task("d", 3, task_class=HIGH)))
    book.happens(*(Started(name, 1) for name in "abcd"))
    for order, (name, victim) in enumerate([("x", "c"), ("y", "b"), ("z", "a")]):
        urgent = task(name, 10 + order, preempt=True)
        assert book >> submitted(urgent) << SetState(name, READY, "") << Pause(victim, 1, Until.SLOT, name)
    assert book >> submitted(task("w", 20, preempt=True)) << SetState("w", READY, ""), "nobody is less important"


def test_an_equal_is_not_preempted_nor_anybody_while_nothing_may_start() -> None:
    assert running("a") >> submitted(task("b", 1, preempt=True)) << SetState("b", READY, "")
    book = running("a") >> AdmissionChanged(False)
    assert book >> submitted(task("b", 1, priority=90, preempt=True)) << SetState("b", READY, "")


def test_an_interactive_task_preempts_only_under_pressure() -> None:
    book = running("a", "b", slots=2) >> submitted(task("x", 9, task_class=HIGH)) << SetState("x", READY, "")
    assert book >> TrafficChanged(500.0) << Pause("b", 1, Until.SLOT, "x")
    assert book >> TrafficChanged(500.0, parked=True), "one place is enough"


def test_who_wanted_the_place_is_gone() -> None:
    book = running("a") >> submitted(task("x", 1, priority=90, preempt=True)) << SetState("x", READY, "") << Pause("a", 1, Until.SLOT, "x")
    assert book >> CancelAsked("x") << SetState("x", TaskState.CANCELLED, "cancelled before it started")
    assert stands_still(book, "a") << Resume("a", 1)


def test_a_person_pauses_what_made_room() -> None:
    book = running("a") >> submitted(task("x", 1, priority=90, preempt=True)) << SetState("x", READY, "") << Pause("a", 1, Until.SLOT, "x")
    assert stands_still(book, "a") << Start("x", 1, "")
    assert book >> PauseAsked("a") << Pause("a", 1, Until.PERSON) >> Started("x", 1) << MarkRunning("x", 1)
    assert end(book, "x") >> After(100), "it waits for the person now"


def parked(book: Playbook) -> Playbook:
    assert book >> ParkAsked("a", 1) << Stop("a", 1, PARKED) >> ParkAsked("a", 1)
    assert book >> TreeGone("a", 1, End.LOST, PARKED) << Collect("a", 1, End.LOST, PARKED)
    return book >> Secured("a", 1, End.LOST, PARKED)


def test_one_that_is_parked_waits_for_its_next_attempt_and_has_lost_nothing() -> None:
    book = running("a") >> submitted(task("x", 1, priority=90, preempt=True)) << SetState("x", READY, "") << Pause("a", 1, Until.SLOT, "x")
    assert book >> ParkAsked("a", 1), "it does not stand still yet"
    before = book.crew.tasks["a"].since
    assert book >> After(60)
    assert stands_still(book, "a") << Start("x", 1, "")
    assert parked(book) << Finish("a", 1, End.LOST, PARKED, READY, 0.0)
    assert (book.crew.tasks["a"].tally, book.crew.tasks["a"].since) == (NEW, before), "nor its age"
    book.happens(Started("x", 1))
    assert end(book, "x") << Start("a", 2, f"lost: {PARKED}")


def test_what_a_person_paused_stays_paused_when_it_is_parked() -> None:
    book = parked(paused(running("a"), "a")) << Finish("a", 1, End.LOST, PARKED, PAUSED, 0.0) >> After(100)
    assert book >> ResumeAsked("a") << SetState("a", WAITING, "") << SetState("a", READY, "") << Start("a", 2, f"lost: {PARKED}")


def test_a_cancel_while_it_is_parked_ends_it() -> None:
    book = paused(running("a"), "a") >> ParkAsked("a", 1) << Stop("a", 1, PARKED) >> CancelAsked("a") << Stop("a", 1, "cancelled")
    book.happens(TreeGone("a", 1, End.LOST, ""))
    assert book >> Secured("a", 1, End.LOST, "") << Finish("a", 1, End.LOST, "", TaskState.CANCELLED, 0.0)
