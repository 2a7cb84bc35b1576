"""The two state machines of the crew, as tables, and the few rules that do not fit a table.

A **task** is what a person asked for; an **attempt** is one run of it, numbered by its epoch. The task's machine says what a person
sees; the attempt's machine says how far the launch or the finish of its newest epoch has come. They are coupled in one place only: a
task is RUNNING exactly while its newest attempt has no end.

Rules that do not fit the tables:
1. An attempt's end decides the task's next state (`after_end`): a failure is retried while retries are left, a loss (nobody's
   fault: the machine, the supervisor or tmux died) is always re-run, up to MAX_LOSSES in all, then the task is quarantined.
   Neither is re-run when a person asked for the task's end meanwhile.
2. Only a person moves a task out of a final state, by `retry`; the new attempt has a higher epoch and a cause.
3. An event that the table does not list for a state is refused by `task_after` and `attempt_after`: impossible is loud.

PAUSED, PARKED and EXPIRED are part of the contract on disk; their events are listed here and are sent by the capabilities that need
them (pausing a task, a merge conflict or a spent subscription window, a deadline for starting).

`docs/architecture.md` shows both tables as diagrams: `tools/diagrams.py` draws them from here and a test holds them equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, assert_never

from supervisor.core.errors import Refused


class TaskState(StrEnum):
    """What a person sees of a task."""

    WAITING = "waiting"
    """Something it comes after has not ended well yet."""
    READY = "ready"
    """Could start now, if a slot were free and its backoff were over."""
    RUNNING = "running"
    """Its newest attempt has not ended."""
    PAUSED = "paused"
    """A person holds it back."""
    PARKED = "parked"
    """It waits for something outside: a merge conflict, a limit's reset."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    """Its deadline for starting passed."""
    SKIPPED = "skipped"
    """Something it comes after did not end well."""
    QUARANTINED = "quarantined"
    """Lost again and again: a person should look before it runs again."""


FINAL: Final = frozenset(
    {
        TaskState.DONE,
        TaskState.FAILED,
        TaskState.CANCELLED,
        TaskState.EXPIRED,
        TaskState.SKIPPED,
        TaskState.QUARANTINED,
    }
)


class AttemptState(StrEnum):
    """How far the newest attempt has come; each step is committed before the next one acts."""

    LAUNCHING = "launching"
    """The row is committed; the worktree, the session and the runner may or may not exist yet."""
    RUNNING = "running"
    """The runner has written started.json."""
    STOPPING = "stopping"
    """Somebody asked for its end; the tree is being stopped."""
    COLLECTING = "collecting"
    """The process tree is gone; its work is being secured."""
    ENDED = "ended"
    """The result is committed; the session may still exist."""
    RELEASED = "released"
    """Session gone: nothing of the attempt is left but its records and its worktree."""


LIVING: Final = frozenset({AttemptState.LAUNCHING, AttemptState.RUNNING, AttemptState.STOPPING})
"""States in which processes of an attempt may live, so that its token opens what it may: one that is being stopped has its grace time."""


class End(StrEnum):
    """How an attempt ended."""

    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"


TASK_TRANSITIONS: Final[Mapping[TaskState, Mapping[str, TaskState]]] = {
    TaskState.WAITING: {
        "unblocked": TaskState.READY,
        "blocked for ever": TaskState.SKIPPED,
        "cancel": TaskState.CANCELLED,
        "pause": TaskState.PAUSED,
        "expire": TaskState.EXPIRED,
    },
    TaskState.READY: {
        "start": TaskState.RUNNING,
        "cancel": TaskState.CANCELLED,
        "pause": TaskState.PAUSED,
        "park": TaskState.PARKED,
        "expire": TaskState.EXPIRED,
    },
    TaskState.RUNNING: {
        "done": TaskState.DONE,
        "failed": TaskState.FAILED,
        "run again": TaskState.READY,
        "cancelled": TaskState.CANCELLED,
        "lost too often": TaskState.QUARANTINED,
        "park": TaskState.PARKED,
    },
    TaskState.PAUSED: {"resume": TaskState.WAITING, "cancel": TaskState.CANCELLED},
    TaskState.PARKED: {"unpark": TaskState.READY, "cancel": TaskState.CANCELLED, "expire": TaskState.EXPIRED},
    TaskState.DONE: {"retry": TaskState.WAITING},
    TaskState.FAILED: {"retry": TaskState.WAITING},
    TaskState.CANCELLED: {"retry": TaskState.WAITING},
    TaskState.EXPIRED: {"retry": TaskState.WAITING},
    TaskState.SKIPPED: {"retry": TaskState.WAITING},
    TaskState.QUARANTINED: {"retry": TaskState.WAITING},
}

ATTEMPT_TRANSITIONS: Final[Mapping[AttemptState, Mapping[str, AttemptState]]] = {
    AttemptState.LAUNCHING: {
        "started": AttemptState.RUNNING,
        "stop": AttemptState.STOPPING,
        "tree gone": AttemptState.COLLECTING,
    },
    AttemptState.RUNNING: {"stop": AttemptState.STOPPING, "tree gone": AttemptState.COLLECTING},
    AttemptState.STOPPING: {"tree gone": AttemptState.COLLECTING},
    AttemptState.COLLECTING: {"secured": AttemptState.ENDED},
    AttemptState.ENDED: {"session gone": AttemptState.RELEASED},
    AttemptState.RELEASED: {},
}

MAX_LOSSES: Final = 5
"""A loss costs no retry, but a task that takes the machine down each time must not do so all night.
Five is the restart intensity that Erlang/OTP's documentation suggests tuning to (5 within the window)."""


def task_after(state: TaskState, event: str) -> TaskState:
    """The state that `event` leads to. Raises `Refused` when the table has no such step."""
    try:
        return TASK_TRANSITIONS[state][event]
    except KeyError:
        raise Refused("cannot", on=f"{event} a task", why=f"it is {state}") from None


def attempt_after(state: AttemptState, event: str) -> AttemptState:
    """The attempt state that `event` leads to. Raises `Refused` when the table has no such step."""
    try:
        return ATTEMPT_TRANSITIONS[state][event]
    except KeyError:
        raise Refused("cannot", on=f"take '{event}' for an attempt", why=f"it is {state}") from None


def after_end(end: End, *, failures: int, losses: int, retries: int, unwanted: bool = False) -> str:
    """The task event that an attempt's end causes. `failures` and `losses` count this end too; `unwanted`: a person cancelled it."""
    again = "cancelled" if unwanted else "run again"
    match end:
        case End.DONE:
            return "done"
        case End.CANCELLED:
            return "cancelled"
        case End.LOST:
            return again if losses <= MAX_LOSSES else "lost too often"
        case End.FAILED | End.TIMEOUT:
            return again if failures <= retries else "failed"
        case _:
            assert_never(end)
