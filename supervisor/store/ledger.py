"""Everything the supervisor writes into the ledger."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar, assert_never, cast

from supervisor import contract
from supervisor.contract import Tables
from supervisor.kernel import codec
from supervisor.kernel.crew import Attempt, PauseState, Task, note, urgent_from
from supervisor.kernel.decision import (
    Begin,
    Choose,
    Collect,
    Command,
    Compare,
    Finish,
    LookForNote,
    MarkRunning,
    MoveNight,
    Pause,
    Resume,
    Revive,
    SetState,
    Start,
    Stop,
)
from supervisor.kernel.errors import HostError, NightcrewError, NotFound, StaleEpoch
from supervisor.kernel.leases import HOLDS_S
from supervisor.kernel.names import attempt_name, slug
from supervisor.kernel.retry import BACKOFF_CAP_S, Tally
from supervisor.kernel.spec import Submission, TaskSpec, already_open
from supervisor.kernel.states import NEEDS_YOU, AttemptState, TaskState, Until
from supervisor.store import queries, rows, sqlite
from supervisor.store.archive import Known, archived
from supervisor.store.conversations import Conversations, Deliveries, Needs
from supervisor.store.queries import OPEN
from supervisor.store.rows import AttemptRow, LaunchRow
from supervisor.store.sqlite import WriteAccess

# Submitted tasks
# ---------------
# The rows of the tasks of a run that is handed over.


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
            (ids[task.name], run, submission.project, task.name, task.title, codec.dumps(task), TaskState.WAITING, now)
            for task in submission.spec.tasks
        ],
    )
    db.executemany(
        "INSERT INTO dependency VALUES (?, ?)",
        [(ids[task.name], ids.get(need, need)) for task in submission.spec.tasks for need in task.after],
    )


# Command writer
# --------------
# How each command of a decision is written. Those of an attempt are fenced by its epoch: a stale one writes nothing.


_PAUSED = """paused = json_set(CASE WHEN paused IS NULL OR json_extract(paused, '$.resuming') IS NOT NULL
    THEN json_object('at', ?) ELSE paused END, '$.until', ?, '$.for', ?)"""
"""What a pause found is kept while it lasts, whatever it waits for."""


def _why_paused(until: Until, made_for: str) -> str:
    if made_for:
        return f"makes room for {made_for}"
    return "a person paused it" if until is Until.PERSON else "a person resumed it, and no slot is free"


class CommandWriter:
    """Writes commands into the ledger; `Ledger.commit` owns the transaction."""

    def __init__(self, desk: WriteAccess, tables: Iterable[Tables]) -> None:
        self._desk = desk
        self._tables = [each for each in tables if type(each).decided is not Tables.decided]

    def write(self, command: Command) -> None:
        """Write one command inside the open transaction. Raises StaleEpoch as `Ledger.commit` says."""
        match command:
            case Start(task, epoch, cause):
                self._start(task, epoch, cause)
            case MarkRunning(task, epoch):
                self._step(task, epoch, "state = 'running', started = ?", self._desk.wall())
            case Begin(task, epoch):
                self._desk.journal(task, epoch, "begin", {})
            case Stop(task, epoch, why):
                self._stop(task, epoch, why)
            case Pause():
                self._pause(command)
            case Resume(task, epoch):
                self._step(task, epoch, "paused = json_set(paused, '$.resuming', 1)")
                self._desk.journal(task, epoch, "resumed", {})
            case Collect(task, epoch, end, cause):
                self._step(task, epoch, "state = 'collecting', judged = ?, end_cause = ?", end, cause)
                self._desk.journal(task, epoch, "tree gone", {"end": end, "cause": cause})
            case Finish():
                self._finish(command)
            case SetState(task, state, reason):
                self._set_state(task, state, reason)
            case Revive(task, cause):
                self._revive(task, cause)
            case MoveNight() | Choose() | LookForNote() | Compare():
                pass
            case _:
                assert_never(command)
        for tables in self._tables:
            tables.decided(command)

    def _start(self, task: str, epoch: int, cause: str) -> None:
        moved = self._desk.db.execute(
            "UPDATE task SET state = 'running', epoch = ?, reason = '', changed = ? WHERE id = ? AND epoch = ? AND state = 'ready'",
            (epoch, self._desk.wall(), task, epoch - 1),
        )
        self._fence(moved.rowcount, task, epoch)
        self._desk.db.execute(
            "INSERT INTO attempt (task, epoch, state, cause, created) VALUES (?, ?, 'launching', ?, ?)",
            (task, epoch, cause, self._desk.wall()),
        )
        spec = self._digest("spec", "SELECT spec FROM task WHERE id = ?", task)
        self._desk.journal(task, epoch, "start", {**({"cause": cause} if cause else {}), **spec})

    def _pause(self, asked: Pause) -> None:
        task, epoch, question = asked.task, asked.epoch, asked.question
        self._step(task, epoch, _PAUSED, self._desk.wall(), asked.until, asked.made_for)
        why = f"{NEEDS_YOU}{question}" if question else _why_paused(asked.until, asked.made_for)
        self._desk.journal(task, epoch, "paused", {"until": asked.until, "why": why})
        if question:
            self._step(task, epoch, "paused = json_set(paused, '$.question', ?)", question)
            self._desk.journal(task, epoch, "set aside", {"question": question})

    def _stop(self, task: str, epoch: int, why: str) -> None:
        # Work that is being secured stays in that state: only the reason is new.
        self._step(task, epoch, "state = CASE state WHEN 'collecting' THEN state ELSE 'stopping' END, stop_why = ?", why)
        self._desk.journal(task, epoch, "stopping", {"why": why})

    def _step(self, task: str, epoch: int, change: str, *values: object) -> None:
        moved = self._desk.db.execute(
            f"""UPDATE attempt SET {change} WHERE task = ? AND epoch = ? AND end IS NULL
                AND epoch = (SELECT epoch FROM task WHERE id = attempt.task)""",  # noqa: S608 - `change` is a literal of ours
            (*values, task, epoch),
        )
        self._fence(moved.rowcount, task, epoch)

    def _finish(self, done: Finish) -> None:
        now = self._desk.wall()
        moved = self._desk.db.execute(
            """UPDATE attempt SET state = 'ended', end = ?, end_cause = ?, ended = coalesce(ended, ?)
               WHERE task = ? AND epoch = ? AND end IS NULL""",
            (done.end, done.cause, now, done.task, done.epoch),
        )
        self._fence(moved.rowcount, done.task, done.epoch)
        moved = self._desk.db.execute(
            """UPDATE task SET state = ?, reason = ?, not_before = ?, changed = ?,
               failures = ?, gates = ?, restarts = ? WHERE id = ? AND epoch = ? AND state = 'running'""",
            (
                done.state,
                done.reason or (f"{done.end}: {done.cause}" if done.cause else str(done.end)),
                now + done.delay_s if done.delay_s else 0.0,
                now,
                done.tally.failures,
                done.tally.gates,
                json.dumps(done.tally.restarts),
                done.task,
                done.epoch,
            ),
        )
        self._fence(moved.rowcount, done.task, done.epoch)
        result = self._digest("result", "SELECT result FROM attempt WHERE task = ? AND epoch = ?", done.task, done.epoch)
        self._desk.journal(done.task, done.epoch, f"end {done.end}", {"cause": done.cause, "task": done.state, **result})
        if done.question:
            self._desk.journal(done.task, done.epoch, "set aside", {"question": done.question})

    def _set_state(self, task: str, state: TaskState, reason: str) -> None:
        # No reason leaves the one before: it is the cause of the next attempt when a retried task becomes ready.
        moved = self._desk.db.execute(
            "UPDATE task SET state = ?, reason = coalesce(nullif(?, ''), reason), changed = ? WHERE id = ? AND state <> 'running'",
            (state, reason, self._desk.wall(), task),
        )
        self._fence(moved.rowcount, task)
        self._desk.journal(task, None, state, {"reason": reason} if reason else {})

    def _revive(self, task: str, cause: str) -> None:
        moved = self._desk.db.execute(
            f"""UPDATE task SET state = 'waiting', reason = ?, failures = 0, gates = 0, restarts = '[]', not_before = 0, changed = ?,
                spec = json_set(spec, '$.not_after', 0)
                WHERE id = ? AND state NOT IN ({OPEN}) AND run NOT IN (SELECT run FROM leaving)""",  # noqa: S608 - our own states
            (cause, self._desk.wall(), task),
        )
        self._fence(moved.rowcount, task)
        self._desk.journal(task, None, "retry", {"cause": cause})

    def _digest(self, name: str, sql: str, *which: object) -> dict[str, str]:
        """SHA-256 of a text of the ledger, so that what proves the journal proves it as well; nothing when there is none."""
        text = self._desk.db.execute(sql, which).fetchone()[0]
        return {} if text is None else {f"{name}_sha256": hashlib.sha256(str(text).encode()).hexdigest()}

    def _fence(self, rowcount: int, task: str, epoch: int | None = None) -> None:
        if rowcount != 1:
            on = task if epoch is None else attempt_name(task, epoch)
            raise StaleEpoch("nothing written for", on=on, why="a newer attempt owns the task, or it already ended")


# Ledger
# ------
# Everything the daemon writes: submissions, and the commands of `decide`, each fenced by its epoch.
#
# A batch of commands is one transaction: what a decision said is on disk whole or not at all, and it is on disk before any of it is
# acted upon.


T = TypeVar("T", bound=Tables)
Settle = Callable[[Submission], Submission]
"""Check a submission against what is committed by then, and complete it. Raises NightcrewError to refuse it."""
LAUNCHES = 512
"""Launch rows that are kept: more than live at once."""


class Ledger:
    """The writer's door. Not thread safe: it belongs to one thread of one process."""

    def __init__(self, path: Path, wall: Callable[[], float], *, create: bool = True) -> None:
        """Raises LedgerError as `store.connect` does. `wall` gives seconds since 1970."""
        self._path = path
        self._wall = wall
        self._db = sqlite.connect(path, create=create)
        self._archive = Known(path.with_name(sqlite.ARCHIVE_NAME))
        self._file = sqlite.file_identity(path)
        self._launch = functools.lru_cache(maxsize=LAUNCHES)(functools.partial(rows.launch, self._db))
        self._desk = desk = WriteAccess(self._db, self._writing, wall, self._journal)
        self._tables = {kind: kind(desk) for kind in contract.tables()}
        self.deliveries = Deliveries(desk, self._tables.values())
        self.conversations, self.needs = Conversations(desk), Needs(desk)
        self._commands = CommandWriter(desk, self._tables.values())

    def of(self, kind: type[T]) -> T:
        """Return what writes the tables of a feature, by its class. Raises KeyError for a class that no feature names."""
        return cast(T, self._tables[kind])

    def close(self) -> None:
        """Give the files back; idempotent."""
        self._archive.close()
        self._db.close()

    @contextlib.contextmanager
    def _writing(self, *, durable: bool = True, accepts: bool = False) -> Iterator[None]:
        sqlite.check_same_file(self._path, self._file)
        with sqlite.transaction(self._db, self._path, durable=durable, accepts=accepts):
            yield

    # Submissions -----------------------------------------------------------------------------------------------------------------

    def submit(self, submission: Submission, run: str) -> tuple[str, bool]:
        """Commit a run and all its tasks, every moment in them as seconds since 1970. Returns (run id, whether it is new): the same key
        twice gives the first run's id.

        Raises Refused, and writes nothing, when an unfinished task has the environment that a task of it names, or one of the comments
        or remarks that it holds was sent meanwhile; KeyTaken, TokenRefused and BudgetSpent for what a token may not.
        """
        (made,) = self.submit_all([(submission, run)])
        if isinstance(made, NightcrewError):
            raise made
        return made

    def submit_all(
        self, given: Iterable[tuple[Submission, str]], settle: Mapping[str, Settle] | None = None
    ) -> list[tuple[str, bool] | NightcrewError]:
        """The same for several in one commit. What `submit` would refuse is returned, and keeps back no other; raises LedgerError and
        DiskFull with nothing written.

        `settle`, by run: called inside the transaction, after the submissions before it were written, so that a limit over several
        submissions holds however many are under way.
        """
        with self._writing(accepts=True):
            return [self._apart(submission, run, (settle or {}).get(run)) for submission, run in given]

    def _apart(self, submission: Submission, run: str, settle: Settle | None) -> tuple[str, bool] | NightcrewError:
        """One of them: whole, or nothing of it."""
        self._db.execute("SAVEPOINT submission")
        try:
            made: tuple[str, bool] | NightcrewError = self._submit(submission, run, settle)
        except HostError:
            raise
        except NightcrewError as error:
            self._db.execute("ROLLBACK TO submission")
            made = error
        self._db.execute("RELEASE submission")
        return made

    def _submit(self, submission: Submission, run: str, settle: Settle | None) -> tuple[str, bool]:
        if (found := self._run_of_key(submission.key)) is not None:
            if submission.token:
                queries.refuse_another(found, submission.digest, queries.digest_of(self._db, found) or self._archive.digest_of(found))
            return found, False
        if settle is not None:
            submission = settle(submission)
        named = [name for task in submission.spec.tasks for name in (*task.after, task.continue_from)]
        self.refuse_leaving([name for name in named if "/" in name])
        for environment in {task.environment for task in submission.spec.tasks if task.environment}:
            self.refuse_open(submission.project, environment)
        now = self._wall()
        self._know_project(submission.project, submission.root, submission.common_dir)
        spec, env = submission.spec, json.dumps(dict(submission.env))
        self._db.execute(
            "INSERT INTO run (id, key, project, title, base, base_oid, env, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (run, submission.key, submission.project, spec.title, spec.base, submission.base_oid, env, now),
        )
        insert(self._db, submission, run, now)
        (first,) = self._db.execute("SELECT id FROM task WHERE run = ? ORDER BY ord LIMIT 1", (run,)).fetchone()
        for tables in self._tables.values():
            tables.submitted(run, submission, str(first))
        self._journal(None, None, "submitted", {"run": run, "tasks": len(submission.spec.tasks)})
        for name, task in zip(self.names_of_run(run), spec.tasks, strict=True) if any(task.parent for task in spec.tasks) else ():
            self._journal(name, None, "added by an agent", {"by": f"{task.parent}:{task.parent_epoch}"})
        return run, True

    def key_is_known(self, key: str) -> bool:
        """Whether a run was submitted with it."""
        return self._run_of_key(key) is not None

    def _run_of_key(self, key: str) -> str | None:
        found = self._db.execute("SELECT id FROM run WHERE key = ?", (key,)).fetchone()
        return str(found["id"]) if found is not None else self._archive.run_of_key(key)

    def refuse_leaving(self, tasks: Iterable[str]) -> None:
        """Raises Refused when one of these tasks, by its full id, is on its way to the archive, or there: nothing begins with it again."""
        for task in tasks:
            run = task.partition("/")[0]
            leaves = self._db.execute("SELECT 1 FROM leaving WHERE run = ?", (run,)).fetchone() is not None
            if leaves or (self._db.execute("SELECT 1 FROM run WHERE id = ?", (run,)).fetchone() is None and self._archive.has_run(run)):
                raise archived(task)

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

    def run_exists(self, run: str) -> bool:
        """Whether a run id is taken, also by an archived run."""
        return self._db.execute("SELECT 1 FROM run WHERE id = ?", (run,)).fetchone() is not None or self._archive.has_run(run)

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

    def tasks_of_run(self, run: str, now: float, specs: Iterable[TaskSpec] = ()) -> tuple[Task, ...]:
        """The tasks of one run, in order. `specs`: those of them that the caller has in memory, which are not read again."""
        known = {spec.name: spec for spec in specs}
        return self._tasks(self._db.execute("SELECT * FROM task WHERE run = ? ORDER BY ord", (run,)).fetchall(), now, known)

    def names_of_run(self, run: str) -> list[str]:
        """The full ids of the tasks of one run, in order, also of an archived one."""
        kept = self._archive.tasks_of_run(run)  # first: of a run on its way some may be gone from here
        return kept or [str(row["id"]) for row in self._db.execute("SELECT id FROM task WHERE run = ? ORDER BY ord", (run,))]

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

    def _tasks(self, found: list[sqlite3.Row], now: float, specs: Mapping[str, TaskSpec] | None = None) -> tuple[Task, ...]:
        """`specs`: those that are known, by the task's name."""
        specs, clocks = specs or {}, (now, self._wall())
        after: dict[str, dict[str, str]] = {row["id"]: {} for row in found}
        every = """SELECT d.task, d.needs, t.name FROM dependency d JOIN task t ON t.id = d.needs
                   WHERE d.task IN (SELECT value FROM json_each(?))"""
        for task, needs, name in self._db.execute(every, (json.dumps(list(after)),)):
            after[task][str(needs)] = str(name)
        asked = json.dumps(list({row["project"] for row in found}))
        known = self._db.execute("SELECT id, common_dir FROM project WHERE id IN (SELECT value FROM json_each(?))", (asked,))
        places = {str(row["id"]): str(row["common_dir"]) for row in known}
        of_nights = queries.nights_of_runs(self._db, {row["run"] for row in found})
        read = ((row, specs.get(row["name"]) or codec.loads(TaskSpec, row["spec"])) for row in found)
        return tuple(
            self._task(row, spec, after[row["id"]], (places[row["project"]], of_nights.get(row["run"], "")), clocks) for row, spec in read
        )

    def _task(
        self, row: sqlite3.Row, spec: TaskSpec, after: Mapping[str, str], whose: tuple[str, str], clocks: tuple[float, float]
    ) -> Task:
        """`after`: id and name of each task that it comes after; `whose`: its repository and its night; `clocks`: monotonic and wall-clock
        seconds."""
        (now, wall), (common_dir, night) = clocks, whose
        parked = row["state"] == TaskState.PARKED
        left = 0.0 if parked else min(max(0.0, row["not_before"] - wall), BACKOFF_CAP_S)
        return Task(
            id=row["id"],
            order=row["ord"],
            priority=spec.priority,
            preempt=spec.preempt,
            task_class=spec.task_class,
            kind=spec.kind,
            has_command=bool(spec.argv),
            after=frozenset(after),
            after_notes=frozenset(note(row["project"], path) for path in spec.after_memory),
            after_any=frozenset(need for need, name in after.items() if name in spec.after_any),
            submitter=spec.submitter or common_dir.removesuffix("/.git"),
            since=now - max(0.0, wall - row["changed"]),
            start_by=spec.not_after,
            urgent_from=urgent_from(spec.deadline, spec.urgent_s),
            deadline=spec.deadline,
            any_end=spec.after_on == "finished",
            together=f"{row['run']}:{spec.together}" if spec.together else "",
            timeout_s=spec.longest_s,
            retries=spec.retries,
            state=TaskState(row["state"]),
            epoch=row["epoch"],
            tally=Tally(row["failures"], row["gates"], tuple(json.loads(row["restarts"]))),
            not_before=now + left if left else 0.0,
            unpark_at=row["not_before"] if parked else 0.0,
            cause=row["reason"] if row["epoch"] else "",
            parent=spec.parent,
            candidates=frozenset(need for need, name in after.items() if name in spec.candidates),
            decide=spec.decide,
            project=row["project"],
            paths=spec.paths,
            night=night,
            attempt=self._open_attempt(row["id"], row["epoch"], now, bool(spec.together)) if row["state"] == TaskState.RUNNING else None,
        )

    def _open_attempt(self, task: str, epoch: int, now: float, held: bool) -> Attempt | None:
        row = self._db.execute(
            "SELECT state, stop_why, paused FROM attempt WHERE task = ? AND epoch = ? AND end IS NULL", (task, epoch)
        ).fetchone()
        # Held again even if it began before we came: saying `begin` twice is harmless, never saying it is not.
        if row is None:
            return None
        paused = self._pause(row["paused"], now, held) if row["paused"] is not None else None
        return Attempt(
            epoch,
            AttemptState(row["state"]),
            now,
            row["stop_why"],
            held,
            paused,
            leases=queries.leased(self._db, task, epoch, self._wall() - HOLDS_S),
        )

    def _pause(self, text: str, now: float, held: bool) -> PauseState | None:
        shape = json.loads(text)
        if "resuming" in shape:
            return None
        since = now - max(0.0, self._wall() - shape["at"])
        until, still = Until(shape.get("until", Until.PERSON)), "held" in shape and not held
        return PauseState(until, since, still, shape.get("for", ""), shape.get("question", ""))

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

    @property
    def db(self) -> sqlite3.Connection:  # for `queries`, which only read
        return self._db

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
                self._commands.write(command)

    # Facts of an attempt, before the decision that depends on them --------------------------------------------------------------------

    def note(self, task: str, epoch: int, *, durable: bool = False, **facts: str | int | float | None) -> None:
        """Record what became known of an attempt (column names as keywords). Not fenced: these are facts, not states.

        A power cut may undo it, but not once a later decision is on the disk; when `durable`, not once this returned.
        """
        unknown = facts.keys() - {
            "worktree", "admin_dir", "branch", "base_oid", "session_id", "pane_id", "server_pid", "rescue_oid", "result", "removed",
            "layers", "tier", "port", "paused", "started", "ended", "account",
        }  # fmt: skip
        if unknown:
            raise ValueError(f"no such fact: {sorted(unknown)}")
        names = ", ".join(f"{name} = ?" for name in facts)
        with self._writing(durable=durable):
            self._db.execute(f"UPDATE attempt SET {names} WHERE task = ? AND epoch = ?", (*facts.values(), task, epoch))  # noqa: S608 - checked above

    def measured(self, accounts: Mapping[tuple[str, int], str]) -> None:
        """What living attempts take, as `core.account.Measured.to_json`: one transaction, as durable as a note. An attempt that has its
        result by now keeps its own."""
        with self._writing(durable=False):
            self._db.executemany(
                "UPDATE attempt SET account = ? WHERE task = ? AND epoch = ? AND result IS NULL",
                [(account, *key) for key, account in accounts.items()],
            )

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
