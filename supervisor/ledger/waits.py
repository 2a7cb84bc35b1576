"""What agents wait for, in the ledger. The request that waits dies with the supervisor; its row says that it was there."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from supervisor.core.wait_graph import Wait, WaitKind
from supervisor.ledger.write_access import WriteAccess

_SINCE = 6
"""The schema that brought the table: a reader may meet a ledger that no newer supervisor has opened yet."""
KEPT = 128
"""Waits of one task that have ended and are kept: an agent that asks every second would fill the disk."""


class Waits:
    """The writer's door to them; `Ledger.waits`. A power cut may undo what it writes: whoever waited is gone then too."""

    def __init__(self, desk: WriteAccess) -> None:
        self._desk = desk

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
                    (number, KEPT, number),
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
    if db.execute("PRAGMA user_version").fetchone()[0] < _SINCE:
        return {}
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
    """What these tasks waited for by `now`, the most time first; nothing in an older ledger."""
    if db.execute("PRAGMA user_version").fetchone()[0] < _SINCE:
        return []
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
