"""What `decide` wants done: each command is committed to the ledger before anything acts on it."""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.core.candidates import Choice
from supervisor.core.night import NightState
from supervisor.core.retry import NEW, Tally
from supervisor.core.states import End, TaskState, Until


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
class Pause:
    """Commit that it shall stand still, and what it then waits for; then stop it there. Of one that is paused already only that is new."""

    task: str
    epoch: int
    until: Until
    made_for: str = ""
    """The task that gets its slot. Then the pause waits, within a bound, for a moment without a request under way."""
    question: str = ""
    """What its agent needs a person for: it is set aside."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Commit that it shall go on, then let it. Until that is done the ledger keeps what the pause found."""

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
    """Backoff before the task may start again, or how long it is parked; 0 in any other state."""
    tally: Tally = NEW
    """The task's from now on."""
    reason: str = ""
    """Why the task is as it is now, where that is not how the attempt ended."""
    question: str = ""
    """What a person is to say before it runs again: it is set aside."""


@dataclass(frozen=True, slots=True)
class SetState:
    """Commit a change of a task's state that no attempt caused."""

    task: str
    state: TaskState
    reason: str


@dataclass(frozen=True, slots=True)
class Revive:
    """Commit that a finished task waits again, with its tally forgotten."""

    task: str
    cause: str


@dataclass(frozen=True, slots=True)
class Choose:
    """Commit the choice of a group, together with the state that it gives the group."""

    choice: Choice


@dataclass(frozen=True, slots=True)
class Compare:
    """Rank the candidates of a group, all of which have ended, and say `Chosen` when one of them passed its gate. Nothing is committed:
    the states of its candidates say it."""

    group: str


@dataclass(frozen=True, slots=True)
class LookForNote:
    """Say `NoteAppeared` once the note is there, which it may be already. Nothing is committed: the task's plan says it."""

    note: str
    """As `task.note` names it."""


@dataclass(frozen=True, slots=True)
class MoveNight:
    """Commit how far a night has come, and why it starts nothing any more."""

    run: str
    state: NightState
    why: str


TaskCommand = Start | MarkRunning | Begin | Stop | Pause | Resume | Collect | Finish | SetState | Revive
Command = TaskCommand | Choose | Compare | LookForNote | MoveNight
