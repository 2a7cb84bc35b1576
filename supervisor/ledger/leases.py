"""Leases on the files of repositories, in the ledger.

A lease is taken with the start of an attempt or while it lives, and ends with the attempt in the same transaction: a stale epoch holds
nothing. What an agent takes and gives back need not wait for the disk, since a power cut ends all agents.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable

from supervisor.core.errors import StaleEpoch
from supervisor.core.leases import HOLDS_S, Beside, Lease, Mode, Wanted
from supervisor.core.notes import LeaseRule
from supervisor.core.path_globs import overlap
from supervisor.core.records import attempt_name
from supervisor.ledger.rows import AttemptRow
from supervisor.ledger.write_access import WriteAccess

TTL_S = 600.0
"""How long a lease lasts that nobody renews: longer than a supervisor is away when it is replaced."""
KEPT = 256
"""Ended leases of a task that are remembered."""
TAKEN_BACK = "a person ended it"
"""Begins why a lease ended that a person took from its holder."""
_SINCE = 6
"""The schema that brought the table: a reader may meet a ledger that no newer supervisor has opened yet."""


class Leases:
    """The writer's door; `Ledger.leases`. Moments are seconds since 1970."""

    def __init__(self, desk: WriteAccess) -> None:
        self._desk = desk
        self.on_end: Callable[[], None] = lambda: None
        """Called inside the transaction when leases end with their attempt."""

    def started(self, task: str, epoch: int) -> None:
        """An attempt of a task with paths starts: inside the transaction of that."""
        found = self._desk.db.execute("SELECT project, json_extract(spec, '$.paths') AS paths FROM task WHERE id = ?", (task,)).fetchone()
        if globs := json.loads(found["paths"] or "[]"):
            self._take(str(found["project"]), Wanted(task, tuple(globs), Mode.EXCLUSIVE), epoch, None)

    def attempt_ended(self, task: str, epoch: int) -> None:
        """It lets go of what it held: inside the transaction of its end. Nor does an earlier attempt hold anything any more."""
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
            (task, len(TAKEN_BACK), TAKEN_BACK, KEPT),
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
        found = self._desk.db.execute(
            """SELECT DISTINCT glob FROM lease WHERE task = ? AND epoch = ? AND ended IS NULL AND acquired > ? AND glob NOT IN
               (SELECT value FROM json_each((SELECT coalesce(json_extract(spec, '$.paths'), '[]') FROM task WHERE id = ?)))""",
            (task, epoch, self._desk.wall() - HOLDS_S, task),
        )
        return tuple(str(glob) for (glob,) in found)

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
    if db.execute("PRAGMA user_version").fetchone()[0] < _SINCE:
        return []
    return _leases(db, "WHERE project = ? AND ended IS NULL ORDER BY fence", project)


def ahead(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, Lease]:
    """By task, of those that have paths and are held up: a lease that overlaps them. The rule is that of `core.path_rules`."""
    if db.execute("PRAGMA user_version").fetchone()[0] < _SINCE:
        return {}
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
