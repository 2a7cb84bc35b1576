"""Runs that ended long ago leave the ledger for `archive.db`.

A run is whole in one of the two at every moment. It is marked as leaving, and nothing of it changes any more; its rows are copied, the
row of the run last; from then on readers look at the archive (`reader`), and the rows in the ledger go. Each of these is a small
transaction of one file, and each may be done again after a kill or a power cut: what a transaction takes away is in the archive by then.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Container, Generator, Iterator, Sequence
from pathlib import Path

from supervisor.host.failpoint import failpoint
from supervisor.kernel.errors import LedgerError
from supervisor.kernel.night import NightState
from supervisor.kernel.retention import RunFacts, Thing, held, held_rows
from supervisor.store import sqlite
from supervisor.store.archive import ARCHIVE
from supervisor.store.queries import OPEN

TASKS = 50
"""Tasks of one transaction, with all that belongs to them: a few milliseconds, so that the supervisor hardly waits for one."""
ROWS = 500
"""Rows of one transaction that belong to no task."""
WEIGHED = 10
"""Runs of which one piece reads the lengths of all values."""
ENTRY = 40
"""Bytes that a row has beside its values, in its table and the indexes."""
PAGES = 512
"""Pages that one step gives back to the file system."""
OF_TASK = {
    "task": "id", "attempt": "task", "dependency": "task", "conversation": "task", "delivery": "task", "journal": "task", "lease": "task",
    "wait": "task", "verdict": "task", "review_comment": "task", "choice": "task",
}  # fmt: skip
"""Tables whose rows go with a task, and by which column."""
OF_RUN = {"run": "id", "night": "run", "token_run": "run"}
"""Tables whose rows go with a run, once all its tasks have; the run itself last."""
STAYS = frozenset(
    {
        "project",
        "snapshot",
        "need",
        "leaving",
        "mail",
        "train",
        "train_entry",
        "train_gate",
        "push_consent",
        "pull_request",
        "pull_task",
        "pull_remark",
        "access_token",
    }
)
"""Tables that stay. The archive has copies of the projects, and of what was learned by then of the kinds of its tasks."""


class Archive:
    """The door for moving. One at a time, in any one thread; the supervisor that holds the lock has it. `wall`: seconds since 1970."""

    def __init__(self, ledger: Path, archive: Path, wall: Callable[[], float]) -> None:
        """Opens both, and makes the archive when there is none. Raises LedgerError."""
        self._ledger, self._archive, self._wall = ledger, archive, wall
        sqlite.connect(archive, book=ARCHIVE, checked=False).close()
        self._db = sqlite.connect(ledger, create=False, checked=False)
        self._db.execute("PRAGMA foreign_keys=OFF")  # between two transactions a row may be in one file, and what it names in the other
        self._db.execute("ATTACH ? AS archive", (str(archive),))
        self._db.execute("PRAGMA archive.synchronous=FULL")
        self._continued: tuple[int, frozenset[str]] = (-1, frozenset())

    def close(self) -> None:
        """Idempotent."""
        self._db.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with sqlite.transaction(self._db, self._ledger):
            yield self._db

    @contextlib.contextmanager
    def _copying(self) -> Iterator[sqlite3.Connection]:
        """Write in the archive alone: the ledger's writer waits for none of this."""
        with sqlite.explained(self._archive, ARCHIVE):
            self._db.execute("BEGIN")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    # What may go ---------------------------------------------------------------------------------------------------------------------

    def oldest(self, after: int, proven: int, count: int) -> tuple[list[RunFacts], int]:
        """The next `count` runs in the order of their submission, and the number to go on `after`; 0 begins anew, and is given when these
        were the last. `proven`: how far the audit log proves the journal."""
        sql = "SELECT rowid, id FROM run WHERE rowid > ? ORDER BY rowid LIMIT ?"
        found = self._db.execute(sql, (after, count)).fetchall()
        continued = self._continued_now()
        facts = [facts_of(self._db, str(row["id"]), proven, continued) for row in found]
        return [one for one in facts if one is not None], int(found[-1]["rowid"]) if len(found) == count else 0

    def _continued_now(self) -> frozenset[str]:
        """Runs with a conversation with which an unfinished task goes on. Looked for again when there are new tasks."""
        newest = int(self._db.execute("SELECT coalesce(max(ord), 0) FROM main.task").fetchone()[0])
        if newest != self._continued[0]:
            self._continued = newest, continued(self._db)
        return self._continued[1]

    def used(self) -> int:
        """As `used`, of the ledger."""
        return used(self._db)

    def sized(self, facts: Sequence[RunFacts]) -> Generator[None, None, list[Thing]]:
        """As `sized`, of the ledger."""
        return sized(self._db, facts)

    # Moving --------------------------------------------------------------------------------------------------------------------------

    def leaving(self) -> str | None:
        """A run that is on its way; what a kill interrupted is one."""
        row = self._db.execute("SELECT run FROM main.leaving ORDER BY at LIMIT 1").fetchone()
        return None if row is None else str(row["run"])

    def mark(self, run: str, proven: int) -> bool:
        """From now on nothing of the run changes, and `move` takes it away. False when something needs it by now. Raises LedgerError, and
        writes nothing, when the archive has other rows by its numbers: then it belongs to another ledger."""
        with self._writing() as db:
            facts = facts_of(db, run, proven, self._continued_now())
            if facts is None or held_rows(facts):
                return False
            for sql in _TAKEN:
                if db.execute(sql, (run,)).fetchone() is not None:
                    why = "it has other rows by the same numbers: it belongs to another ledger"
                    raise LedgerError("cannot archive", on=run, why=why, kept="both as they were", hint=f"move {self._archive} elsewhere")
            now = self._wall()
            db.execute("INSERT INTO main.leaving VALUES (?, ?)", (run, now))
            db.execute(
                "INSERT INTO main.journal (at, task, epoch, event, data) VALUES (?, NULL, NULL, 'archived', ?)",
                (now, json.dumps({"run": run, "tasks": facts.tasks})),
            )
        failpoint("archive.marked")
        return True

    def move(self, run: str) -> bool:
        """One small step of a marked run; whether there is more to do."""
        if self._is_copied(run):
            return self._remove(run)
        if self._copy(run) and not self._is_copied(run):
            raise sqlite.damaged(self._archive, "a row that was written is not found", ARCHIVE)
        return True

    def _is_copied(self, run: str) -> bool:
        return self._db.execute("SELECT 1 FROM archive.run WHERE id = ?", (run,)).fetchone() is not None

    def _copy(self, run: str) -> bool:
        """Whether the run is whole with this."""
        last = self._db.execute("SELECT coalesce(max(ord), 0) FROM archive.task WHERE run = ?", (run,)).fetchone()[0]
        with self._copying() as db:
            tasks = self._next(run, int(last))
            for table, column in OF_TASK.items():
                db.execute(f"INSERT INTO archive.{table} SELECT * FROM main.{table} WHERE {column} {_AMONG}", (tasks,))  # noqa: S608 - ours
            if tasks == "[]":
                db.execute(_PROJECT, (run,))
                db.execute(_NEED, (run,))
                for table, column in reversed(OF_RUN.items()):
                    db.execute(f"INSERT INTO archive.{table} SELECT * FROM main.{table} WHERE {column} = ?", (run,))  # noqa: S608 - ours
        failpoint("archive.copied")
        return tasks == "[]"

    def _remove(self, run: str) -> bool:
        with self._writing() as db:
            tasks = self._next(run, 0)
            for table, column in reversed(OF_TASK.items()):
                db.execute(f"DELETE FROM main.{table} WHERE {column} {_AMONG}", (tasks,))  # noqa: S608 - ours
            if tasks == "[]":
                db.execute("DELETE FROM main.leaving WHERE run = ?", (run,))
                for table, column in reversed(OF_RUN.items()):
                    db.execute(f"DELETE FROM main.{table} WHERE {column} = ?", (run,))  # noqa: S608 - ours
        failpoint("archive.removed")
        return tasks != "[]"

    def _next(self, run: str, after: int) -> str:
        sql = "SELECT id FROM main.task WHERE run = ? AND ord > ? ORDER BY ord LIMIT ?"
        return json.dumps([str(row["id"]) for row in self._db.execute(sql, (run, after, TASKS))])

    # What belongs to no task -----------------------------------------------------------------------------------------------------------

    def move_rest(self, before: float, proven: int) -> bool:
        """Move the next rows of the journal that belong to no task and are older than `before` and than every run that is left; whether
        there may be more. The newest row of all stays, so that no number is given twice."""
        oldest = self._db.execute("SELECT created FROM main.run WHERE rowid = (SELECT min(rowid) FROM main.run)").fetchone()
        until = min(before, oldest["created"] if oldest is not None else before)
        found = self._db.execute(_REST, {"until": until, "proven": proven, "most": ROWS}).fetchall()
        numbers = json.dumps([row["seq"] for row in found])
        if found:
            with self._copying() as db:
                db.execute(f"INSERT OR IGNORE INTO archive.journal SELECT * FROM main.journal WHERE seq {_AMONG}", (numbers,))  # noqa: S608
            failpoint("archive.rest-copied")
            with self._writing() as db:
                db.execute(_REST_GONE, (numbers,))
        return len(found) == ROWS

    def shrink(self) -> bool:
        """Give some pages that hold nothing back to the file system; whether there are more. Nothing of a ledger that was made before this
        was possible: its pages are used again."""
        if int(self._db.execute("PRAGMA main.auto_vacuum").fetchone()[0]) != _INCREMENTAL:
            return False
        with sqlite.explained(self._ledger):
            self._db.executescript(f"PRAGMA main.incremental_vacuum({PAGES})")  # `execute` steps once, which is one page
        return int(self._db.execute("PRAGMA main.freelist_count").fetchone()[0]) > 0


