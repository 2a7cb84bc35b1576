"""What tasks took before: of the same name first, and nothing of what was only tried out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.store import journal, sqlite
from supervisor.store.journal import Taken


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite.connect(tmp_path / "ledger.db")) as found:
        found.execute("INSERT INTO project VALUES ('p', '/r', '/r/.git', 0)")
        found.execute(
            "INSERT INTO run (id, key, project, title, base, base_oid, env, created) VALUES ('r', 'k', 'p', 't', 'HEAD', 'o', '{}', 0)"
        )
        yield found


def done(db: sqlite3.Connection, name: str, seconds: float, cost: float | None, *, state: str = "done", **spec: object) -> None:
    """A task of one attempt."""
    number = db.execute("SELECT count(*) FROM task").fetchone()[0] + 1
    text = json.dumps({"kind": "claude", "submitter": "", **spec})
    db.execute(
        "INSERT INTO task (ord, id, run, project, name, title, spec, state, epoch, changed) VALUES (?, ?, 'r', 'p', ?, '', ?, ?, 1, 0)",
        (number, f"r/{number}", name, text, state),
    )
    db.execute(
        "INSERT INTO attempt (task, epoch, state, created, started, ended, result) VALUES (?, 1, 'released', 0, 100, ?, ?)",
        (f"r/{number}", 100 + seconds, json.dumps({"cost_usd": cost})),
    )


def test_only_tasks_of_the_kind_that_are_done_and_were_real_count(db: sqlite3.Connection) -> None:
    done(db, "a", 10, 0.5)
    done(db, "b", 20, None)
    done(db, "a", 99, 9.9, state="failed")
    done(db, "a", 98, 9.8, kind="codex")
    done(db, "gate-1", 97, 0.0, submitter=journal.TRIED_OUT)
    assert journal.of_kind(db, "claude") == [Taken(20, None), Taken(10, 0.5)]
    assert journal.history_of_task(db, "p", "a", "claude") == [Taken(10, 0.5)]
    assert journal.history_of_task(db, "other", "a", "claude") == []


def test_an_old_history_is_not_read_whole(db: sqlite3.Connection) -> None:
    for number in range(journal.NEWEST + 5):
        done(db, "a", number, 0.0)
    found = journal.of_kind(db, "claude")
    assert len(found) == journal.NEWEST and found[0].seconds == journal.NEWEST + 4
