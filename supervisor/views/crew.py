"""The crew in groups, as the screen and the page show it: who needs a person, who works, what waits and why, what can be taken, what ended.

Pure: from rows of the ledger, and from what the supervisor and the gateway said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

from supervisor.kernel.ansi import plain
from supervisor.kernel.codec import Bound
from supervisor.kernel.errors import UsageError, one_line
from supervisor.kernel.format import age, duration, many, moment, money, percent, short
from supervisor.kernel.states import CHOICE, FINAL, TaskState
from supervisor.store.queries import TaskView
from supervisor.views import places, status
from supervisor.views.gateway import broken, delay_s, nearest_limit, queued, soonest_s
from supervisor.views.status import NOTHING_WAITS, Waiting

Shape = Mapping[str, Any]


class Group(StrEnum):
    """In the order in which they are shown."""

    NEEDS_ME = "needs me"
    WORKING = "working"
    IDLE = "idle"
    QUEUED = "queued"
    TO_TAKE = "to take"
    ENDED = "ended"


_AGENTS = {"idle": ("I", "2"), "interrupted": ("I", "2"), "rate_limited": ("L", "33")}
ASKS, TAKE, HELD, MERGED = ("?", "35"), ("T", "36"), ("p", "33"), ("M", "32")
LETTERS = {
    "?": "needs you",
    "W": "works",
    "I": "has nothing to do",
    "L": "waits for tokens",
    "q": "waits for its start",
    "a": "comes after others",
    "p": "is paused",
    "l": "waits for a limit",
    "T": "can be taken",
    "M": "is in the branch that is checked out, or landed",
    "D": "done",
    "F": "failed",
    "C": "cancelled",
    "E": "expired",
    "S": "skipped",
    "!": "quarantined",
}
"""What each letter says; a letter stands beside every colour."""
WORDS = {
    "?": "asks", "W": "works", "I": "idle", "L": "limited", "q": "queued", "a": "waits", "p": "paused", "l": "waits", "T": "to take",
    "M": "merged", "D": "done", "F": "failed", "C": "cancelled", "E": "expired", "S": "skipped", "!": "quarantined",
}  # fmt: skip
"""The same in a word, which stands beside the letter of each row."""


@dataclass(frozen=True, slots=True)
class Row:
    """One task on one line, or several that belong together (`places.folded`)."""

    view: TaskView
    group: Group
    letter: str
    color: str
    """An SGR number."""
    since: float | None
    """Wall-clock seconds from which its age counts; None: it has none."""
    asks: str
    """What it asks, as the supervisor said it; empty when it asks nothing, or by mail."""
    says: str
    """What it asks, why it waits or ended, or what it printed last: one line, with nothing in it that steers a terminal."""
    tasks: tuple[str, ...] = ()
    """Full ids of the tasks that it stands for, when that is more than its own."""
    place: str = ""
    """The heading of its repository and run; empty where all rows are of one, and of a row that asks."""

    @property
    def id(self) -> str:
        """Of its task."""
        return self.view.id

    @property
    def word(self) -> str:
        """Return the meaning of its letter in a word."""
        return WORDS[self.letter]

    @property
    def title(self) -> str:
        """One line, with nothing in it that steers a terminal; empty when its name says the same."""
        title = one_line(plain(self.view.title or ""))
        return "" if title == self.view.name else title

    @property
    def ended(self) -> float | None:
        """When it ended (wall clock), None while it has not."""
        return (self.view.ended or self.view.changed) if self.view.final else None

    def age(self, now: float) -> str:
        """Return how long its state has lasted; for a task that ended, the time of its end."""
        if self.ended is not None:
            return moment(self.ended, now)
        return age(None if self.since is None else max(0.0, now - self.since))


@dataclass(frozen=True, slots=True)
class Section:
    """A group with those of its rows that are shown."""

    group: Group
    rows: tuple[Row, ...]
    total: int
    """Tasks of the group, also those that are not among the rows."""

    @property
    def place(self) -> str:
        """The heading of all its rows; empty where they have several, or none."""
        places = {row.place for row in self.rows}
        return places.pop() if len(places) == 1 else ""

    @property
    def left(self) -> int:
        """Return the number of tasks without a row."""
        return max(0, self.total - _count(self.rows))


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of the heading."""

    name: str
    value: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Crew:
    """Everything at one moment."""

    sections: tuple[Section, ...] = ()
    facts: tuple[Fact, ...] = ()
    troubles: tuple[str, ...] = ()
    """What a person has to know first, one line each."""
    told: int | None = None
    """How often the supervisor has rung the bell: a screen rings when it has grown. None: nobody says so."""
    told_line: str = ""
    """What it said the last time, which may hold text of agents."""

    def rows(self) -> list[Row]:
        """All that are shown, in their order."""
        return [row for section in self.sections for row in section.rows]

    def total(self, group: Group) -> int:
        """Tasks of a group."""
        return next((section.total for section in self.sections if section.group is group), 0)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look found."""

    views: Sequence[TaskView] = ()
    counts: Mapping[TaskState, int] = field(default_factory=Counter)
    """By state, also of what is not among `views`."""
    waits: Waiting = NOTHING_WAITS
    to_take: Collection[str] = ()
    """Tasks that are done and hold what their project's checkout lacks."""
    merged: Mapping[str, str] = field(default_factory=dict)
    """Tasks that are done and of which a branch has all, and that branch."""
    trains: Mapping[str, places.Train] = field(default_factory=dict)
    """By task, the train of each gate."""
    supervisor: str = ""
    """Empty while one answers, or what is to be said of its absence."""
    troubles: Sequence[str] = ()
    gateway: Shape | None = None
    """As `gateway_json.look`; None where there never was one."""
    capacity: Shape | None = None
    """As `nightcrew capacity --json`; None while nobody says it."""


