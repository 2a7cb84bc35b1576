"""What people ask of the ledger: read-only, standard library only, quick over a long history.

Every function takes the connection that `store.connect_readonly` gives.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from supervisor.core.errors import NotFound, UsageError
from supervisor.core.states import FINAL, TaskState


@dataclass(frozen=True, slots=True)
class TaskView:
    """One task with its newest attempt, as `status` shows it. Times are wall-clock seconds, None when they did not happen."""

    id: str
    run: str
    name: str
    title: str
    project: str
    state: TaskState
    reason: str
    priority: int
    task_class: str
    epoch: int
    retries_used: int
    submitted: float
    changed: float
    created: float | None
    started: float | None
    ended: float | None
    attempt_state: str | None
    end: str | None
    end_cause: str | None
    branch: str | None
    worktree: str | None
    base_oid: str | None
    session_id: str | None
    pane_id: str | None
    result: dict[str, Any] | None
    kind: str
    interactive: bool
    """The task asks for a terminal although its kind can work by itself."""
    assigned: str
    """What an `[[assign]]` gave it, and which one; empty: none did."""
    environment: str
    """Name under which its environment can be opened again; empty: it has none."""
    snapshot: str | None
    """Id of the snapshot that its newest attempt started from; None also before it started."""
    backend: str | None
    """File backend of that environment."""
    tier: int | None
    """Isolation tier of its newest attempt; None before it started."""
    port: int | None
    """First port of the block of its newest attempt, which another may have by now when that has ended."""
    suspended: bool
    """Its newest attempt stands still, because a person asked."""

    @property
    def final(self) -> bool:
        """Whether it will not change by itself any more."""
        return self.state in FINAL


@dataclass(frozen=True, slots=True)
class RunView:
    """One run and how many of its tasks are in which state."""

    id: str
    title: str
    project: str
    root: str
    base: str
    base_oid: str
    created: float
    counts: dict[str, int]


_COLUMNS = """
    SELECT t.id, t.run, t.name, t.title, t.project, t.state, t.reason, json_extract(t.spec, '$.priority') AS priority,
           json_extract(t.spec, '$.task_class') AS task_class, t.epoch, t.failures AS retries_used, r.created AS submitted, t.changed,
           a.created, a.started, a.ended, a.state AS attempt_state, a.end, a.end_cause, a.branch, a.worktree, r.base_oid,
           a.session_id, a.pane_id, a.result, json_extract(t.spec, '$.kind') AS kind,
           coalesce(json_extract(t.spec, '$.interactive'), 0) AS interactive,
           coalesce(json_extract(t.spec, '$.environment'), '') AS environment,
           coalesce(json_extract(t.spec, '$.assigned'), '') AS assigned,
"""
_WARM = """
           a.snapshot, json_extract(a.layers, '$.backend') AS backend, a.tier, a.port,
           a.state = 'running' AND a.suspended IS NOT NULL AND json_extract(a.suspended, '$.resuming') IS NULL AS suspended
"""
_WARM_1 = "NULL AS snapshot, NULL AS backend, NULL AS tier, NULL AS port, NULL AS suspended"
"""Of a ledger that no supervisor of this version has opened yet."""
_FROM = """
    FROM task t JOIN run r ON r.id = t.run LEFT JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch
