"""Leases and waits in the ledger."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.contract import Tables
from supervisor.host.paths import Home
from supervisor.kernel.errors import StaleEpoch
from supervisor.kernel.leases import HOLDS_S, Beside, Lease, Mode, Wait, WaitKind, Wanted
from supervisor.kernel.names import attempt_name
from supervisor.kernel.path_globs import overlap
from supervisor.store import queries
from supervisor.store.rows import AttemptRow
from supervisor.store.sqlite import WriteAccess

if TYPE_CHECKING:
    from supervisor.kernel.decision import Command
    from supervisor.kernel.settings import LeaseRule

# Leases
# ------
# Leases on the files of repositories, in the ledger.
#
# A lease is taken with the start of an attempt or while it lives, and ends with the attempt in the same transaction: a stale epoch
# holds nothing. What an agent takes and gives back need not wait for the disk, since a power cut ends all agents.


TTL_S = 600.0
"""How long a lease lasts that nobody renews: longer than a supervisor is away when it is replaced."""
LEASES_KEPT = 256
"""Ended leases of a task that are remembered."""
TAKEN_BACK = "a person ended it"
"""Begins why a lease ended that a person took from its holder."""


class Leases(Tables):
    """The writer's door; `Ledger.leases`. Moments are seconds since 1970."""

    def __init__(self, desk: WriteAccess) -> None:
        self._desk = desk
        self.on_end: Callable[[], None] = lambda: None
        """Called inside the transaction when leases end with their attempt."""

    def decided(self, command: Command) -> None:
        """Give an attempt that starts the paths of its task, and take from an attempt that ended what it held."""
        from supervisor.kernel.decision import Finish, Start  # here: short commands read leases and decide nothing

        if isinstance(command, Start):
            self._started(command.task, command.epoch)
        elif isinstance(command, Finish):
            self._attempt_ended(command.task, command.epoch)

    def _started(self, task: str, epoch: int) -> None:
        found = self._desk.db.execute("SELECT project, json_extract(spec, '$.paths') AS paths FROM task WHERE id = ?", (task,)).fetchone()
        if globs := json.loads(found["paths"] or "[]"):
            self._take(str(found["project"]), Wanted(task, tuple(globs), Mode.EXCLUSIVE), epoch, None)

    def _attempt_ended(self, task: str, epoch: int) -> None:
        ended = self._desk.db.execute(
            "UPDATE lease SET ended = ?, why = 'its attempt ended' WHERE task = ? AND epoch <= ? AND ended IS NULL",
            (self._desk.wall(), task, epoch),
        )
        if ended.rowcount:
            self.on_end()

    def take(self, project: str, wanted: Wanted, epoch: int, ttl_s: float | None = None) -> list[Lease]:
        """Commit that a task holds all of these, one lease for each pattern. `ttl_s`: they end after that, whoever lives; without it they
        are renewed. Raises StaleEpoch for an attempt that has ended: the ledger knows that also before the crew is recovered."""
        with self._desk.writing(durable=False):
            if not self._lives(wanted.task, epoch):
                raise StaleEpoch("no lease for", on=attempt_name(wanted.task, epoch), why="its attempt has ended")
            fences = self._take(project, wanted, epoch, ttl_s)
            self._forget(wanted.task)
        return _leases(self._desk.db, "WHERE fence IN (SELECT value FROM json_each(?))", json.dumps(fences))

    def _lives(self, task: str, epoch: int) -> bool:
        row = self._desk.db.execute("SELECT 1 FROM attempt WHERE task = ? AND epoch = ? AND end IS NULL", (task, epoch)).fetchone()
        return row is not None

    def _take(self, project: str, wanted: Wanted, epoch: int, ttl_s: float | None) -> list[int]:
        now = self._desk.wall()
        every = "INSERT INTO lease (project, glob, mode, task, epoch, acquired, expires, renews) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        ends, renews = now + (TTL_S if ttl_s is None else ttl_s), ttl_s is None
        made = (self._desk.db.execute(every, (project, glob, wanted.mode, wanted.task, epoch, now, ends, renews)) for glob in wanted.globs)
        return [int(one.lastrowid or 0) for one in made]

    def _forget(self, task: str) -> None:
        """An agent may take and give back a thousand times a second. The newest row stays: the next fence is greater than all."""
        self._desk.db.execute(
            """DELETE FROM lease WHERE fence IN
               (SELECT fence FROM lease WHERE task = ? AND ended IS NOT NULL AND substr(why, 1, ?) <> ?
                ORDER BY fence DESC LIMIT -1 OFFSET ?)""",
            (task, len(TAKEN_BACK), TAKEN_BACK, LEASES_KEPT),
        )

    def end(self, fences: Collection[int], why: str, note: str = "") -> list[Lease]:
        """Commit that these are over; those of them that were held until now. `note`: an event for the history of each one's task."""
        with self._desk.writing(durable=False):
            ending = _leases(self._desk.db, "WHERE ended IS NULL AND fence IN (SELECT value FROM json_each(?))", json.dumps(list(fences)))
            self._desk.db.executemany(
                "UPDATE lease SET ended = ?, why = ? WHERE fence = ?", [(self._desk.wall(), why, lease.fence) for lease in ending]
            )
            for lease in ending if note else ():
                self._desk.journal(lease.task, lease.epoch, note, {"glob": lease.glob, "fence": lease.fence, "why": why})
        return ending

    def renew(self, fences: Iterable[int]) -> None:
        """They last TTL_S from now on."""
        with self._desk.writing(durable=False):
            ends = self._desk.wall() + TTL_S
            self._desk.db.executemany("UPDATE lease SET expires = ? WHERE fence = ? AND ended IS NULL", [(ends, fence) for fence in fences])

    def held(self, project: str) -> list[Lease]:
        """As the function of this name."""
        return held(self._desk.db, project)

    def every(self) -> list[Lease]:
        """All that are held, of all projects."""
        return _leases(self._desk.db, "WHERE ended IS NULL ORDER BY fence")

    def globs(self, task: str, epoch: int) -> tuple[str, ...]:
        """Return the patterns that an attempt leased in the last HOLDS_S seconds beside the paths of its task, each once."""
        return queries.leased(self._desk.db, task, epoch, self._desk.wall() - HOLDS_S)

    def taken_back(self, task: str, epoch: int) -> tuple[str, ...]:
        """The patterns that a person took from an attempt."""
        found = self._desk.db.execute(
            "SELECT DISTINCT glob FROM lease WHERE task = ? AND epoch = ? AND ended IS NOT NULL AND substr(why, 1, ?) = ?",
            (task, epoch, len(TAKEN_BACK), TAKEN_BACK),
        )
        return tuple(str(glob) for (glob,) in found)

    def of_attempt(self, task: str, epoch: int) -> list[Lease]:
        """All that it held at some time and that are remembered."""
        return _leases(self._desk.db, "WHERE task = ? AND epoch = ? ORDER BY fence", task, epoch)

    def around(self, row: AttemptRow, project: str, rule: LeaseRule) -> Beside:
        """What an attempt held, and what others did while it lived, as far as that is remembered: none of its own family."""
        from supervisor.kernel.settings import LeaseRule  # here: short commands read leases and no settings

        if rule is LeaseRule.OFF:
            return Beside()
        others = _leases(
            self._desk.db,
            """WHERE project = ? AND task <> ? AND mode = 'exclusive' AND (ended IS NULL OR ended >= ?) AND task NOT IN (
                   WITH RECURSIVE above (id) AS (
                       SELECT json_extract(spec, '$.parent') FROM task WHERE id = ?
                       UNION SELECT json_extract(t.spec, '$.parent') FROM task t JOIN above a ON t.id = a.id)
                   SELECT id FROM above WHERE id IS NOT NULL) ORDER BY fence""",
            project,
            row.task,
            row.created,
            row.task,
        )
        own = tuple({lease.glob for lease in self.of_attempt(row.task, row.epoch)})
        return Beside(own, tuple(others), rule is LeaseRule.STRICT)


