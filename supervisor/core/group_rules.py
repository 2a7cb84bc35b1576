"""What becomes of groups of candidates, and of the tasks that judge them, when candidates end and when one is chosen.

A group is looked at when something that it comes after reaches a final state, never by polling. A choice is made once: of a group that has
a final state nothing is chosen any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from supervisor.core.candidates import Choice, Decider
from supervisor.core.commands import Choose, Command, Compare
from supervisor.core.states import FINAL, TaskState

if TYPE_CHECKING:
    from supervisor.core.crew import Crew
    from supervisor.core.draft import Draft
    from supervisor.core.task import Task


class Board(Protocol):
    """What these rules use of `core.board.Board`, which uses them."""

    draft: Draft
    commands: list[Command]

    def set_state(self, task: Task, event: str, reason: str) -> None: ...

    def final(self, task_id: str) -> None: ...


JUDGED_MIN = 2
"""Candidates below which there is nothing to judge."""


def looked_at(board: Board, task: Task) -> bool:
    """Judge a waiting group, or a waiting judge of one, by its candidates. Whether it reached a final state."""
    return _group(board, task) if task.decide else _judge(board, task)


def _group(board: Board, task: Task) -> bool:
    if any(need.state not in FINAL for need in board.draft.known(task.after)):
        return False
    ends = [candidate.state for candidate in board.draft.known(sorted(task.candidates))]
    if TaskState.DONE not in ends:
        skipped = all(end is TaskState.SKIPPED for end in ends)
        event = "blocked for ever" if skipped else "none is left"
        board.set_state(task, event, f"none of its {len(ends)} candidates is done: {', '.join(sorted(set(ends)))}")
        return True
    if task.decide == "gate":
        board.commands.append(Compare(task.id))
    return False


def _judge(board: Board, task: Task) -> bool:
    ends = [candidate.state for candidate in board.draft.known(task.candidates)]
    if any(end not in FINAL for end in ends):
        return False
    if (done := ends.count(TaskState.DONE)) < JUDGED_MIN:
        board.set_state(task, "blocked for ever", f"{done} of {len(ends)} candidates is done: there is nothing to judge")
        return True
    board.set_state(task, "unblocked", "")
    return False


def choose(board: Board, choice: Choice) -> list[str]:
    """Make `choice`, and have what comes after the group look at it. Returns the candidates and judges that have not ended: nobody waits
    for them any more. Nothing happens where the group has ended, or what was chosen is no result of it (any more)."""
    group, winner = board.draft.get(choice.group), board.draft.get(choice.winner)
    if group is None or winner is None or not may_choose(group, winner) or winner.epoch != choice.epoch:
        return []
    board.set_state(group, "chosen", f"{choice.winner} was chosen by {choice.by}: {choice.why}")
    board.commands.append(Choose(choice))
    board.final(group.id)
    return [task.id for task in board.draft.known(sorted(group.after)) if task.state not in FINAL]


def waits_for_person(group: Task, needs: Iterable[Task]) -> bool:
    """Whether it is a group of which a person is to choose a candidate, and nothing else is to come. `needs`: what it comes after."""
    return group.decide == Decider.PERSON and group.state is TaskState.WAITING and all(need.state in FINAL for need in needs)


def to_choose(crew: Crew) -> list[str]:
    """The groups of which a person is to choose now. Costs as much as there are groups of theirs that have not ended."""
    groups = (crew.tasks[name] for name in crew.deciding.get(Decider.PERSON, ()))
    return [group.id for group in groups if waits_for_person(group, (crew.tasks[need] for need in group.after if need in crew.tasks))]


def may_choose(group: Task, winner: Task) -> bool:
    """Whether `winner` can be chosen of `group` now."""
    return group.state is TaskState.WAITING and winner.id in group.candidates and winner.state is TaskState.DONE
