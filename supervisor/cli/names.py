"""Completion of names: what a shell shows when somebody presses Tab after a verb that takes NAME.

It reads the ledger and asks no supervisor: the answer has to come before the next key does. It never complains, because the middle
of somebody's command line is no place for an error.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable

import click

from supervisor.core.errors import NightcrewError
from supervisor.core.states import FINAL, TaskState
from supervisor.host.paths import home
from supervisor.ledger import store

NEWEST = 500
"""Tasks that are looked at, newest first."""

Complete = Callable[[click.Context, click.Parameter, str], list[str]]


def _completes(*states: TaskState, also: tuple[str, ...] = ()) -> Complete:
    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        before = ctx.params.get(param.name or "") or ()
        given = (before,) if isinstance(before, str) else before
        return [word for word in (*also, *_words(states)) if word.startswith(incomplete) and word not in given]

    return complete


def _words(states: tuple[TaskState, ...]) -> dict[str, None]:
    """A task's own id, which means its newest one, then its full id, then its run's; newest first and each once."""
    # Spelled out, so that SQLite can use the partial index of unfinished tasks: a parameter would not match it.
    spelled = ", ".join(f"'{state}'" for state in states)
    sql = f"SELECT name, id, run FROM task WHERE state IN ({spelled}) ORDER BY ord DESC LIMIT {NEWEST}"  # noqa: S608 - our own words
    try:
        with contextlib.closing(store.connect_readonly(home().ledger)) as db:
            rows = db.execute(sql).fetchall()
    except (NightcrewError, sqlite3.Error, OSError, RuntimeError):
        return {}
    return dict.fromkeys(str(row[column]) for column in ("name", "id", "run") for row in rows)


_UNFINISHED = tuple(state for state in TaskState if state not in FINAL)

any_name = _completes(*TaskState)
"""Every task and run."""
ended_name = _completes(*FINAL)
"""What can be retried or cleaned."""
unfinished_name = _completes(*_UNFINISHED)
"""What can be waited for or killed."""
running_name = _completes(TaskState.RUNNING, also=("supervisor",))
"""What has a pane."""
done_name = _completes(TaskState.DONE)
"""What can be merged."""
