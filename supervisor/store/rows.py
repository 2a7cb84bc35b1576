"""What the ledger holds of attempts and launches, read back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.kernel import codec
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import AttemptState


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """What the ledger holds of one attempt that is not released. Paths are None until they are known."""

    task: str
    epoch: int
    state: AttemptState
    cause: str
    stop_why: str
    end: str | None
    judged: str | None
    end_cause: str
    created: float
    started: float | None
    worktree: str | None
    admin_dir: str | None
    branch: str | None
    base_oid: str | None
    session_id: str | None
    pane_id: str | None
    server_pid: int | None
    snapshot: str | None = None
    layers: str | None = None
    """JSON of the backend that made its environment: enough to open it when no mount is left. None: a plain worktree."""
    tier: int | None = None
    """The isolation tier that it was started in."""
    port: int | None = None
    """First port of the block that it has until it is released."""
    ended: float | None = None
    """When its life was over, as far as that is known: securing its work is no part of it."""
    paused: str | None = None
    """JSON object with `at` (wall clock), `until` (`core.states.Until`), `for` (the task that gets its slot), and once it stands still
    `held`, `moving` and `before` (see `host.freezing.Frozen`); with `resuming` it is about to go on. None: it goes on."""
    account: str | None = None
    """JSON of `core.account.Measured` while it lives, of `account.closed` once it has ended; None: nobody looked yet."""


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """What a launch needs to know of a task."""

    spec: TaskSpec
    run: str
    base_oid: str
    root: str
    common_dir: str
    project: str
    env: Mapping[str, str]
    created: float
    after: tuple[str, ...] = ()
    """Ids of the tasks that it comes after."""


_ATTEMPT = ", ".join(f"a.{name}" for name in AttemptRow.__dataclass_fields__)


def attempts(db: sqlite3.Connection, which: str, *values: object) -> list[AttemptRow]:
    """The attempts `a` that the rest of a statement, from its joins on, leaves over."""
    found = db.execute(f"SELECT {_ATTEMPT} FROM attempt a {which}", values)  # noqa: S608 - literals of ours
    return [AttemptRow(**{**dict(row), "state": AttemptState(row["state"])}) for row in found]


def attempt(db: sqlite3.Connection, task: str, epoch: int) -> AttemptRow | None:
    """One attempt, released or not."""
    return next(iter(attempts(db, "WHERE a.task = ? AND a.epoch = ?", task, epoch)), None)


def result(db: sqlite3.Connection, task: str, epoch: int) -> dict[str, Any] | None:
    """`result.json` of an attempt, when it has one."""
    row = db.execute("SELECT result FROM attempt WHERE task = ? AND epoch = ? AND result IS NOT NULL", (task, epoch)).fetchone()
    return dict(json.loads(row["result"])) if row is not None else None


def launch(db: sqlite3.Connection, task: str) -> LaunchRow:
    """What to launch. Raises KeyError when there is no such task."""
    row = db.execute(
        """SELECT t.spec, t.run, r.base_oid, p.root, p.common_dir, p.id AS project, r.env, r.created
           FROM task t JOIN run r ON r.id = t.run JOIN project p ON p.id = t.project WHERE t.id = ?""",
        (task,),
    ).fetchone()
    if row is None:
        raise KeyError(task)
    needed = db.execute("SELECT needs FROM dependency WHERE task = ? ORDER BY needs", (task,))
    after = tuple(str(needs) for (needs,) in needed)
    return LaunchRow(**{**dict(row), "spec": codec.loads(TaskSpec, row["spec"]), "env": json.loads(row["env"]), "after": after})
