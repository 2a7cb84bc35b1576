"""What the daemon knows, what happens to it, and what it is told to do: the nouns of `decide`.

Events come from observation and from people; commands go to the doors. Neither does anything by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from supervisor.core.states import AttemptState, End, TaskState


class TaskClass(StrEnum):
    """Who is waiting: a person, the day's work, or nobody until morning."""

    INTERACTIVE = "interactive"
    NORMAL = "normal"
    BATCH = "batch"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The newest attempt of a task while it has no end."""

    epoch: int
    state: AttemptState
    since: float
    """Monotonic seconds when it entered `state`."""
    stop_why: str = ""
    """Why it is being stopped: `cancelled` (a person asked), `timeout`, or empty."""
    held: bool = False
    """Its runner is up, or will be, and waits for `Begin` before it starts the command."""
    suspended: bool = False
    """A person had its tree stand still: it keeps its slot, and has no deadline meanwhile."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task as the scheduler sees it. What to run is not here: that is the ledger's."""

    id: str
    order: int
    """Submission order over all runs; equal priorities start in this order."""
    priority: int = 50
    task_class: TaskClass = TaskClass.NORMAL
    after: frozenset[str] = frozenset()
    any_end: bool = False
    """However the tasks of `after` ended is good enough; otherwise each must be done."""
    together: str = ""
    """Tasks with the same text begin at the same moment, once all of them are up; empty: each begins by itself."""
    timeout_s: float = 0.0
    retries: int = 0
    state: TaskState = TaskState.WAITING
    epoch: int = 0
    """Epoch of the newest attempt ever made; 0 when there was none."""
    failures: int = 0
    losses: int = 0
    not_before: float = 0.0
    """Monotonic seconds before which it must not start (backoff)."""
    cause: str = ""
    """Why the next attempt is a re-run; empty for the first."""
    attempt: Attempt | None = None


@dataclass(frozen=True, slots=True)
class Crew:
    """The whole of what `decide` looks at."""

    tasks: Mapping[str, Task] = field(default_factory=dict)
    """Every task that has not reached a final state, and every final one that an unfinished task comes after."""
    slots: int = 4
    """Attempts that may be alive at once. Adoption never needs a slot; only starting does."""
    admitting: bool = True
    """False while draining, or while the disk is too full to start anything."""
    held_back: frozenset[TaskClass] = frozenset()
    """Classes whose tasks do not start beside others, because the models are busy: see `scheduler.held_back`."""


# Events -------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Submitted:
    """Tasks were committed to the ledger, or read from it at start."""

    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The runner of this epoch has written started.json."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class TreeGone:
    """No process of the attempt is left; `end` and `cause` are judged from the exit record or from its absence."""

    task: str
    epoch: int
    end: End
    cause: str


@dataclass(frozen=True, slots=True)
class Secured:
    """The attempt's work is on refs and its records are written."""

    task: str
    epoch: int
    end: End
    cause: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """A person wants the task ended."""

    task: str


@dataclass(frozen=True, slots=True)
class LimitPassed:
    """The attempt has used more than it may of something that nobody but us looks at."""

    task: str
    epoch: int
    why: str
    """Which limit, in plain words."""


@dataclass(frozen=True, slots=True)
class SuspendAsked:
    """A person wants the task's agent to stand still."""

    task: str


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """A person wants a suspended agent to go on."""

    task: str


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """A person wants a finished task run again."""

    task: str


@dataclass(frozen=True, slots=True)
class AdmissionChanged:
    """Starting became allowed or forbidden (drain, disk)."""

    admitting: bool


@dataclass(frozen=True, slots=True)
class TrafficChanged:
    """How busy the models are, as the gateway says."""

    delay_s: float
    """How long a request that came now would wait for its turn."""
    parked: bool = False
    """Nothing is served before a limit's reset."""


Event = (
    Submitted
    | Started
    | TreeGone
    | Secured
    | LimitPassed
    | CancelAsked
    | SuspendAsked
    | ResumeAsked
    | RetryAsked
    | AdmissionChanged
    | TrafficChanged
)


# Commands -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """Commit the attempt row, then launch it."""

    task: str
    epoch: int
    cause: str


@dataclass(frozen=True, slots=True)
class MarkRunning:
    """Commit that the runner was seen."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Commit it to the history, then let the command of a held attempt begin."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Commit the reason, then stop the whole tree. Of an attempt that is ending already only the reason is new: the attempt keeps
    its state and its end, and its task does not run again."""

    task: str
    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Suspend:
    """Commit that a person wants it to stand still, then stop it there."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Resume:
    """Commit that it shall go on, then let it. Until that is done the ledger keeps what the suspend found."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Collect:
    """Commit that the tree is gone, then secure its work."""

    task: str
    epoch: int
    end: End
    cause: str


@dataclass(frozen=True, slots=True)
class Finish:
    """Commit the attempt's end and the task's next state together, then release the session."""

    task: str
    epoch: int
    end: End
    cause: str
    state: TaskState
    delay_s: float
    """Backoff before the task may start again; 0 unless `state` is READY."""


@dataclass(frozen=True, slots=True)
class SetState:
    """Commit a change of a task's state that no attempt caused."""

    task: str
    state: TaskState
    reason: str


@dataclass(frozen=True, slots=True)
class Revive:
    """Commit that a finished task waits again, with its failures and losses forgotten."""

    task: str
    cause: str


Command = Start | MarkRunning | Begin | Stop | Suspend | Resume | Collect | Finish | SetState | Revive
