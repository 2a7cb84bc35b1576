"""What can happen to the crew, as `decide` is told: from observation, and from people. An event does nothing by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from supervisor.kernel.crew import Attempt, Rank, Task, is_startable, rank
from supervisor.kernel.decision import Board
from supervisor.kernel.format import duration
from supervisor.kernel.night import Night, NightSpent
from supervisor.kernel.pressure import WELL, Health, Outage, Pressure, Traffic
from supervisor.kernel.recovery import ASKED, LIMIT, spent_until
from supervisor.kernel.retry import GATE, Next, is_reboot
from supervisor.kernel.schedule import Rooms
from supervisor.kernel.states import FINAL, LIVING, NEEDS_YOU, AttemptState, BatchTime, Choice, End, TaskClass, Until

# Events
# ------


@dataclass(frozen=True, slots=True)
class _OfTask:
    task: str


@dataclass(frozen=True, slots=True)
class _OfAttempt(_OfTask):
    epoch: int


@dataclass(frozen=True, slots=True)
class Submitted:
    """Tasks were committed to the ledger, or read from it at start."""

    tasks: tuple[Task, ...]


class Started(_OfAttempt):
    """The runner of this epoch has written started.json."""


@dataclass(frozen=True, slots=True)
class TreeGone(_OfAttempt):
    """No process of the attempt is left; `end` and `cause` are judged from the exit record or from its absence."""

    end: End
    cause: str


@dataclass(frozen=True, slots=True)
class Secured(_OfAttempt):
    """The attempt's work is on refs and its records are written."""

    end: End
    cause: str
    question: Question | None = None
    """What it failed for and would fail for again, until a person changes it."""


@dataclass(frozen=True, slots=True)
class PersonNeeded(_OfAttempt):
    """A living agent waits for a person, and nobody is there."""

    question: Question


class CancelAsked(_OfTask):
    """A person wants the task ended."""


@dataclass(frozen=True, slots=True)
class LimitPassed(_OfAttempt):
    """The attempt has used more than it may of something that nobody but us looks at."""

    why: str
    """Which limit, in plain words."""
    again: bool = False
    """It shall go on in a new attempt, which costs no retry."""


class PauseAsked(_OfTask):
    """A person wants the task held back: its agent stands still, or does not start."""


class ResumeAsked(_OfTask):
    """A person wants a paused task to go on."""


class StoodStill(_OfAttempt):
    """The tree of an attempt that was to be paused stands still."""


@dataclass(frozen=True, slots=True)
class LeasesChanged(_OfAttempt):
    """What the agent of an attempt holds beside the paths of its task."""

    globs: tuple[str, ...]


class ParkAsked(_OfAttempt):
    """An attempt was paused for so long that it should be ended; it goes on with its conversation in the next one."""


class RetryAsked(_OfTask):
    """A person wants a finished task run again."""


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


class TrafficChanged(Traffic):
    """The models are that busy from now on."""


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


# Outage
# ------
# An outage: what ends or stops many agents at once is nobody's fault, and to start them again one by one would only burn attempts.
#
# It begins when half of at least five living agents die of the same cause within two seconds, or when the gateway says that no
# provider serves anything. From then on nothing starts but a probe now and then, and what dies is run again at no cost. After a
# mass death the probe is one of those that died, and the outage is over when it is done, or has lived for a while. A provider is
# back when the gateway says so; a probe only sees to it that somebody asks.
#
# A death is a loss, a KILL that nobody of us sent (what the kernel does without memory), or a failure of an agent that would be run
# again, or of a command that would be and did not get to its own end. What fails for good is an answer, a command's own exit status
# too, and so is a gate that was not passed. Nor is a failure one while the cost cap of its night refuses requests. While no
# provider serves anything every other failure and every timeout is a death.