def held(db: sqlite3.Connection, project: str) -> list[Lease]:
    """What is held in a project, the oldest first."""
    return _leases(db, "WHERE project = ? AND ended IS NULL ORDER BY fence", project)


def ahead(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, Lease]:
    """By task, of those that have paths and are held up: a lease that overlaps them. The rule is that of `core.path_rules`."""
    rows = db.execute(
        """SELECT id, project, json_extract(spec, '$.paths') AS paths FROM task
           WHERE id IN (SELECT value FROM json_each(?)) AND json_array_length(spec, '$.paths') > 0""",
        (json.dumps(list(tasks)),),
    ).fetchall()
    known = {str(project): held(db, str(project)) for project in {row["project"] for row in rows}}
    found = {}
    for row in rows:
        paths = json.loads(row["paths"])
        others = (lease for lease in known[row["project"]] if any(overlap(lease.glob, path) for path in paths))
        first = next((lease for lease in others if lease.task != row["id"] and not _akin(db, lease.task, row["id"])), None)
        if first is not None:
            found[str(row["id"])] = first
    return found


def _akin(db: sqlite3.Connection, one: str, other: str) -> bool:
    """Whether one task is above the other, or they begin together."""
    above = """WITH RECURSIVE above (id) AS (
                   SELECT ? UNION SELECT json_extract(t.spec, '$.parent') FROM task t JOIN above a ON t.id = a.id)
               SELECT 1 FROM above WHERE id = ?"""
    if db.execute(above, (one, other)).fetchone() or db.execute(above, (other, one)).fetchone():
        return True
    groups = "SELECT DISTINCT run || ':' || json_extract(spec, '$.together') FROM task WHERE id IN (?, ?)"
    same = [str(group) for (group,) in db.execute(groups, (one, other))]
    return len(same) == 1 and not same[0].endswith(":")


