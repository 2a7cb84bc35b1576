"""What people ask of the ledger. Read-only, standard library only."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from supervisor.kernel.errors import KeyTaken, NotFound, UsageError
from supervisor.kernel.names import GATE_KEYS
from supervisor.kernel.states import FINAL, NEEDS_YOU, TaskState

# Queries
# -------
# What people ask of the ledger: read-only, standard library only, quick over a long history.
#
# Every function takes the connection that `store.connect_readonly` gives.


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
    paused: str
    """What its newest attempt waits for, which stands still (`core.states.Until`); empty: it does not."""
    paused_for: str
    """The task that got its slot; empty: none did."""
    parent: str
    """The task whose agent added this one; empty: a person did."""
    parent_epoch: int
    """The attempt of `parent` that did."""
    account: dict[str, Any] | None = None
    """Of its newest attempt: what was measured of it by now, and once it has ended `account` of its result."""
    memory_expected: int | None = None
    """Bytes that attempts of its kind took at their peak, as far as that was learned."""
    root: str = ""
    """The checkout of its project."""
    run_title: str = ""

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
           r.title AS run_title, (SELECT p.root FROM project p WHERE p.id = t.project) AS root,
           coalesce(json_extract(t.spec, '$.parent'), '') AS parent, coalesce(json_extract(t.spec, '$.parent_epoch'), 0) AS parent_epoch,
           a.snapshot, json_extract(a.layers, '$.backend') AS backend, a.tier, a.port,
           CASE WHEN a.state = 'running' AND a.paused IS NOT NULL AND json_extract(a.paused, '$.resuming') IS NULL
                THEN coalesce(json_extract(a.paused, '$.until'), 'person') ELSE '' END AS paused,
           CASE WHEN a.paused IS NOT NULL THEN coalesce(json_extract(a.paused, '$.for'), '') ELSE '' END AS paused_for,
           a.account, (SELECT memory FROM need WHERE kind = json_extract(t.spec, '$.kind')) AS memory_expected
"""
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


PAUSED = """(task.state = 'paused' OR EXISTS (SELECT 1 FROM attempt a WHERE a.task = task.id AND a.epoch = task.epoch
    AND a.state IN ('launching', 'running') AND coalesce(json_extract(a.paused, '$.until'), 'person') = 'person'
    AND a.paused IS NOT NULL AND json_extract(a.paused, '$.resuming') IS NULL))"""
"""Whether a person has paused a row of `task`."""


def paused_ids(db: sqlite3.Connection) -> list[str]:
    """The full ids of the tasks that a person has paused."""
    return [str(row[0]) for row in db.execute(f"SELECT id FROM task WHERE state IN ({OPEN}) AND {PAUSED} ORDER BY ord")]  # noqa: S608 - ours


def set_aside(db: sqlite3.Connection) -> list[tuple[str, str, float]]:
    """The tasks that were set aside until a person says something: each with its question, and since when (seconds since 1970)."""
    sql = """SELECT t.id, coalesce(json_extract(a.paused, '$.question'), substr(t.reason, ?)) AS question,
                    coalesce(json_extract(a.paused, '$.at'), t.changed) AS since
             FROM task t LEFT JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch AND t.state = 'running'
             WHERE t.state IN ('running', 'paused') AND CASE t.state WHEN 'paused' THEN t.reason LIKE ? ELSE
                 json_extract(a.paused, '$.question') IS NOT NULL AND json_extract(a.paused, '$.resuming') IS NULL END ORDER BY t.ord"""
    return [(str(row[0]), str(row[1]), float(row[2])) for row in db.execute(sql, (len(NEEDS_YOU) + 1, f"{NEEDS_YOU}%"))]


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


_FAILED_BEFORE = """FROM attempt a JOIN task t ON t.id = a.task AND t.epoch = a.epoch JOIN run r ON r.id = t.run
    WHERE a.worktree IS NOT NULL AND a.removed IS NULL AND t.state IN ('failed', 'quarantined') AND t.run <> ? AND r.key NOT GLOB ?"""
"""Tasks of all runs but one that failed and still have a worktree; gates of trains are not among them."""


def failed_before(db: sqlite3.Connection, run: str, at_most: int = -1) -> list[TaskView]:
    """Return the tasks of all runs but `run` that failed and still have a worktree, in the order of their submission; the newest
    `at_most`, or all."""
    rows = db.execute(f"SELECT t.ord {_FAILED_BEFORE} ORDER BY t.ord DESC LIMIT ?", (run, GATE_KEYS, at_most))
    return _numbered(db, [int(row[0]) for row in rows])


def failed_before_counts(db: sqlite3.Connection, run: str) -> Counter[TaskState]:
    """Return how many of them are in each state."""
    rows = db.execute(f"SELECT t.state, count(*) {_FAILED_BEFORE} GROUP BY t.state", (run, GATE_KEYS))
    return Counter({TaskState(state): int(number) for state, number in rows})


