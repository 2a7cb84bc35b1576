"""The two tables, and the rules that do not fit them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pytest

from supervisor.kernel.errors import Refused
from supervisor.kernel.states import ATTEMPT_TRANSITIONS, FINAL, TASK_TRANSITIONS, AttemptState, TaskState, attempt_after, task_after

TABLES = [(TaskState, TASK_TRANSITIONS, TaskState.WAITING), (AttemptState, ATTEMPT_TRANSITIONS, AttemptState.LAUNCHING)]


def reached(table: Mapping[StrEnum, Mapping[str, StrEnum]], start: StrEnum) -> set[StrEnum]:
    """Every state that some events lead to."""
    seen, edge = {start}, [start]
    while edge:
        for target in table[edge.pop()].values():
            if target not in seen:
                seen.add(target)
                edge.append(target)
    return seen


@pytest.mark.parametrize(("states", "table", "start"), TABLES, ids=["task", "attempt"])
def test_each_table_knows_every_state_and_reaches_it(
    states: type[StrEnum], table: Mapping[StrEnum, Mapping[str, StrEnum]], start: StrEnum
) -> None:
    assert set(table) == set(states)
    assert {target for row in table.values() for target in row.values()} <= set(states)
    assert reached(table, start) == set(states)


def test_final_states_are_left_by_retry_alone_and_all_others_can_end() -> None:
    for state in TaskState:
        assert (state in FINAL) == (set(TASK_TRANSITIONS[state]) == {"retry"}), state
        assert reached({key: dict(row) for key, row in TASK_TRANSITIONS.items()}, state) & FINAL, state
    assert {state for state in AttemptState if not ATTEMPT_TRANSITIONS[state]} == {AttemptState.RELEASED}


def test_a_person_can_cancel_whatever_has_not_ended_and_does_not_run() -> None:
    assert {state for state in TaskState if "cancel" in TASK_TRANSITIONS[state]} == set(TaskState) - FINAL - {TaskState.RUNNING}


@pytest.mark.parametrize("state", list(TaskState))
def test_a_task_refuses_what_its_table_does_not_list(state: TaskState) -> None:
    for event, target in TASK_TRANSITIONS[state].items():
        assert task_after(state, event) is target
    with pytest.raises(Refused, match=f"cannot dance a task: it is {state}"):
        task_after(state, "dance")


@pytest.mark.parametrize("state", list(AttemptState))
def test_an_attempt_refuses_what_its_table_does_not_list(state: AttemptState) -> None:
    for event, target in ATTEMPT_TRANSITIONS[state].items():
        assert attempt_after(state, event) is target
    with pytest.raises(Refused, match=f"'dance'.*it is {state}"):
        attempt_after(state, "dance")