"""


OPEN = ", ".join(f"'{state}'" for state in TaskState if state not in FINAL)
"""Spelled out, since SQLite uses the partial index `task_open` for exactly these words and never for a parameter."""


def unfinished(db: sqlite3.Connection) -> list[TaskView]:
    """Every unfinished task."""
    return _views(db, f"WHERE t.state IN ({OPEN}) ORDER BY t.ord", ())


def unfinished_ids(db: sqlite3.Connection) -> list[str]:
    """The full ids of the same."""
    return [str(row[0]) for row in db.execute(f"SELECT id FROM task WHERE state IN ({OPEN}) ORDER BY ord")]  # noqa: S608 - our own states


def unfinished_counts(db: sqlite3.Connection) -> Counter[TaskState]:
    """How many unfinished tasks are in each state."""
    rows = db.execute(f"SELECT state, count(*) FROM task WHERE state IN ({OPEN}) GROUP BY state")  # noqa: S608 - our own states
    return Counter({TaskState(state): int(number) for state, number in rows})


def foremost(db: sqlite3.Connection, at_most: int) -> list[TaskView]:
    """The unfinished tasks that a screen has room for: all that run, and `at_most` others, those first that are nearest to a start and then
    the oldest; in the order of their submission. However many more wait, this takes as long."""
    sql = f"SELECT ord FROM task WHERE state IN ({OPEN}) AND state = ? ORDER BY ord LIMIT ?"  # noqa: S608 - our own states
    numbers = [int(row[0]) for row in db.execute(sql, (TaskState.RUNNING, -1))]
    room = len(numbers) + at_most
    for state in (TaskState.PARKED, TaskState.PAUSED, TaskState.READY, TaskState.WAITING):
        numbers += [int(row[0]) for row in db.execute(sql, (state, room - len(numbers)))]
    return _numbered(db, numbers)


def ended_of(db: sqlite3.Connection, run: str, at_most: int) -> tuple[list[TaskView], Counter[TaskState]]:
    """Of the tasks of a run that have ended: of each state the `at_most` oldest, and how many are in each."""
    rows = db.execute(
        f"""SELECT * FROM (
                SELECT ord, state, count(*) OVER (PARTITION BY state) AS total,
                       row_number() OVER (PARTITION BY state ORDER BY ord) AS number
                FROM task WHERE run = ? AND state NOT IN ({OPEN})
            ) WHERE number <= ?""",  # noqa: S608 - our own states
        (run, at_most),
    ).fetchall()
    return _numbered(db, [row["ord"] for row in rows]), Counter({TaskState(row["state"]): row["total"] for row in rows})


def several(db: sqlite3.Connection, tasks: Iterable[str]) -> list[TaskView]:
    """The tasks of these full ids, in the order of their submission."""
    return _views(db, "WHERE t.id IN (SELECT value FROM json_each(?)) ORDER BY t.ord", (json.dumps(list(tasks)),))


def _numbered(db: sqlite3.Connection, numbers: list[int]) -> list[TaskView]:
    return _views(db, "WHERE t.ord IN (SELECT value FROM json_each(?)) ORDER BY t.ord", (json.dumps(numbers),))


def touched(db: sqlite3.Connection, since: int) -> tuple[list[str], int]:
    """The tasks whose state changed after the entry `since` of the journal, and its newest entry. Every change of a task's state is
    committed together with an entry."""
    rows = db.execute("SELECT task, seq FROM journal WHERE seq > ? ORDER BY seq", (since,)).fetchall()
    return list(dict.fromkeys(str(row["task"]) for row in rows if row["task"])), int(rows[-1]["seq"]) if rows else since


def newest_entry(db: sqlite3.Connection) -> int:
    """The number of the newest entry of the journal; 0 when there is none."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0])


def newest_run(db: sqlite3.Connection) -> str | None:
    """The id of the run that was submitted last."""
    row = db.execute("SELECT id FROM run WHERE rowid = (SELECT max(rowid) FROM run)").fetchone()
    return None if row is None else str(row["id"])


def of_run(db: sqlite3.Connection, run: str) -> list[TaskView]:
    """The tasks of one run, in the plan's order."""
    return _views(db, "WHERE t.run = ? ORDER BY t.ord", (run,))


def one(db: sqlite3.Connection, task: str) -> TaskView:
    """One task by its full id. Raises NotFound."""
    found = _views(db, "WHERE t.id = ?", (task,))
    if not found:
        raise NotFound("no task", on=task, hint="nightcrew status --all")
    return found[0]


def runs(db: sqlite3.Connection, limit: int, project: str | None = None) -> list[RunView]:
    """The newest runs, newest first."""
    where = "" if project is None else "WHERE r.project = ?"
    rows = db.execute(
        f"SELECT r.*, p.root FROM run r JOIN project p ON p.id = r.project {where} ORDER BY r.rowid DESC LIMIT ?",  # noqa: S608 - literals
        (limit,) if project is None else (project, limit),
    ).fetchall()
    return [_run(db, row) for row in rows]


def run(db: sqlite3.Connection, run_id: str) -> RunView:
    """One run by its full id. Raises NotFound."""
    row = db.execute("SELECT r.*, p.root FROM run r JOIN project p ON p.id = r.project WHERE r.id = ?", (run_id,)).fetchone()
    if row is None:
        raise NotFound("no run", on=run_id, hint="nightcrew status --all")
    return _run(db, row)


