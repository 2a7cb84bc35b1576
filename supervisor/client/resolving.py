"""Completion of names: what a shell shows when somebody presses Tab after a verb that takes NAME.

It reads the ledger and asks no supervisor: the answer has to come before the next key does. It never complains, because the middle
of somebody's command line is no place for an error.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable

import click

from supervisor.host.paths import home
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.states import FINAL, TaskState
from supervisor.store import sqlite
from supervisor.store.queries import PAUSED

NEWEST = 500
"""Tasks that are looked at, newest first."""

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def _completes(*states: TaskState, also: tuple[str, ...] = (), only: str = "TRUE") -> Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        rows = _tasks(states, only)
        # Full ids only for who has typed a run's: there are as many as tasks, and they would hide the short names.
        words = [task for _, task, _ in rows] if "/" in incomplete else [*(row[0] for row in rows), *(row[2] for row in rows)]
        return _offered((*also, *words), ctx, param, incomplete)

    return complete


def _offered(words: Iterable[str], ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Those that can be meant, once each, without those that were given before."""
    before = ctx.params.get(param.name or "") or ()
    given = (before,) if isinstance(before, str) else before
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete) and word not in given]


def _tasks(states: tuple[TaskState, ...], only: str) -> list[tuple[str, str, str]]:
    """A task's own id, which means its newest one, its full id, and its run's; newest first."""
    # Spelled out, so that SQLite can use the partial index of unfinished tasks: a parameter would not match it.
    spelled = ", ".join(f"'{state}'" for state in states)
    sql = f"SELECT name, id, run FROM task WHERE state IN ({spelled}) AND {only} ORDER BY ord DESC LIMIT {NEWEST}"  # noqa: S608 - our own words
    return [(str(row[0]), str(row[1]), str(row[2])) for row in _rows(sql)]


def _rows(sql: str) -> list[sqlite3.Row]:
    try:
        with contextlib.closing(sqlite.connect_readonly(home().ledger)) as db:
            return db.execute(sql).fetchall()
    except (NightcrewError, sqlite3.Error, OSError, RuntimeError):
        return []


def _listed(sql: str) -> Complete:
    """Completes with the one column of `sql`."""
    return lambda ctx, param, incomplete: _offered((word for (word,) in _rows(f"{sql} LIMIT {NEWEST}")), ctx, param, incomplete)


run_id = _listed("SELECT id FROM run ORDER BY rowid DESC")
"""Every run, newest first."""
snapshot_name = _listed("SELECT DISTINCT name FROM snapshot ORDER BY name")
"""Every snapshot, by name."""
token_name = _listed("SELECT DISTINCT name FROM access_token WHERE revoked IS NULL ORDER BY name")
"""Every token that was not taken back, by name."""
_ENVIRONMENT = "json_extract(spec, '$.environment')"
environment_name = _listed(f"SELECT {_ENVIRONMENT} FROM task WHERE {_ENVIRONMENT} != '' GROUP BY 1 ORDER BY max(ord) DESC")  # noqa: S608 - our own
"""Every environment that has a name."""


_mail_id = _listed(
    "SELECT substr(id, -6) FROM mail WHERE recipient = 'person' OR sender = 'person' ORDER BY state NOT IN ('new', 'given'), id DESC"
)


def mail_id(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """A person's messages by the end of their ids, those that wait first."""
    return _mail_id(ctx, param, incomplete.upper())


def mail_recipient(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Whom a person can write to: only the first word is a name."""
    return [] if ctx.params.get(param.name or "") else unfinished_name(ctx, param, incomplete)


def kind_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """Kinds of agent that take a command or a prompt."""
    from agents.kinds import kinds

    internal = ("analyst", "lead", "landing-gate", "map-prompt", "map-worker")
    return [name for name in kinds() if name.startswith(incomplete) and name not in internal]


_UNFINISHED = tuple(state for state in TaskState if state not in FINAL)

any_name = _completes(*TaskState)
"""Every task and run."""
ended_name = _completes(*FINAL)
"""What can be retried or cleaned."""
unfinished_name = _completes(*_UNFINISHED)
"""What can be waited for or killed."""
running_name = _completes(TaskState.RUNNING, also=("supervisor",))
"""What has a pane."""
agent_name = _completes(TaskState.RUNNING)
"""What has an agent."""
unpaused_name = _completes(TaskState.RUNNING, TaskState.READY, TaskState.WAITING)
"""What can be paused."""
paused_name = _completes(TaskState.RUNNING, TaskState.PAUSED, only=PAUSED)
"""What a person has paused."""
group_name = _completes(*TaskState, only="coalesce(json_extract(spec, '$.decide'), '') <> ''")
"""What has candidates."""
done_name = _completes(
    TaskState.DONE,
    only="EXISTS (SELECT 1 FROM attempt a WHERE a.task = task.id AND a.epoch = task.epoch AND a.branch IS NOT NULL AND a.removed IS NULL)",
)
"""What can be merged."""