CREW_MIN: Final = 5
WITHIN_S: Final = 2.0
"""Two looks at the processes: what dies at one moment is seen within them."""
PROBE_OK_S: Final = 5.0
"""A program that cannot run dies sooner; what it takes an agent to find a provider dead is longer, but that the gateway tells."""
PROBE_FIRST_S: Final = 30.0
PROBE_CAP_S: Final = 300.0
_BROKEN: Final = re.compile(r"could not start|killed by signal|exit code (126|127|129|1[3-5]\d)$")
"""How a command ends that did not get to an end of its own. A shell says 126 and 127 of what it cannot start, and 128 + n of a signal."""
_KILLED: Final = ("killed by signal 9", "exit code 137")
PROBES_FREE: Final = 10
"""Probes of a mass death that cost nothing, about 40 minutes. From then on each costs what it would at any other time: perhaps it is the
agents' own fault, and then they come to an end, one after the other."""


def died(board: Board, task: Task, attempt: Attempt, end: End, cause: str) -> None:
    """Note that an attempt is gone that nobody stopped; to be called once it collects."""
    outage = board.draft.health.outage
    if outage is not None and outage.probe == task.id:
        _probe_ended(board, outage, task, attempt, end, cause)
    elif not _is_death(task, end, cause, outage) or _lacks_money(board, task, end):
        return
    elif outage is not None:
        _set_free(board, task.id, outage)
        board.draft.health = replace(board.draft.health, outage=replace(outage, victims=outage.victims | {task.id}))
    else:
        _look(board, task, str(end) if end is End.LOST or not cause else f"{end}: {cause}")


def _is_death(task: Task, end: End, cause: str, outage: Outage | None) -> bool:
    if cause.startswith(GATE) or end in (End.DONE, End.CANCELLED) or is_reboot(end, cause) or spent_until(end, cause):
        return False
    if end is End.LOST or (outage is not None and outage.provider):
        return True
    if end is not End.FAILED:
        return False
    again = task.tally.failures < task.retries and (not task.has_command or bool(_BROKEN.match(cause)))
    return again or cause in _KILLED


def _lacks_money(board: Board, task: Task, end: End) -> bool:
    """Whether it failed while its night's cost cap refuses requests: then many fail at one moment, and nothing is out."""
    night = board.draft.nights.get(task.night)
    return end is End.FAILED and night is not None and night.spent.refused


def _look(board: Board, task: Task, how: str) -> None:
    """Whether this death makes an outage of those of the last moments."""
    recent = tuple(one for one in board.draft.health.deaths if board.now - one[0] <= WITHIN_S and one[1] != task.id)
    deaths = (*recent, (board.now, task.id, how))
    board.draft.health = replace(board.draft.health, deaths=deaths)
    crew = len(deaths) + _living(board)
    victims = frozenset(name for _, name, other in deaths if other == how)
    if crew < CREW_MIN or 2 * len(victims) < crew:
        return
    why = f"{len(victims)} of {crew} agents died within {duration(WITHIN_S)}, each of them {how}"
    found = Outage(board.now, why, board.now, victims=victims)
    board.draft.health = Health(outage=found)
    for name in victims:
        _set_free(board, name, found)


def _living(board: Board) -> int:
    return sum(task.attempt is not None and task.attempt.state in LIVING for task in board.draft.living())


def _set_free(board: Board, name: str, outage: Outage) -> None:
    task = board.draft.get(name)
    if task is not None and task.attempt is not None:
        board.draft.put(replace(task, attempt=replace(task.attempt, free=True, no_provider=outage.provider)))


def _probe_ended(board: Board, outage: Outage, task: Task, attempt: Attempt, end: End, cause: str) -> None:
    died = _is_death(task, end, cause, outage) or (end is End.FAILED and not cause.startswith(GATE))
    if end is End.CANCELLED or attempt.stop_why:
        again = replace(outage, probe="", probe_at=board.now)
    elif died and outage.provider:
        _set_free(board, task.id, outage)
        again = replace(outage, probe="")
    elif died:
        if outage.failed < PROBES_FREE and _is_death(task, end, cause, outage):
            _set_free(board, task.id, outage)
        again = replace(outage, probe="", probe_at=board.now + _pause_s(outage), failed=outage.failed + 1)
    elif outage.provider:
        again = replace(outage, probe="", probe_at=board.now)
    else:
        board.draft.health = WELL
        return
    board.draft.health = replace(board.draft.health, outage=again)


