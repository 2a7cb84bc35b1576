"""Which tasks a person means by what they typed: read-only, as `queries`."""

from __future__ import annotations

import sqlite3

from supervisor.core.errors import NotFound, UsageError


def match_tasks(db: sqlite3.Connection, name: str, project: str = "") -> list[str]:
    """The full ids that `name` may mean: a full id, a run's id (all its tasks), RUN/NAME, a task's name in the newest run that has it,
    of `project` if it has one, or a unique prefix of any of these. Raises NotFound, and UsageError that lists what an ambiguous prefix
    could mean."""
    if not name:
        raise UsageError("an empty name means no task", hint="nightcrew status")
    run, _, rest = name.partition("/")
    for sql in _EXACT:
        found = _ids(db, sql, {"name": name, "run": run, "rest": rest, "project": project})
        if found:
            return found
    values = {"name": name, "name_end": name + _LAST, "run": run, "rest": rest, "rest_end": rest + _LAST, "project": project}
    return _by_prefix(db, values)


def match_task(db: sqlite3.Connection, name: str, project: str = "") -> str:
    """The one task that `name` means; as `match_tasks`, but a run's id is only enough when the run has one task."""
    found = match_tasks(db, name, project)
    if len(found) > 1:
        raise UsageError("more than one task is meant by", on=name, why=_some(found), hint="give the task's name too, as RUN/NAME")
    return found[0]


_OF_RUN = "SELECT id FROM task WHERE run = :name ORDER BY ord"
_EXACT = (
    "SELECT id FROM task WHERE id = :name",
    _OF_RUN,
    "SELECT id FROM task WHERE run = :run AND name = :rest",
    "SELECT id FROM task WHERE name = :name AND project = :project ORDER BY ord DESC LIMIT 1",
    "SELECT id FROM task WHERE name = :name ORDER BY ord DESC LIMIT 1",
)
_LAST = chr(0x10FFFF)
"""Sorts after every name: prefixes are ranges, because `LIKE` with an escape character uses no index."""
_RUN_PREFIX = "SELECT id FROM run WHERE id BETWEEN :name AND :name_end ORDER BY id LIMIT 9"
_TASK_PREFIX = (
    "SELECT id FROM task WHERE id BETWEEN :name AND :name_end ORDER BY id LIMIT 9",
    "SELECT id FROM task WHERE run = :run AND name BETWEEN :rest AND :rest_end ORDER BY id LIMIT 9",
    """SELECT id FROM task WHERE run = (SELECT run FROM task WHERE name BETWEEN :name AND :name_end AND project = :project
       ORDER BY ord DESC LIMIT 1) AND name BETWEEN :name AND :name_end ORDER BY id LIMIT 9""",
    """SELECT id FROM task WHERE run = (SELECT run FROM task WHERE name BETWEEN :name AND :name_end ORDER BY ord DESC LIMIT 1)
       AND name BETWEEN :name AND :name_end ORDER BY id LIMIT 9""",
)


def _by_prefix(db: sqlite3.Connection, values: dict[str, str]) -> list[str]:
    found = _ids(db, _RUN_PREFIX, values)
    if len(found) == 1:
        return _ids(db, _OF_RUN, {"name": found[0]})
    for sql in _TASK_PREFIX:
        found = found or _ids(db, sql, values)
    if len(found) == 1:
        return found
    if found:
        raise UsageError("more than one thing begins with", on=values["name"], why=_some(found), hint="give more of it")
    raise NotFound("no task or run is called", on=values["name"], hint="nightcrew status --all")


def _ids(db: sqlite3.Connection, sql: str, values: dict[str, str]) -> list[str]:
    return [str(row[0]) for row in db.execute(sql, values)]


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
