"""What people ask of a task: to end it, to let it stand still and go on, and to run it again. What is asked in vain changes nothing."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from supervisor.core.board import Board
from supervisor.core.commands import Revive, Stop
from supervisor.core.retry import NEW
from supervisor.core.states import FINAL, AttemptState, TaskState, Until, task_after
from supervisor.core.task import Task

CANCELLED = "cancelled"
"""`Stop.why` when a person asked."""


def cancel(board: Board, task_id: str) -> None:
    """End the task, and all that its agent added and theirs, and the candidates of a group: nobody is left who would take what they come
    to."""
    waiting = deque([task_id])
    while waiting:
        children = [child.id for child in board.draft.unfinished_children(waiting[0])] + _candidates(board, waiting[0])
        _cancel(board, waiting.popleft())
        waiting.extend(children)


def _candidates(board: Board, task_id: str) -> list[str]:
    """What a group waits for, and has not ended."""
    group = board.draft.get(task_id)
    if group is None or not group.decide:
        return []
    return [task.id for task in board.draft.known(sorted(group.after)) if task.state not in FINAL]


def _cancel(board: Board, task_id: str) -> None:
    task = board.draft.get(task_id)
    if task is None or task.state in FINAL:
        return
    if task.attempt is None:
        board.set_state(task, "cancel", "cancelled before it started" if not task.epoch else CANCELLED)
        board.final(task_id)
    elif task.attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING):
        board.stop(task, task.attempt, CANCELLED)
    elif task.attempt.stop_why != CANCELLED:
        # It is ending for a reason of its own, and that stays its end; but whatever that is, it shall not run again.
        board.draft.put(replace(task, attempt=replace(task.attempt, stop_why=CANCELLED)))
        board.commands.append(Stop(task_id, task.attempt.epoch, CANCELLED))


def pause(board: Board, task_id: str) -> None:
    """Hold it back until a person resumes it: its agent stands still, or it does not start."""
    task = board.draft.get(task_id)
    if task is None or not may_pause(task):
        return
    if task.attempt is not None:
        board.pause(task, task.attempt, Until.PERSON)
    else:
        board.set_state(task, "pause", "")


def resume(board: Board, task_id: str) -> None:
    """Let it wait for its start again, or for a slot on which its agent goes on."""
    task = board.draft.get(task_id)
    if task is None:
        return
    if task.state is TaskState.PAUSED:
        board.set_state(task, "resume", "")
        board.look_at_needs(task_id)
    elif task.state is TaskState.PARKED:
        board.set_state(task, "unpark", "")
    elif task.attempt is not None and is_held_back(task):
        board.await_slot(task, task.attempt)


def retry(board: Board, task_id: str) -> None:
    """Let a task that has ended run again, with its tally forgotten."""
    task = board.draft.get(task_id)
    if task is None or task.state not in FINAL:
        return
    cause = f"retry asked; was {task.state}"
    state = task_after(task.state, "retry")
    again = replace(task, state=state, tally=NEW, not_before=0.0, start_by=0.0, cause=cause, notes_seen=frozenset())
    board.draft.put(again)
    board.commands.append(Revive(task_id, cause))
    board.look_at_needs(task_id)


def may_pause(task: Task) -> bool:
    """Whether a person's pause would change anything: it has not ended, it is not ending, and no person has paused it."""
    if task.attempt is None:
        return task.state in (TaskState.WAITING, TaskState.READY) and not task.decide
    return task.attempt.state in (AttemptState.LAUNCHING, AttemptState.RUNNING) and not is_held_back(task)


def is_held_back(task: Task) -> bool:
    """Whether a person has paused it, and not resumed it since."""
    if task.attempt is None:
        return task.state is TaskState.PAUSED
    paused = task.attempt.paused
    return (
        paused is not None
        and paused.until is Until.PERSON
        and task.attempt.state
        in (
            AttemptState.LAUNCHING,
            AttemptState.RUNNING,
        )
    )
