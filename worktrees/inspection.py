"""What would be lost with a worktree: looked for where its agent worked, judged by `removal`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from supervisor.core.errors import HostError, NotFound
from supervisor.host.foreign import open_plain
from worktrees import blocking_files, tips
from worktrees.changes import observe
from worktrees.environment import Environment
from worktrees.templates import read

SHOWN = 10
"""Paths listed in one reason."""


class Why(StrEnum):
    """Why a worktree is kept."""

    MISSING = "missing"
    FOREIGN = "not ours"
    UNKNOWN = "could not be inspected"
    LOCKED = "locked"
    ALIVE = "processes inside"
    DIRTY = "uncommitted changes"
    UNTRACKED = "untracked files"
    IGNORED = "ignored files"
    NESTED = "repositories inside"
    UNMERGED = "commits not on any other branch"
    UNKEPT = "commits on no ref"


HARD = frozenset({Why.MISSING, Why.FOREIGN, Why.UNKNOWN, Why.LOCKED, Why.ALIVE})
"""Reasons that no `discard` overrides."""


@dataclass(frozen=True, slots=True)
class Reason:
    """`detail` is one line for people; `paths` holds at most `SHOWN` of `count`."""

    why: Why
    detail: str = ""
    paths: tuple[str, ...] = ()
    count: int = 0

    def __str__(self) -> str:
        more = self.count - len(self.paths)
        listed = ", ".join(self.paths) + (f" and {more} more" if more > 0 else "")
        return ": ".join(part for part in (self.why.value, self.detail, listed) if part)


@dataclass(frozen=True, slots=True)
class Origin:
    """What the files of a worktree were made from, when that is a template."""

    lower: Path
    """The template's tree."""
    extras: frozenset[str]
    """What git ignores there, as `Template.extras`."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen in a worktree."""

    head: str | None
    """Commit that HEAD stands on."""
    branch: str | None
    """Full name of the ref that HEAD is on."""
    tip: str | None
    """Commit of the work branch, where HEAD is not on it: in the repository that its agent worked in."""
    reasons: tuple[Reason, ...]
    """What would be gone with the files."""
    is_untouched: bool
    """HEAD stands on the base, and its logs remember nothing that is on no ref."""


def origin(env: Environment) -> Origin | None:
    """Raises nothing: a template that cannot be read explains no file."""
    if env.layers is None:
        return None
    try:
        return Origin(Path(env.layers.lower), frozenset(read(env.layers.template).extras))
    except (NotFound, HostError):
        return None


def look(env: Environment, made_from: Origin | None, *, objects: bool = True) -> Look:
    """Of what `open_env` gave. Looks only, but sets aside what would make git wait; `objects` as in `blocking_files.disarm`. Raises
    ToolFailed, ToolHung, HostError."""
    blocking_files.disarm(env, objects=objects)
    changes = observe(env.repo.git, env.place, ignored=True)
    groups = {
        Why.DIRTY: (*changes.tracked, *changes.deleted, *changes.hidden),
        Why.UNTRACKED: changes.untracked,
        Why.IGNORED: tuple(path for path in changes.ignored if not _is_from(made_from, env.place.top, os.fsdecode(path))),
        Why.NESTED: changes.nested,
    }
    found = [Reason(why, paths=_shown(paths), count=len(paths)) for why, paths in groups.items() if paths]
    untouched = changes.head == env.base and not found and tips.all_kept(env)
    tip = None if changes.branch == env.branch_ref else tips.refs_of(env).get(env.branch_ref)
    return Look(changes.head, changes.branch, tip, (*found, *(Reason(Why.UNKNOWN, warning) for warning in changes.warnings)), untouched)


def _is_from(made_from: Origin | None, top: Path, name: str) -> bool:
    """Whether an ignored file came with the template. What was changed inside a directory of dependencies does not count as work."""
    if made_from is None or not {name, f"{name}/"} & made_from.extras:
        return False
    ours, theirs = top / name, made_from.lower / name
    if ours.is_symlink():
        return ours.readlink() in (theirs, theirs.readlink() if theirs.is_symlink() else theirs)
    if name.endswith("/"):
        return ours.is_dir()
    try:
        with open_plain(ours) as one, open_plain(theirs) as other:
            sizes = {os.fstat(file.fileno()).st_size for file in (one, other)}
            return len(sizes) == 1 and one.read() == other.read()
    except OSError:
        return False


def _shown(paths: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(path.decode("utf-8", "backslashreplace") for path in sorted(paths)[:SHOWN])