LATELY = 2000
"""Of the history or of the runs the newest: what is asked for is found there, however many tasks wait and however long the history is."""


def ended_lately(db: sqlite3.Connection, at_most: int) -> list[TaskView]:
    """The tasks that ended last, of all runs, in the order of their submission; of the gates of a train only the last."""
    rows = db.execute(
        f"""SELECT t.ord, max(j.seq) AS newest FROM (
                SELECT task, max(seq) AS seq FROM journal
                WHERE seq > (SELECT coalesce(max(seq), 0) FROM journal) - ? AND task IS NOT NULL GROUP BY task
            ) j JOIN task t ON t.id = j.task JOIN run r ON r.id = t.run WHERE t.state NOT IN ({OPEN})
            GROUP BY CASE WHEN r.key GLOB ? THEN substr(r.key, 1, instr(r.key, '/gate/')) ELSE t.id END
            ORDER BY newest DESC LIMIT ?""",  # noqa: S608 - our own states
        (LATELY, GATE_KEYS, at_most),
    ).fetchall()
    return _numbered(db, [row["ord"] for row in rows])


def several(db: sqlite3.Connection, tasks: Iterable[str]) -> list[TaskView]:
    """The tasks of these full ids, in the order of their submission."""
    return _views(db, "WHERE t.id IN (SELECT value FROM json_each(?)) ORDER BY t.ord", (json.dumps(list(tasks)),))


def _numbered(db: sqlite3.Connection, numbers: list[int]) -> list[TaskView]:
    return _views(db, "WHERE t.ord IN (SELECT value FROM json_each(?)) ORDER BY t.ord", (json.dumps(numbers),))


def newest_run(db: sqlite3.Connection) -> str | None:
    """The id of the run that was submitted last; those of a train's gates are none that a person submitted. Of the newest `LATELY`."""
    sql = "SELECT id FROM run WHERE rowid > (SELECT max(rowid) FROM run) - ? AND key NOT GLOB ? ORDER BY rowid DESC LIMIT 1"
    row = db.execute(sql, (LATELY, GATE_KEYS)).fetchone()
    return None if row is None else str(row["id"])


def of_run(db: sqlite3.Connection, run: str) -> list[TaskView]:
    """The tasks of one run, in the plan's order."""
    return _views(db, "WHERE t.run = ? ORDER BY t.ord", (run,))


def ended_in(db: sqlite3.Connection, run: str) -> list[TaskView]:
    """The tasks of one run that have ended, in the plan's order."""
    return _views(db, f"WHERE t.run = ? AND t.state NOT IN ({OPEN}) ORDER BY t.ord", (run,))


def some_of_run(db: sqlite3.Connection, run: str, after: str, at_most: int) -> list[TaskView]:
    """The same, `at_most` of them: the first ones, or those after the task of this full id."""
    later = "AND t.ord > (SELECT ord FROM task WHERE id = ?)" if after else ""
    return _views(db, f"WHERE t.run = ? {later} ORDER BY t.ord LIMIT ?", (run, *((after,) if after else ()), at_most))


def one(db: sqlite3.Connection, task: str) -> TaskView:
    """One task by its full id. Raises NotFound."""
    found = _views(db, "WHERE t.id = ?", (task,))
    if not found:
        raise NotFound("no task", on=task, hint="nightcrew status --all")
    return found[0]


def runs(db: sqlite3.Connection, limit: int, project: str | None = None, *, gates: bool = True, before: str = "") -> list[RunView]:
    """The newest runs, newest first, or those before the run of this full id; without `gates` those of a train's gates are left out."""
    where = "TRUE" if project is None else "r.project = ?"
    older = "AND r.rowid < (SELECT rowid FROM run WHERE id = ?)" if before else ""
    rows = db.execute(
        f"SELECT r.*, p.root FROM run r JOIN project p ON p.id = r.project WHERE {where} AND r.key NOT GLOB ? {older}"  # noqa: S608 - literals
        " ORDER BY r.rowid DESC LIMIT ?",
        (*(() if project is None else (project,)), "" if gates else GATE_KEYS, *((before,) if before else ()), limit),  # no key is like ""
    ).fetchall()
    return [_run(db, row) for row in rows]


def has_run(db: sqlite3.Connection, run_id: str) -> bool:
    """Whether there is a run of this full id."""
    return db.execute("SELECT 1 FROM run WHERE id = ?", (run_id,)).fetchone() is not None


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


def project_root(db: sqlite3.Connection, project: str) -> str | None:
    """The checkout of a project."""
    row = db.execute("SELECT root FROM project WHERE id = ?", (project,)).fetchone()
    return None if row is None else str(row["root"])


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
    """What the tasks of a run came to, in the plan's order: `id name title kind state reason params result chosen`, `result` being
    `result.json` of the newest attempt or None; of a group of candidates that of the one that was chosen, which is `chosen`. An entry of
    `after.json` is one of these."""
    return _outcomes(db, "WHERE t.run = ? ORDER BY t.ord", run)


