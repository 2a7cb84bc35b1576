"""The ways to give an environment its files. Each is probed by doing it; the first that works is taken. Those whose files behave as
ordinary files come before those that have a caveat, and of these the fastest comes first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.kernel.errors import HostError, NotFound
from worktrees.backends.base import Backend
from worktrees.backends.copies import Plain, Reflink
from worktrees.backends.overlay import Overlay, UserOverlay

if TYPE_CHECKING:
    from worktrees.templates import Template

BACKENDS: tuple[Backend, ...] = (Overlay(), Reflink(), UserOverlay(), Plain())
"""In order of preference."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a backend works in a directory."""

    backend: Backend
    reason: str | None
    """Why not; None when it works."""


def named(name: str) -> Backend:
    """The backend that the ledger calls `name`. Raises NotFound."""
    for backend in BACKENDS:
        if backend.name == name:
            return backend
    raise NotFound("no such file backend", on=name, why=f"there are {', '.join(backend.name for backend in BACKENDS)}")


def survey(directory: Path) -> tuple[Verdict, ...]:
    """Every backend, tried out for environments in `directory`: some milliseconds each. Raises HostError when it cannot be written."""
    return tuple(Verdict(backend, backend.probe(directory)) for backend in BACKENDS)


def best(directory: Path, template: Template | None = None, *, shared: bool = False) -> Backend:
    """The first backend that works in `directory`, for this template when one is given. Raises HostError when none does.

    `shared`: only one whose files every process of this machine sees; not one that each process has to mount for itself.
    """
    reasons = []
    for backend in BACKENDS:
        if shared and isinstance(backend, UserOverlay):
            continue
        reason = (backend.refuses(template) if template else None) or backend.probe(directory)
        if reason is None:
            return backend
        reasons.append(f"{backend.name}: {reason}")
    raise HostError("no file backend works", on=str(directory), why="; ".join(reasons))