def project_at(db: sqlite3.Connection, directory: str) -> str:
    """The project whose checkout holds `directory` (a real path), the innermost one; empty when none of the ledger's does."""
    rows = db.execute("SELECT id, root FROM project ORDER BY length(root) DESC")
    return next((str(row["id"]) for row in rows if f"{directory}/".startswith(f"{row['root']}/")), "")


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


def environment(db: sqlite3.Connection, name: str, project: str) -> tuple[TaskView, str] | None:
    """The newest task of `project` whose environment is called `name`, and its spec as JSON; None when there is none."""
    sql = "SELECT id, spec FROM task WHERE project = ? AND json_extract(spec, '$.environment') = ? ORDER BY ord DESC LIMIT 1"
    row = db.execute(sql, (project, name)).fetchone()
    return (one(db, str(row["id"])), str(row["spec"])) if row is not None else None


def attempts(db: sqlite3.Connection, task: str) -> list[dict[str, Any]]:
    """Every attempt of a task, oldest first, as plain columns."""
    return [dict(row) for row in db.execute("SELECT * FROM attempt WHERE task = ? ORDER BY epoch", (task,))]


def worktrees(db: sqlite3.Connection) -> list[tuple[str, int]]:
    """Task and epoch of every attempt whose worktree was made and not yet removed, oldest first."""
    rows = db.execute(
        """SELECT a.task, a.epoch FROM attempt a JOIN task t ON t.id = a.task
           WHERE a.worktree IS NOT NULL AND a.removed IS NULL ORDER BY t.ord, a.epoch"""
    )
    return [(str(task), int(epoch)) for task, epoch in rows]


def needs(db: sqlite3.Connection, task: str) -> list[dict[str, Any]]:
    """What the tasks that `task` comes after came to, in the plan's order; see `outcomes`."""
    return _outcomes(db, "JOIN dependency d ON d.needs = t.id WHERE d.task = ? ORDER BY t.ord", task)


def outcomes(db: sqlite3.Connection, run: str) -> list[dict[str, Any]]:
    """What the tasks of a run came to, in the plan's order: `id name title kind state reason params result`, the last one being
    `result.json` of the newest attempt or None. An entry of `after.json` is one of these."""
    return _outcomes(db, "WHERE t.run = ? ORDER BY t.ord", run)


def _outcomes(db: sqlite3.Connection, which: str, value: str) -> list[dict[str, Any]]:
    rows = db.execute(
        f"""SELECT t.id, t.name, t.title, t.state, t.reason, json_extract(t.spec, '$.kind') AS kind,
                   json_extract(t.spec, '$.params') AS params, a.result
            FROM task t LEFT JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch {which}""",  # noqa: S608 - one of two literals
        (value,),
    )
    return [
        {**dict(row), "params": json.loads(row["params"] or "{}"), "result": json.loads(row["result"]) if row["result"] else None}
        for row in rows
    ]


def journal(db: sqlite3.Connection, task: str) -> list[dict[str, Any]]:
    """The history of one task, oldest first."""
    return [
        dict(row) | {"data": json.loads(row["data"])} for row in db.execute("SELECT * FROM journal WHERE task = ? ORDER BY seq", (task,))
    ]


def _views(db: sqlite3.Connection, which: str, values: tuple[Any, ...]) -> list[TaskView]:
    warm = _WARM if db.execute("PRAGMA user_version").fetchone()[0] > 1 else _WARM_1
    return [_view(row) for row in db.execute(f"{_COLUMNS} {warm} {_FROM} {which}", values)]


def _view(row: sqlite3.Row) -> TaskView:
    shape = dict(row)
    shape["state"] = TaskState(shape["state"])
    shape["suspended"], shape["interactive"] = bool(shape["suspended"]), bool(shape["interactive"])
    shape["result"] = json.loads(shape["result"]) if shape["result"] else None
    return TaskView(**shape)


def _run(db: sqlite3.Connection, row: sqlite3.Row) -> RunView:
    counts = {
        str(state): int(number)
        for state, number in db.execute("SELECT state, count(*) FROM task WHERE run = ? GROUP BY state", (row["id"],))
    }
    return RunView(row["id"], row["title"], row["project"], row["root"], row["base"], row["base_oid"], row["created"], counts)
