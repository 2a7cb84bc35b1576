"""Who asks, of which project, and where: the one way of a command to what agents know together."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from supervisor.cli import common
from supervisor.core.errors import NightcrewError, NotRunning
from supervisor.daemon import lock, protocol
from supervisor.host.paths import Home, home
from supervisor.ledger import queries, store

ANSWER_S = 60.0


def is_agent() -> bool:
    """Whether an agent of ours runs the command: it has its attempt's token, and speaks for nobody else."""
    return bool(os.environ.get("NIGHTCREW_TOKEN") and os.environ.get("NIGHTCREW_AGENTS_SOCKET"))


def ask(
    verb: str, op: str, args: dict[str, Any], *, reads: bool = False, timeout_s: float = ANSWER_S, repo: Path | None = None
) -> dict[str, Any]:
    """What `verb` (`mem`, `mail`, `lease`) answers to `op`, for the agent that runs this, else for the person, of the project of `repo`
    (the current directory). An operation that `reads` works without a supervisor where it can; all else starts one. Raises our errors."""
    asked = {"op": op, **{name: value for name, value in args.items() if value is not None}}
    if is_agent():
        socket, token = Path(os.environ["NIGHTCREW_AGENTS_SOCKET"]), os.environ["NIGHTCREW_TOKEN"]
        return protocol.call(socket, verb, asked, timeout_s=timeout_s, token=token)
    where, asked = home(), {**asked, "project": project(repo)}
    if not reads:
        return common.ask(where, verb, asked, timeout_s=timeout_s)
    if lock.holder(where.lock) is not None and where.project(asked["project"]).exists():  # a look makes no directories
        with contextlib.suppress(NotRunning):  # it left meanwhile
            return protocol.call(where.daemon_socket, verb, asked, timeout_s=timeout_s)
    from supervisor.cli.memory import local

    found = local.answer(where, verb, asked)
    return found if found is not None else common.ask(where, verb, asked, timeout_s=timeout_s)


def project(directory: Path | None = None) -> str:
    """The project of the repository around `directory` (the current one). Raises NotFound and Refused where there is none."""
    where, here = home(), (directory or Path.cwd()).resolve()
    if known := _known(where, here):
        return known
    from worktrees.git import Git
    from worktrees.repository import discover

    return discover(Git(where.root / "git"), here).project


def files() -> Path | None:
    """Where the files lie of the memory that is meant here, if that can be told at once: for completion."""
    if is_agent():
        told = os.environ.get("NIGHTCREW_MEMORY")
        return Path(told) if told else None
    known = _known(home(), Path.cwd())
    return home().memory(known) if known else None


def of_project(where: Home, project: str) -> str:
    """The repository of a project, for a person to read; its id when nothing was ever run in it."""
    with contextlib.suppress(NightcrewError), contextlib.closing(store.connect_readonly(where.ledger)) as db:
        row = db.execute("SELECT root FROM project WHERE id = ?", (project,)).fetchone()
        return str(row["root"]) if row is not None else project
    return project


def _known(where: Home, here: Path) -> str:
    """From the ledger, which has every repository in which something was run."""
    if not where.ledger.exists():
        return ""
    with contextlib.suppress(NightcrewError), contextlib.closing(store.connect_readonly(where.ledger)) as db:
        return queries.project_at(db, str(here))
    return ""
