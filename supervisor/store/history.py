"""What tasks took that ended well, and tasks that agents added. Read-only."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from supervisor.kernel.child_tasks import child_key
from supervisor.kernel.retry import AGAIN

# History
# -------
# What tasks took that ended well, for who predicts others: seconds and dollars. Read-only, quick over a long history.


NEWEST = 200
"""Tasks that are looked at, the newest first."""
TRIED_OUT = "night check"
"""Submitter of the tasks that only try something out: they say nothing of others."""
_BACK = 20_000
"""Tasks of any kind among which those are looked for."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What one task took in its last attempt."""

    seconds: float
    dollars: float | None
    """None: the price of its model is not known, or nobody counted."""


def of_kind(db: sqlite3.Connection, kind: str) -> list[Taken]:
    """Of the newest tasks of a kind that are done."""
    rows = db.execute(
        """SELECT a.ended - a.started AS wall_s, a.result FROM task t JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch
           WHERE t.ord > (SELECT coalesce(max(ord), 0) FROM task) - ? AND t.state = 'done' AND json_extract(t.spec, '$.kind') = ?
             AND json_extract(t.spec, '$.submitter') IS NOT ?
           ORDER BY t.ord DESC LIMIT ?""",
        (_BACK, kind, TRIED_OUT, NEWEST),
    )
    return _taken(rows)


def history_of_task(db: sqlite3.Connection, project: str, name: str, kind: str) -> list[Taken]:
    """Of the newest tasks of a repository that had this name and kind and are done: a plan that runs every night."""
    rows = db.execute(
        """SELECT a.ended - a.started AS wall_s, a.result FROM task t JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch
           WHERE t.name = ? AND t.project = ? AND t.state = 'done' AND json_extract(t.spec, '$.kind') = ?
             AND json_extract(t.spec, '$.submitter') IS NOT ?
           ORDER BY t.ord DESC LIMIT ?""",
        (name, project, kind, TRIED_OUT, NEWEST),
    )
    return _taken(rows)


def _taken(rows: Iterable[sqlite3.Row]) -> list[Taken]:
    found = []
    for row in rows:
        if row["wall_s"] is not None and row["wall_s"] >= 0:
            result = json.loads(row["result"]) if row["result"] else {}
            found.append(Taken(float(row["wall_s"]), result.get("cost_usd")))
    return found


# Added tasks
# -----------
# What people and programs ask of the tasks that agents added: read-only, standard library only. Each is a run of its own.
#
# Every function takes the connection that `store.connect_readonly` gives.


_LAST = chr(0x10FFFF)
"""Sorts after every key."""


def children(db: sqlite3.Connection, task: str) -> list[str]:
    """The full ids of the tasks that the agent of `task` added, oldest first."""
    first = child_key(task, "")
    found = db.execute(
        """SELECT t.id FROM run r JOIN task t ON t.run = r.id
           WHERE r.key BETWEEN ? AND ? AND json_extract(t.spec, '$.parent') = ? ORDER BY t.ord""",
        (first, first + _LAST, task),
    )
    return [str(row[0]) for row in found]


def given_to_children(db: sqlite3.Connection, task: str) -> float:
    """US dollars of `cost_max` that the agent of `task` gave to tasks that it added."""
    first = child_key(task, "")
    found = db.execute(
        """SELECT total(json_extract(t.spec, '$.cost_max')) FROM run r JOIN task t ON t.run = r.id
           WHERE r.key BETWEEN ? AND ? AND json_extract(t.spec, '$.parent') = ?""",
        (first, first + _LAST, task),
    )
    return float(found.fetchone()[0])


def of_key(db: sqlite3.Connection, key: str) -> str | None:
    """The first task of the run that was submitted with this key; None when there is none."""
    sql = "SELECT t.id FROM run r JOIN task t ON t.run = r.id WHERE r.key = ? ORDER BY t.ord LIMIT 1"
    found = db.execute(sql, (key,)).fetchone()
    return None if found is None else str(found[0])


# Attempt history
# ---------------
# What the ledger remembers of the attempts of a task, for the one that begins or ends.


def ready_since(db: sqlite3.Connection, task: str, before: float) -> float:
    """When a task last became ready before it started at `before`, wall clock: its backoff after an attempt that failed counts as waiting.
    0.0 when the history does not say."""
    found = db.execute("SELECT max(at) FROM journal WHERE task = ? AND at <= ? AND (event = 'ready' OR event LIKE 'end %')", (task, before))
    return float(found.fetchone()[0] or 0.0)


def begun_again(db: sqlite3.Connection, task: str) -> int:
    """How many attempts of a task were stopped for their memory so that it goes on in a new one."""
    return int(db.execute("SELECT count(*) FROM attempt WHERE task = ? AND end_cause LIKE ?", (task, f"{AGAIN}%")).fetchone()[0])


def left_by(db: sqlite3.Connection, task: str, epoch: int) -> str:
    """The commit that holds what an attempt left, if it was stopped for its memory so that its task goes on from there; else empty."""
    sql = "SELECT json_extract(result, '$.tip') FROM attempt WHERE task = ? AND epoch = ? AND end_cause LIKE ?"
    found = db.execute(sql, (task, epoch, f"{AGAIN}%")).fetchone()
    return str(found[0] or "") if found is not None else ""
