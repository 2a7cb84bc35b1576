"""The rows of the tasks of a run that is handed over."""

from __future__ import annotations

import sqlite3

from supervisor.core.names import slug
from supervisor.core.spec import Submission
from supervisor.core.states import TaskState


def insert(db: sqlite3.Connection, submission: Submission, run: str, now: float) -> None:
    """Inside the open transaction, each with an id of its own and what it comes after."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for task in submission.spec.tasks:
        taken.add(short := slug(task.name, taken))
        ids[task.name] = f"{run}/{short}"
    db.executemany(
        "INSERT INTO task (id, run, project, name, title, spec, state, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (ids[task.name], run, submission.project, task.name, task.title, task.to_json(), TaskState.WAITING, now)
            for task in submission.spec.tasks
        ],
    )
    db.executemany(
        "INSERT INTO dependency VALUES (?, ?)",
        [(ids[task.name], ids.get(need, need)) for task in submission.spec.tasks for need in task.after],
    )
