"""What tasks took that ended well, for who predicts others: seconds and dollars. Read-only, quick over a long history."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

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


def of_task(db: sqlite3.Connection, project: str, name: str, kind: str) -> list[Taken]:
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
