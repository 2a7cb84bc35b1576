"""`decide` with tasks that begin together, told as scripts."""

from __future__ import annotations

from supervisor.kernel.decide import TIMEOUT_BACKSTOP_S, TOGETHER_MAX_S
from supervisor.kernel.decision import Begin, Collect, Finish, MarkRunning, SetState, Start, Stop
from supervisor.kernel.events import Secured, Started, TreeGone
from supervisor.kernel.states import End, TaskState
from tests.kernel.playbook import After, Playbook, submitted, task

READY = TaskState.READY


def group(slots: int = 4) -> Playbook:
    """Two tasks that begin together; both are being launched, or as many as there are slots."""
    book = (
        Playbook(slots)
        >> submitted(task("a", together="g"), task("b", 1, together="g"))
        << SetState("a", READY, "")
        << SetState("b", READY, "")
        << Start("a", 1, "")
    )
    return book << Start("b", 1, "") if slots > 1 else book


def test_a_group_begins_when_its_last_one_is_up() -> None:
    book = group() >> Started("b", 1) << MarkRunning("b", 1) >> After(5)
    assert book >> Started("a", 1) << MarkRunning("a", 1) << Begin("a", 1) << Begin("b", 1) >> After(500)


def test_a_group_does_not_wait_for_one_that_failed_to_start() -> None:
    book = group() >> Started("b", 1) << MarkRunning("b", 1)
    assert book >> TreeGone("a", 1, End.FAILED, "x") << Collect("a", 1, End.FAILED, "x") << Begin("b", 1)


def test_one_that_comes_later_begins_at_once() -> None:
    book = group() >> Started("b", 1) << MarkRunning("b", 1)
    book = book >> TreeGone("a", 1, End.LOST, "x") << Collect("a", 1, End.LOST, "x") << Begin("b", 1)
    book = book >> Secured("a", 1, End.LOST, "x") << Finish("a", 1, End.LOST, "x", READY, 2.0) >> After(2) << Start("a", 2, "lost: x")
    assert book >> Started("a", 2) << MarkRunning("a", 2) << Begin("a", 2)


def test_a_group_that_cannot_all_be_up_begins_after_a_while() -> None:
    book = group(slots=1) >> Started("a", 1) << MarkRunning("a", 1) >> After(TOGETHER_MAX_S - 1)
    assert book >> After(1) << Begin("a", 1)


def test_a_held_attempt_has_no_deadline_and_the_time_of_one_that_began_counts_from_there() -> None:
    book = (
        Playbook()
        >> submitted(task("a", together="g", timeout_s=1.0), task("b", 1, together="g", after=["a"]))
        << SetState("a", READY, "")
        << Start("a", 1, "")
        >> Started("a", 1)
        << MarkRunning("a", 1)
        >> After(TIMEOUT_BACKSTOP_S + 10)
    )
    book = book >> After(TOGETHER_MAX_S) << Begin("a", 1) >> After(TIMEOUT_BACKSTOP_S)
    assert book >> After(2) << Stop("a", 1, "timeout")


def test_groups_do_not_wait_for_each_other() -> None:
    book = (
        Playbook()
        >> submitted(task("a", together="g"), task("b", 1, together="h"))
        << SetState("a", READY, "")
        << SetState("b", READY, "")
        << Start("a", 1, "")
        << Start("b", 1, "")
    )
    assert book >> Started("a", 1) << MarkRunning("a", 1) << Begin("a", 1)
