"""While the models are busy, tasks that nobody sits in front of wait, and the crew never stops for good."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.kernel.crew import Crew
from supervisor.kernel.decision import Collect, Finish, SetState, Start
from supervisor.kernel.events import Secured, TrafficChanged, TreeGone
from supervisor.kernel.pressure import HOLDS_FROM_S, Decision, Limits, Pressure, Traffic, Verdict, held
from supervisor.kernel.schedule import held_tasks
from supervisor.kernel.states import End, TaskClass, TaskState
from tests.kernel.playbook import After, Playbook, submitted, task

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
    started = [command for command in book._unread if isinstance(command, Start)]
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
    assert held_tasks(book.crew) == 2


def test_they_start_when_the_delay_has_fallen_to_half_and_not_before() -> None:
    book, _ = offered(at_work(200.0))
    assert book >> TrafficChanged(60.0) >> After(3000)
    assert book >> TrafficChanged(59.9) << Start("normal", 1, "")
    assert held_tasks(book.crew) == 1
    assert book >> TrafficChanged(15.0)
    assert book >> TrafficChanged(14.9) << Start("batch", 1, "")
    assert held_tasks(book.crew) == 0


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


@pytest.mark.parametrize("before", [(), (BATCH,), (BATCH, NORMAL)])
def test_interactive_is_never_held_back(before: tuple[TaskClass, ...]) -> None:
    assert INTERACTIVE not in HOLDS_FROM_S
    was = dict.fromkeys(before, Verdict(Decision.DEFER, "models"))
    for traffic in (Traffic(0.0), Traffic(1e9), Traffic(1e9, parked=True), Traffic(closed="it is down")):
        for pressure in (Pressure(), Pressure(1e9, 1.0, 1.0, 1.0, 1.0, "it does not answer")):
            assert INTERACTIVE not in held(was, traffic, pressure, Limits(), 0.0)


def test_a_crew_knows_of_no_delay_at_first() -> None:
    assert Crew().held_back == {} == held({}, Traffic(), Pressure(), Limits(), 0.0)


@pytest.mark.parametrize(
    ("traffic", "code", "more"),
    [
        (Traffic(119.4), "models", " limit (a request waits 1m59s)"),
        (Traffic(120.0), "models", " limit (a request waits 2m)"),
        (Traffic(0.0, parked=True), "parked", " limit (nothing is served before its reset)"),
        (Traffic(0.0, closed="the key was refused"), "breaker", "s (the key was refused)"),
    ],
)
def test_who_waits_is_told_what_for(traffic: Traffic, code: str, more: str) -> None:
    found = held({}, traffic, Pressure(), Limits(), 7.0)[BATCH]
    assert found == Verdict(Decision.DEFER, code, f"waits for the model{more}", 7.0)
    assert held({BATCH: found}, traffic, Pressure(), Limits(), 9.0)[BATCH].since == 7.0, "it is the same reason still"
