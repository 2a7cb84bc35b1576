"""The two state machines of the crew, as tables, and the few rules that do not fit a table.

A **task** is what a person asked for; an **attempt** is one run of it, numbered by its epoch. The task's machine says what a person
sees; the attempt's machine says how far the launch or the finish of its newest epoch has come. They are coupled in one place only: a
task is RUNNING exactly while its newest attempt has no end.

Rules that do not fit the tables:
1. An attempt's end decides the task's next state: see `core.retry`. Nothing is re-run when a person asked for the task's end meanwhile.
2. Only a person moves a task out of a final state, by `retry`; the new attempt has a higher epoch and a cause.
3. An event that the table does not list for a state is refused by `task_after` and `attempt_after`: impossible is loud.

A group of candidates never starts: it is DONE once one of them is chosen, and FAILED when none of them is done.

A task is PARKED until a spent limit of its account opens; a merge conflict, which will park one too, sends nothing yet. A task whose agent
stands still is RUNNING: its attempt has no end, and says that it is paused.

`docs/architecture.md` shows both tables as diagrams: `tools/diagrams.py` draws them from here and a test holds them equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from supervisor.kernel.errors import Refused

# States
# ------


NEEDS_YOU: Final = "needs you: "
"""How the reason of a task begins that is set aside without an agent; its question follows."""


class TaskState(StrEnum):
    """What a person sees of a task."""

    WAITING = "waiting"
    """Something it comes after has not ended well yet."""
    READY = "ready"
    """Could start now, if a slot were free and its backoff were over."""
    RUNNING = "running"
    """Its newest attempt has not ended."""
    PAUSED = "paused"
    """A person holds it back, and none of its agents lives."""
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
    """It was run again and again within minutes: a person should look before it runs once more."""


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


class TaskClass(StrEnum):
    """How urgent a task is: a person waits for it, normal work, or batch work. Tasks start in this order."""

    INTERACTIVE = "interactive"
    NORMAL = "normal"
    BATCH = "batch"


class BatchTime(StrEnum):
    """Whether batch tasks may start now, as `[batch]` of config.toml says."""

    ALWAYS = "always"
    IDLE = "idle"
    """Only while no other task lives or could start."""
    NEVER = "never"
    """Until their window opens."""


class Until(StrEnum):
    """What a paused attempt waits for."""

    PERSON = "person"
    """A person paused it, and resumes it."""
    SLOT = "slot"
    """A slot: it made room for another task, or a person resumed it while none was free."""


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
        "chosen": TaskState.DONE,
        "none is left": TaskState.FAILED,
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
        "restarted too often": TaskState.QUARANTINED,
        "pause": TaskState.PAUSED,
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


S = TypeVar("S", bound=StrEnum)


def after(table: Mapping[S, Mapping[str, S]], state: S, event: str, on: str) -> S:
    """The state that `event` leads to in a table of states. Raises `Refused` when the table has no such step."""
    try:
        return table[state][event]
    except KeyError:
        raise Refused("cannot", on=on, why=f"it is {state}") from None


def task_after(state: TaskState, event: str) -> TaskState:
    """`after` of a task."""
    return after(TASK_TRANSITIONS, state, event, f"{event} a task")


def attempt_after(state: AttemptState, event: str) -> AttemptState:
    """`after` of an attempt."""
    return after(ATTEMPT_TRANSITIONS, state, event, f"take '{event}' for an attempt")


# Candidates
# ----------
# Several tasks that try the same, of which one is chosen: best of N.
#
# Each candidate is a task like any other. The group is one too, but it never starts: it waits for its candidates, is done once one of them
# is chosen, and failed when none of them is done. What comes after the group so begins after the choice, and learns what the chosen
# one came
# to. Pure.


CANDIDATES_MAX = 16
"""Of one group."""
JUDGE_ROUNDS = (1, 2)
"""A judge sees the candidates twice, in two orders."""


CHOICE = "choice"
"""What a group waits for of which a person is to choose."""


class Decider(StrEnum):
    """Who chooses."""

    PERSON = "person"
    GATE = "gate"
    """The first by the ranking that passed its gate, once all candidates have ended."""


def candidate_name(group: str, number: int) -> str:
    """The name of a candidate in the plan; the first is number 1."""
    return f"{group}-{number}"


def judge_name(group: str, judge_round: int) -> str:
    """The name of the task that judges a group in one of JUDGE_ROUNDS."""
    return f"{group}-judge-{judge_round}"


def asks_choice(name: str) -> str:
    """What is said of a group, by its name, of which a person is to choose."""
    return f"waits for your choice: nightcrew compare {name}"


@dataclass(frozen=True, slots=True)
class Choice:
    """Which candidate of a group was chosen. There is at most one of a group, and it never changes."""

    group: str
    """Full id of the group."""
    winner: str
    """Full id of its candidate."""
    epoch: int
    """The attempt of `winner` that was chosen."""
    tip: str
    """The commit that holds what that left; empty: it left nothing."""
    by: Decider
    why: str
    ranking: str
    """JSON of the ranking as it was then: `supervisor/results/ranking.py`."""