def continued(db: sqlite3.Connection) -> frozenset[str]:
    """Runs with a conversation with which an unfinished task goes on."""
    return frozenset(str(name).partition("/")[0] for (name,) in db.execute(_CONTINUED) if name)


def used(db: sqlite3.Connection) -> int:
    """Bytes of the ledger that hold rows."""
    pages, free, size = (int(db.execute(f"PRAGMA main.{name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size"))
    return (pages - free) * size


def sized(db: sqlite3.Connection, facts: Sequence[RunFacts]) -> Generator[None, None, list[Thing]]:
    """Each of these runs, which are all of the ledger, with its share of what the rows take; a piece of the work before each yield. An
    estimate: by the lengths of its values, and the pages that tables and indexes have without any row belong to none."""
    columns = {
        table: " + ".join([str(ENTRY), *(f"coalesce(length({row['name']}), 0)" for row in db.execute(f"PRAGMA main.table_info({table})"))])
        for table in (*OF_TASK, *OF_RUN)
    }
    of_tasks = [f"SELECT total({columns[table]}) FROM main.{table} WHERE {column} {_OF_THE_RUN}" for table, column in OF_TASK.items()]  # noqa: S608
    of_run = [f"SELECT total({columns[table]}) FROM main.{table} WHERE {column} = :run" for table, column in OF_RUN.items()]  # noqa: S608
    sql = f"SELECT {' + '.join(f'({one})' for one in (*of_tasks, *of_run))}"
    weights = []
    for one in facts:
        weights.append(db.execute(sql, {"run": one.run}).fetchone()[0])
        if len(weights) % WEIGHED == 0:
            yield None
    rest = db.execute(f"SELECT total({columns['journal']}) FROM main.journal WHERE task IS NULL").fetchone()[0]  # noqa: S608 - ours
    empty = db.execute("SELECT (1 + count(*)) FROM main.sqlite_schema WHERE rootpage > 0").fetchone()[0]
    share = max(0, used(db) - empty * db.execute("PRAGMA main.page_size").fetchone()[0]) / max(1, sum(weights) + rest)
    return [Thing(one.run, one.ended, int(weight * share), held(one)) for one, weight in zip(facts, weights, strict=True)]


def facts_of(db: sqlite3.Connection, run: str, proven: int, continued: Container[str]) -> RunFacts | None:
    """What decides whether a run of the ledger may go; None when it has none of that id. `continued`: runs with a conversation with which
    an unfinished task goes on."""
    row = db.execute(_FACTS, {"run": run, "proven": proven}).fetchone()
    if row is None:
        return None
    shape = {name: row[name] for name in ("ended", "tasks", "unfinished", "unreleased", "worktrees")}
    return RunFacts(run, **shape, awaited=_awaited(db, run, continued), newest=bool(row["newest"]), proven=bool(row["proven"]))


def _awaited(db: sqlite3.Connection, run: str, continued: Container[str]) -> str:
    if run in continued:
        return "an unfinished task goes on with a conversation of it"
    for sql, why in _AWAITED:
        found = db.execute(sql, {"run": run}).fetchone()
        if found is not None:
            return f"{found[0]} {why}"
    return ""


_INCREMENTAL = 2
_AMONG = "IN (SELECT value FROM json_each(?))"
_OF_THE_RUN = "IN (SELECT id FROM main.task WHERE run = :run)"
_FACTS = f"""
    SELECT (SELECT coalesce(max(changed), r.created) FROM task WHERE run = r.id) AS ended,
           (SELECT count(*) FROM task WHERE run = r.id) AS tasks,
           (SELECT count(*) FROM task WHERE run = r.id AND state IN ({OPEN})) AS unfinished,
           (SELECT count(*) FROM task t JOIN attempt a ON a.task = t.id WHERE t.run = r.id AND a.state <> 'released') +
           (SELECT count(*) FROM task t JOIN delivery d ON d.task = t.id
            WHERE t.run = r.id AND d.state IN ('pending', 'typing')) AS unreleased,
           (SELECT count(*) FROM task t JOIN attempt a ON a.task = t.id
            WHERE t.run = r.id AND a.worktree IS NOT NULL AND a.removed IS NULL) AS worktrees,
           r.rowid = (SELECT max(rowid) FROM run) OR EXISTS
           (SELECT 1 FROM delivery d JOIN task t ON t.id = d.task WHERE d.id = (SELECT max(id) FROM delivery) AND t.run = r.id) AS newest,
           NOT EXISTS (SELECT 1 FROM task t JOIN journal j ON j.task = t.id WHERE t.run = r.id AND j.seq > :proven) AS proven
    FROM run r WHERE r.id = :run
"""  # noqa: S608 - our own states
_AWAITED = (
    (
        """SELECT o.id FROM task t JOIN dependency d ON d.needs = t.id JOIN task o ON o.id = d.task
           WHERE t.run = :run AND o.run <> :run LIMIT 1""",
        "comes after one of its tasks",
    ),
    (
        f"""SELECT p.id FROM task t JOIN task p ON p.id = json_extract(t.spec, '$.parent')
            WHERE t.run = :run AND p.state IN ({OPEN}) LIMIT 1""",  # noqa: S608 - our own states
        "added it, and has not ended",
    ),
    (
        f"SELECT n.run FROM run r JOIN night n ON n.run = r.night WHERE r.id = :run AND n.state <> '{NightState.ENDED}'",  # noqa: S608 - ours
        "is its night, and not over",
    ),
)
_CONTINUED = f"SELECT DISTINCT json_extract(spec, '$.continue_from') FROM main.task WHERE state IN ({OPEN})"  # noqa: S608 - our own states
_PROJECT = "INSERT OR REPLACE INTO archive.project SELECT p.* FROM main.project p JOIN main.run r ON r.project = p.id WHERE r.id = ?"
_NEED = """INSERT OR REPLACE INTO archive.need SELECT * FROM main.need
    WHERE kind IN (SELECT json_extract(spec, '$.kind') FROM main.task WHERE run = ?)"""
_TAKEN = (
    "SELECT 1 FROM archive.run WHERE id = ?",
    "SELECT 1 FROM main.task t JOIN archive.task a ON a.ord = t.ord WHERE t.run = ? LIMIT 1",
    "SELECT 1 FROM main.task t JOIN main.journal j ON j.task = t.id JOIN archive.journal a ON a.seq = j.seq WHERE t.run = ? LIMIT 1",
)
"""Finds what would be in the way in the archive of a run that was not begun yet."""
_REST = """
    SELECT seq FROM main.journal INDEXED BY journal_task WHERE task IS NULL AND at < :until AND seq <= :proven
    AND seq < (SELECT max(seq) FROM main.journal) ORDER BY seq LIMIT :most
"""
_REST_GONE = """
    DELETE FROM main.journal WHERE seq IN (SELECT value FROM json_each(?))
    AND EXISTS (SELECT 1 FROM archive.journal a WHERE a.seq = journal.seq AND a.at = journal.at AND a.event = journal.event)
"""
