"""What is written down of one run: rows of the ledger, and of the gateway's account. Each file is read in one transaction.

A run of an older version has fewer columns, and an account may be missing or damaged: what is not there is left out, and `trouble` says so.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from supervisor.core.errors import NightcrewError, NotFound
from supervisor.faces import candidates, waited
from supervisor.gateway.account import schema
from supervisor.gateway.account.rows import NEVER_SENT, REFUSED
from supervisor.host.paths import Home
from supervisor.ledger import archive

Row = dict[str, Any]

TOLD = (
    *("paused", "resumed", "set aside", "waiting", "retry", "outage", "outage over", "machine slept", "clock jumped", "machine rebooted"),
    *("stopped all", "thawed", "night began", "night closing", "night over", "night ended", "night refused"),
)
"""The journal's events that the report tells of."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Plain rows, columns as the migrations name them. `requests` and `waits` are of the run's tasks."""

    run: Row
    """With `root`, its repository."""
    night: Row | None
    """Its terms; None: it is no night."""
    before: str | None
    """The night before, of the same repository."""
    tasks: list[Row]
    attempts: list[Row]
    journal: list[Row]
    requests: list[Row]
    """Sums of the requests that have ended, by `agent`, `epoch` and `model`."""
    waits: list[Row]
    """Requests that waited long enough to be seen in a lane: `agent epoch begin end`."""
    breakers: list[Row]
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
        groups = candidates.of_tasks(db, [task["id"] for task in tasks])
        at_supervisor = waited.of_tasks(db, [task["id"] for task in tasks], time.time())
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


def _before(db: sqlite3.Connection, run: Row) -> str | None:
    sql = """SELECT n.run FROM night n JOIN run r ON r.id = n.run
             WHERE r.project = ? AND r.rowid < (SELECT rowid FROM run WHERE id = ?) ORDER BY r.rowid DESC LIMIT 1"""
    found = db.execute(sql, (run["project"], run["id"])).fetchone()
    return str(found[0]) if found is not None else None


def _journal(db: sqlite3.Connection, ids: str) -> list[Row]:
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


def _one(db: sqlite3.Connection, sql: str, *values: object) -> Row | None:
    row = db.execute(sql, values).fetchone()
    return dict(row) if row is not None else None


def _all(db: sqlite3.Connection, sql: str, *values: object) -> list[Row]:
    return [dict(row) for row in db.execute(sql, values).fetchall()]
