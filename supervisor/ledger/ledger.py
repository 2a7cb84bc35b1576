"""Everything the daemon writes: submissions, and the commands of `decide`, each fenced by its epoch.

A batch of commands is one transaction: what a decision said is on disk whole or not at all, and it is on disk before any of it is
acted upon.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, assert_never

from supervisor.core.backoff import BACKOFF_CAP_S
from supervisor.core.crew import Begin, Collect, Command, Finish, MarkRunning, Resume, Revive, SetState, Start, Stop, Suspend
from supervisor.core.errors import NotFound, StaleEpoch
from supervisor.core.names import slug
from supervisor.core.records import attempt_name
from supervisor.core.spec import Submission, TaskSpec, already_open
from supervisor.core.states import AttemptState, TaskState
from supervisor.core.task import Attempt, Task, urgent_from
from supervisor.ledger import queries, rows, store
from supervisor.ledger.conversations import Conversations
from supervisor.ledger.deliveries import Deliveries
from supervisor.ledger.queries import OPEN
from supervisor.ledger.rows import AttemptRow, LaunchRow
from supervisor.ledger.snapshots import Snapshots, WriteAccess

LAUNCHES = 512
"""Launch rows that are kept: more than live at once."""


class Ledger:
    """The writer's door. Not thread safe: it belongs to one thread of one process."""

    def __init__(self, path: Path, wall: Callable[[], float], *, create: bool = True) -> None:
        """Raises LedgerError as `store.connect` does. `wall` gives seconds since 1970."""
        self._path = path
        self._wall = wall
        self._db = store.connect(path, create=create)
        self._file = store.file_identity(path)
        self._launch = functools.lru_cache(maxsize=LAUNCHES)(functools.partial(rows.launch, self._db))
        desk = WriteAccess(self._db, self._writing, wall, self._journal)
        self.snapshots, self.deliveries, self.conversations = Snapshots(desk), Deliveries(desk), Conversations(desk)

    def close(self) -> None:
        """Give the file back; idempotent."""
        self._db.close()

    @contextlib.contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[None]:
        store.check_same_file(self._path, self._file)
        with store.transaction(self._db, self._path, durable=durable):
            yield

    # Submissions -----------------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission, run: str) -> tuple[str, bool]:
        """Commit a run and all its tasks. Returns (run id, whether it is new): the same key twice gives the first run's id.

        Raises Refused, and writes nothing, when an unfinished task has the environment that a task of it names.
        """
        with self._writing():
            found = self._db.execute("SELECT id FROM run WHERE key = ?", (submission.key,)).fetchone()
            if found is not None:
                return str(found["id"]), False
            for environment in {task.environment for task in submission.spec.tasks if task.environment}:
                self.refuse_open(submission.project, environment)
            now = self._wall()
            self._know_project(submission.project, submission.root, submission.common_dir)
            spec, env = submission.spec, json.dumps(dict(submission.env))
            self._db.execute(
                "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (run, submission.key, submission.project, spec.title, spec.base, submission.base_oid, env, now),
            )
            self._insert_tasks(submission, run, now)
            self._journal(None, None, "submitted", {"run": run, "tasks": len(submission.spec.tasks)})
        return run, True

    def refuse_open(self, project: str, environment: str) -> None:
        """Raises Refused while an unfinished task of the project has the environment of that name."""
        found = self._db.execute(
            f"""SELECT id, state FROM task WHERE state IN ({OPEN}) AND project = ?
                AND json_extract(spec, '$.environment') = ?""",  # noqa: S608 - our own states
            (project, environment),
        ).fetchone()
        if found is not None:
            raise already_open(environment, str(found["id"]), str(found["state"]))

    def know_project(self, project: str, root: str, common_dir: str) -> None:
        """Remember where a repository is, for what is done without a run."""
        with self._writing():
            self._know_project(project, root, common_dir)

    def _know_project(self, project: str, root: str, common_dir: str) -> None:
        self._launch.cache_clear()
        self._db.execute(
            "INSERT INTO project VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET root = excluded.root",
            (project, root, common_dir, self._wall()),
        )

    def project_root(self, project: str) -> str:
        """Where somebody last worked in it. Raises NotFound for one that nobody told us of."""
        row = self._db.execute("SELECT root FROM project WHERE id = ?", (project,)).fetchone()
        if row is None:
            raise NotFound("no such project", on=project, why="nothing was ever run there")
        return str(row["root"])

    def _insert_tasks(self, submission: Submission, run: str, now: float) -> None:
        slugs: dict[str, str] = {}
        taken: set[str] = set()
        for task in submission.spec.tasks:
            slugs[task.name] = slug(task.name, taken)
            taken.add(slugs[task.name])
        self._db.executemany(
            "INSERT INTO task (id, run, project, name, title, spec, state, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (f"{run}/{slugs[task.name]}", run, submission.project, task.name, task.title, task.to_json(), TaskState.WAITING, now)
                for task in (given.submitted_at(now) for given in submission.spec.tasks)
            ],
        )
        self._db.executemany(
            "INSERT INTO dependency VALUES (?, ?)",
            [(f"{run}/{slugs[task.name]}", f"{run}/{slugs[need]}") for task in submission.spec.tasks for need in task.after],
        )

    def run_exists(self, run: str) -> bool:
        """Whether a run id is taken."""
        return self._db.execute("SELECT 1 FROM run WHERE id = ?", (run,)).fetchone() is not None

    # The crew, read back -----------------------------------------------------------------------------------------------------------

    def unfinished(self, now: float) -> tuple[Task, ...]:
        """Every unfinished task and every task that one of them comes after, as the scheduler sees them.

        `now` is monotonic. A backoff is carried over as what is left of it by the wall clock, clamped to the longest backoff there
        is, so that a changed clock cannot hold a task for ever.
        """
        found = self._db.execute(
            f"""SELECT * FROM task WHERE state IN ({OPEN})
                UNION SELECT needed.* FROM task open JOIN dependency d ON d.task = open.id
                JOIN task needed ON needed.id = d.needs WHERE open.state IN ({OPEN}) ORDER BY ord"""  # noqa: S608 - our own states
        ).fetchall()
        return self._tasks(found, now)

    def tasks_of_run(self, run: str, now: float) -> tuple[Task, ...]:
        """The tasks of one run, in order."""
        return self._tasks(self._db.execute("SELECT * FROM task WHERE run = ? ORDER BY ord", (run,)).fetchall(), now)

    def task(self, task: str, now: float) -> Task:
        """One task. Raises KeyError when there is none."""
        found = self._db.execute("SELECT * FROM task WHERE id = ?", (task,)).fetchall()
        if not found:
            raise KeyError(task)
        return self._tasks(found, now)[0]

    def revivable(self, task: str) -> list[str]:
        """`task` and every skipped task that waits for it, directly or not, needed ones first."""
        listed = self._db.execute(
            """WITH RECURSIVE below (id) AS (
                   SELECT ? UNION SELECT d.task FROM dependency d JOIN below b ON d.needs = b.id
                   JOIN task t ON t.id = d.task WHERE t.state = 'skipped')
               SELECT t.id FROM below b JOIN task t ON t.id = b.id ORDER BY t.ord""",
            (task,),
        )
        found = [str(row["id"]) for row in listed]
        return [task, *(name for name in found if name != task)]

    def _tasks(self, found: list[sqlite3.Row], now: float) -> tuple[Task, ...]:
        wall = self._wall()
        after: dict[str, dict[str, str]] = {row["id"]: {} for row in found}
        every = """SELECT d.task, d.needs, t.name FROM dependency d JOIN task t ON t.id = d.needs
                   WHERE d.task IN (SELECT value FROM json_each(?))"""
        for task, needs, name in self._db.execute(every, (json.dumps(list(after)),)):
            after[task][str(needs)] = str(name)
        asked = json.dumps(list({row["project"] for row in found}))
        known = self._db.execute("SELECT id, common_dir FROM project WHERE id IN (SELECT value FROM json_each(?))", (asked,))
        places = {str(row["id"]): str(row["common_dir"]) for row in known}
        return tuple(self._task(row, after[row["id"]], places[row["project"]], now, wall) for row in found)

    def _task(self, row: sqlite3.Row, after: Mapping[str, str], common_dir: str, now: float, wall: float) -> Task:
        """`after`: id and name of each task that it comes after."""
        spec = TaskSpec.from_json(row["spec"])
        left = min(max(0.0, row["not_before"] - wall), BACKOFF_CAP_S)
        return Task(
            id=row["id"],
            order=row["ord"],
            priority=spec.priority,
            task_class=spec.task_class,
            after=frozenset(after),
            after_any=frozenset(need for need, name in after.items() if name in spec.after_any),
            submitter=spec.submitter or common_dir.removesuffix("/.git"),
            since=now - max(0.0, wall - row["changed"]),
            start_by=spec.not_after,
            urgent_from=urgent_from(spec.deadline, spec.timeout_s),
            deadline=spec.deadline,
            any_end=spec.after_on == "finished",
            together=f"{row['run']}:{spec.together}" if spec.together else "",
            timeout_s=spec.timeout_s,
            retries=spec.retries,
            state=TaskState(row["state"]),
            epoch=row["epoch"],
            failures=row["failures"],
            losses=row["losses"],
            not_before=now + left if left else 0.0,
            cause=row["reason"] if row["epoch"] else "",
            attempt=self._open_attempt(row["id"], row["epoch"], now, bool(spec.together)) if row["state"] == TaskState.RUNNING else None,
        )

    def _open_attempt(self, task: str, epoch: int, now: float, held: bool) -> Attempt | None:
        row = self._db.execute(
            """SELECT state, stop_why, suspended IS NOT NULL AND json_extract(suspended, '$.resuming') IS NULL AS suspended
               FROM attempt WHERE task = ? AND epoch = ? AND end IS NULL""",
            (task, epoch),
        ).fetchone()
        # Held again even if it began before we came: saying `begin` twice is harmless, never saying it is not.
        return None if row is None else Attempt(epoch, AttemptState(row["state"]), now, row["stop_why"], held, bool(row["suspended"]))

    def unreleased(self) -> list[AttemptRow]:
        """Every attempt of which a process, a session or an unwritten result may be left."""
        return rows.attempts(self._db, "WHERE a.state <> 'released'")

    def attempt(self, task: str, epoch: int) -> AttemptRow | None:
        """One attempt, released or not."""
        return rows.attempt(self._db, task, epoch)

    def worktrees(self, tasks: Collection[str]) -> list[AttemptRow]:
        """Every attempt of these tasks whose worktree was made and not yet removed, oldest first."""
        asked = ", ".join("?" * len(tasks))
        which = f"JOIN task t ON t.id = a.task WHERE a.task IN ({asked}) AND a.worktree IS NOT NULL AND a.removed IS NULL"
        return rows.attempts(self._db, f"{which} ORDER BY t.ord, a.epoch", *tasks)

    def launch_row(self, task: str) -> LaunchRow:
        """What to launch; do not change it. Raises KeyError when there is no such task. Kept for a while, since every job of an attempt
        asks; all of it but the repository's root is written once."""
        return self._launch(task)

    def needs(self, task: str) -> list[dict[str, Any]]:
        """What the tasks that `task` comes after came to, in the plan's order, as `after.json` gives it to the agent."""
        return queries.needs(self._db, task)

    # Commands ------------------------------------------------------------------------------------------------------------------------

    def commit(self, commands: Iterable[Command]) -> None:
        """Write what a decision says, all of it or nothing.

        Raises StaleEpoch when a command belongs to an attempt that is no longer the task's newest, or that already has an end, or when it
        moves a task that runs or revives one that has not ended; then nothing of the batch was written. That cannot happen to one
        daemon alone; it is the fence against a second one.
        """
        batch = list(commands)
        if not batch:
            return
        with self._writing():
            for command in batch:
                self._write(command)

    def _write(self, command: Command) -> None:
        match command:
            case Start(task, epoch, cause):
                self._start(task, epoch, cause)
            case MarkRunning(task, epoch):
                self._step(task, epoch, "state = 'running', started = ?", self._wall())
            case Begin(task, epoch):
                self._journal(task, epoch, "begin", {})
            case Stop(task, epoch, why):
                self._stop(task, epoch, why)
            case Suspend(task, epoch):
                self._step(task, epoch, "suspended = json_object('at', ?)", self._wall())
                self._journal(task, epoch, "suspended", {})
            case Resume(task, epoch):
                self._step(task, epoch, "suspended = json_set(suspended, '$.resuming', 1)")
                self._journal(task, epoch, "resumed", {})
            case Collect(task, epoch, end, cause):
                self._step(task, epoch, "state = 'collecting', judged = ?, end_cause = ?", end, cause)
                self._journal(task, epoch, "tree gone", {"end": end, "cause": cause})
            case Finish():
                self._finish(command)
            case SetState(task, state, reason):
                self._set_state(task, state, reason)
            case Revive(task, cause):
                self._revive(task, cause)
            case _:
                assert_never(command)

    def _start(self, task: str, epoch: int, cause: str) -> None:
        moved = self._db.execute(
            "UPDATE task SET state = 'running', epoch = ?, reason = '', changed = ? WHERE id = ? AND epoch = ? AND state = 'ready'",
            (epoch, self._wall(), task, epoch - 1),
        )
        self._fence(moved.rowcount, task, epoch)
        self._db.execute(
            "INSERT INTO attempt (task, epoch, state, cause, created) VALUES (?, ?, 'launching', ?, ?)", (task, epoch, cause, self._wall())
        )
        self._journal(task, epoch, "start", {"cause": cause} if cause else {})

    def _stop(self, task: str, epoch: int, why: str) -> None:
        # Work that is being secured stays in that state: only the reason is new.
        self._step(task, epoch, "state = CASE state WHEN 'collecting' THEN state ELSE 'stopping' END, stop_why = ?", why)
        self._journal(task, epoch, "stopping", {"why": why})

    def _step(self, task: str, epoch: int, change: str, *values: object) -> None:
        moved = self._db.execute(
            f"""UPDATE attempt SET {change} WHERE task = ? AND epoch = ? AND end IS NULL
                AND epoch = (SELECT epoch FROM task WHERE id = attempt.task)""",  # noqa: S608 - `change` is a literal of ours
            (*values, task, epoch),
        )
        self._fence(moved.rowcount, task, epoch)

    def _finish(self, done: Finish) -> None:
        now = self._wall()
        moved = self._db.execute(
            """UPDATE attempt SET state = 'ended', end = ?, end_cause = ?, ended = coalesce(ended, ?)
               WHERE task = ? AND epoch = ? AND end IS NULL""",
            (done.end, done.cause, now, done.task, done.epoch),
        )
        self._fence(moved.rowcount, done.task, done.epoch)
        moved = self._db.execute(
            """UPDATE task SET state = ?, reason = ?, not_before = ?, changed = ?,
               failures = failures + ?, losses = losses + ? WHERE id = ? AND epoch = ? AND state = 'running'""",
            (
                done.state,
                f"{done.end}: {done.cause}" if done.cause else str(done.end),
                now + done.delay_s if done.delay_s else 0.0,
                now,
                done.end in ("failed", "timeout"),
                done.end == "lost",
                done.task,
                done.epoch,
            ),
        )
        self._fence(moved.rowcount, done.task, done.epoch)
        self._journal(done.task, done.epoch, f"end {done.end}", {"cause": done.cause, "task": done.state})

    def _set_state(self, task: str, state: TaskState, reason: str) -> None:
        # No reason leaves the one before: it is the cause of the next attempt when a retried task becomes ready.
        moved = self._db.execute(
            "UPDATE task SET state = ?, reason = coalesce(nullif(?, ''), reason), changed = ? WHERE id = ? AND state <> 'running'",
            (state, reason, self._wall(), task),
        )
        self._fence(moved.rowcount, task)
        self._journal(task, None, state, {"reason": reason} if reason else {})

    def _revive(self, task: str, cause: str) -> None:
        moved = self._db.execute(
            f"""UPDATE task SET state = 'waiting', reason = ?, failures = 0, losses = 0, not_before = 0, changed = ?,
                spec = json_set(spec, '$.not_after', 0)
                WHERE id = ? AND state NOT IN ({OPEN})""",  # noqa: S608 - our own states
            (cause, self._wall(), task),
        )
        self._fence(moved.rowcount, task)
        self._journal(task, None, "retry", {"cause": cause})

    def _fence(self, rowcount: int, task: str, epoch: int | None = None) -> None:
        if rowcount != 1:
            on = task if epoch is None else attempt_name(task, epoch)
            raise StaleEpoch("nothing written for", on=on, why="a newer attempt owns the task, or it already ended")

    # Facts of an attempt, before the decision that depends on them --------------------------------------------------------------------

    def note(self, task: str, epoch: int, *, durable: bool = False, **facts: str | int | float | None) -> None:
        """Record what became known of an attempt (column names as keywords). Not fenced: these are facts, not states.

        A power cut may undo it, but not once a later decision is on the disk; when `durable`, not once this returned.
        """
        unknown = facts.keys() - {
            "worktree", "admin_dir", "branch", "base_oid", "session_id", "pane_id", "server_pid", "rescue_oid", "result", "removed",
            "layers", "tier", "port", "suspended", "started", "ended",
        }  # fmt: skip
        if unknown:
            raise ValueError(f"no such fact: {sorted(unknown)}")
        names = ", ".join(f"{name} = ?" for name in facts)
        with self._writing(durable=durable):
            self._db.execute(f"UPDATE attempt SET {names} WHERE task = ? AND epoch = ?", (*facts.values(), task, epoch))  # noqa: S608 - checked above

    def lent(self, task: str, epoch: int, snapshot: str) -> None:
        """An attempt is about to be made from a snapshot, which nobody may remove from now on. As durable as a note."""
        with self._writing(durable=False):
            self._db.execute("UPDATE attempt SET snapshot = ? WHERE task = ? AND epoch = ?", (snapshot, task, epoch))
            self._db.execute("UPDATE snapshot SET used = ? WHERE id = ?", (self._wall(), snapshot))

    def release(self, task: str, epoch: int) -> None:
        """The session of an ended attempt is gone. Idempotent, so it need not wait for the disk: after a power cut it is done again."""
        with self._writing(durable=False):
            self._db.execute("UPDATE attempt SET state = 'released' WHERE task = ? AND epoch = ? AND end IS NOT NULL", (task, epoch))

    def journal(self, task: str | None, epoch: int | None, event: str, data: Mapping[str, object] | None = None) -> None:
        """Append one line of history."""
        with self._writing():
            self._journal(task, epoch, event, data or {})

    def _journal(self, task: str | None, epoch: int | None, event: str, data: Mapping[str, object]) -> None:
        self._db.execute(
            "INSERT INTO journal (at, task, epoch, event, data) VALUES (?, ?, ?, ?, ?)",
            (self._wall(), task, epoch, event, json.dumps(data)),
        )
