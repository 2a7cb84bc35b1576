"""What one run came to: the shapes that the report is made of, and the sums over them. Pure.

Moments are wall-clock seconds since 1970, durations seconds, money US dollars. Every figure is a sum of rows: see `model`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.core.gateway.types import Usage
from supervisor.core.states import FINAL, TaskState
from supervisor.faces.night.lanes import Span


@dataclass(frozen=True, slots=True)
class Spent:
    """What requests to models took."""

    requests: int = 0
    """That were sent and served; one that was refused and sent again is one."""
    tokens: Usage = field(default=Usage())
    known_usd: float = 0.0
    """Of the requests whose price is known."""
    unpriced: int = 0
    """Requests that took tokens of no known price."""
    estimated: int = 0
    """Requests whose tokens are an estimate, since the provider never said them."""
    refused: int = 0
    """Sendings that the provider answered with 429."""

    @property
    def cost_usd(self) -> float | None:
        """None when a part of it is not known."""
        return None if self.unpriced else self.known_usd

    @property
    def cache_hits(self) -> float | None:
        """Part of all input that was read from the provider's cache, 0 to 1; None without input."""
        every = self.tokens.limited_input + self.tokens.cache_read
        return self.tokens.cache_read / every if every else None

    def shape(self) -> dict[str, Any]:
        """As JSON has it."""
        kinds = {name: getattr(self.tokens, name) for name in ("input", "output", "cache_read", "cache_write", "total")}
        hits = None if self.cache_hits is None else round(self.cache_hits, 4)
        counts = {name: getattr(self, name) for name in ("unpriced", "estimated", "refused")}
        money = {"cost_usd": None if self.cost_usd is None else round(self.cost_usd, 6), "known_usd": round(self.known_usd, 6)}
        return {"requests": self.requests, "tokens": kinds, "cache_hits": hits, **money, **counts}


def all_spent(parts: Iterable[Spent]) -> Spent:
    """All of them together."""
    known = list(parts)
    kinds = ("input", "output", "cache_read", "cache_write")
    return Spent(
        sum(part.requests for part in known),
        Usage(*(sum(getattr(part.tokens, kind) for part in known) for kind in kinds)),
        sum(part.known_usd for part in known),
        sum(part.unpriced for part in known),
        sum(part.estimated for part in known),
        sum(part.refused for part in known),
    )


@dataclass(frozen=True, slots=True)
class Times:
    """Where the time of one or more attempts that have ended went, as their accounts say (`core.account.closed`). Requests that wait at the
    same moment count once in an attempt, and the agents' times are added up."""

    slot_s: float = 0.0
    launch_s: float = 0.0
    model_s: float = 0.0
    own_s: float = 0.0
    tokens_s: float = 0.0
    person_s: float = 0.0
    paused_s: float = 0.0
    wall_s: float = 0.0
    """From each command's start to its end."""
    measured: int = 0
    """Attempts that these are of."""
    unmeasured: int = 0
    """Attempts of which no account says it: they still run, or they were lost."""

    @property
    def working_s(self) -> float:
        """At models, and at its own work."""
        return self.model_s + self.own_s

    def shape(self) -> dict[str, Any]:
        """As JSON has it."""
        return {name: round(getattr(self, name), 3) for name in ("working_s", *self.__slots__)}


def all_times(parts: Iterable[Times]) -> Times:
    """All of them together."""
    known = list(parts)
    return Times(**{name: sum(getattr(part, name) for part in known) for name in Times.__slots__})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a task."""

    epoch: int
    created: float
    ended: float | None
    end: str | None
    why: str
    """Why it ended so."""
    cause: str
    """Why the task ran once more; empty for the first."""
    spent: Spent
    times: Times
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """What a task left in git, and what its gate said."""

    branch: str
    tip: str
    base: str
    commits: int
    files: int
    plus: int
    minus: int
    gate: str
    """`passed`, why it was not, or empty: it has none."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task of the run."""

    id: str
    name: str
    title: str
    kind: str
    state: TaskState
    reason: str
    attempts: tuple[Attempt, ...]
    work: Work | None
    """Of its newest attempt; None: it left nothing, or nobody knows."""
    said: str
    """The first line of its agent's last message."""
    question: str
    """What it asked a person and was set aside for; empty: nothing, or it went on."""
    asked_at: float | None
    tampering: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    """Of a task that is done: refs with commits of its newest attempt that are not on its branch, and that it did not take back."""
    chosen: bool = True
    """False: it is a candidate of a group, and not the choice, or not yet."""

    @property
    def spent(self) -> Spent:
        return all_spent(attempt.spent for attempt in self.attempts)

    @property
    def times(self) -> Times:
        return all_times(attempt.times for attempt in self.attempts)

    @property
    def final(self) -> bool:
        return self.state in FINAL

    @property
    def living(self) -> bool:
        """Its newest attempt has no end."""
        return bool(self.attempts) and self.attempts[-1].ended is None

    @property
    def ready(self) -> bool:
        """There is something to take."""
        return self.state is TaskState.DONE and self.work is not None and self.work.commits > 0 and self.chosen


