"""Tasks that need a person while nobody is there: set aside, and ended when they ask too often."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.kernel.decision import Collect, Finish, MarkRunning, Pause, Resume, SetState, Start, Stop
from supervisor.kernel.events import PersonNeeded, Question, ResumeAsked, Secured, Started, StoodStill, TreeGone
from supervisor.kernel.states import End, TaskState, Until
from tests.kernel.playbook import After, Playbook, submitted, task

ASKS = Question("Bash: rm -rf build", 0, 3)
ONCE_MORE = Question("Bash: rm -rf build", 3, 3)
ENOUGH = "asked a person 4 times, at last: Bash: rm -rf build"
DENIED = "it was not allowed to use Bash: rm -rf build"


def running(**facts: Any) -> Playbook:
    """One slot, and a task that runs on it."""
    book = Playbook(1) >> submitted(task("a", **facts)) << SetState("a", TaskState.READY, "") << Start("a", 1, "")
    return book >> Started("a", 1) << MarkRunning("a", 1)


def test_its_slot_goes_on_and_a_person_lets_it_go_on() -> None:
    book = running() >> submitted(task("b", 1)) << SetState("b", TaskState.READY, "")
    book >> PersonNeeded("a", 1, ASKS) << Pause("a", 1, Until.PERSON, "", ASKS.text)
    assert book >> PersonNeeded("a", 1, ASKS), "it is set aside already"
    assert book >> StoodStill("a", 1) << Start("b", 1, "")
    for event in (Started("b", 1), TreeGone("b", 1, End.DONE, ""), Secured("b", 1, End.DONE, "")):
        book.happens(event)
    assert book >> After(86_400.0), "it waits for as long as that takes"
    assert book >> ResumeAsked("a") << Resume("a", 1)


def test_one_that_dies_while_it_is_set_aside_still_asks() -> None:
    book = running() >> PersonNeeded("a", 1, ASKS) << Pause("a", 1, Until.PERSON, "", ASKS.text)
    book.happens(StoodStill("a", 1), TreeGone("a", 1, End.LOST, "the machine was restarted"))
    book.happens(Secured("a", 1, End.LOST, "the machine was restarted"))
    (finish,) = [command for command in book.commanded if isinstance(command, Finish)]
    assert (finish.state, finish.reason) == (TaskState.PAUSED, f"needs you: {ASKS.text}")


def test_what_is_seen_too_late_changes_nothing() -> None:
    assert running() >> PersonNeeded("a", 2, ASKS) >> PersonNeeded("nobody", 1, ASKS)
    book = running()
    book.happens(TreeGone("a", 1, End.DONE, ""))
    assert book >> PersonNeeded("a", 1, ASKS)


def test_one_that_asks_once_more_than_it_may_ends_and_is_not_run_again() -> None:
    book = running(retries=9) >> PersonNeeded("a", 1, ONCE_MORE) << Stop("a", 1, f"limit: {ENOUGH}")
    book >> TreeGone("a", 1, End.FAILED, ENOUGH) << Collect("a", 1, End.FAILED, ENOUGH)
    assert book >> Secured("a", 1, End.FAILED, ENOUGH) << Finish("a", 1, End.FAILED, ENOUGH, TaskState.FAILED, 0.0)


@pytest.mark.parametrize(
    ("question", "retries", "state", "reason"),
    [
        pytest.param(ASKS, 1, TaskState.PAUSED, f"needs you: {ASKS.text}", id="set aside"),
        pytest.param(ONCE_MORE, 1, TaskState.FAILED, ENOUGH, id="asked too often"),
        pytest.param(ASKS, 0, TaskState.FAILED, "", id="it would not run again anyway"),
        pytest.param(None, 1, TaskState.READY, "", id="another denial, or by day"),
    ],
)
def test_one_that_works_by_itself_is_not_run_into_the_same_denial_again(
    question: Question | None, retries: int, state: TaskState, reason: str
) -> None:
    book = running(retries=retries) >> TreeGone("a", 1, End.FAILED, DENIED) << Collect("a", 1, End.FAILED, DENIED)
    book.happens(Secured("a", 1, End.FAILED, DENIED, question))
    assert book.books.tasks["a"].state is state
    (finish,) = [command for command in book.commanded if isinstance(command, Finish)]
    assert (finish.reason, finish.question) == (reason, ASKS.text if state is TaskState.PAUSED else "")
    if state is TaskState.PAUSED:
        assert (
            book
            >> ResumeAsked("a")
            << SetState("a", TaskState.WAITING, "")
            << SetState("a", TaskState.READY, "")
            << Start("a", 2, f"failed: {DENIED}")
        )
