"""While the models are busy, tasks that nobody sits in front of wait, and the crew never stops for good."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.core.crew import Collect, Command, Crew, Finish, Secured, SetState, Start, TrafficChanged, TreeGone
from supervisor.core.scheduler import HOLDS_FROM_S, held_back, waiting_for_traffic, why_held
from supervisor.core.states import End, TaskState
from supervisor.core.task import TaskClass
from tests.core.playbook import After, Playbook, submitted, task

BATCH, NORMAL, INTERACTIVE = TaskClass.BATCH, TaskClass.NORMAL, TaskClass.INTERACTIVE
READY, DONE = TaskState.READY, TaskState.DONE


def at_work(delay_s: float, slots: int = 4, **facts: Any) -> Playbook:
    """One attempt lives, then the models become busy."""
    book = Playbook(slots) >> submitted(task("at work", **facts)) << SetState("at work", READY, "") << Start("at work", 1, "")
    return book >> TrafficChanged(delay_s)


def offered(book: Playbook) -> tuple[Playbook, list[str]]:
    """Offer one task of each class; who of them starts."""
    tasks = submitted(*(task(str(name), 1 + number, task_class=name) for number, name in enumerate(TaskClass)))
    book = book >> tasks
    started: list[Command] = [command for command in book._unread if isinstance(command, Start)]
    book._unread.clear()
    return book, [command.task for command in started]


@pytest.mark.parametrize(
    ("delay_s", "started"),
    [
        (0.0, ["interactive", "normal", "batch"]),
        (29.9, ["interactive", "normal", "batch"]),
        (30.0, ["interactive", "normal"]),
        (119.9, ["interactive", "normal"]),
        (120.0, ["interactive"]),
        (1e9, ["interactive"]),
    ],
)
def test_batch_waits_first_then_normal_and_interactive_never(delay_s: float, started: list[str]) -> None:
    assert offered(at_work(delay_s))[1] == started


def test_parked_models_hold_both_back_whatever_the_delay() -> None:
    book, started = offered(at_work(0.0) >> TrafficChanged(0.0, parked=True))
    assert started == ["interactive"]
    assert waiting_for_traffic(book.crew) == 2


def test_they_start_when_the_delay_has_fallen_to_half_and_not_before() -> None:
    book, _ = offered(at_work(200.0))
    assert book >> TrafficChanged(60.0) >> After(3000)
    assert book >> TrafficChanged(59.9) << Start("normal", 1, "")
    assert waiting_for_traffic(book.crew) == 1
    assert book >> TrafficChanged(15.0)
    assert book >> TrafficChanged(14.9) << Start("batch", 1, "")
    assert waiting_for_traffic(book.crew) == 0


def test_what_runs_goes_on() -> None:
    assert at_work(1e9, task_class=BATCH) >> TrafficChanged(0.0, parked=True) >> After(1e5)


def test_when_nothing_lives_one_starts_all_the_same() -> None:
    """Otherwise a delay that is nobody's of ours, or a window that is spent for days, would stop the crew."""
    book = Playbook() >> TrafficChanged(1e9, parked=True)
    assert (
        book
        >> submitted(task("a", 0, task_class=BATCH), task("b", 1, task_class=BATCH), task("c", 2, task_class=NORMAL))
        << SetState("a", READY, "")
        << SetState("b", READY, "")
        << SetState("c", READY, "")
        << Start("c", 1, "")
        >> After(60)
        >> TreeGone("c", 1, End.DONE, "")
        << Collect("c", 1, End.DONE, "")
        >> Secured("c", 1, End.DONE, "")
        << Finish("c", 1, End.DONE, "", DONE, 0.0)
        << Start("a", 1, "")
    )


def test_who_is_welcome_leaves_no_room_for_the_exception() -> None:
    book = Playbook() >> TrafficChanged(40.0)
    _, started = offered(book)
    assert started == ["interactive", "normal"], "batch would be a third one beside them"


def test_slots_still_count() -> None:
    assert offered(at_work(1e9, slots=1))[1] == []


@pytest.mark.parametrize("before", [frozenset(), frozenset({BATCH}), frozenset({BATCH, NORMAL})])
def test_interactive_is_never_held_back(before: frozenset[TaskClass]) -> None:
    assert INTERACTIVE not in HOLDS_FROM_S
    assert all(INTERACTIVE not in held_back(before, delay, parked=parked) for delay in (0.0, 1e9) for parked in (False, True))


def test_a_crew_knows_of_no_delay_at_first() -> None:
    assert Crew().held_back == frozenset() == held_back((), 0.0, parked=False)


@pytest.mark.parametrize(
    ("delay_s", "parked", "more"),
    [
        (0.0, False, ""),
        (119.4, False, " (a request waits 119s)"),
        (120.0, False, " (a request waits 2m)"),
        (0.0, True, " (nothing is served before its reset)"),
    ],
)
def test_who_waits_is_told_what_for(delay_s: float, parked: bool, more: str) -> None:
    assert why_held(delay_s, parked=parked) == f"waits for the model limit{more}"
