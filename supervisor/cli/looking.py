"""Looking at the crew: what `nightcrew status` and `nightcrew mcp` show, read from the ledger, the supervisor and the gateway."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.cli import common
from supervisor.core.errors import NightcrewError, NotFound, one_line
from supervisor.core.states import TaskState
from supervisor.daemon import protocol
from supervisor.host.paths import Home
from supervisor.ledger import queries, task_names

if TYPE_CHECKING:
    from agents.status import Status
    from supervisor.core.conflicts import Matrix

EVIDENCE_S = 2.0
GATEWAY_S = 2.0
"""Seconds that a gateway which does not answer may hold this up."""


def named(db: sqlite3.Connection, name: str) -> list[queries.TaskView]:
    return queries.several(db, task_names.match_tasks(db, common.typed(name), queries.project_at(db, str(Path.cwd()))))


def foremost(db: sqlite3.Connection, at_most: int) -> tuple[list[queries.TaskView], Counter[TaskState]]:
    """Return what a person looks at first, the unfinished tasks and the newest run, and how many there are of each state; among these also
    the failed tasks of earlier runs that still have a worktree."""
    views, counts = queries.foremost(db, at_most), queries.unfinished_counts(db)
    newest = queries.newest_run(db)
    if newest is not None:
        ended, numbers = queries.ended_of(db, newest, at_most)
        views, counts = views + ended, counts + numbers
    return views, counts + queries.failed_before_counts(db, newest or "")


def conflict_matrix(where: Home, db: sqlite3.Connection, project: str, limit_s: float, only: str = "") -> Matrix:
    """How the results of a project stand to each other and to its checkout now, within `limit_s`; what the supervisor knows is not compared
    again. `only`: the task that is asked about. Raises NotFound when the repository is gone or nothing was ever run in it, else as
    `Git.run`."""
    from supervisor.core.conflicts import SIDES_MAX
    from supervisor.daemon import conflict_matrix as looking_at
    from supervisor.faces import conflicts
    from supervisor.host import files
    from supervisor.ledger import branches
    from worktrees.git import Git
    from worktrees.repository import discover

    root = queries.project_root(db, project)
    if root is None:
        raise NotFound("no results", on=str(Path.cwd()), why="nothing was ever run in this repository", hint="nightcrew status --all")
    found = branches.of_project(db, project, 2 * SIDES_MAX)
    repository = discover(Git(files.private_dir(where.root) / "git"), Path(root))
    return looking_at.look(repository, found, conflicts.known(where, project).known, time.monotonic() + limit_s, only)


def last_matrix(where: Home, db: sqlite3.Connection, project: str, limit_s: float, only: str = "") -> Matrix:
    """The same; where it cannot be found out, as the supervisor knew it last, and that is said."""
    from supervisor.faces import conflicts

    try:
        return conflict_matrix(where, db, project, limit_s, only)
    except (NightcrewError, OSError) as error:
        why = error.line() if isinstance(error, NightcrewError) else one_line(str(error))
        common.say(f"conflicts are as they were known last: {why}")
        return conflicts.known(where, project)


def explained(where: Home, views: list[queries.TaskView], now: float) -> dict[str, Status]:
    """How the agents of these tasks are at `now` (wall clock), by task, with all evidence that there is."""
    from supervisor.faces import agent_status

    said: dict[str, Any] = {}
    with contextlib.suppress(NightcrewError):  # what the ledger and the gateway say is shown without it
        pairs = [(view.id, view.epoch) for view in views if view.epoch]
        said = protocol.call(where.daemon_socket, "evidence", {"attempts": pairs}, timeout_s=EVIDENCE_S)["agents"]
    shape, _ = gateway(where)
    models = {agent["name"]: agent for agent in (shape or {}).get("agents", ())}
    return {view.id: agent_status.of(view, said.get(view.id, {}), models.get(view.id), now) for view in views}


def gateway(where: Home) -> tuple[dict[str, Any] | None, str]:
    """The gateway as JSON and on one line; None where there never was one. It must not keep anybody from seeing the crew."""
    if not where.gateway_record.exists():
        return None, ""
    from supervisor.faces import gateway as words
    from supervisor.faces import gateway_json

    try:
        shape = gateway_json.look(where, time.time(), timeout_s=GATEWAY_S)
    except NightcrewError as error:
        shape = {"running": False, "why": error.line()}
    return (None, "") if shape is None else (gateway_json.printed(shape), words.line(shape))
