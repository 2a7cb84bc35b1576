"""Environments for a person: forks of a snapshot, and named ones that are opened again. Runs in the process of the command.

Every attempt has a worktree of its own (docs/decisions/0011), so opening an environment again does not take the old directory: a new
attempt, of the same snapshot, starts where the newest one of that name ended.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agents.kinds import kinds
from supervisor.client import submit
from supervisor.client.submit import Workplace
from supervisor.config import plan, task_keys
from supervisor.host.paths import Home
from supervisor.kernel import codec
from supervisor.kernel.errors import NotFound, UsageError
from supervisor.kernel.spec import RunSpec, Submission, TaskSpec, already_open
from supervisor.store import queries, sqlite
from supervisor.store.queries import TaskView
from worktrees.repository import Repository, resolve


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person typed, beside the name."""

    words: tuple[str, ...]
    """The command; empty: their shell."""
    base: str | None = None
    sandbox: int | None = None
    network: bool | tuple[str, ...] | None = None
    number: int = 1
    environment: str = ""


def forks(snapshot: str, asked: Asked, place: Workplace, environ: Mapping[str, str]) -> Submission:
    """One run of `asked.number` tasks that start from `snapshot`. Raises UsageError for what a plan would refuse too, NotFound for a base
    that is no commit."""
    options: dict[str, Any] = {
        "id": asked.environment or snapshot, "kind": "terminal", "task_class": "interactive", "retries": 0,
        "snapshot": snapshot, "sandbox": asked.sandbox, "network": asked.network,
        "title": " ".join(asked.words) or f"shell in {asked.environment or snapshot}",
    }  # fmt: skip
    shell = _shell(environ)
    spec = plan.single(asked.words or shell, kinds(), options, place.project.defaults, place.project.base)
    task = replace(spec.tasks[0], environment=asked.environment)
    if not asked.words:
        task = replace(task, argv=shell)  # a path with a space in it is one word all the same
    names = [task.name] if asked.number == 1 else [f"{task.name}-{index}" for index in range(1, asked.number + 1)]
    return submit.submission(replace(spec, tasks=tuple(replace(task, name=name) for name in names)), place, asked.base, None, environ)


def reopened(found: tuple[TaskView, str], asked: Asked, place: Workplace, environ: Mapping[str, str]) -> Submission:
    """A run of one task in the environment that `newest` gave: what it was made with, where it ended. Raises Refused while it is open,
    UsageError for what a plan would refuse too."""
    view, text = found
    refuse_open(view)
    task = codec.loads(TaskSpec, text)
    argv = _argv(asked.words) if asked.words else _shell(environ)
    task = replace(
        task, argv=argv, title=" ".join(asked.words) or f"shell in {task.environment}",
        sandbox=task.sandbox if asked.sandbox is None else asked.sandbox,
        network=task.network if asked.network is None else asked.network,
        snapshot_id=view.snapshot or task.snapshot_id,
    )  # fmt: skip
    if why := task_keys.contradiction(task):
        raise UsageError("bad value", on="--sandbox", why=why)
    return submit.submission(RunSpec(task.title, (task,)), place, tip(place.repository, view), None, environ)


def newest(home: Home, name: str, project: str) -> tuple[TaskView, str] | None:
    """The task that last had the environment `name`, and its spec as JSON."""
    if not home.ledger.exists():
        return None
    with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
        return queries.environment(db, name, project)


def refuse_open(view: TaskView) -> None:
    """Raises Refused unless the task has ended; the ledger looks again, in the transaction that opens it."""
    if not view.final:
        raise already_open(view.environment, view.id, view.state)


def tip(repository: Repository, view: TaskView) -> str:
    """The commit that an ended task came to: its branch where that holds all it left, also when a person went on there; else what
    its rescue ref keeps; its base when it never began. Raises NotFound when none of them is there any more."""
    left = (view.result or {}).get("tip")
    try:
        branch = resolve(repository, view.branch) if view.branch else None
    except NotFound:  # cleaned away, together with its worktree
        branch = None
    if branch is None or left is None:
        return resolve(repository, branch or left or view.base_oid or "HEAD")
    return branch if repository.has(branch, left) else resolve(repository, left)


def _shell(environ: Mapping[str, str]) -> tuple[str, ...]:
    return (environ.get("SHELL") or "/bin/sh",)


def _argv(words: tuple[str, ...]) -> tuple[str, ...]:
    return ("/bin/sh", "-c", words[0]) if len(words) == 1 else words