def _outcomes(db: sqlite3.Connection, which: str, value: str) -> list[dict[str, Any]]:
    rows = db.execute(
        f"""SELECT t.id, t.name, t.title, t.state, t.reason, json_extract(t.spec, '$.kind') AS kind,
                   json_extract(t.spec, '$.params') AS params, a.result, c.winner AS chosen
            FROM task t LEFT JOIN choice c ON c.task = t.id
            LEFT JOIN attempt a ON a.task = coalesce(c.winner, t.id) AND a.epoch = coalesce(c.epoch, t.epoch) {which}""",  # noqa: S608 - ours
        (value,),
    )
    return [
        {**dict(row), "params": json.loads(row["params"] or "{}"), "result": json.loads(row["result"]) if row["result"] else None}
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Need:
    """One unfinished task that another one comes after."""

    name: str
    any: bool
    """It is one of those of which one is enough."""


def open_needs(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, list[Need]]:
    """Of each of the tasks those that it comes after and that are unfinished, in the plan's order."""
    rows = db.execute(
        f"""SELECT d.task, n.name, n.name IN (SELECT value FROM json_each(t.spec, '$.after_any')) AS any
            FROM dependency d JOIN task n ON n.id = d.needs JOIN task t ON t.id = d.task
            WHERE d.task IN (SELECT value FROM json_each(?)) AND n.state IN ({OPEN}) ORDER BY n.ord""",  # noqa: S608 - our own states
        (json.dumps(list(tasks)),),
    )
    found: dict[str, list[Need]] = {}
    for row in rows:
        found.setdefault(row["task"], []).append(Need(row["name"], bool(row["any"])))
    return found


def backoffs(db: sqlite3.Connection, tasks: Collection[str]) -> dict[str, float]:
    """Until when (wall clock) those of the tasks rest that do."""
    sql = "SELECT id, not_before FROM task WHERE not_before > 0 AND id IN (SELECT value FROM json_each(?))"
    return {str(row["id"]): float(row["not_before"]) for row in db.execute(sql, (json.dumps(list(tasks)),))}


def _views(db: sqlite3.Connection, which: str, values: tuple[Any, ...]) -> list[TaskView]:
    found = db.execute(f"{_COLUMNS} {_FROM} {which}", values)
    names = [column[0] for column in found.description]  # a row as a dictionary by itself looks up each name
    return [_view(dict(zip(names, row, strict=True))) for row in found]


def _view(shape: dict[str, Any]) -> TaskView:
    shape["state"] = TaskState(shape["state"])
    shape["interactive"] = bool(shape["interactive"])
    for name in ("result", "account"):
        shape[name] = json.loads(shape[name]) if shape.get(name) else None
    return TaskView(**shape)


def _run(db: sqlite3.Connection, row: sqlite3.Row) -> RunView:
    counts = {
        str(state): int(number)
        for state, number in db.execute("SELECT state, count(*) FROM task WHERE run = ? GROUP BY state", (row["id"],))
    }
    return RunView(row["id"], row["title"], row["project"], row["root"], row["base"], row["base_oid"], row["created"], counts)


# Task names
# ----------
# Which tasks a person means by what they typed: read-only, as `queries`.


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


def nights_of_runs(db: sqlite3.Connection, runs: Collection[str]) -> dict[str, str]:
    """Return the night of each of these runs that belongs to a night."""
    sql = "SELECT id, night FROM run WHERE night <> '' AND id IN (SELECT value FROM json_each(?))"
    return {str(run): str(night) for run, night in db.execute(sql, (json.dumps(list(runs)),))}


def leased(db: sqlite3.Connection, task: str, epoch: int, since: float) -> tuple[str, ...]:
    """Return the patterns that an attempt leased after `since`, wall-clock seconds, beside the paths of its task, each once."""
    found = db.execute(
        """SELECT DISTINCT glob FROM lease WHERE task = ? AND epoch = ? AND ended IS NULL AND acquired > ? AND glob NOT IN
           (SELECT value FROM json_each((SELECT coalesce(json_extract(spec, '$.paths'), '[]') FROM task WHERE id = ?)))""",
        (task, epoch, since, task),
    )
    return tuple(str(glob) for (glob,) in found)


def digest_of(db: sqlite3.Connection, run: str) -> str:
    """Return the digest of the request by which a run was submitted; empty when it was submitted without a token."""
    row = db.execute("SELECT digest FROM token_run WHERE run = ?", (run,)).fetchone()
    return "" if row is None else str(row["digest"])


def refuse_another(run: str, digest: str, known: str) -> None:
    """Raise KeyTaken when `known`, the digest of the request by which a run was submitted, is not this digest."""
    if known != digest:
        raise KeyTaken("the key belongs to another request", on=run, why="the same key twice is the same request", kept=run)