def crew(seen: Seen, detail: Callable[[TaskView], str] = lambda _: "") -> Crew:
    """`detail` gives what an agent that works, or a task that ended, last said."""
    mail = {one.sender: f"mail: {one.subject}" for one in reversed(seen.waits.mail)}
    alone = {*seen.waits.asked, *mail}
    rows = [_row(line, seen, mail, detail) for line in places.folded(seen.views, seen.trains, alone)]
    rows = [replace(row, place=heading) for heading, some in places.gathered(rows, lambda row: row.view) for row in some]
    runs = places.several(row.view for row in rows)
    sections = tuple(_section(group, rows, seen, runs) for group in Group)
    return Crew(
        sections, (*facts(seen.gateway, seen.capacity), *_unconfined(seen.views)), tuple(_troubles(seen, {view.id for view in seen.views}))
    )


def _unconfined(views: Iterable[TaskView]) -> Iterable[Fact]:
    if number := status.unconfined(views):
        yield Fact("sandbox", f"none for {number}", bad=True)


def _troubles(seen: Seen, shown: Collection[str]) -> Iterable[str]:
    if seen.supervisor:
        yield seen.supervisor
    yield from map(one_line, seen.troubles)
    if others := [one for one in seen.waits.mail if one.sender not in shown]:
        yield f"{many(len(others), 'letter')} of agents that ended: nightcrew mail ls"


def _count(rows: Iterable[Row]) -> int:
    """Tasks that the rows stand for."""
    return sum(len(row.tasks) or 1 for row in rows)


def _section(group: Group, every: list[Row], seen: Seen, runs: Collection[str]) -> Section:
    rows = [row for row in every if row.group is group]
    final = sum(number for state, number in seen.counts.items() if state in FINAL)
    match group:
        case Group.QUEUED:
            started = sum(row.view.state is TaskState.RUNNING for row in rows)
            unstarted = sum(number for state, number in seen.counts.items() if state not in FINAL and state is not TaskState.RUNNING)
            asking = sum(row.group is Group.NEEDS_ME and row.view.state is not TaskState.RUNNING for row in every)
            total = max(_count(rows), unstarted + started - asking)
        case Group.ENDED:
            total = max(_count(rows), final - sum(view.id in seen.to_take and view.state in FINAL for view in seen.views))
        case _:
            total = _count(rows)
    rows = sorted(rows, key=_order(group))
    if group is Group.NEEDS_ME:  # the longest wait is first, wherever it is
        rows = [replace(row, place="") for row in rows]
    else:
        rows = [row for _, some in places.gathered(rows, lambda row: row.view, runs) for row in some]
    return Section(group, tuple(rows), total)


