"""Which project a page shows: memory, mail and trains belong to one."""

from __future__ import annotations

import sqlite3
from pathlib import PurePath
from typing import Any

from supervisor.core.errors import NotFound
from supervisor.faces.web.models.asked import Asked
from supervisor.ledger.queries import LATELY

PROJECTS = 50
_RECENT = """
SELECT p.id, p.root FROM project p LEFT JOIN (
    SELECT project, max(rowid) AS newest FROM run WHERE rowid > (SELECT coalesce(max(rowid), 0) FROM run) - ? GROUP BY project
) r ON r.project = p.id ORDER BY r.newest DESC NULLS LAST, p.created DESC LIMIT ?
"""


def projects(db: sqlite3.Connection) -> list[dict[str, Any]]:
    """`id`, `name` and `root`, the one that was used last first."""
    rows = db.execute(_RECENT, (LATELY, PROJECTS))
    return [{"id": str(row["id"]), "name": PurePath(row["root"]).name or str(row["root"]), "root": str(row["root"])} for row in rows]


def chosen(db: sqlite3.Connection, asked: Asked) -> tuple[str, list[dict[str, Any]]]:
    """The project that is asked for, or the one that was used last, and all of them. Raises NotFound when the ledger has no such one."""
    known, wanted = projects(db), asked.get("project", "")
    if not known:
        raise NotFound("no project yet", why="nothing was ever run here", hint="nightcrew run PLAN, or nightcrew start")
    if not wanted:
        return str(known[0]["id"]), known
    if db.execute("SELECT 1 FROM project WHERE id = ?", (wanted,)).fetchone() is None:
        raise NotFound("no project", on=wanted, hint="nightcrew status --all")
    return wanted, known
