"""The notes that tasks come after, for people who look."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from pathlib import Path

from supervisor.host.paths import Home


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
