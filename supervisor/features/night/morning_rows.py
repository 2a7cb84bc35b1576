"""What one night came to: its rows, facts and sums."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervisor.gateway.account import schema
from supervisor.gateway.account.charges import NEVER_SENT, REFUSED
from supervisor.gateway.admission.types import BreakerState, Usage
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, NotFound
from supervisor.kernel.format import duration
from supervisor.kernel.states import FINAL, TaskState
from supervisor.results import comparison
from supervisor.store import archive
from supervisor.views import waits

# Lanes
# -----
# Where the time of each agent went, as spans on the night's own axis. Pure.
#
# The account of an attempt says how long it did what; the journal and the gateway say when. A span of a lane is what a person would
# see on a screen: what is shorter than a thousandth of the night is a part of the one before it. The sums beside the lanes count
# everything.


Span = tuple[float, float, str]
"""From when to when, in seconds since 1970, and one of KINDS."""

KINDS = {
    "slot": "waiting for a slot",
    "launch": "starting",
    "work": "working",
    "tokens": "waiting for tokens",
    "paused": "paused",
    "person": "waiting for a person",
}
"""What an agent can be doing, in words; of two at the same moment the later one here is shown."""
PARTS = 1000
SPANS_MAX = 12_000
"""Of all lanes: some 700 KB of a page. With more, the parts become coarser."""

_ORDER = tuple(KINDS)


def flat(spans: Iterable[Span]) -> list[Span]:
    """The same time without two spans at one moment, in order; neighbours of one kind are one span."""
    moments: list[tuple[float, int, int]] = []
    for begin, end, kind in spans:
        if end > begin:
            place = _ORDER.index(kind)
            moments += (begin, 1, place), (end, -1, place)
    moments.sort()
    open_now, found, since = [0] * len(_ORDER), list[Span](), 0.0
    for at, change, place in moments:
        before = _foremost(open_now)
        open_now[place] += change
        if _foremost(open_now) != before:
            if before:
                _add(found, (since, at, before))
            since = at
    return found


def _foremost(counts: Sequence[int]) -> str:
    return next((kind for kind, count in zip(reversed(_ORDER), reversed(counts), strict=True) if count), "")


def _add(spans: list[Span], new: Span) -> None:
    begin, end, kind = new
    if end <= begin:
        return
    if spans and spans[-1][2] == kind and spans[-1][1] >= begin:
        begin = spans.pop()[0]
    spans.append((begin, end, kind))


def thinned(lanes: Mapping[str, Sequence[Span]], length_s: float) -> dict[str, list[Span]]:
    """The lanes with nothing in them that is too short to see, given the length of the axis."""
    shortest = length_s / PARTS
    found = {name: _thin(spans, shortest) for name, spans in lanes.items()}
    while sum(map(len, found.values())) > SPANS_MAX and shortest < length_s:
        shortest *= 2
        found = {name: _thin(spans, shortest) for name, spans in lanes.items()}
    return found


def _thin(spans: Sequence[Span], shortest: float) -> list[Span]:
    found: list[Span] = []
    for begin, end, kind in spans:
        if found and found[-1][1] >= begin and end - begin < shortest:
            last = found.pop()
            found.append((last[0], end, last[2]))
        else:
            _add(found, (begin, end, kind))
    return found


# Facts
# -----
# What one run came to: the shapes that the report is made of, and the sums over them. Pure.
#
# Moments are wall-clock seconds since 1970, durations seconds, money US dollars. Every figure is a sum of rows: see `model`.


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
    counts = {name: sum(getattr(part, name) for part in known) for name in Spent.__slots__ if name != "tokens"}
    return Spent(**counts, tokens=sum((part.tokens for part in known), Usage()))


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

    def figures(self) -> dict[str, Any]:
        """The sums by which two nights are compared, as JSON has them."""
        every = [attempt for task in self.tasks for attempt in task.attempts]
        return {
            "tasks": len(self.tasks),
            "needs": len(self.needing),
            "ready": sum(task.ready for task in self.tasks),
            "attempts": len(every),
            "again": sum(one.epoch > 1 for one in every),
            "outages": sum(event.kind == "outage" for event in self.events),
            "night_s": round(self.night_s, 3),
            "alone_s": round(self.alone_s, 3),
            "states": Counter(str(task.state) for task in self.tasks),
            "spent": self.spent.shape(),
            "times": self.times.shape(),
        }


# Rows
# ----
# What is written down of one run: rows of the ledger, and of the gateway's account. Each file is read in one transaction.
#
# A run of an older version has fewer columns, and an account may be missing or damaged: what is not there is left out, and
# `trouble` says so.


RowsRow = dict[str, Any]

TOLD = (
    *("paused", "resumed", "set aside", "waiting", "retry", "outage", "outage over", "machine slept", "clock jumped", "machine rebooted"),
    *("stopped all", "thawed", "night began", "night closing", "night over", "night ended", "night refused"),
)
"""The journal's events that the report tells of."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Plain rows, columns as the migrations name them. `requests` and `waits` are of the run's tasks."""

    run: RowsRow
    """With `root`, its repository."""
    night: RowsRow | None
    """Its terms; None: it is no night."""
    before: str | None
    """The night before, of the same repository."""
    tasks: list[RowsRow]
    attempts: list[RowsRow]
    journal: list[RowsRow]
    requests: list[RowsRow]
    """Sums of the requests that have ended, by `agent`, `epoch` and `model`."""
    waits: list[RowsRow]
    """Requests that waited long enough to be seen in a lane: `agent epoch begin end`."""
    breakers: list[RowsRow]
    """What the gateway's journal holds of the time of the run."""
    trouble: str
    """Why the account could not be read; empty when it was, and when there is none."""
    waited: dict[str, Any] | None = None
    """What agents waited for at the supervisor, as `waited.of_tasks` has it."""
    groups: list[dict[str, Any]] = field(default_factory=list)
    """Groups of candidates, as `candidates.of_tasks` has them."""


