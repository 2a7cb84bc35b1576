"""Making rows agree that were read from a damaged ledger: some are lost, and some are older than others.

The journal is the witness of ends: it has a line for each. What is not known to have ended is left running, so that the next supervisor
looks at it as after a crash and judges it by its records. A row that others need and that is lost gets a stand-in, so that what is known of
an attempt (its worktree, its branch, its end) stays reachable by the verbs. All statements run in the caller's transaction.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

from supervisor.features.access import rows as access_rows
from supervisor.features.snapshots import rows as snapshots_rows
from supervisor.features.snapshots.rules import SnapshotSpec, SnapshotState
from supervisor.kernel.conversations import DeliveryState, Origin
from supervisor.kernel.night import NightState, OnCap
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import AttemptState, End, TaskState
from supervisor.store import deliveries, queries, rows

LOST = "its row was lost with the damaged ledger"
_EPOCHS = 64
"""More attempts than this that nobody has a row of are no attempts: the number is damaged."""
_TASK_ID = re.compile(r"\d{4}-[a-z0-9]{4}/[a-z0-9][a-z0-9_-]*")
_PROJECT_ID = re.compile(r"[0-9a-f]{12}")


def mend(db: sqlite3.Connection) -> list[str]:
    """Make the rows of a ledger agree. Returns what was lost and what was changed, a line each."""
    db.create_function("task_reads", 1, _task_reads)
    db.create_function("snapshot_reads", 2, _snapshot_reads)
    db.create_function("origin_reads", 1, _origin_reads)
    db.create_function("restarts_read", 1, _restarts_read)
    db.create_function("token_reads", 3, access_rows.reads)
    db.create_function("task_id", 2, _is_task_id)
    db.execute("""CREATE TEMP VIEW ending AS SELECT task, epoch, at, substr(event, 5) AS end, json_extract(data, '$.cause') AS cause,
                  json_extract(data, '$.task') AS state FROM journal WHERE event GLOB 'end *'""")
    return [
        *_drop_unreadable(db),
        *_repair_attempts(db),
        *_stand_in_for_tasks(db),
        *_stand_in_for_attempts(db),
        *_agree(db),
        *_lose_with_tasks(db),
        *_depend_again(db),
        *_count_submitted(db),
        *_lose_nights(db),
        *_revoke(db),
    ]


def _task_reads(spec: str) -> bool:
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        made = TaskSpec.from_json(spec)
        return all(isinstance(value, str) for value in (made.name, made.title, made.kind, *made.argv, *made.after))
    return False


def _snapshot_reads(spec: str, digests: str) -> bool:
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        return bool(SnapshotSpec.from_json(spec)) and isinstance(json.loads(digests), dict)
    return False


def _origin_reads(text: str) -> bool:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return bool(Origin.from_json(text))
    return False


def _restarts_read(text: str) -> bool:
    with contextlib.suppress(ValueError, TypeError):
        return all(isinstance(at, int | float) for at in list(json.loads(text)))
    return False


def _is_task_id(task: object, run: object) -> bool:
    """Ids become paths. A column of a damaged row may hold anything."""
    return isinstance(task, str) and _TASK_ID.fullmatch(task) is not None and task.partition("/")[0] == run


def _drop_unreadable(db: sqlite3.Connection) -> list[str]:
    """Rows that SQLite takes, and no program of ours can read."""
    states, built = _words(TaskState), _words(SnapshotState)
    gone = (
        ("task", "id", f"NOT task_reads(spec) OR NOT task_id(id, run) OR state NOT IN ({states})"),
        ("run", "id", "NOT json_valid(env) OR json_type(env) <> 'object'"),
        ("project", "id", "id NOT GLOB '????????????' OR root NOT GLOB '/*' OR common_dir NOT GLOB '/*'"),
        ("snapshot", "id", f"NOT snapshot_reads(spec, digests) OR state NOT IN ({built})"),
        ("conversation", "task || ':' || epoch", "NOT task_id(task, substr(task, 1, 9)) OR origin <> '' AND NOT origin_reads(origin)"),
        ("night", "run", f"state NOT IN ({_words(NightState)}) OR on_cap NOT IN ({_words(OnCap)})"),
        ("access_token", "id", "NOT token_reads(kind, scopes, projects)"),
        ("delivery", "id", f"state NOT IN ({_words(DeliveryState)})"),
        ("attempt", "task || ':' || epoch", "NOT task_id(task, substr(task, 1, 9)) OR epoch < 1"),
        ("journal", "'line ' || seq", "NOT json_valid(data) OR json_type(data) <> 'object'"),
    )
    return [
        f"{table} {name}: its row was damaged and is lost"
        for table, called, where in gone
        for (name,) in db.execute(f"DELETE FROM {table} WHERE {where} RETURNING {called}").fetchall()  # noqa: S608 - literals of ours
    ]


def _repair_attempts(db: sqlite3.Connection) -> list[str]:
    """Each column by itself: a row that knows where the work lies is worth more than its other words."""
    ends = _words(End)
    db.execute(f"UPDATE attempt SET end = 'lost' WHERE end IS NOT NULL AND end NOT IN ({ends})")  # noqa: S608 - ours, here and below
    db.execute(f"UPDATE attempt SET judged = 'lost' WHERE judged IS NOT NULL AND judged NOT IN ({ends})")  # noqa: S608
    for column in ("result", "paused", "account"):
        db.execute(f"UPDATE attempt SET {column} = NULL WHERE {column} IS NOT NULL AND NOT json_valid({column})")  # noqa: S608
    db.execute("UPDATE task SET restarts = '[]' WHERE NOT restarts_read(restarts)")
    # Without its layers an environment must not be opened as a plain worktree: as if it had never been noted, it is looked for again.
    db.execute("UPDATE attempt SET layers = NULL, worktree = NULL WHERE layers IS NOT NULL AND NOT json_valid(layers)")
    db.execute("""UPDATE attempt SET state = 'ended', end = e.end, end_cause = coalesce(e.cause, ''), ended = e.at
                  FROM ending e WHERE attempt.end IS NULL AND e.task = attempt.task AND e.epoch = attempt.epoch""")
    db.execute(f"""UPDATE attempt SET state = CASE WHEN end IS NULL THEN 'running' ELSE 'ended' END
                   WHERE state NOT IN ({_words(AttemptState)}) OR (end IS NULL) = (state IN ('ended', 'released'))""")  # noqa: S608
    return []


def _stand_in_for_tasks(db: sqlite3.Connection) -> list[str]:
    """For tasks that ran, with their runs and projects; and for the runs of tasks."""
    said = []
    ran = db.execute("""SELECT task, max(epoch) AS epoch FROM (SELECT task, epoch FROM attempt UNION SELECT task, epoch FROM journal
                        WHERE epoch IS NOT NULL) WHERE task_id(task, substr(task, 1, 9)) AND task NOT IN (SELECT id FROM task)
                        GROUP BY task""").fetchall()
    wanted = {str(task): int(epoch) for task, epoch in ran}
    runs = {task.partition("/")[0] for task in wanted} | {
        str(run) for (run,) in db.execute("SELECT run FROM task UNION SELECT id FROM run")
    }
    for run in sorted(runs):
        said += _stand_in_for_run(db, run)
    for task, epoch in wanted.items():
        run, _, name = task.partition("/")
        project = db.execute("SELECT project FROM run WHERE id = ?", (run,)).fetchone()
        if project is None:
            db.execute("DELETE FROM attempt WHERE task = ?", (task,))
            said.append(f"task {task}: it is lost, and so is what says of which repository it was; its records lie in runs/{task}")
            continue
        spec = TaskSpec(name=name, title=f"{name} ({LOST})", kind="shell", argv=("false",)).to_json()
        db.execute(
            """INSERT INTO task (id, run, project, name, title, spec, state, reason, epoch, changed)
               VALUES (?, ?, ?, ?, ?, ?, 'failed', ?, ?, (SELECT coalesce(max(at), 0) FROM journal WHERE task = ?))""",
            (task, run, project[0], name, f"{name} ({LOST})", spec, LOST, min(epoch, _EPOCHS), task),
        )
        said.append(f"task {task}: {LOST}; its attempts, branch and worktrees can be looked at, its command and prompt are gone")
    return said


def _stand_in_for_run(db: sqlite3.Connection, run: str) -> list[str]:
    """Make sure that a run has a row, and its project too; or that it has no tasks."""
    project = _project_of(db, run)
    if project is None:
        db.execute("DELETE FROM attempt WHERE task GLOB ? || '/*'", (run,))
        lost = [str(task) for (task,) in db.execute("DELETE FROM task WHERE run = ? RETURNING id", (run,)).fetchall()]
        db.execute("DELETE FROM run WHERE id = ?", (run,))
        return [f"task {task}: lost, because nothing says of which repository it was" for task in lost]
    db.execute("UPDATE task SET project = ? WHERE run = ? AND project <> ?", (project, run, project))
    db.execute("UPDATE run SET project = ? WHERE id = ? AND project <> ?", (project, run, project))
    if db.execute("SELECT 1 FROM run WHERE id = ?", (run,)).fetchone() is not None:
        return []
    base = db.execute("SELECT base_oid FROM attempt WHERE task GLOB ? || '/*' AND base_oid IS NOT NULL", (run,)).fetchone()
    values = (run, f"recovered {run}", project, f"run {run} ({LOST})", base[0] if base is not None else "")
    db.execute("INSERT INTO run (id, key, project, title, base, base_oid, env, created) VALUES (?, ?, ?, ?, 'HEAD', ?, '{}', 0)", values)
    failed = db.execute(
        f"""UPDATE task SET state = 'failed', reason = 'its run was lost with the damaged ledger' WHERE run = ? AND state IN ({_OPEN})
            RETURNING id""",  # noqa: S608 - our own states
        (run,),
    ).fetchall()
    said = [f"task {task}: failed, because the row of its run was lost: submit it again" for (task,) in failed]
    return [f"run {run}: {LOST}, with its key and environment", *said]


def _lose_nights(db: sqlite3.Connection) -> list[str]:
    """A night without a run is none; a run whose night is lost goes on as an ordinary one, and that is said: it has no cap any more."""
    db.execute("DELETE FROM night WHERE run NOT IN (SELECT id FROM run)")
    gone = db.execute("UPDATE run SET night = '' WHERE night <> '' AND night NOT IN (SELECT run FROM night) RETURNING id").fetchall()
    return [f"run {run}: the terms of its night were lost; it goes on without a deadline and a cap" for (run,) in gone]


def _revoke(db: sqlite3.Connection) -> list[str]:
    """Every access token: a row that was read may be older than the one that revoked it."""
    db.execute("DELETE FROM token_run WHERE run NOT IN (SELECT id FROM run)")
    gone = db.execute("UPDATE access_token SET revoked = created WHERE revoked IS NULL RETURNING id, name, user").fetchall()
    return [f"token {name} of {user} ({number}): revoked, since nobody knows whether it still held" for number, name, user in gone]


def _project_of(db: sqlite3.Connection, run: str) -> str | None:
    """The project that most rows of a run name and that has a row; else the one that its attempts' paths name, which gets a row."""
    told = db.execute(
        """SELECT said.project FROM (SELECT project FROM run WHERE id = :run UNION ALL SELECT project FROM task WHERE run = :run) said
           JOIN project p ON p.id = said.project GROUP BY 1 ORDER BY count(*) DESC""",
        {"run": run},
    ).fetchone()
    if told is not None:
        return str(told[0])
    for worktree, admin in db.execute(
        "SELECT worktree, admin_dir FROM attempt WHERE task GLOB ? || '/*' AND worktree IS NOT NULL AND admin_dir IS NOT NULL", (run,)
    ).fetchall():
        project, common = Path(str(worktree)).parts[-3:][0], Path(str(admin)).parent.parent
        if _PROJECT_ID.fullmatch(project) and common.is_absolute():
            root = common.parent if common.name == ".git" else common
            db.execute("INSERT OR IGNORE INTO project VALUES (?, ?, ?, 0)", (project, str(root), str(common)))
            return project
    return None


