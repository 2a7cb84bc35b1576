"""Who starts first: fair share, age, deadlines, what a task comes after, and the time of batch tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.kernel.crew import NEAR_S, Crew, Order, Task, urgent_from
from supervisor.kernel.decide import decide
from supervisor.kernel.decision import SetState, Start
from supervisor.kernel.events import (
    AdmissionChanged,
    BatchTimeChanged,
    CancelAsked,
    RetryAsked,
    Secured,
    Submitted,
    TrafficChanged,
    TreeGone,
)
from supervisor.kernel.schedule import AGED_EVERY
from supervisor.kernel.states import BatchTime, End, TaskClass, TaskState
from tests.kernel.playbook import Playbook, submitted, task

HOUR = 3600.0
INTERACTIVE, NORMAL, BATCH = TaskClass


class Night:
    """A crew on which time passes: whoever runs ends when `turn` is called, and others start."""

    def __init__(self, slots: int = 1, order: Order | None = None) -> None:
        self.crew = Crew(slots=slots, order=order)
        self.now, self.wall = 1000.0, 1e9
        self.started: list[str] = []
        self.states: dict[str, TaskState] = {}

    def say(self, *events: object) -> list[str]:
        """What starts on these events."""
        change, commands = decide(self.crew, events, self.now, self.wall)  # type: ignore[arg-type]
        self.crew.apply(change)
        self.states |= {command.task: command.state for command in commands if isinstance(command, SetState)}
        started = [command.task for command in commands if isinstance(command, Start)]
        self.started += started
        return started

    def submit(self, *tasks: Task) -> list[str]:
        return self.say(Submitted(tuple(replace(each, since=self.now) for each in tasks)))

    def turn(self, seconds: float = 1.0) -> list[str]:
        """All that run are done, after a while."""
        self.now += seconds
        self.wall += seconds
        done = [(held.id, held.epoch) for held in self.crew.living.values()]
        self.say(*(TreeGone(*key, End.DONE, "") for key in done))
        return self.say(*(Secured(*key, End.DONE, "") for key in done))

    def turns(self, count: int) -> list[str]:
        return [name for _ in range(count) for name in self.turn()]


def of(submitter: str, count: int, first: int = 0, **facts: Any) -> list[Task]:
    return [task(f"{submitter}{number}", number, submitter=submitter, **facts) for number in range(first, first + count)]


def test_one_task_beside_ten_thousand_of_another_starts_within_two_turnovers() -> None:
    night = Night(slots=4)
    night.submit(*of("a", 10_000))
    night.turns(20)
    night.submit(*of("b", 1, 20_000))
    assert "b20000" in night.turns(2)


def test_weights_of_two_to_one_give_two_thirds_of_the_first_starts() -> None:
    night = Night(slots=3, order=Order({"a": 2.0}))
    night.submit(*of("a", 1000), *of("b", 1000, 1000))
    while len(night.started) < 300:
        night.turn()
    share = Counter(name[0] for name in night.started[:300])["a"] / 300
    assert 0.60 <= share <= 0.73


def test_priority_orders_one_submitters_tasks_and_buys_nothing_from_another() -> None:
    night = Night()
    night.submit(*of("a", 3, priority=100), *of("b", 3, 10, priority=0))
    night.submit(task("a-first", 50, submitter="a", priority=100))
    night.turns(5)
    assert [name[0] for name in night.started] == ["a", "b", "a", "b", "a", "b"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(TaskClass))), min_size=1, max_size=40), st.integers(1, 4))
def test_whoever_waits_starts(crowd: list[tuple[str, TaskClass]], slots: int) -> None:
    night = Night(slots)
    night.submit(*(task(f"{who}{number}", number, submitter=who, task_class=what) for number, (who, what) in enumerate(crowd)))
    night.turns(len(crowd))
    assert sorted(night.started) == sorted(f"{who}{number}" for number, (who, _) in enumerate(crowd))
    assert not night.crew.ready and not night.crew.alarms and not night.crew.urgent


def test_time_without_tasks_is_no_credit() -> None:
    night = Night()
    night.submit(*of("a", 100))
    night.turns(50)
    night.submit(*of("b", 20, 1000))
    assert Counter(name[0] for name in night.turns(20)) == {"a": 10, "b": 10}


def test_the_lowest_starts_within_its_ageing_bound_while_higher_ones_never_end() -> None:
    night = Night(order=Order(ageing_s=HOUR))
    night.submit(*of("p", 5, 10, task_class=INTERACTIVE), task("lowest", 9, task_class=BATCH, priority=0))
    number = 100
    while "lowest" not in night.started and number < 1000:
        night.submit(*of("p", 2, number, task_class=INTERACTIVE))
        number += 2
        night.turn(60.0)
    waited = night.now - 1000.0
    assert HOUR <= waited <= HOUR + AGED_EVERY * 60.0 + 60.0


def test_a_mass_of_old_tasks_leaves_most_starts_to_the_others() -> None:
    night = Night(order=Order(ageing_s=HOUR))
    night.say(AdmissionChanged(False))
    night.submit(*of("old", 100, task_class=BATCH))
    night.now += 2 * HOUR
    night.submit(*of("p", 100, 1000, task_class=INTERACTIVE))
    night.say(AdmissionChanged(True))
    night.turns(39)
    assert Counter(name[0] for name in night.started) == {"p": 30, "o": 10}


def test_a_class_that_is_held_back_goes_on_one_task_at_a_time_once_it_is_old() -> None:
    night = Night(slots=4, order=Order(ageing_s=HOUR))
    night.say(TrafficChanged(60.0))
    night.submit(task("p", 0, task_class=INTERACTIVE), *of("b", 5, 10, task_class=BATCH))
    assert night.started == ["p"]
    night.now += HOUR
    assert night.say() == ["b10"]
    assert night.say() == []


def test_a_near_deadline_goes_before_normal_tasks_and_not_before_a_person() -> None:
    night = Night()
    soon, later = night.wall + NEAR_S + 10, night.wall + NEAR_S + 500
    due = [
        task(name, 50, task_class=BATCH, deadline=at, urgent_from=urgent_from(at, 0.0)) for name, at in (("later", later), ("soon", soon))
    ]
    night.submit(*of("n", 9), *due)
    assert night.turn(5.0) == ["n1"]
    assert night.turn(5.0) == ["soon"]
    night.submit(*of("p", 1, 100, task_class=INTERACTIVE))
    assert night.turn(600.0) == ["p100"]
    assert night.turn() == ["later"]


def test_a_deadline_is_near_in_proportion_to_what_the_task_may_take() -> None:
    assert urgent_from(0.0, 10.0) == 0.0
    assert urgent_from(1e9, 10.0) == 1e9 - NEAR_S
    assert urgent_from(1e9, 2 * HOUR) == 1e9 - 4 * HOUR


@pytest.mark.parametrize("waits", [False, True], ids=["ready", "waiting"])
def test_what_has_not_started_in_time_expires_and_what_comes_after_is_skipped(waits: bool) -> None:
    night = Night()
    first = task("first", 0)
    late = task("late", 1, start_by=night.wall + 60, after=["first"] if waits else [])
    night.submit(first, late, task("next", 2, after=["late"]))
    night.wall += 59
    night.say()
    assert "late" not in night.started
    night.wall += 1
    night.say()
    assert (night.states["late"], night.states["next"]) == (TaskState.EXPIRED, TaskState.SKIPPED)
    assert night.turn() == []


def test_one_that_is_skipped_because_another_expired_does_not_expire_as_well() -> None:
    playbook = Playbook(slots=0)
    playbook.happens(submitted(task("a", start_by=10.0), *(task(f"b{n}", n + 1, after=["a"], start_by=10.0) for n in range(5))))
    playbook.wall = 10.0
    playbook.happens()
    states = {name: held.state for name, held in playbook.books.tasks.items()}
    assert states == {"a": TaskState.EXPIRED, **{f"b{n}": TaskState.SKIPPED for n in range(5)}}


def test_what_runs_does_not_expire_and_a_retry_by_a_person_may_start_whenever() -> None:
    night = Night()
    night.submit(task("runs", 0, start_by=night.wall + 60), task("late", 1, start_by=night.wall + 60))
    night.wall += 61
    night.say()
    assert night.states["late"] is TaskState.EXPIRED and "runs" in night.crew.living
    night.say(Submitted((task("late", 1, start_by=night.wall - 1, state=TaskState.EXPIRED),)), RetryAsked("late"))
    assert night.turn() == ["late"]


def test_what_began_in_time_is_run_again_however_late_it_is_then() -> None:
    night = Night()
    night.submit(task("a", 0, start_by=night.wall + 60))
    night.wall += 61
    night.say(TreeGone("a", 1, End.LOST, ""))
    night.say(Secured("a", 1, End.LOST, ""))
    night.now += 10.0
    assert night.say() == ["a"]


def test_a_near_deadline_does_not_put_a_persons_task_behind_others() -> None:
    night = Night()
    at = night.wall + 60
    first = task("p0", 0, task_class=INTERACTIVE, submitter="p", deadline=at, urgent_from=urgent_from(at, 0.0))
    night.submit(first, *of("p", 2, 10, task_class=INTERACTIVE))
    assert [*night.started, *night.turns(2)] == ["p0", "p10", "p11"]


def test_one_of_several_is_enough() -> None:
    night = Night(slots=2)
    night.submit(task("a"), task("b", 1), task("both", 2, after=["a", "b"]), task("either", 3, after=["a", "b"], after_any=frozenset("ab")))
    night.say(TreeGone("a", 1, End.FAILED, ""))
    night.say(Secured("a", 1, End.FAILED, ""))
    assert night.states["both"] is TaskState.SKIPPED and "either" not in night.states
    night.say(TreeGone("b", 1, End.DONE, ""))
    assert night.say(Secured("b", 1, End.DONE, "")) == ["either"]


def test_none_of_several_is_not() -> None:
    night = Night(slots=2)
    night.submit(task("a"), task("b", 1), task("either", 3, after=["a", "b"], after_any=frozenset("ab")))
    for name in "ab":
        night.say(CancelAsked(name), TreeGone(name, 1, End.CANCELLED, ""))
        assert "either" not in night.states
        night.say(Secured(name, 1, End.CANCELLED, ""))
    assert night.states["either"] is TaskState.SKIPPED


def test_batch_tasks_wait_for_their_window_however_old() -> None:
    night = Night(slots=4)
    night.say(BatchTimeChanged(BatchTime.NEVER))
    assert night.submit(*of("b", 2, task_class=BATCH), task("n", 5)) == ["n"]
    assert night.turn(10 * HOUR) == []
    assert night.say(BatchTimeChanged(BatchTime.ALWAYS)) == ["b0", "b1"]


def test_batch_tasks_start_when_nothing_else_runs_or_waits() -> None:
    night = Night(slots=2)
    night.say(BatchTimeChanged(BatchTime.IDLE))
    assert night.submit(*of("b", 9, task_class=BATCH), *of("n", 3, 20)) == ["n20", "n21"]
    assert night.turn() == ["n22"]
    assert night.turn() == ["b0", "b1"]
    night.submit(task("n", 99))
    assert night.turn() == ["n"]
