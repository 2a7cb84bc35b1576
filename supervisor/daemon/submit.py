"""From a plan file, or a command line, to a submission: everything that can be wrong is found here, before a supervisor is asked.

Runs in the process of the command, where the plan, the repository and the environment are.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.kinds import kinds
from supervisor.config import plan, user
from supervisor.core.environment import allowed
from supervisor.core.spec import RunSpec, Submission
from supervisor.host import cores, files
from supervisor.host.paths import home
from worktrees.git import Git
from worktrees.repository import discover, resolve


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


def settings_path() -> Path:
    """The user's settings file, whether or not it exists."""
    return user.path()


def single(words: tuple[str, ...], options: Mapping[str, Any]) -> RunSpec:
    """The run of one task that `nightcrew add` describes. Raises UsageError for what a plan would refuse too."""
    return plan.single(words, kinds().keys(), options)
