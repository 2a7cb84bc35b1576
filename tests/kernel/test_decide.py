"""`decide`, told as scripts."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from supervisor.kernel.crew import Attempt, Crew
from supervisor.kernel.decide import TIMEOUT_BACKSTOP_S, decide
from supervisor.kernel.decision import Collect, Finish, MarkRunning, Pause, Resume, Revive, SetState, Start, Stop
from supervisor.kernel.events import (
    AdmissionChanged,
    CancelAsked,
    LimitPassed,
    PauseAsked,
    ResumeAsked,
    RetryAsked,
    Secured,
    Started,
    StoodStill,
    Submitted,
    TreeGone,
)
from supervisor.kernel.retry import RESTARTS_MAX, Tally
from supervisor.kernel.schedule import wakes_at
from supervisor.kernel.states import AttemptState, End, TaskClass, TaskState, Until
from tests.kernel.playbook import After, Playbook, submitted, task

READY, WAITING, DONE, FAILED = TaskState.READY, TaskState.WAITING, TaskState.DONE, TaskState.FAILED
CANCELLED, SKIPPED = TaskState.CANCELLED, TaskState.SKIPPED


def running(name: str = "a", slots: int = 4, **facts: Any) -> Playbook:
    """A playbook whose only task runs its first attempt."""
    book = (
        Playbook(slots) >> submitted(task(name, **facts)) << SetState(name, READY, "") << Start(name, 1, "")
    )  # fmt: skip
    return book >> Started(name, 1) << MarkRunning(name, 1)


def collecting(book: Playbook, end: End, cause: str = "", name: str = "a", epoch: int = 1) -> Playbook:
    return book >> TreeGone(name, epoch, end, cause) << Collect(name, epoch, end, cause)


def test_a_task_runs_and_is_done() -> None:
    assert (
        Playbook()
        >> submitted(task("a"))
        << SetState("a", READY, "")
        << Start("a", 1, "")
        >> Started("a", 1)
        << MarkRunning("a", 1)
        >> TreeGone("a", 1, End.DONE, "")
        << Collect("a", 1, End.DONE, "")
        >> Secured("a", 1, End.DONE, "")
        << Finish("a", 1, End.DONE, "", DONE, 0.0)
    )


def test_a_dependent_starts_when_the_last_of_its_needs_is_done() -> None:
    book = (
        Playbook()
        >> submitted(task("a"), task("b"), task("c", after=["a", "b"]))
        << SetState("a", READY, "")
        << SetState("b", READY, "")
        << Start("a", 1, "")
        << Start("b", 1, "")
        >> [TreeGone("a", 1, End.DONE, ""), TreeGone("b", 1, End.DONE, "")]
        << Collect("a", 1, End.DONE, "")
        << Collect("b", 1, End.DONE, "")
        >> Secured("b", 1, End.DONE, "")
        << Finish("b", 1, End.DONE, "", DONE, 0.0)
        >> After(100)
    )
    assert (
        book
        >> Secured("a", 1, End.DONE, "")
        << Finish("a", 1, End.DONE, "", DONE, 0.0)
        << SetState("c", READY, "")
        << Start("c", 1, "")
    )  # fmt: skip


def test_what_comes_after_a_failure_is_skipped_with_the_reason() -> None:
    assert (
        collecting(running() >> submitted(task("b", after=["a"]), task("c", after=["b"])), End.FAILED, "exit code 1")
        >> Secured("a", 1, End.FAILED, "exit code 1")
        << Finish("a", 1, End.FAILED, "exit code 1", FAILED, 0.0)
        << SetState("b", SKIPPED, "a is failed")
        << SetState("c", SKIPPED, "b is skipped")
    )


def test_a_chain_of_thousands_is_skipped() -> None:
    count = 5000
    chain = [task("t0")] + [task(f"t{number}", number, after=[f"t{number - 1}"]) for number in range(1, count)]
    crew = Crew()
    crew.apply(decide(crew, [Submitted(tuple(chain))], 0.0)[0])
    crew.apply(decide(crew, [CancelAsked("t0")], 1.0)[0])  # it was started: it is being stopped
    change, commands = decide(crew, [TreeGone("t0", 1, End.CANCELLED, "cancelled"), Secured("t0", 1, End.CANCELLED, "cancelled")], 2.0)
    crew.apply(change)
    skipped = [command for command in commands if isinstance(command, SetState) and command.state is SKIPPED]
    assert len(skipped) == count - 1
    assert crew.tasks == {}, "final tasks that nothing waits for are forgotten"


def test_a_submission_after_a_failed_task_is_skipped_at_once() -> None:
    failed = task("old", state=FAILED, epoch=1)
    assert Playbook() >> submitted(failed, task("new", after=["old"])) << SetState("new", SKIPPED, "old is failed")


def test_the_same_submission_twice_changes_nothing() -> None:
    book = running()
    assert book >> submitted(task("a")) >> submitted(task("a", priority=99))
    assert book.crew.tasks["a"].priority == 50


def test_slots_bound_what_starts() -> None:
    tasks = [task(name, order) for order, name in enumerate("abc")]
    book = Playbook(slots=1) >> submitted(*tasks)
    for name in "abc":
        book = book << SetState(name, READY, "")
    book = collecting(book << Start("a", 1, ""), End.DONE)
    assert book >> Secured("a", 1, End.DONE, "") << Finish("a", 1, End.DONE, "", DONE, 0.0) << Start("b", 1, "")


def test_a_collecting_attempt_keeps_its_slot() -> None:
    book = Playbook(slots=1) >> submitted(task("a"), task("b", 1)) << SetState("a", READY, "") << SetState("b", READY, "")
    assert collecting(book << Start("a", 1, ""), End.DONE) >> After(60)


def test_class_then_priority_then_age_decide_who_starts() -> None:
    waiting = submitted(
        task("batch", 0, task_class=TaskClass.BATCH, priority=100),
        task("young", 3),
        task("old", 1),
        task("urgent", 4, priority=51),
        task("person", 5, task_class=TaskClass.INTERACTIVE, priority=0),
    )
    _, commands = decide(Crew(slots=9), [waiting], 0.0)
    assert [command.task for command in commands if isinstance(command, Start)] == ["person", "urgent", "old", "young", "batch"]


def test_nothing_starts_while_starting_is_forbidden() -> None:
    assert (
        Playbook()
        >> AdmissionChanged(False)
        >> submitted(task("a"))
        << SetState("a", READY, "")
        >> After(60)
        >> AdmissionChanged(True)
        << Start("a", 1, "")
    )


def test_a_failure_is_retried_after_a_backoff_and_then_it_is_final() -> None:
    book = collecting(running(retries=1), End.FAILED, "exit code 1") >> Secured("a", 1, End.FAILED, "exit code 1")
    book = book << Finish("a", 1, End.FAILED, "exit code 1", READY, 2.0)
    assert wakes_at(book.crew) == book.now + 2.0
    book = book >> After(1.9) >> After(0.1) << Start("a", 2, "failed: exit code 1")
    assert (
        collecting(book, End.TIMEOUT, "stopped after 5s", epoch=2)
        >> Secured("a", 2, End.TIMEOUT, "stopped after 5s")
        << Finish("a", 2, End.TIMEOUT, "stopped after 5s", FAILED, 0.0)
    )


def test_a_backoff_that_is_over_wakes_nobody() -> None:
    """The task waits for a slot; waking for it would spin."""
    book = Playbook(slots=1) >> submitted(task("a"), task("b", 1, not_before=1001.0, state=READY, epoch=1, cause="lost"))
    book = book << SetState("a", READY, "") << Start("a", 1, "")
    assert wakes_at(book.crew) == 1001.0
    assert book >> After(2)
    assert wakes_at(book.crew) is None


def test_a_loss_costs_no_retry_until_it_is_quarantined() -> None:
    book = Playbook() >> submitted(task("a")) << SetState("a", READY, "") << Start("a", 1, "")
    for epoch, delay in enumerate((2.0, 4.0, 8.0, 16.0, 32.0), 1):
        book = collecting(book, End.LOST, "its runner died", epoch=epoch) >> Secured("a", epoch, End.LOST, "its runner died")
        book = book << Finish("a", epoch, End.LOST, "its runner died", READY, delay)
        book = book >> After(delay) << Start("a", epoch + 1, "lost: its runner died")
    last = RESTARTS_MAX + 1
    assert (
        collecting(book, End.LOST, epoch=last)
        >> Secured("a", last, End.LOST, "")
        << Finish("a", last, End.LOST, "", TaskState.QUARANTINED, 0.0)
    )


@pytest.mark.parametrize("end", list(End))
def test_an_end_without_a_cause_is_the_cause_by_itself(end: End) -> None:
    book = collecting(running(retries=1), end) >> Secured("a", 1, end, "")
    again = end in (End.FAILED, End.TIMEOUT, End.LOST)
    state = READY if again else DONE if end is End.DONE else CANCELLED
    book = book << Finish("a", 1, end, "", state, 2.0 if again else 0.0)
    assert book
    if again:
        assert book >> After(2) << Start("a", 2, str(end))


def test_cancelling_what_waits_ends_it_and_skips_its_dependents() -> None:
    assert (
        Playbook()
        >> [AdmissionChanged(False), submitted(task("a"), task("b", after=["a"]))]
        << SetState("a", READY, "")
        >> CancelAsked("a")
        << SetState("a", CANCELLED, "cancelled before it started")
        << SetState("b", SKIPPED, "a is cancelled")
        >> CancelAsked("a")
    )


def test_cancelling_inside_a_backoff_ends_it() -> None:
    book = collecting(running(retries=1), End.FAILED) >> Secured("a", 1, End.FAILED, "") << Finish("a", 1, End.FAILED, "", READY, 2.0)
    assert book >> CancelAsked("a") << SetState("a", CANCELLED, "cancelled") >> After(60)


@pytest.mark.parametrize("launched", [False, True])
def test_cancelling_what_runs_stops_it_once(launched: bool) -> None:
    book = running() if launched else Playbook() >> submitted(task("a")) << SetState("a", READY, "") << Start("a", 1, "")
    book = book >> CancelAsked("a") << Stop("a", 1, "cancelled") >> CancelAsked("a") >> Started("a", 1)
    assert (
        collecting(book, End.CANCELLED, "cancelled")
        >> CancelAsked("a")
        >> Secured("a", 1, End.CANCELLED, "cancelled")
        << Finish("a", 1, End.CANCELLED, "cancelled", CANCELLED, 0.0)
    )


@pytest.mark.parametrize("end", [End.FAILED, End.TIMEOUT, End.LOST])
def test_a_cancel_that_meets_an_end_keeps_it_from_running_again(end: End) -> None:
    book = collecting(running(retries=5), end) >> CancelAsked("a") << Stop("a", 1, "cancelled") >> CancelAsked("a")
    assert book >> Secured("a", 1, end, "") << Finish("a", 1, end, "", CANCELLED, 0.0) >> After(600)


def test_a_cancel_while_it_is_stopped_for_its_timeout_keeps_it_from_running_again() -> None:
    book = running(retries=5, timeout_s=10.0) >> After(11 + TIMEOUT_BACKSTOP_S) << Stop("a", 1, "timeout")
    book = book >> CancelAsked("a") << Stop("a", 1, "cancelled")
    book = collecting(book, End.TIMEOUT) >> Secured("a", 1, End.TIMEOUT, "")
    assert book << Finish("a", 1, End.TIMEOUT, "", CANCELLED, 0.0)


def test_a_cancel_that_comes_too_late_leaves_done_done() -> None:
    book = collecting(running(), End.DONE) >> CancelAsked("a") << Stop("a", 1, "cancelled")
    assert book >> Secured("a", 1, End.DONE, "") << Finish("a", 1, End.DONE, "", DONE, 0.0)


def test_the_daemon_stops_what_overran_its_deadline_by_far() -> None:
    book = running(timeout_s=10.0)
    assert book >> After(10 + TIMEOUT_BACKSTOP_S) >> After(1) << Stop("a", 1, "timeout") >> After(600)


def test_a_paused_agent_has_no_deadline_and_may_be_ended() -> None:
    book = running(timeout_s=10.0) >> PauseAsked("a") << Pause("a", 1, Until.PERSON) >> After(1e6)
    assert book >> PauseAsked("a") >> ResumeAsked("a") << Resume("a", 1) >> ResumeAsked("a")
    assert book >> After(10 + TIMEOUT_BACKSTOP_S) >> After(1) << Stop("a", 1, "timeout")
    book = running() >> PauseAsked("a") << Pause("a", 1, Until.PERSON) >> StoodStill("a", 1)
    assert book >> CancelAsked("a") << Stop("a", 1, "cancelled") >> ResumeAsked("a") >> PauseAsked("a")


def test_who_passed_a_limit_is_stopped_for_it_once() -> None:
    book = running(retries=1) >> LimitPassed("a", 1, "disk_max: too much") << Stop("a", 1, "limit: disk_max: too much")
    assert book >> LimitPassed("a", 1, "disk_max: more") >> LimitPassed("a", 2, "a later epoch")


def test_without_a_timeout_nothing_is_stopped() -> None:
    assert running() >> After(1e9)


def test_an_adopted_attempt_has_its_whole_deadline_again() -> None:
    """The runner keeps the real one; the backstop counts from the adoption, whatever the clocks did meanwhile."""
    adopted = task("a", state=TaskState.RUNNING, epoch=3, timeout_s=10.0, attempt=Attempt(3, AttemptState.RUNNING, 1000.0))
    book = Playbook(slots=0) >> submitted(adopted)
    assert book >> After(39) >> After(2) << Stop("a", 3, "timeout")


def test_adoption_needs_no_slot() -> None:
    adopted = [
        task(name, state=TaskState.RUNNING, epoch=1, attempt=Attempt(1, AttemptState.RUNNING, 1000.0)) for name in ("a", "b")
    ]  # fmt: skip
    book = Playbook(slots=1) >> submitted(*adopted, task("c", 2)) << SetState("c", READY, "")
    book = collecting(book, End.DONE) >> Secured("a", 1, End.DONE, "") << Finish("a", 1, End.DONE, "", DONE, 0.0)
    book = collecting(book, End.DONE, name="b") >> Secured("b", 1, End.DONE, "")
    assert book << Finish("b", 1, End.DONE, "", DONE, 0.0) << Start("c", 1, "")


def test_retry_runs_a_finished_task_again_with_a_cause() -> None:
    failed = task("a", state=FAILED, epoch=2, tally=Tally(3, 1, (1.0,)), cause="failed: exit code 1")
    book = Playbook() >> [submitted(failed), RetryAsked("a")]
    book = book << Revive("a", "retry asked; was failed") << SetState("a", READY, "") << Start("a", 3, "retry asked; was failed")
    assert book
    assert book.crew.tasks["a"].tally == Tally()


def test_retry_of_what_comes_after_a_failure_is_skipped_again() -> None:
    ended = submitted(task("a", state=FAILED, epoch=1), task("b", after=["a"], state=SKIPPED))
    assert Playbook() >> [ended, RetryAsked("b")] << Revive("b", "retry asked; was skipped") << SetState("b", SKIPPED, "a is failed")


def test_a_retried_task_holds_its_retried_dependents_back() -> None:
    ended = submitted(task("a", state=FAILED, epoch=1), task("b", after=["a"], state=SKIPPED))
    book = Playbook() >> [ended, RetryAsked("a"), RetryAsked("b")]
    book = book << Revive("a", "retry asked; was failed") << SetState("a", READY, "")
    assert book << Revive("b", "retry asked; was skipped") << Start("a", 2, "retry asked; was failed")


def test_what_cannot_be_is_ignored() -> None:
    book = running()
    assert (
        book
        >> RetryAsked("a")
        >> RetryAsked("nobody")
        >> CancelAsked("nobody")
        >> Started("nobody", 1)
        >> Started("a", 1)
        >> Started("a", 2)
        >> TreeGone("a", 0, End.LOST, "")
        >> Secured("a", 1, End.DONE, "")
    )
    assert (
        collecting(book, End.DONE)
        >> TreeGone("a", 1, End.LOST, "")
        >> Started("a", 1)
        >> Secured("a", 1, End.DONE, "")
        << Finish("a", 1, End.DONE, "", DONE, 0.0)
        >> Secured("a", 1, End.DONE, "")
        >> TreeGone("a", 1, End.LOST, "")
    )


def test_a_needed_final_task_is_remembered_as_long_as_it_is_needed() -> None:
    book = collecting(running() >> submitted(task("b", after=["a"])), End.DONE) >> Secured("a", 1, End.DONE, "")
    book = book << Finish("a", 1, End.DONE, "", DONE, 0.0) << SetState("b", READY, "") << Start("b", 1, "")
    assert book
    assert set(book.crew.tasks) == {"a", "b"}
    assert collecting(book, End.DONE, name="b") >> Secured("b", 1, End.DONE, "") << Finish("b", 1, End.DONE, "", DONE, 0.0)
    assert book.crew.tasks == {}


def test_decide_leaves_the_crew_that_it_was_given_alone() -> None:
    crew = Crew([task("a", state=READY), task("b", 1, after=["a"])], slots=1)
    kept = copy.deepcopy(vars(crew))
    change, _ = decide(crew, [Submitted((task("c"),)), CancelAsked("a"), AdmissionChanged(False)], 5.0)
    assert vars(crew) == kept
    crew.apply(change)
    assert vars(crew) != kept


# However they ended -----------------------------------------------------------------------------------------------------------------


def test_a_task_that_wants_any_end_runs_after_a_failure_and_after_a_cancellation() -> None:
    book = (
        Playbook()
        >> submitted(task("a"), task("b", 1), task("lead", 2, after=["a", "b"], any_end=True))
        << SetState("a", READY, "")
        << SetState("b", READY, "")
        << Start("a", 1, "")
        << Start("b", 1, "")
    )
    book = collecting(book, End.FAILED) >> Secured("a", 1, End.FAILED, "") << Finish("a", 1, End.FAILED, "", FAILED, 0.0)
    assert (
        collecting(book, End.CANCELLED, name="b")
        >> Secured("b", 1, End.CANCELLED, "")
        << Finish("b", 1, End.CANCELLED, "", CANCELLED, 0.0)
        << SetState("lead", READY, "")
        << Start("lead", 1, "")
    )
