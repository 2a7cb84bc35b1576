"""Snapshots: what they are, when they are stale, when they go, and whether one pays. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from supervisor.kernel import codec
from supervisor.kernel.errors import NeedsHuman, Refused
from supervisor.kernel.format import duration, many
from supervisor.kernel.states import after

if TYPE_CHECKING:
    from supervisor.kernel.spec import TaskSpec


# Snapshots
# ---------
# Snapshots: what they are, what they are made of, when they are stale, and when they go.
#
# A **filesystem** snapshot is files: an environment made from it starts with them, its processes start cold. A **memory** snapshot
# is a running process with its modules imported, which is forked mid-stride.
#
# A snapshot is named by a person and keyed by what made it (`key`). One name has one current key; when that changes, because a
# command, a lock file or the base commit did, what was made before is stale, and is ready again when the change is taken back.


LOCK_FILES: Final = (
    "uv.lock",
    "poetry.lock",
    "requirements*.txt",
    "package-lock.json",
    "pnpm-lock.yaml",
    "yarn.lock",
    "Cargo.lock",
    "go.sum",
    "Gemfile.lock",
    "composer.lock",
)
"""Glob patterns of the files that say which dependencies there are, looked for at the root of the repository."""

STALE_KEPT_S: Final = 7 * 86400.0
"""A stale snapshot that nobody used for this long is pruned: a week is longer than most branches take to come back."""


class SnapshotKind(StrEnum):
    """What is kept."""

    FILESYSTEM = "filesystem"
    MEMORY = "memory"


class SnapshotState(StrEnum):
    """How far a snapshot has come."""

    BUILDING = "building"
    """The row is committed; its set-up runs, or a killed supervisor left it half done."""
    READY = "ready"
    """Verified, and made of what is there now."""
    FAILED = "failed"
    """Its set-up or a check did not end well, or its files are damaged; nothing of it is left but this row."""
    STALE = "stale"
    """What made it has changed since."""


WHOLE: Final = (SnapshotState.READY, SnapshotState.STALE)
"""Its files are there, and an environment can be made from them."""

TRANSITIONS: Final[Mapping[SnapshotState, Mapping[str, SnapshotState]]] = {
    SnapshotState.BUILDING: {"verified": SnapshotState.READY, "failed": SnapshotState.FAILED, "builder lost": SnapshotState.FAILED},
    SnapshotState.READY: {"changed": SnapshotState.STALE, "damaged": SnapshotState.FAILED},
    SnapshotState.STALE: {"changed back": SnapshotState.READY, "damaged": SnapshotState.FAILED},
    SnapshotState.FAILED: {"build again": SnapshotState.BUILDING},
}


def snapshot_after(state: SnapshotState, event: str) -> SnapshotState:
    """`after` of a snapshot."""
    return after(TRANSITIONS, state, event, f"take '{event}' for a snapshot")


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """What a person asked for. Fields are named as the keys of `[snapshot.NAME]` are."""

    name: str
    kind: SnapshotKind = SnapshotKind.FILESYSTEM
    setup: tuple[str, ...] = ()
    """Commands that prepare the environment, run one after the other by `/bin/sh -c` in it."""
    verify: tuple[str, ...] = ()
    """Commands that must end well before anything is frozen."""
    preload: tuple[str, ...] = ()
    """Dotted names of the modules that a memory snapshot imports."""
    copy: tuple[str, ...] = ()
    """Glob patterns of files that git does not track and every environment gets, such as `.env.local`."""
    lock_files: tuple[str, ...] = LOCK_FILES
    """Glob patterns of the files whose content makes it stale."""
    memory_max: int = 0
    """Bytes; 0 is no limit. This and the next two are fixed when a memory snapshot is frozen."""
    processes_max: int = 0
    cores: int = 0
    """How many; 0 leaves it to the settings."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot, as the ledger has it. Times are seconds since 1970, durations seconds, both as measured."""

    id: str
    """`snapshot_id` of its project, name and key."""
    project: str
    spec: SnapshotSpec
    state: SnapshotState
    base_oid: str
    digests: Mapping[str, str] = field(default_factory=dict)
    """Path of each lock file, relative to the repository, and the digest of its content."""
    epoch: int = 1
    """Number of the build: a builder of an earlier one writes nothing."""
    uses: int = 0
    """Attempts made from it whose worktree still exists."""
    reason: str = ""
    """Of the last change of its state."""
    created: float = 0.0
    used: float = 0.0
    """When an environment was last made from it; when it was made, if none was."""
    setup_s: float = 0.0
    freeze_s: float = 0.0
    disk: int = 0
    """Bytes."""


