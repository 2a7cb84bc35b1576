"""What tasks wait for that nobody registered."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.kernel.crew import Attempt, Crew, Task, area
from supervisor.kernel.leases import PERSON, WaitKind
from supervisor.kernel.schedule import PlanWaits
from supervisor.kernel.states import AttemptState, TaskState


def crew(**states: TaskState) -> Crew:
    """Tasks in these states, and `t`, which is the test's."""
    attempt = Attempt(1, AttemptState.RUNNING, 0.0)
    return Crew([Task(name, 0, state=state, attempt=attempt if state is TaskState.RUNNING else None) for name, state in states.items()])


def with_t(held: Crew, **facts: Any) -> PlanWaits:
    held._enter(Task("t", 9, **facts))  # as `apply` does
    return PlanWaits(held)


def test_it_waits_for_what_it_comes_after_and_has_not_ended() -> None:
    held = crew(done=TaskState.DONE, runs=TaskState.RUNNING, waits=TaskState.WAITING)
    plan = with_t(held, after=frozenset({"done", "runs", "waits", "forgotten"}))
    (wait,) = plan.of("t")
    assert (wait.kind, wait.holders, wait.any_of) == (WaitKind.TASK, ("runs", "waits"), False)
    assert set(plan.ahead("t")) >= set(wait.holders) and "t" in plan.behind("runs")


@pytest.mark.parametrize(("state", "holders"), [(TaskState.READY, ["runs", "waits"]), (TaskState.DONE, [])])
def test_of_several_that_are_one_enough_it_waits_for_all_or_none(state: TaskState, holders: list[str]) -> None:
    names = frozenset({"waits", "runs"})
    plan = with_t(crew(runs=TaskState.RUNNING, waits=state), after=names, after_any=names)
    assert [(list(wait.holders), wait.any_of) for wait in plan.of("t")] == ([(holders, True)] if holders else [])


def test_a_task_whose_paths_another_has_waits_for_that() -> None:
    held = crew(runs=TaskState.RUNNING)
    plan = with_t(held, state=TaskState.READY, project="p", paths=("src/**",), held_up=True)
    held.lines.apply({area(held.tasks["t"]): "runs"})
    (wait,) = plan.of("t")
    assert (wait.kind, wait.what, wait.holders) == (WaitKind.LEASE, "src/**", ("runs",))
    assert plan.ahead("t") == ("runs",) and list(plan.behind("runs")) == ["t"]


def test_one_that_a_person_holds_waits_for_a_person() -> None:
    (wait,) = with_t(crew(), state=TaskState.PAUSED).of("t")
    assert (wait.kind, wait.holders) == (WaitKind.HUMAN, (PERSON,))


@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.READY, TaskState.PARKED, TaskState.DONE])
def test_the_others_wait_for_nobody(state: TaskState) -> None:
    plan = with_t(crew(runs=TaskState.RUNNING), state=state, after=frozenset({"runs"}))
    assert not plan.of("t") and not plan.ahead("t") and not plan.of("nobody") and not plan.ahead("nobody")