@dataclass(frozen=True, slots=True)
class Event:
    """Something that befell all tasks: an outage, the machine, the night's own steps."""

    at: float
    until: float | None
    """None: it is one moment, or still goes on."""
    kind: str
    """`outage`, `breaker`, `machine` or `night`."""
    words: str


@dataclass(frozen=True, slots=True)
class Figures:
    """What two nights are compared by, and the verdict rests on."""

    tasks: int
    states: Mapping[str, int]
    needs: int
    ready: int
    attempts: int
    again: int
    """Attempts that were not a task's first."""
    outages: int
    night_s: float
    """From its begin to its end, or to now."""
    spent: Spent
    times: Times
    alone_s: float
    """An estimate, see `Night.alone_s`."""

    @property
    def done(self) -> int:
        return self.states.get(TaskState.DONE, 0)

    def shape(self) -> dict[str, Any]:
        """As JSON has it."""
        plain = {name: getattr(self, name) for name in ("tasks", "needs", "ready", "attempts", "again", "outages")}
        seconds = {"night_s": round(self.night_s, 3), "alone_s": round(self.alone_s, 3)}
        return {**plain, **seconds, "states": dict(self.states), "spent": self.spent.shape(), "times": self.times.shape()}


@dataclass(frozen=True, slots=True)
class Night:
    """One run, a night or not, as it stands at `now`."""

    run: str
    title: str
    root: str
    base: str
    base_oid: str
    submitted: float
    began: float
    ended: float | None
    """None: it goes on."""
    now: float
    terms: Mapping[str, Any] | None
    """The row of `night`; None: it is no night."""
    before: str | None
    tasks: tuple[Task, ...]
    by_model: Mapping[str, Spent]
    """The empty name: what the account has forgotten and no result tells the model of."""
    events: tuple[Event, ...]
    trouble: tuple[str, ...] = ()
    """What could not be read, and so is in no figure."""
    waits: Mapping[str, Any] | None = None
    """What its agents waited for at the supervisor, as `waited.of_tasks` has it."""
    groups: tuple[Mapping[str, Any], ...] = ()
    """Groups of candidates, as `candidates.of_tasks` has them."""
    asks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Agents that wait for a person now, as the supervisor says: `state`, `detail` and `since` by task."""

    @property
    def spent(self) -> Spent:
        return all_spent(task.spent for task in self.tasks)

    @property
    def times(self) -> Times:
        return all_times(task.times for task in self.tasks)

    @property
    def night_s(self) -> float:
        return max(0.0, (self.ended or self.now) - self.began)

    @property
    def alone_s(self) -> float:
        """What the attempts that have ended would have taken one after another, in seconds: each one's start-up, its time at models and its
        own work, and of those without an account the time that they lived. The waits for a slot, for tokens, for a person and in pauses are
        left out: an estimate, since alone an agent has the machine and the limits for itself."""
        measured = self.times
        unknown = (one for task in self.tasks for one in task.attempts if one.times.unmeasured and one.ended)
        return measured.launch_s + measured.working_s + sum(max(0.0, (one.ended or 0.0) - one.created) for one in unknown)

    @property
    def together_s(self) -> float:
        """From the first attempt's begin to the last one's end, of those that have ended."""
        ended = [one for task in self.tasks for one in task.attempts if one.ended is not None]
        return max((one.ended or 0.0 for one in ended), default=0.0) - min((one.created for one in ended), default=0.0)

    @property
    def needing(self) -> tuple[Task, ...]:
        """Tasks with a question for a person, the longest waiting first."""
        some = [task for task in self.tasks if task.question or task.id in self.asks]
        return tuple(sorted(some, key=lambda task: self.asks.get(task.id, {}).get("since") or task.asked_at or 0.0))

    @property
    def unwell(self) -> tuple[Task, ...]:
        """Tasks that began, are over, and are not done; a question of theirs is told elsewhere."""
        ended = (one for one in self.tasks if one.final and one.state is not TaskState.DONE)
        return tuple(one for one in ended if one.attempts and not one.question)

    @property
    def unstarted(self) -> tuple[Task, ...]:
        return tuple(one for one in self.tasks if not one.attempts)

    def figures(self) -> Figures:
        """The sums."""
        every = [attempt for task in self.tasks for attempt in task.attempts]
        return Figures(
            tasks=len(self.tasks),
            states=Counter(str(task.state) for task in self.tasks),
            needs=len(self.needing),
            ready=sum(task.ready for task in self.tasks),
            attempts=len(every),
            again=sum(one.epoch > 1 for one in every),
            outages=sum(event.kind == "outage" for event in self.events),
            night_s=self.night_s,
            spent=self.spent,
            times=self.times,
            alone_s=self.alone_s,
        )
