"""Leases on the files of a repository: who may have one. Their patterns are those of `path_globs`. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from supervisor.kernel.errors import one_line
from supervisor.kernel.format import many
from supervisor.kernel.path_globs import covers, names_top, overlap, wildcards

SAID = "which has an exclusive lease on"
"""In every word about a write that is another's: who reads what an agent prints knows it by that."""
GLOBS_MAX = 64
"""Patterns that a task has, or that an attempt holds, at once."""
WILDCARDS_MAX = 8
"""Wildcards of a pattern that an agent gives."""
PROJECT_MAX = 2048
"""Leases that are held in a project at once."""
HOLDS_S = 1800.0
"""Seconds for which a lease that an agent took keeps other tasks from starting."""


def why_not(globs: Iterable[str], given: Collection[str]) -> str:
    """Return why an agent may not have these normal forms to itself; empty if it may. `given`: the `paths` that its plan gives its task."""
    for glob in globs:
        if glob in given:
            continue
        if wildcards(glob) > WILDCARDS_MAX:
            return f"{one_line(glob)[:100]} has more than {WILDCARDS_MAX} wildcards"
        if not names_top(glob):
            return f"{one_line(glob)[:100]} may cover the whole project: begin with the name of a file or directory, as src/**"
    return ""


class Mode(StrEnum):
    """Who else may hold what overlaps."""

    SHARED = "shared"
    """Others that are shared."""
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease. Moments are seconds since 1970."""

    fence: int
    """Greater than that of every lease that was given before it and is held."""
    project: str
    glob: str
    mode: Mode
    task: str
    epoch: int
    acquired: float
    expires: float
    renews: bool = True
    """The supervisor renews it while its attempt lives."""
    ended: float | None = None
    why: str = ""
    """Why it ended."""


def below_root(path: str, roots: Iterable[str], cwd: str = "") -> str | None:
    """A path, as an agent wrote it, from the root of its worktree, which it sees at one of `roots`; None when it is elsewhere. By the words
    alone: no link is followed."""
    if "\0" in path or not path:
        return None
    for root in filter(None, roots):
        place = posixpath.normpath(posixpath.join(cwd or root, path))
        if place.startswith(f"{root.rstrip('/')}/"):
            return place[len(root.rstrip("/")) + 1 :]
    return None


# Who may have one -----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody asks for: all of these patterns, or none."""

    task: str
    globs: tuple[str, ...]
    mode: Mode


def blocks(lease: Lease, wanted: Wanted, kin: Collection[str] = ()) -> bool:
    """Return whether this lease of another task stands in the way of `wanted`. Leases of `kin` never do: an agent shares its leases with
    the tasks that it added."""
    if lease.task in kin or lease.task == wanted.task or Mode.EXCLUSIVE not in (lease.mode, wanted.mode):
        return False
    return any(overlap(lease.glob, glob) for glob in wanted.globs)


def collide(one: Wanted, other: Wanted) -> bool:
    """Whether two that wait cannot both have what they want. The one that came first goes first, so that a stream of shared ones cannot
    keep an exclusive one waiting for ever."""
    if one.task == other.task or Mode.EXCLUSIVE not in (one.mode, other.mode):
        return False
    return any(overlap(mine, theirs) for mine in one.globs for theirs in other.globs)


# What was written without one -----------------------------------------------------------------------------------------------------------

UNLEASED_MAX = 100
"""Paths that a result lists."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What an attempt and the others of its project held while it lived."""

    own: tuple[str, ...] = ()
    others: tuple[Lease, ...] = ()
    """Exclusive ones."""
    strict: bool = False
    """Each path that is written needs a lease."""

    @property
    def matters(self) -> bool:
        """Whether a path could be unleased at all."""
        return bool(self.others) or self.strict


def holders_of(path: str, held: Iterable[Lease], task: str, kin: Collection[str] = ()) -> list[Lease]:
    """The exclusive leases of others that cover a path."""
    others = (lease for lease in held if lease.task != task and lease.task not in kin and lease.mode is Mode.EXCLUSIVE)
    return [lease for lease in others if covers(lease.glob, path)]


def unleased(paths: Iterable[str], held: Beside) -> dict[str, object] | None:
    """Of the paths that an attempt wrote, those that somebody else held, and, when it is strict, those that none of its own patterns
    covers: `total`, and `paths`, at most UNLEASED_MAX of {`path`, `holder`}, the last being null where nobody held it. None when there are
    none."""
    found: list[dict[str, str | None]] = []
    count = 0
    for path in paths:
        holder = next((lease.task for lease in held.others if covers(lease.glob, path)), None)
        if holder or (held.strict and not any(covers(glob, path) for glob in held.own)):
            count += 1
            if len(found) < UNLEASED_MAX:
                found.append({"path": path.encode("utf-8", "backslashreplace").decode(), "holder": holder})
    return {"total": count, "paths": found} if found else None


def unleased_note(found: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The same in a sentence, for people."""
    if found is None:
        return ()
    holders = sorted({one["holder"] for one in found["paths"] if one["holder"]})
    whose = f" that others held ({', '.join(holders[:3])}{' and more' if len(holders) > 3 else ''})" if holders else " without a lease"
    first = ", ".join(one_line(str(one["path"]))[:100] for one in found["paths"][:3])
    return (f"wrote {many(found['total'], 'file')}{whose}: {first}{', ...' if found['total'] > 3 else ''}",)
