"""Agents that need a person while nobody is there: in a night a task is set aside with its question, its slot goes on to others, and one
that asks again and again comes to an end. Pure.

A task that is set aside is paused as by a person, and a person's `resume` lets it go on. A living agent stands still; one that works by
itself and was denied the same as in its attempt before is not run again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.core.board import Board
from supervisor.core.recovery import ASKED, LIMIT
from supervisor.core.retry import Next
from supervisor.core.states import NEEDS_YOU, AttemptState, Until
from supervisor.core.task import Attempt, Task


@dataclass(frozen=True, slots=True)
class Question:
    """What an agent needs a person for."""

    text: str
    """Untrusted text of one line."""
    times: int
    """How often its task was set aside before."""
    most: int
    """How often a task may be, at most."""

    @property
    def is_too_many(self) -> bool:
        """Whether its task was set aside often enough."""
        return self.times >= self.most

    def end(self) -> str:
        """Why a task that asks once more ends."""
        return f"{ASKED}{self.times + 1} times, at last: {self.text}"


def set_aside(board: Board, task: Task, attempt: Attempt, question: Question) -> None:
    """Let an agent that waits for a person stand still until one resumes it."""
    if attempt.state is not AttemptState.RUNNING or attempt.paused is not None or attempt.held:
        return
    if question.is_too_many:
        board.stop(task, attempt, f"{LIMIT}{question.end()}")
    else:
        board.pause(task, attempt, Until.PERSON, question=question.text)


def instead(then: Next, question: Question | None) -> Next:
    """What follows for a task that would run again only to be denied the same once more, by what would follow otherwise."""
    if question is None or then.event != "run again":
        return then
    if question.is_too_many:
        return replace(then, event="failed", delay_s=0.0, reason=question.end())
    return replace(then, event="pause", delay_s=0.0, reason=NEEDS_YOU + question.text, question=question.text)