_OPEN = "'waiting', 'ready', 'paused', 'parked'"


def _stand_in_for_attempts(db: sqlite3.Connection) -> list[str]:
    """Every epoch from 1 to the task's has a row. The newest of a running task is looked at by the next supervisor, as after a crash."""
    said = []
    db.execute(f"""UPDATE task SET epoch = coalesce((SELECT max(epoch) FROM attempt a WHERE a.task = task.id), 0)
                   WHERE epoch < 0 OR epoch > {_EPOCHS} + (SELECT count(*) FROM attempt a WHERE a.task = task.id)""")  # noqa: S608
    db.execute("DELETE FROM attempt WHERE epoch > ? + (SELECT t.epoch FROM task t WHERE t.id = attempt.task)", (_EPOCHS,))
    db.execute("""UPDATE task SET epoch = n.epoch, state = 'running' FROM (SELECT task, max(epoch) AS epoch FROM attempt GROUP BY task) n
                  WHERE n.task = task.id AND n.epoch > task.epoch""")
    missing = db.execute("""
        WITH RECURSIVE wanted (task, epoch, newest, state, changed) AS (
            SELECT id, epoch, epoch, state, changed FROM task WHERE epoch > 0
            UNION ALL SELECT task, epoch - 1, newest, state, changed FROM wanted WHERE epoch > 1)
        SELECT w.*, (SELECT e.end FROM ending e WHERE e.task = w.task AND e.epoch = w.epoch) AS end
        FROM wanted w WHERE NOT EXISTS (SELECT 1 FROM attempt a WHERE a.task = w.task AND a.epoch = w.epoch)""").fetchall()
    for task, epoch, newest, state, changed, end in missing:
        lives = epoch == newest and state == "running" and end is None
        known = end or {"done": "done", "cancelled": "cancelled", "failed": "failed"}.get(state if epoch == newest else "", "lost")
        db.execute(
            "INSERT INTO attempt (task, epoch, state, cause, created, end, end_cause) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                task,
                epoch,
                "launching" if lives else "ended",
                LOST if epoch > 1 else "",
                changed,
                None if lives else known,
                "" if lives else LOST,
            ),
        )
        said.append(f"attempt {task}:{epoch}: {LOST}" + ("; the next supervisor looks for it" if lives else ""))
    return said


