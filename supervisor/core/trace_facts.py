"""What the trace of a run is made of, see `supervisor.core.traces`. Pure. Moments are seconds since 1970."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from supervisor.core.gateway.types import Usage
from supervisor.core.states import End

Value = str | int | float | bool


class What(StrEnum):
    """What a span is."""

    RUN = "run"
    TASK = "task"
    QUEUE = "queue"
    ATTEMPT = "attempt"
    LAUNCH = "launch"
    GATE = "gate"
    SECURING = "securing"
    PAUSE = "pause"
    WAIT = "wait"
    TOKENS = "tokens"
    MODEL = "model"
    TOOL = "tool"


_NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Life:
    """A task, or a run, from where it began to where nothing of it was left to do. A retry after that begins the next one."""

    number: int
    """0 is the first."""
    begin: float
    end: float | None = None
    first: int = 0
    """The row of the journal that began it; 0 of the first."""
    last: int = 0
    """The row of the journal that ended it; 0: it goes on."""
    outcome: str = ""
    """The state that it ended in."""
    of: int = 0
    """Of a task's: the number of its run's life."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What spans of a task tell."""

    id: str
    name: str
    kind: str
    agent: bool
    """Its kind is a kind of agent."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """A sending of a request, as a row of the account has it; of one that we answered ourselves `sent` is False."""

    number: int
    at: float
    """When it was sent, or turned away."""
    queued_s: float
    """How long it had waited for that."""
    total_s: float | None
    """From its arrival to its end; None: nobody knows."""
    end: str
    """As `gateway.account.rows` has it; empty: it is under way."""
    model: str
    asked: str
    api: str
    sent: bool = True
    batch: bool = False
    status: int | None = None
    usage: Usage = _NOTHING
    cost_usd: float | None = None
    first_byte_s: float | None = None
    attempt_no: int = 1
    session: str = ""
    upstream: str = ""
    why: str = ""
    """What was odd, or why it was turned away."""

    @property
    def ended(self) -> float | None:
        """When it was over; None while it is under way."""
        if self.sent and not self.end:
            return None
        return self.at + max(0.0, (self.total_s or 0.0) - self.queued_s) if self.sent else self.at


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, as an agent's transcript tells it."""

    number: int
    """Its place in the transcript."""
    tool: str
    begin: float
    end: float
    ok: bool
    call: str = ""
    about: str = ""
    """What it was about, in the agent's words."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some time of an attempt in which it waited or stood still."""

    what: What
    name: str
    begin: float
    end: float | None
    number: int = 0
    attributes: Mapping[str, Value] = field(default_factory=dict)
    content: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """One attempt: a row of the ledger, and when it could have started (`ready`) and its end was committed (`closed`)."""

    task: TaskFacts
    epoch: int
    life: Life
    """Its task's, in which it began."""
    ready: float
    created: float
    started: float | None = None
    ended: float | None = None
    closed: float | None = None
    end: str = ""
    cause: str = ""
    """Why it ended so."""
    gate_s: float = 0.0
    gate_passed: bool = True
    session: str = ""
    last_request: float = 0.0
    """When the last of its requests was over, batches left out; 0: it made none."""
    account: Mapping[str, Value | None] = field(default_factory=dict)
    """Of its result: where its time went."""

    @property
    def bounds(self) -> tuple[float, float | None]:
        """From when to when its span goes."""
        begin = max(self.created, self.life.begin)
        return begin, None if self.closed is None else max(begin, self.closed, self.ended or 0.0, self.last_request)


Moment = tuple[int, float, str, str]
"""A row of the journal: its number, when, the task, and the final state that the task came to; empty: it began again."""


def lives(tasks: Iterable[str], created: float, moments: Iterable[Moment]) -> tuple[dict[str, list[Life]], list[Life]]:
    """The lives of these tasks, and those of their run, which was handed over at `created`. `moments` are in the journal's order."""
    found = {task: [Life(0, created)] for task in tasks}
    run, left = [Life(0, created)], len(found)
    for number, at, task, state in moments:
        life = found[task][-1] if task in found else None
        if life is None or bool(state) == bool(life.last):
            continue
        if state:
            found[task][-1] = replace(life, end=max(life.begin, at), last=number, outcome=state)
            left -= 1
            run[-1] = run[-1] if left else _closed(run[-1], found, number)
        else:
            run += [] if left else [Life(run[-1].number + 1, at, first=number)]
            found[task].append(Life(life.number + 1, max(at, run[-1].begin), first=number, of=run[-1].number))
            left += 1
    return found, run


def _closed(run: Life, tasks: Mapping[str, list[Life]], number: int) -> Life:
    outcome = next((every[-1].outcome for every in tasks.values() if every[-1].outcome != End.DONE), str(End.DONE))
    own = (life.end or 0.0 for every in tasks.values() for life in every if life.of == run.number)
    return replace(run, end=max(run.begin, *own), last=number, outcome=outcome)


def life_at(every: Sequence[Life], number: int) -> Life:
    """The one to which a row of the journal belongs."""
    return next(life for life in reversed(every) if life.first <= number)