def read(home: Home, run: str) -> Rows:
    """The rows of a run, given its full id, and of the runs that its agents added. Raises NotFound, and LedgerError as
    `store.connect_readonly`."""
    with contextlib.closing(archive.reader(home.ledger, home.archive, run)) as db, _snapshot(db):
        found = _one(db, "SELECT r.*, p.root FROM run r JOIN project p ON p.id = r.project WHERE r.id = ?", run)
        if found is None:
            raise NotFound("no run", on=run, hint="nightcrew status --all")
        night = _one(db, "SELECT * FROM night WHERE run = ?", run) if _has(db, "night") else None
        runs = "SELECT id FROM run WHERE id = ? OR night = ?" if "night" in found else "SELECT id FROM run WHERE id = ? OR id = ?"
        tasks = _all(db, f"SELECT * FROM task WHERE run IN ({runs}) ORDER BY ord", run, run)  # noqa: S608 - one of two literals
        ids = json.dumps([task["id"] for task in tasks])
        attempts = _all(db, f"SELECT * FROM attempt WHERE task IN {_IDS} ORDER BY task, epoch", ids)  # noqa: S608 - a literal
        before, journal = _before(db, found) if night else None, _journal(db, ids)
        groups = comparison.of_tasks(db, [task["id"] for task in tasks])
        at_supervisor = waits.of_tasks(db, [task["id"] for task in tasks], time.time())
    return Rows(
        found, night, before, tasks, attempts, journal, **_account(home, ids, found["created"]), waited=at_supervisor, groups=groups
    )


def newest_night(db: sqlite3.Connection, project: str | None) -> str | None:
    """The run of the newest night, of one project when it is given; None when there is none."""
    if not _has(db, "night"):
        return None
    sql = "SELECT n.run FROM night n JOIN run r ON r.id = n.run WHERE ? IS NULL OR r.project = ? ORDER BY r.rowid DESC LIMIT 1"
    found = db.execute(sql, (project, project)).fetchone()
    return str(found[0]) if found is not None else None


