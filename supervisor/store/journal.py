"""The history of tasks and their branches. Read-only."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from supervisor.kernel.child_tasks import child_key
from supervisor.kernel.recovery import AGAIN
from supervisor.kernel.states import TaskState

# Journal
# -------
# The history as people ask for it: what happened, to whom, and when.


def journal_of_task(db: sqlite3.Connection, task: str) -> list[dict[str, Any]]:
    """The history of one task, oldest first."""
    return _entries(db, "task = ?", (task,))


def after(db: sqlite3.Connection, since: int, at_most: int) -> list[dict[str, Any]]:
    """The history of everything beyond the entry `since`, oldest first."""
    return _entries(db, "seq > ?", (since, at_most), "LIMIT ?")


def touched(db: sqlite3.Connection, since: int) -> tuple[list[str], int]:
    """The tasks whose state changed after the entry `since` of the journal, and its newest entry. Every change of a task's state is
    committed together with an entry."""
    rows = db.execute("SELECT task, seq FROM journal WHERE seq > ? ORDER BY seq", (since,)).fetchall()
    return list(dict.fromkeys(str(row["task"]) for row in rows if row["task"])), int(rows[-1]["seq"]) if rows else since


def newest_entry(db: sqlite3.Connection) -> int:
    """The number of the newest entry of the journal; 0 when there is none."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0])


def times_set_aside(db: sqlite3.Connection, task: str) -> int:
    """How often a task was set aside by now."""
    return int(db.execute("SELECT count(*) FROM journal WHERE task = ? AND event = 'set aside'", (task,)).fetchone()[0])


def _entries(db: sqlite3.Connection, which: str, values: tuple[Any, ...], limit: str = "") -> list[dict[str, Any]]:
    rows = db.execute(f"SELECT * FROM journal WHERE {which} ORDER BY seq {limit}", values)  # noqa: S608 - literals of ours
    return [dict(row) | {"data": json.loads(row["data"])} for row in rows]


# Branches
# --------
# The branches of a project's tasks: which results are at work or wait to be merged. Read-only, as `queries`.


MAP_KINDS = ("map-worker", "map-prompt")
"""Kinds of the workers of maps."""
_NO_RESULTS = (*MAP_KINDS, "landing-gate")
LOOKED_AT = 5000
"""Of all tasks, the newest: among them results are looked for, so that a long history costs nothing."""


_CHOSEN = """AND coalesce(json_extract(t.spec, '$.judge_round'), 0) = 0
    AND (coalesce(json_extract(t.spec, '$.candidate_of'), '') = '' OR EXISTS
        (SELECT 1 FROM dependency d JOIN choice c ON c.task = d.task WHERE d.needs = t.id AND c.winner = t.id))"""


@dataclass(frozen=True, slots=True)
class Branch:
    """A task with its newest attempt."""

    task: str
    epoch: int
    name: str
    living: bool
    base: str = ""
    """The commit at which its work began."""


def of_project(db: sqlite3.Connection, project: str, at_most: int) -> tuple[list[Branch], int]:
    """The branches of tasks that run or are done, newest first, those of living agents before the others; and how many were left out beyond
    `at_most`. Workers of maps are not among them, whose map merges what they did, nor gates of
    trains, nor candidates of a group that were not chosen, yet or at all, nor who judges them."""
    rows = db.execute(
        f"""SELECT t.id, t.state, a.epoch, a.branch, a.base_oid FROM task t JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch
           WHERE t.ord > (SELECT coalesce(max(ord), 0) FROM task) - ? AND t.project = ? AND t.state IN (?, ?) AND a.branch IS NOT NULL
             AND json_extract(t.spec, '$.kind') NOT IN (SELECT value FROM json_each(?)) {_CHOSEN}
           ORDER BY t.state = ? DESC, t.ord DESC""",  # noqa: S608 - ours
        (LOOKED_AT, project, TaskState.RUNNING, TaskState.DONE, json.dumps(_NO_RESULTS), TaskState.RUNNING),
    ).fetchall()
    found = [
        Branch(row["id"], row["epoch"], row["branch"], row["state"] == TaskState.RUNNING, row["base_oid"] or "") for row in rows[:at_most]
    ]
    return found, max(0, len(rows) - at_most)


def at_work(db: sqlite3.Connection, since: int) -> tuple[set[str], int]:
    """The projects in which a task runs, or began after the line `since` of the journal, and may have ended; and the journal's newest
    line."""
    newest = newest_entry(db)
    began = "SELECT DISTINCT t.project FROM journal j JOIN task t ON t.id = j.task WHERE j.seq > ? AND j.event = 'start'"
    rows = db.execute(f"SELECT DISTINCT project FROM task WHERE state = 'running' UNION {began}", (since,))  # noqa: S608 - ours
    return {str(row[0]) for row in rows}, newest


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
    return _taken(db, "t.ord > (SELECT coalesce(max(ord), 0) FROM task) - ?", _BACK, kind)


def history_of_task(db: sqlite3.Connection, project: str, name: str, kind: str) -> list[Taken]:
    """Of the newest tasks of a repository that had this name and kind and are done: a plan that runs every night."""
    return _taken(db, "t.name = ? AND t.project = ?", name, project, kind)


def _taken(db: sqlite3.Connection, which: str, *values: object) -> list[Taken]:
    """`values`: those of `which`, and the kind."""
    rows = db.execute(
        f"""SELECT a.ended - a.started AS wall_s, a.result FROM task t JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch
           WHERE {which} AND t.state = 'done' AND json_extract(t.spec, '$.kind') = ?
             AND json_extract(t.spec, '$.submitter') IS NOT ?
           ORDER BY t.ord DESC LIMIT ?""",  # noqa: S608 - literals of ours
        (*values, TRIED_OUT, NEWEST),
    )
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
    found = db.execute("SELECT t.id FROM run r JOIN task t ON t.run = r.id WHERE r.key = ? ORDER BY t.ord LIMIT 1", (key,)).fetchone()
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