def _order(group: Group) -> Callable[[Row], Any]:
    """Who waits longest first; of what ended the newest."""
    match group:
        case Group.NEEDS_ME:
            return lambda row: row.since or 0.0
        case Group.QUEUED:
            return lambda row: _NEAREST.index(row.view.state)
        case Group.TO_TAKE | Group.ENDED:
            return lambda row: -(row.ended or 0.0)
        case Group.WORKING | Group.IDLE:
            return lambda row: row.since or 0.0


_NEAREST = (TaskState.RUNNING, TaskState.READY, TaskState.PARKED, TaskState.PAUSED, TaskState.WAITING)


def _row(line: places.Line, seen: Seen, mail: Mapping[str, str], detail: Callable[[TaskView], str]) -> Row:
    view, waits = line.view, seen.waits
    tasks = line.tasks if len(line.tasks) > 1 else ()

    def row(group: Group, letter: tuple[str, str], since: float | None, says: str, asks: str = "") -> Row:
        return Row(view, group, *letter, since, asks, says, tasks)

    asked = waits.asked.get(view.id) or _choice(view, waits)
    if asked is not None:
        asks = "" if asked["state"] == CHOICE else str(asked["detail"])
        return row(Group.NEEDS_ME, ASKS, asked["since"], _said(view, waits, asked["detail"] or asked["state"]), asks)
    if view.id in mail and not view.final:
        return row(Group.NEEDS_ME, ASKS, next(one.sent for one in waits.mail if one.sender == view.id), one_line(mail[view.id]))
    if view.state is TaskState.RUNNING and not view.paused:
        state = waits.states.get(view.id, "")
        group = Group.IDLE if state in status.RESTING else Group.WORKING
        said = _said(view, waits, line.says or detail(view))
        return row(group, _AGENTS.get(state, status.SIGNS[view.state][1:]), view.started or view.created, said)
    if not view.final:
        return row(
            Group.QUEUED,
            HELD if view.paused else status.SIGNS[view.state][1:],
            view.changed,
            _said(view, waits, line.says or status.why(view)),
        )
    if view.id in seen.to_take and view.state is TaskState.DONE:
        return row(Group.TO_TAKE, TAKE, None, _takes(view, waits))
    if view.id in seen.merged and view.state is TaskState.DONE:
        words = waits.trains.get(view.id) or f"{seen.merged[view.id]} has it"
        return row(Group.ENDED, MERGED, None, one_line(plain("; ".join(filter(None, (words, status.last_message(view.result)))))))
    return row(Group.ENDED, status.SIGNS[view.state][1:], None, _said(view, waits, line.says or detail(view)))


def _choice(view: TaskView, waits: Waiting) -> Shape | None:
    """What a group asks of which a person is to choose, also while no supervisor says so."""
    reason = waits.reasons.get(view.id)
    return {"state": CHOICE, "detail": reason.words, "since": reason.since} if reason is not None and reason.code == CHOICE else None


def _said(view: TaskView, waits: Waiting, words: str) -> str:
    """Why it waits before all else, then what is given."""
    step = str(view.attempt_state) if view.state is TaskState.RUNNING and view.attempt_state not in (None, "running") else ""
    reason = waits.reasons[view.id].words if view.id in waits.reasons else ""
    parts = [
        step,
        reason,
        words if words not in reason or not reason else "",
        waits.unsent.get(view.id, ""),
        waits.conflicts.get(view.id, ""),
        waits.trains.get(view.id, ""),
    ]
    return one_line(plain("; ".join(filter(None, parts))))


def _takes(view: TaskView, waits: Waiting) -> str:
    """Describe a result to take: its conflicts, its outcome in a train, and its agent's last words; else its commits."""
    commits = (view.result or {}).get("commits") or 0
    parts = [waits.conflicts.get(view.id, ""), waits.trains.get(view.id, ""), status.last_message(view.result)]
    return one_line(plain("; ".join(filter(None, parts)))) or many(commits, "commit")


# The heading --------------------------------------------------------------------------------------------------------------------------