def _leases(db: sqlite3.Connection, which: str, *values: object) -> list[Lease]:
    found = db.execute(f"SELECT * FROM lease {which}", values)  # noqa: S608 - literals of ours
    return [Lease(**{**dict(row), "mode": Mode(row["mode"]), "renews": bool(row["renews"])}) for row in found]


# Waits
# -----
# What agents wait for, in the ledger. The request that waits dies with the supervisor; its row says that it was there.


WAITS_KEPT = 128
"""Waits of one task that have ended and are kept: an agent that asks every second would fill the disk."""


class Waits(Tables):
    """The writer's door to them; `Ledger.waits`. A power cut may undo what it writes: whoever waited is gone then too."""

    def begin(self, project: str, wait: Wait) -> int:
        """Commit a wait, whose number is not looked at; its number."""
        values = (project, wait.task, wait.epoch, wait.kind, wait.what, json.dumps(wait.holders), wait.any_of, wait.since, wait.until)
        with self._desk.writing(durable=False):
            made = self._desk.db.execute(
                """INSERT INTO wait (project, task, epoch, kind, what, holders, any_of, since, until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)""",
                values,
            )
        return int(made.lastrowid or 0)

    def change(self, wait: Wait) -> None:
        """Commit who holds it now, and until when it waits."""
        with self._desk.writing(durable=False):
            self._desk.db.execute(
                "UPDATE wait SET holders = ?, any_of = ?, until = ? WHERE number = ? AND ended IS NULL",
                (json.dumps(wait.holders), wait.any_of, wait.until, wait.number),
            )

    def end(self, whys: Collection[tuple[int, str]]) -> None:
        """Commit how these ended, by number. Of each task the newest KEPT stay."""
        now = self._desk.wall()
        with self._desk.writing(durable=False):
            for number, why in whys:
                self._desk.db.execute("UPDATE wait SET ended = ?, why = ? WHERE number = ? AND ended IS NULL", (now, why, number))
                self._desk.db.execute(
                    """DELETE FROM wait WHERE ended IS NOT NULL AND number <= (
                           SELECT number FROM wait WHERE task = (SELECT task FROM wait WHERE number = ?) AND ended IS NOT NULL
                           ORDER BY number DESC LIMIT 1 OFFSET ?)
                       AND task = (SELECT task FROM wait WHERE number = ?)""",
                    (number, WAITS_KEPT, number),
                )

    def open(self) -> list[tuple[Wait, str]]:
        """Those of attempts that have not ended, with their project; the others are ended."""
        with self._desk.writing(durable=False):
            self._desk.db.execute(
                """UPDATE wait SET ended = ?, why = 'its attempt ended' WHERE ended IS NULL AND NOT EXISTS (
                       SELECT 1 FROM attempt a WHERE a.task = wait.task AND a.epoch = wait.epoch AND a.end IS NULL)""",
                (self._desk.wall(),),
            )
        found = self._desk.db.execute("SELECT * FROM wait WHERE ended IS NULL ORDER BY number").fetchall()
        return [(_wait(row), str(row["project"])) for row in found]

    def journal(self, task: str, epoch: int, event: str, data: Mapping[str, object]) -> None:
        """A line of history: a wait that was not begun, or was given up."""
        with self._desk.writing():
            self._desk.journal(task, epoch, event, data)


