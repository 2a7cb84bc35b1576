"""What can happen to the crew, as `decide` is told: from observation, and from people. An event does nothing by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.kernel.admission import Pressure, Traffic
from supervisor.kernel.crew import Task
from supervisor.kernel.night import Night, NightSpent
from supervisor.kernel.outage import Question
from supervisor.kernel.states import BatchTime, Choice, End


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
    question: Question | None = None
    """What it failed for and would fail for again, until a person changes it."""


@dataclass(frozen=True, slots=True)
class PersonNeeded:
    """A living agent waits for a person, and nobody is there."""

    task: str
    epoch: int
    question: Question


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
    again: bool = False
    """It shall go on in a new attempt, which costs no retry."""


@dataclass(frozen=True, slots=True)
class PauseAsked:
    """A person wants the task held back: its agent stands still, or does not start."""

    task: str


@dataclass(frozen=True, slots=True)
class ResumeAsked:
    """A person wants a paused task to go on."""

    task: str


@dataclass(frozen=True, slots=True)
class StoodStill:
    """The tree of an attempt that was to be paused stands still."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LeasesChanged:
    """What the agent of an attempt holds beside the paths of its task."""

    task: str
    epoch: int
    globs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParkAsked:
    """An attempt was paused for so long that it should be ended; it goes on with its conversation in the next one."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class RetryAsked:
    """A person wants a finished task run again."""

    task: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """A candidate of a group was chosen, by a person or by the ranking."""

    choice: Choice
    end_others: bool = False
    """Candidates and judges that have not ended are ended: nobody waits for them any more."""


@dataclass(frozen=True, slots=True)
class NoteAppeared:
    """A note that tasks wait for is there."""

    note: str
    """As `task.note` names it."""


@dataclass(frozen=True, slots=True)
class AdmissionChanged:
    """Starting became allowed or forbidden (drain, disk)."""

    admitting: bool


@dataclass(frozen=True, slots=True)
class EmergencyChanged:
    """A person stopped everything, or let it go on."""

    stopped: bool


@dataclass(frozen=True, slots=True)
class TrafficChanged(Traffic):
    """The models are that busy from now on."""


@dataclass(frozen=True, slots=True)
class PressureChanged(Pressure):
    """The machine is that busy from now on."""


@dataclass(frozen=True, slots=True)
class SlotsChanged:
    """So many agents may live at once from now on."""

    slots: int


@dataclass(frozen=True, slots=True)
class ProviderChanged:
    """Whether any provider serves anything, as the gateway says."""

    why: str
    """Why none does; empty: one does."""


@dataclass(frozen=True, slots=True)
class NightBegan:
    """A night was committed to the ledger, or read from it at start. Its tasks come in the same decision."""

    night: Night


@dataclass(frozen=True, slots=True)
class NightsSpent:
    """What the requests of nights have cost, by run."""

    spent: Mapping[str, NightSpent]


@dataclass(frozen=True, slots=True)
class StartCostLearned:
    """What an attempt is expected to cost from now on, US dollars by kind."""

    usd: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class BatchTimeChanged:
    """The window of batch tasks opened or closed."""

    batch_time: BatchTime


CrewEvent = (
    AdmissionChanged
    | EmergencyChanged
    | BatchTimeChanged
    | SlotsChanged
    | TrafficChanged
    | PressureChanged
    | ProviderChanged
    | NightBegan
    | NightsSpent
    | StartCostLearned
)
"""What holds for the whole crew, or for a night of it."""

Event = (
    Submitted
    | Started
    | TreeGone
    | Secured
    | LimitPassed
    | PersonNeeded
    | CancelAsked
    | PauseAsked
    | ResumeAsked
    | LeasesChanged
    | StoodStill
    | ParkAsked
    | RetryAsked
    | Chosen
    | NoteAppeared
    | CrewEvent
)