def facts(gateway: Shape | None, capacity: Shape | None) -> Iterable[Fact]:
    """Tokens a minute of all agents, and the nearest limit as `gateway status` has it; breaker and forecast, cost against the cap, queue
    delay, slots, cores and memory. Unknown figures are left out."""
    if gateway is not None and gateway["running"]:
        yield _tokens(gateway)
        yield _breaker(gateway)
        delay, waiting = delay_s(gateway), queued(gateway)
        yield Fact("queue", duration(delay) + (f", {waiting} wait" if waiting else ""), bad=delay >= 60)
    elif gateway is not None:
        yield Fact("gateway", one_line(gateway["why"]), bad=True)
    if gateway is not None:
        yield _cost(gateway)
    if capacity is not None:
        yield Fact("slots", f"{capacity['living']}/{capacity['slots']}")
        yield from _machine(capacity)


def _tokens(gateway: Shape) -> Fact:
    used, most = sum(agent["used_tpm"] or 0.0 for agent in gateway["agents"]), nearest_limit(gateway)
    if most is None:
        return Fact("tok/min", short(used))
    parts = [short(used), f"{most['name']} {percent(most['saturation'])} of {short(most['limit_per_minute'])}"]
    parts += [f"{short(most['reserved'])} reserved"] if most["reserved"] >= 1 else []
    parts += [f"{short(most['outside_per_minute'])} outside"] if most["outside_per_minute"] >= 1 else []
    return Fact("tok/min", ", ".join(parts), bad=(most["saturation"] or 0.0) >= 1)


def _breaker(gateway: Shape) -> Fact:
    for pool in broken(gateway):
        again = f", again in {duration(pool['opens_in_s'])}" if pool["opens_in_s"] is not None else ""
        return Fact("breaker", one_line(f"{str(pool['breaker']).upper()} {pool['breaker_why']}{again}"), bad=True)
    soonest = soonest_s(gateway)
    return Fact(
        "breaker", "closed" if soonest is None else f"closed, empty in {duration(soonest)}", bad=soonest is not None and soonest < 10
    )


def _cost(gateway: Shape) -> Fact:
    night, cap = gateway.get("tonight_usd"), gateway.get("caps", {}).get("cost_per_night")
    if night is not None and cap is not None:
        return Fact("cost", f"{money(night)} of {money(cap)}", bad=night >= 0.8 * cap)
    figures = gateway["figures"]
    return Fact("cost", f"{'>' if figures['unpriced'] else ''}{money(figures['known_usd'])}/{duration(figures['window_s'])}")


def _machine(capacity: Shape) -> Iterable[Fact]:
    pressure, means = capacity["pressure"] or {}, capacity["means"] or {}
    if pressure.get("load") is not None:
        cores = f" of {means['cores']:.0f}" if means.get("cores") else ""
        yield Fact("load", f"{pressure['load'] * (means.get('cores') or 1):.1f}{cores}", bad=bool(means.get("contended")))
    if pressure.get("memory") is not None:
        yield Fact("mem", percent(pressure["memory"]), bad=pressure["memory"] >= 0.9)


# What is shown of one task
# -------------------------


class Page(StrEnum):
    """What is shown of the selected task, in the order of the keys 1 to 6."""

    SCREEN = "screen"
    DIFF = "diff"
    LOG = "log"
    TALK = "transcript"
    HISTORY = "history"
    USE = "resources"


@dataclass(frozen=True, slots=True)
class Text:
    """A page: lines in which colours are SGR; all else that steers a terminal may still be in them."""

    lines: Sequence[str]
    mark: str = ""
    """Of what it was made; the same mark means the same lines."""
    ends: bool = False
    """Its end matters, as of a log: it is shown from there, and followed."""


# What a person asks of tasks
# ---------------------------


TASKS_MAX = 500


def _words(value: object) -> str:
    if not isinstance(value, str) or "\0" in value or value.encode("utf-8", "ignore").decode() != value:  # a half character
        raise UsageError("not a text:", on=str(value)[:50])
    return value


def task_id(value: object) -> str:
    """A full id. Raises UsageError for what none can be."""
    text = _words(value)
    if not text.isprintable() or "/" not in text or len(text) > 200:
        raise UsageError("not the id of a task", on=text[:50])
    return text


Words = Annotated[Any, _words]
TaskId = Annotated[Any, task_id]
Tasks = Annotated[Sequence[TaskId], Bound(1, TASKS_MAX)]
Number = Annotated[int, Bound(0, 2**31)]