def open_of(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, list[Wait]]:
    """What these tasks wait for now, the oldest first; only those that wait for something."""
    found: dict[str, list[Wait]] = {}
    query = "SELECT * FROM wait WHERE ended IS NULL AND task IN (SELECT value FROM json_each(?)) ORDER BY number"
    for row in db.execute(query, (json.dumps(list(tasks)),)):
        found.setdefault(row["task"], []).append(_wait(row))
    return found


@dataclass(frozen=True, slots=True)
class Waited:
    """How often and how long one task waited for the same others."""

    task: str
    kind: WaitKind
    holders: tuple[str, ...]
    times: int
    seconds: float
    longest_s: float


def waited(db: sqlite3.Connection, tasks: Collection[str], now: float) -> list[Waited]:
    """What these tasks waited for by `now`, the most time first."""
    rows = db.execute(
        """SELECT task, kind, holders, count(*), sum(max(0, coalesce(ended, :now) - since)), max(max(0, coalesce(ended, :now) - since))
           FROM wait WHERE task IN (SELECT value FROM json_each(:tasks)) GROUP BY task, kind, holders ORDER BY 5 DESC, task, holders""",
        {"now": now, "tasks": json.dumps(list(tasks))},
    )
    return [Waited(row[0], WaitKind(row[1]), tuple(json.loads(row[2])), *tuple(row)[3:]) for row in rows]


def deadlocks(db: sqlite3.Connection, tasks: Collection[str]) -> tuple[int, int]:
    """How many waits of these tasks were refused, and how many given up, since they could never end, as far as history says."""
    rows = db.execute(
        """SELECT event, count(*) FROM journal WHERE task IN (SELECT value FROM json_each(?))
           AND event IN ('wait refused', 'wait given up') GROUP BY event""",
        (json.dumps(list(tasks)),),
    )
    found = {str(row[0]): int(row[1]) for row in rows}
    return found.get("wait refused", 0), found.get("wait given up", 0)


def _wait(row: sqlite3.Row) -> Wait:
    fixed = row["number"], row["task"], row["epoch"], WaitKind(row["kind"]), row["what"]
    return Wait(*fixed, tuple(json.loads(row["holders"])), row["since"], row["until"], bool(row["any_of"]))


# Awaited notes
# -------------
# The notes that tasks come after, for people who look.


def missing(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, list[str]]:
    """By task, the paths of the notes that it comes after and that are not there, in the plan's order. They lie beside the ledger."""
    rows = db.execute(
        """SELECT t.id, t.project, n.value AS path FROM task t, json_each(t.spec, '$.after_memory') n
           WHERE t.id IN (SELECT value FROM json_each(?))""",
        (json.dumps(list(tasks)),),
    ).fetchall()
    found: dict[str, list[str]] = {}
    if rows:
        home = Home(Path(db.execute("PRAGMA database_list").fetchone()["file"]).parent)
        for row in rows:
            if not (home.memory(row["project"]) / row["path"]).exists():
                found.setdefault(row["id"], []).append(row["path"])
    return found