def _agree(db: sqlite3.Connection) -> list[str]:
    """A task is running exactly while its newest attempt has no end."""
    db.execute("""UPDATE attempt SET state = 'ended', end = 'lost', end_cause = 'a later attempt began'
                  WHERE end IS NULL AND epoch < (SELECT t.epoch FROM task t WHERE t.id = attempt.task)""")
    changed = db.execute("""UPDATE task SET state = 'running', reason = '' FROM attempt a
                            WHERE a.task = task.id AND a.epoch = task.epoch AND a.end IS NULL AND task.state <> 'running'
                            RETURNING id""").fetchall()
    said = [f"task {task}: running again, because nothing says how its attempt ended" for (task,) in changed]
    after = f"""coalesce((SELECT e.state FROM ending e WHERE e.task = task.id AND e.epoch = task.epoch
                          AND e.state IN ({_words(set(TaskState) - {TaskState.RUNNING})})),
                         CASE a.end WHEN 'done' THEN 'done' WHEN 'cancelled' THEN 'cancelled' ELSE 'failed' END)"""  # noqa: S608
    changed = db.execute(f"""UPDATE task SET state = {after}, reason = a.end FROM attempt a
                             WHERE a.task = task.id AND a.epoch = task.epoch AND a.end IS NOT NULL AND task.state = 'running'
                             RETURNING id, task.state""").fetchall()  # noqa: S608
    said += [f"task {task}: {state}, because its attempt has ended" for task, state in changed]
    db.execute("UPDATE task SET state = 'ready' WHERE state = 'running' AND epoch = 0")
    return said


