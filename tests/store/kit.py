"""Short words for what the ledger's tests write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from supervisor.kernel.decision import Collect, Command, Finish, MarkRunning, SetState, Start
from supervisor.kernel.retry import Tally
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec
from supervisor.kernel.states import End, TaskState
from supervisor.store import sqlite
from supervisor.store.ledger import Ledger

RUN = "0731-aaaa"


class Wall:
    """Seconds since 1970, moved by hand."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def spec(name: str, **facts: Any) -> TaskSpec:
    """A task that runs `true`."""
    return TaskSpec(**{"name": name, "title": name, "kind": "shell", "argv": ("true",), **facts})


def submission(*tasks: TaskSpec | str, key: str = "key", **facts: Any) -> Submission:
    """A run of these tasks."""
    specs = tuple(spec(task) if isinstance(task, str) else task for task in tasks)
    plan = RunSpec(title="a run", tasks=specs, base="main")
    shape = {"project": "0123456789ab", "root": "/repo", "common_dir": "/repo/.git", "base_oid": "c0ffee", "env": {"PATH": "/bin"}}
    return Submission(key=key, spec=plan, **{**shape, **facts})


def submit(ledger: Ledger, *tasks: TaskSpec | str, run: str = RUN) -> list[str]:
    """Submit a run whose tasks without needs are ready; the ids of all."""
    ledger.submit(submission(*tasks, key=run), run)
    made = ledger.tasks_of_run(run, 0.0)
    ledger.commit([SetState(task.id, TaskState.READY, "") for task in made if not task.after])
    return [task.id for task in made]


def ended(task: str, epoch: int, end: End = End.DONE, state: TaskState = TaskState.DONE, delay_s: float = 0.0) -> list[Command]:
    """From running to its end."""
    tally = Tally(failures=epoch if end in (End.FAILED, End.TIMEOUT) else 0)
    return [Collect(task, epoch, end, ""), Finish(task, epoch, end, "", state, delay_s, tally)]


def whole(task: str, epoch: int = 1, end: End = End.DONE, state: TaskState = TaskState.DONE, delay_s: float = 0.0) -> list[Command]:
    """A whole attempt."""
    return [Start(task, epoch, "again" if epoch > 1 else ""), MarkRunning(task, epoch), *ended(task, epoch, end, state, delay_s)]


def rows(path: Path, sql: str, *values: object) -> list[dict[str, Any]]:
    """What the file holds, by a connection of its own."""
    db = sqlite.connect_readonly(path)
    try:
        return [dict(row) for row in db.execute(sql, values)]
    finally:
        db.close()


def check_integrity(path: Path) -> None:
    """SQLite's own full check."""
    assert rows(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
    assert rows(path, "PRAGMA foreign_key_check") == []
