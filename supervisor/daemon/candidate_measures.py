"""By what a candidate is compared with the others of its group beside its gate and its size: taken once, when its attempt ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.core.errors import HostError
from supervisor.core.gate_files import flags
from supervisor.core.result import Work
from supervisor.core.spec import TaskSpec
from worktrees import gate_changes, patches
from worktrees.repository import Repository

NAMED = 20
"""Changes that weaken a gate, of those that are found."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt of a candidate whose work is secured."""

    spec: TaskSpec
    base: str | None
    work: Work


def take(repository: Repository, ended: Ended) -> Mapping[str, Any]:
    """`weakens`: what it changed that may make its gate say less, None where git could not tell."""
    return {"weakens": _weakens(repository, ended)}


def _weakens(repository: Repository, ended: Ended) -> list[str] | None:
    tip, base = ended.work.tip, ended.base
    if tip is None or base is None:
        return None
    try:
        diffs = tuple(patches.read(repository, base, tip)) if tip != base else ()
        found = flags(gate_changes.of_diffs(repository, base, diffs), ended.spec.gate_words if ended.spec.gate else "")
    except HostError:
        return None
    return [f"{flag.path}: {flag.why}" for flag in found if flag.weakens][:NAMED]