def key(spec: SnapshotSpec, base_oid: str, digests: Mapping[str, str]) -> str:
    """64 hex digits of everything that made a snapshot. Its name and the order of `digests` do not matter; all else does."""
    made = {**codec.shape(spec), "name": "", "lock_files": (), "base_oid": base_oid, "digests": dict(digests)}
    return hashlib.sha256(json.dumps(made, ensure_ascii=True, sort_keys=True).encode()).hexdigest()


def snapshot_id(project: str, name: str, made_of: str) -> str:
    """`<project>/<name>@<12 digits of the key>`: the same ingredients under the same name are the same snapshot."""
    return f"{project}/{name}@{made_of[:12]}"


def staleness(row: Snapshot, spec: SnapshotSpec, base_oid: str, digests: Mapping[str, str]) -> tuple[str, ...]:
    """What has changed since `row` was made, in plain words; empty when it is as if made now. Never empty when the keys differ."""
    changed = [words for name, words in _CHANGES.items() if getattr(row.spec, name) != getattr(spec, name)]
    if row.base_oid != base_oid:
        changed.append(f"the base commit is {base_oid[:12]}, it was made at {row.base_oid[:12]}")
    return (*changed, *_changed_files(row.digests, digests))


_CHANGES: Final = {
    "kind": "its kind changed",
    "setup": "its set-up commands changed",
    "verify": "the commands that verify it changed",
    "preload": "the modules it preloads changed",
    "copy": "the files it copies changed",
    "memory_max": "its memory_max changed",
    "processes_max": "its processes_max changed",
    "cores": "its cores changed",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A step that a snapshot is to take: the arguments of `ledger.snapshots.Snapshots.step`."""

    id: str
    epoch: int
    event: str
    reason: str


def changes(rows: Iterable[Snapshot], spec: SnapshotSpec, base_oid: str, digests: Mapping[str, str]) -> tuple[Change, ...]:
    """Which of `rows`, all of one name, are stale now, and which are not any more."""
    found = [(row, staleness(row, spec, base_oid, digests)) for row in rows]
    return tuple(
        Change(row.id, row.epoch, "changed" if why else "changed back", "; ".join(why))
        for row, why in found
        if (row.state, bool(why)) in ((SnapshotState.READY, True), (SnapshotState.STALE, False))
    )


def chosen(rows: Sequence[Snapshot], *noted: str | None) -> Snapshot | None:
    """Which of `rows`, all of one name and the newest first, is meant: the first of the ids `noted` that is whole, else the newest that is
    ready, else the newest; None when there are none."""
    whole = {row.id: row for row in rows if row.state in WHOLE}
    meant = [whole[known] for known in noted if known in whole]
    return next(iter((*meant, *(row for row in rows if row.state is SnapshotState.READY), *rows)), None)


def not_agreed(spec: SnapshotSpec) -> NeedsHuman | None:
    """Return the error for a snapshot of `spec` whose set-up the person has not agreed to; None when its set-up runs no command.

    The agreement is for exactly what the snapshot is made of: the ledger has a row of its key (`key`), which holds the commands, the
    lock files and the base commit. So a commit that changes the set-up, or a script that the set-up runs, is asked for anew.
    """
    commands = [*spec.setup, *spec.verify, *(f"import {name}" for name in spec.preload)]
    if not commands:
        return None
    why = f"it runs as you, outside a sandbox, with the files of this commit: {'; '.join(commands)}"
    hint = f"nightcrew snapshot create {spec.name}"
    return NeedsHuman("you have not agreed to the set-up of the snapshot", on=spec.name, why=why, kept="all as it was", hint=hint)


def _changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    words = {(True, True): "changed", (True, False): "is gone", (False, True): "is new"}
    return [f"{path} {words[path in before, path in now]}" for path in sorted({*before, *now}) if before.get(path) != now.get(path)]


def overriding(spec: SnapshotSpec, task: TaskSpec) -> Refused | None:
    """Why `task` cannot have the resources that it asks for from this snapshot; None when it can.

    A memory fork lives inside what its parent was given when it was frozen: a task may repeat those limits, never change them.
    """
    if spec.kind is not SnapshotKind.MEMORY:
        return None
    asked = {"memory_max": task.memory_max, "processes_max": task.processes_max, "cores": task.cores}
    for name, value in asked.items():
        fixed = getattr(spec, name)
        if value and value != fixed:
            return Refused(
                f"cannot change {name} of a memory snapshot",
                on=spec.name,
                why=f"it was frozen with {fixed or 'none'}, and its forks keep that; the task asks for {_shown_snapshots(value)}",
                kept="the snapshot",
                hint=f"leave {name} out of the task, or create a snapshot with it",
            )
    return None


def _shown_snapshots(value: int | tuple[int, ...]) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Pruned:
    """One snapshot that is to go, and why."""

    id: str
    why: str


def prune(rows: Sequence[Snapshot], now: float) -> tuple[Pruned, ...]:
    """Which of `rows` may go at `now` (seconds since 1970). Never one that is being built or that an environment still stands on."""
    return tuple(Pruned(row.id, why) for row in rows if (why := _why_it_may_go(row, rows, now)))


def _why_it_may_go(row: Snapshot, rows: Iterable[Snapshot], now: float) -> str:
    if row.uses or row.state is SnapshotState.BUILDING:
        return ""
    if row.state is SnapshotState.FAILED:
        return f"it failed: {row.reason}" if row.reason else "it failed"
    if row.state is not SnapshotState.STALE:
        return ""
    if any(other.state is SnapshotState.READY and _same_name(other, row) for other in rows):
        return "it is stale, and there is a newer one of its name"
    days = int(STALE_KEPT_S // 86400)
    return f"it is stale, and nobody used it for {days} days" if now - row.used > STALE_KEPT_S else ""


def _same_name(one: Snapshot, other: Snapshot) -> bool:
    return (one.project, one.spec.name) == (other.project, other.spec.name)


# Snapshot advice
# ---------------
# Whether a snapshot pays, from measured times: `nightcrew snapshot advise`.


SETUP_WORTH_S: Final = 5.0
"""Below this a set-up is usually not worth a snapshot: making it, keeping it fresh and removing it costs a person more."""
WORK_WORTH_S: Final = 1.0
"""Pieces of work below this are better given to one agent, which sets up once and needs no snapshot. A rule of thumb, not measured."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What was found, and why."""

    pays: bool
    from_run: int | None
    """The first number of runs with which the snapshot has cost less time than it saved; None: it never does."""
    saved_s: float
    """Seconds of agents' time that the snapshot saves over all the runs, its making included; negative: it costs them."""
    why: str
    """In plain words."""


@dataclass(frozen=True, slots=True)
class Times:
    """Measured seconds. A run without a snapshot costs `setup_s + work_s`; with one `fork_s + work_s`, and making it once
    `setup_s + freeze_s`."""

    setup_s: float
    freeze_s: float
    fork_s: float
    work_s: float


def advise(times: Times, runs: int) -> Advice:
    """Whether a snapshot pays for `runs` runs, and from which on. Raises ValueError for a time that cannot have been measured."""
    if runs < 0 or not all(math.isfinite(value) and value >= 0 for value in (times.setup_s, times.freeze_s, times.fork_s, times.work_s)):
        raise ValueError("times are finite and not negative, and so is the number of runs")
    first = break_even(times)
    saved = runs * (times.setup_s - times.fork_s) - (times.setup_s + times.freeze_s)
    pays, why = _verdict(times, runs, first, saved)
    return Advice(pays, first, saved, why)


def break_even(times: Times) -> int | None:
    """The first number of runs that together save more than the snapshot costs; None when a fork is no faster than a set-up, or by so
    little that it takes a billion of them."""
    gain = times.setup_s - times.fork_s
    cost = times.setup_s + times.freeze_s
    if gain <= 0 or cost / gain >= 1e9:
        return None
    first = max(1, math.floor(cost / gain) - 1)  # the quotient is rounded, so the exact place is looked for from just below it
    while first * gain <= cost:
        first += 1
    return first


def _verdict(times: Times, runs: int, first: int | None, saved: float) -> tuple[bool, str]:
    each = f"a fork of {duration(times.fork_s)} for a set-up of {duration(times.setup_s)}"
    if first is None:
        return False, f"no: {each} saves nothing, however often"
    if times.setup_s < SETUP_WORTH_S:
        return (
            False,
            f"usually not: a set-up of {duration(times.setup_s)} is under {duration(SETUP_WORTH_S)}; it would pay from run {first} on",
        )
    if times.work_s < WORK_WORTH_S:
        return (
            False,
            f"usually not: work of {duration(times.work_s)} is better given to one agent in pieces; it would pay from run {first} on",
        )
    if runs < first:
        return False, f"not for {many(runs, 'run')}: {each} pays from run {first} on"
    return True, f"yes, from run {first} on: {each}; over {many(runs, 'run')} it saves {duration(saved)} of {duration(runs * _cold(times))}"


def _cold(times: Times) -> float:
    return times.setup_s + times.work_s
