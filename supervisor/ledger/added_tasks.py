"""What people and programs ask of the tasks that agents added: read-only, standard library only. Each is a run of its own.

Every function takes the connection that `store.connect_readonly` gives.
"""

from __future__ import annotations

import sqlite3

from supervisor.core.conducting import child_key

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
