"""From a plan file, or a command line, to a submission: everything that can be wrong is found here, before a supervisor is asked.

Runs in the process of the command, where the plan, the repository and the environment are.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.kinds import kinds
from supervisor.config import plan, user
from supervisor.core.environment import allowed
from supervisor.core.errors import Refused
from supervisor.core.spec import RunSpec, Submission
from supervisor.host import cores, files
from supervisor.host.paths import home
from worktrees.git import Git
from worktrees.repository import Repository, discover, resolve


def from_plan(path: Path, where: Path, base: str | None, key: str | None, environ: Mapping[str, str]) -> tuple[Submission, tuple[str, ...]]:
    """Read a plan for the repository around `where`. Returns the submission and one-line notes about the repository.

    Raises ConfigError for the plan, NotFound or Refused for the repository, ToolMissing for git.
    """
    return _submission(plan.load(path, kinds().keys()), where, base, key, environ)


def from_spec(
    spec: RunSpec, where: Path, base: str | None, key: str | None, environ: Mapping[str, str]
) -> tuple[Submission, tuple[str, ...]]:
    """The same for a run that was typed, not written."""
    return _submission(spec, where, base, key, environ)


def _submission(
    spec: RunSpec, where: Path, base: str | None, key: str | None, environ: Mapping[str, str]
) -> tuple[Submission, tuple[str, ...]]:
    settings = user.load(user.path(), len(cores.usable()))
    state = home().root
    files.private_dir(state)
    repository = discover(Git(state / "git"), where)
    _refuse_strange_bytes(repository)
    if base is not None:
        spec = RunSpec(title=spec.title, tasks=spec.tasks, base=base)
    submission = Submission(
        key=key or secrets.token_hex(16),
        project=repository.project,
        root=os.fspath(repository.root),
        common_dir=os.fspath(repository.common_dir),
        base_oid=resolve(repository, spec.base),
        spec=spec,
        env=allowed(environ, settings.pass_env),
    )
    return submission, repository.notes


def _refuse_strange_bytes(repository: Repository) -> None:
    """The ledger holds text: a path that is no text cannot be kept there."""
    try:
        os.fspath(repository.common_dir).encode() + os.fspath(repository.root).encode()
    except UnicodeEncodeError:
        raise Refused("cannot work here", on=os.fspath(repository.root), why="its path is not UTF-8", hint="rename the directory") from None


def settings_path() -> Path:
    """The user's settings file, whether or not it exists."""
    return user.path()


def single(words: tuple[str, ...], options: Mapping[str, Any]) -> RunSpec:
    """The run of one task that `nightcrew add` describes. Raises UsageError for what a plan would refuse too."""
    spec = plan.single(words, kinds().keys(), options)
    return replace(spec, title=_text(spec.title), tasks=tuple(replace(task, title=_text(task.title)) for task in spec.tasks))


def _text(title: str) -> str:
    """A title typed as bytes that are not UTF-8, shown as escapes. The command itself keeps its bytes."""
    return title.encode("utf-8", "backslashreplace").decode()