def _lose_with_tasks(db: sqlite3.Connection) -> list[str]:
    """What belongs to a task or a run that is lost. A lease that nobody holds any more is free; a wait or a lease that is over is not
    missed."""
    gone = "NOT IN (SELECT id FROM task)"
    for table in ("conversation", "wait", "verdict", "review_comment"):
        db.execute(f"DELETE FROM {table} WHERE task {gone}")  # noqa: S608 - ours, here and below
    undone = db.execute(f"DELETE FROM choice WHERE task {gone} OR winner {gone} RETURNING task, winner").fetchall()  # noqa: S608
    db.execute("DELETE FROM leaving WHERE run NOT IN (SELECT id FROM run)")
    lost = db.execute(f"DELETE FROM delivery WHERE task {gone} RETURNING id, task").fetchall()  # noqa: S608
    freed = db.execute(f"DELETE FROM lease WHERE task {gone} RETURNING glob, task, ended").fetchall()  # noqa: S608
    return [
        *(f"delivery {number}: lost with its task {task}" for number, task in lost),
        *(f"choice of {winner} for {task}: lost with one of the two" for task, winner in undone),
        *(f"lease of {glob}: lost with its task {task}" for glob, task, ended in freed if ended is None),
    ]


def _depend_again(db: sqlite3.Connection) -> list[str]:
    """Dependencies follow from the tasks' specs."""
    db.execute("DELETE FROM dependency WHERE task NOT IN (SELECT id FROM task) OR needs NOT IN (SELECT id FROM task)")
    # By the index of names: by that of runs it is as slow as the square of the tasks of a run.
    db.execute("""INSERT OR IGNORE INTO dependency SELECT t.id, n.id FROM task t CROSS JOIN json_each(t.spec, '$.after') e
                  CROSS JOIN task n INDEXED BY task_name ON n.run = t.run AND n.name = e.value""")
    skipped = db.execute(
        """UPDATE task SET state = 'skipped', reason = ? WHERE state = 'waiting' AND EXISTS (
           SELECT 1 FROM json_each(task.spec, '$.after') e
           WHERE NOT EXISTS (SELECT 1 FROM task n INDEXED BY task_name WHERE n.run = task.run AND n.name = e.value)) RETURNING id""",
        (f"of a task that it comes after {LOST}",),
    ).fetchall()
    return [f"task {task}: skipped, because of a task that it comes after {LOST}; nightcrew retry runs it" for (task,) in skipped]


def _count_submitted(db: sqlite3.Connection) -> list[str]:
    """The journal knows how many tasks each run was submitted with."""
    short = db.execute("""
        SELECT s.run, s.tasks, count(t.id) AS found
        FROM (SELECT json_extract(data, '$.run') AS run, json_extract(data, '$.tasks') AS tasks FROM journal WHERE event = 'submitted') s
        LEFT JOIN task t ON t.run = s.run GROUP BY s.run HAVING found < s.tasks""").fetchall()
    return [
        f"run {run}: of its {tasks} tasks {found} are left; the others never started, or are named above" for run, tasks, found in short
    ]


def _words(states: Iterable[str]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(map(str, states)))


def check(db: sqlite3.Connection) -> None:
    """Raises what a supervisor, or `status`, would meet in this ledger."""
    queries.unfinished(db)
    for (run,) in db.execute("SELECT id FROM run").fetchall():
        queries.of_run(db, str(run))
        queries.outcomes(db, str(run))
    for (task,) in db.execute("SELECT id FROM task").fetchall():
        rows.launch(db, str(task))
    rows.attempts(db, "")
    snapshots_rows.every(db)
    deliveries.pending(db)