@contextlib.contextmanager
def _snapshot(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("ROLLBACK")  # nothing was written


def _before(db: sqlite3.Connection, run: RowsRow) -> str | None:
    sql = """SELECT n.run FROM night n JOIN run r ON r.id = n.run
             WHERE r.project = ? AND r.rowid < (SELECT rowid FROM run WHERE id = ?) ORDER BY r.rowid DESC LIMIT 1"""
    found = db.execute(sql, (run["project"], run["id"])).fetchone()
    return str(found[0]) if found is not None else None


def _journal(db: sqlite3.Connection, ids: str) -> list[RowsRow]:
    """What is told of the tasks, and what befell all tasks since the first of them was handed over, oldest first."""
    first = db.execute(f"SELECT min(seq) FROM journal WHERE task IN {_IDS}", (ids,)).fetchone()[0]  # noqa: S608 - a literal
    marks = ", ".join("?" * len(TOLD))
    sql = f"""SELECT * FROM journal WHERE task IN {_IDS} AND event IN ({marks})
              UNION ALL SELECT * FROM journal WHERE task IS NULL AND seq >= ? AND event IN ({marks}) ORDER BY seq"""  # noqa: S608 - literals
    return _all(db, sql, ids, *TOLD, first or 0, *TOLD)


_IDS = "(SELECT value FROM json_each(?))"


_SEEN_MS = 2000
"""A shorter wait could not be seen in the lane of a night; the sums have it."""


def _account(home: Home, ids: str, created: float) -> dict[str, Any]:
    nothing: dict[str, Any] = {"requests": [], "waits": [], "breakers": [], "trouble": ""}
    if not home.gateway_account.exists():
        return nothing
    try:
        with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db, _snapshot(db):
            return {
                "requests": _all(db, _REQUESTS, ids),
                "waits": [*_all(db, _WAITED, ids, _SEEN_MS), *_all(db, _AWAY, ids, _SEEN_MS)],
                "breakers": _all(db, "SELECT * FROM journal WHERE at >= ? ORDER BY seq", created),
                "trouble": "",
            }
    except NightcrewError as error:
        return {**nothing, "trouble": error.line()}


_NONE_OF_ITS_OWN = f"end IN ('{REFUSED}', '{NEVER_SENT}')"
_REQUESTS = f"""
    SELECT agent, epoch, model, count(*) FILTER (WHERE NOT {_NONE_OF_ITS_OWN}) AS requests,
           count(*) FILTER (WHERE status = 429) AS refused, coalesce(sum(input), 0) AS input, coalesce(sum(output), 0) AS output,
           coalesce(sum(cache_read), 0) AS cache_read, coalesce(sum(cache_write), 0) AS cache_write,
           coalesce(sum(cost_usd), 0.0) AS known_usd,
           count(*) FILTER (WHERE cost_usd IS NULL AND input + output + cache_read + cache_write > 0) AS unpriced,
           coalesce(sum(estimated), 0) AS estimated
    FROM request WHERE agent IN {_IDS} AND end IS NOT NULL GROUP BY agent, epoch, model ORDER BY agent, epoch, model
"""  # noqa: S608 - literals of ours
_WAITED = f"""
    SELECT agent, epoch, at - queued_ms / 1000 AS begin, at AS end FROM request WHERE agent IN {_IDS} AND queued_ms >= ?
"""  # noqa: S608 - literals of ours
_AWAY = f"""
    SELECT agent, epoch, at - waited_ms / 1000 AS begin, at AS end FROM turned_away WHERE agent IN {_IDS} AND waited_ms >= ?
"""  # noqa: S608 - literals of ours


def _has(db: sqlite3.Connection, table: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (table,)).fetchone() is not None


def _one(db: sqlite3.Connection, sql: str, *values: object) -> RowsRow | None:
    row = db.execute(sql, values).fetchone()
    return dict(row) if row is not None else None


def _all(db: sqlite3.Connection, sql: str, *values: object) -> list[RowsRow]:
    return [dict(row) for row in db.execute(sql, values).fetchall()]


# Found
# -----
# What the command found beside the books, in git and in the records of attempts: handed in, because nothing here starts a git. By
# task id.


DIFF_BYTES = 24 * 1024
"""Of one diff on a page; the command beside it shows all."""
DIFFS_BYTES = 480 * 1024
"""Of all of them."""


@dataclass(frozen=True, slots=True)
class Diff:
    """What a task changed by now."""

    text: str
    """As git prints it; empty when there is none."""
    note: str = ""
    """Why it is not all of it, or not there."""


@dataclass(frozen=True, slots=True)
class Found:
    """As the repository and the records were when they were looked at."""

    on: str = ""
    """What is checked out, which every branch would be merged into; empty: nobody looked."""
    gone: frozenset[str] = frozenset()
    """Tasks whose branch was removed."""
    taken: frozenset[str] = frozenset()
    """Tasks whose work the checkout has."""
    with_base: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Files in which a task's branch would conflict with the checkout."""
    with_others: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """The same with each other task's branch."""
    not_tried: int = 0
    """Pairs of branches that were too many to try, or that git could not merge."""
    diffs: Mapping[str, Diff] = field(default_factory=dict)
    """Of the tasks that need a person, and of those that did not end well."""
    printed: Mapping[str, str] = field(default_factory=dict)
    """The last lines of what those printed that did not end well, or of what their gate did."""
    trouble: str = ""
    """Why git could not say it."""


NOBODY_LOOKED = Found()


# Events
# ------
# What befell all tasks of a run, in words: from the ledger's journal and from the gateway's. Pure.


EventsRow = Mapping[str, Any]


def of(journal: Iterable[EventsRow], breakers: Iterable[EventsRow], run: str, until: float) -> list[Event]:
    """In the order of their begin; nothing that began after `until`, and nothing of another night than `run`."""
    own = [row for row in journal if row["task"] is None and row["at"] <= until and data(row).get("run", run) == run]
    found = [*_outages(own), *_moments(own), *_breakers([row for row in breakers if row["at"] <= until])]
    return sorted(found, key=lambda event: event.at)


def data(row: EventsRow) -> dict[str, Any]:
    """A row's JSON object; empty when it is none."""
    try:
        found = json.loads(row["data"] or "{}")
    except (ValueError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _outages(rows: Iterable[EventsRow]) -> Iterable[Event]:
    open_now: tuple[float, str] | None = None
    for row in rows:
        if row["event"] == "outage":
            open_now = open_now or (row["at"], str(data(row).get("why", "")))
        elif row["event"] == "outage over" and open_now is not None:
            yield Event(open_now[0], row["at"], "outage", open_now[1])
            open_now = None
    if open_now is not None:
        yield Event(open_now[0], None, "outage", open_now[1])


def _moments(rows: Iterable[EventsRow]) -> Iterable[Event]:
    for row in rows:
        if (say := _SAY.get(row["event"])) is not None:
            told = data(row)
            slept = row["event"] == "machine slept"
            begin, end = (_number(told, "from") or row["at"], _number(told, "to") or row["at"]) if slept else (row["at"], None)
            yield Event(begin, end, "night" if row["event"].startswith("night ") else "machine", say(told))


def _number(told: Mapping[str, Any], name: str) -> float:
    value = told.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _clock(told: Mapping[str, Any]) -> str:
    by = _number(told, "seconds")
    return f"the clock was set {'back' if by < 0 else 'forward'} by {duration(abs(by))}"


def _why(words: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda told: f"{words}: {told['why']}" if told.get("why") else words


_SAY: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "machine slept": lambda told: f"the machine slept for {duration(_number(told, 'seconds'))}",
    "clock jumped": _clock,
    "machine rebooted": _why("the machine was started anew"),
    "stopped all": _why("everything was stopped"),
    "thawed": _why("everything went on"),
    "night began": _why("the night began"),
    "night closing": _why("nothing more was started"),
    "night over": _why("what still ran was stopped"),
    "night ended": _why("the night ended"),
    "night refused": _why("the night was refused"),
}


def _breakers(rows: Iterable[EventsRow]) -> Iterable[Event]:
    """From a breaker's opening until it let everything through again."""
    open_now: dict[tuple[str, str], tuple[float, str]] = {}
    for row in rows:
        told = data(row)
        which, why = (str(row["about"]), str(told.get("breaker", ""))), str(told.get("why", ""))
        if row["event"] == "alert":
            yield Event(row["at"], None, "breaker", str(told.get("text", "")))
        elif told.get("after") == BreakerState.OPEN:
            open_now.setdefault(which, (row["at"], f"the breaker of {which[0]} opened: {why}"))
        elif told.get("after") == BreakerState.CLOSED and which in open_now:
            at, words = open_now.pop(which)
            yield Event(at, row["at"], "breaker", words)
    for at, words in open_now.values():
        yield Event(at, None, "breaker", words)