def _pause_s(outage: Outage) -> float:
    return min(PROBE_CAP_S, PROBE_FIRST_S * float(2 ** min(outage.failed, 9)))


def waits(board: Board, task: Task, attempt: Attempt) -> bool:
    """Whether nobody can say yet what the end costs: others may die at the same moment."""
    health = board.draft.health
    recent = any(name == task.id and board.now - at <= WITHIN_S for at, name, _ in health.deaths)
    return not attempt.free and health.outage is None and recent and len(health.deaths) + _living(board) >= CREW_MIN


def settled(board: Board) -> Iterator[tuple[Task, Attempt, End, str]]:
    """The attempts of which `waits` was true and is no more."""
    for task in board.draft.living():
        attempt = task.attempt
        if attempt is not None and attempt.secured is not None and not waits(board, task, attempt):
            yield task, attempt, *attempt.secured


def provider_said(board: Board, why: str) -> None:
    """The gateway says why no provider serves anything; empty: one does."""
    outage = board.draft.health.outage
    if why and outage is None:
        board.draft.health = Health(outage=Outage(board.now, why, board.now + PROBE_FIRST_S, provider=True))
    elif why and outage is not None and not outage.provider:
        board.draft.health = Health(outage=replace(outage, provider=True, why=why))
    elif not why and outage is not None and outage.provider:
        board.draft.health = WELL


def look_at_probe(board: Board) -> None:
    """The probe of a mass death that has lived for a while ends the outage; so does it when nobody is left who died."""
    outage = board.draft.health.outage
    if outage is None or outage.provider:
        return
    probe = board.draft.get(outage.probe) if outage.probe else None
    attempt = probe.attempt if probe is not None else None
    if attempt is not None:
        if attempt.state is AttemptState.RUNNING and not attempt.held and board.now - attempt.since >= PROBE_OK_S:
            board.draft.health = WELL
    elif all(task.state in FINAL for task in board.draft.known(outage.victims)):
        board.draft.health = WELL


def probe(board: Board) -> tuple[str, ...]:
    """What starts now: at most one. After a mass death it is one of those that died. While no provider serves anything it is whoever waits
    longest, whatever its class: one that just failed waits least, so that one task which its provider fails alone holds up nobody."""
    outage = board.draft.health.outage
    if outage is None or not _may_probe(board, outage):
        return ()
    rooms = Rooms(board.draft)
    if outage.provider:
        classes = [name for name in TaskClass if name is not TaskClass.BATCH or board.draft.batch_time is BatchTime.ALWAYS]
        names = tuple(found[-1] for found in sorted(filter(None, (_oldest(board, name, rooms) for name in classes))))[:1]
        if names:  # who asks may be held for long: the next one is tried whatever becomes of it
            outage = replace(outage, probe_at=board.now + _pause_s(outage), failed=outage.failed + 1)
    else:
        ready = sorted((task for task in board.draft.known(outage.victims) if is_startable(task) and not rooms.bar(task.id)), key=rank)
        names = tuple(task.id for task in ready)[:1]
    board.draft.health = replace(board.draft.health, outage=replace(outage, probe="".join(names)))
    return names


def _oldest(board: Board, name: TaskClass, rooms: Rooms) -> Rank | None:
    return next((found for found in rooms.in_order(board.draft.oldest(name)) if not rooms.bar(found[-1])), None)


def _may_probe(board: Board, outage: Outage) -> bool:
    if board.draft.stopped:
        return False
    taken = sum(task.attempt is not None and task.attempt.holds_slot for task in board.draft.living())
    return (not outage.probe or outage.provider) and board.now >= outage.probe_at and board.draft.admitting and taken < board.draft.slots


# Asking
# ------
# Agents that need a person while nobody is there: in a night a task is set aside with its question, its slot goes on to others, and
# one that asks again and again comes to an end. Pure.
#
# A task that is set aside is paused as by a person, and a person's `resume` lets it go on. A living agent stands still; one that
# works by itself and was denied the same as in its attempt before is not run again.


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
