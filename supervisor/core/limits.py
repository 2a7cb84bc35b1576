"""What one agent may use, by what each limit is held on this host, and what to say when one ended it.

A limit is about the agent as a whole: everything that it starts, together. Where the kernel counts that (a control group) it is held at
once. Elsewhere it is held for each process, or looked at from time to time, or not at all, and whoever starts the agent says which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from supervisor.core.snapshots import SnapshotSpec
from supervisor.core.spec import Settings, TaskSpec
from supervisor.core.units import size


class By(StrEnum):
    """What holds a limit."""

    GROUP = "group"
    """The kernel, for all processes together."""
    NAMESPACE = "namespace"
    """The kernel, for all processes of the agent's own user namespace together. Set inside of it: before, it would count the user's."""
    EACH = "each"
    """The kernel, for each process alone."""
    WATCHED = "watched"
    """Nightcrew looks from time to time, and stops the agent when it is past the limit."""
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Limits:
    """0 is no limit."""

    memory_max: int = 0
    """Bytes."""
    processes_max: int = 0
    """Processes and threads at once."""
    cpu_max: float = 0.0
    """Seconds of processor time."""
    disk_max: int = 0
    """Bytes of worktree, logs and temporary files."""
    file_max: int = 0
    """Bytes of one file."""
    open_files: int = 0
    """Of each process."""


@dataclass(frozen=True, slots=True)
class Means:
    """What this host holds limits with."""

    group_memory: bool = False
    group_processes: bool = False
    group_cpu: bool = False
    namespace: bool = False
    """The agent gets a user namespace of its own and is not root outside of it, whom RLIMIT_NPROC never holds."""
    rlimits: frozenset[str] = frozenset()
    """Names as in `resource` without `RLIMIT_`."""
    looks: bool = False
    """Nightcrew looks at the memory of all its processes, and ends what is past the limit: for agents, whose programs reserve much more
    memory than they use and do not start within an address space that is large enough for their work."""


@dataclass(frozen=True, slots=True)
class Held:
    """One limit that was asked for, and what holds it."""

    name: str
    value: float
    by: By
    words: str
    """For a person."""


def of(settings: Settings, task: TaskSpec, snapshot: SnapshotSpec | None = None) -> Limits:
    """What a task may use: by its own keys, then by those of its snapshot, and by the settings that are about each process anyway.

    Where the snapshot fixes something, `snapshots.overriding` has refused a task that says anything else.
    """
    return Limits(
        memory_max=task.memory_max or (snapshot.memory_max if snapshot else 0),
        processes_max=task.processes_max or (snapshot.processes_max if snapshot else 0),
        cpu_max=task.cpu_max,
        disk_max=task.disk_max,
        file_max=settings.file_max,
        open_files=settings.open_files,
    )


def held(limits: Limits, means: Means) -> tuple[Held, ...]:
    """By what each limit is held that was asked for; those that are not asked for are left out."""
    asked = ((item.name, getattr(limits, item.name)) for item in fields(limits))
    return tuple(_held(name, value, means) for name, value in asked if value)


def _held(name: str, value: float, means: Means) -> Held:
    by = next((by for by in _ways(name, means)), By.NOBODY)
    return Held(name, value, by, _WORDS.get((name, by), _USUAL[by]).format(name=name))


def _ways(name: str, means: Means) -> list[By]:
    """What can hold a limit here, best first."""
    group = {"memory_max": means.group_memory, "processes_max": means.group_processes, "cpu_max": means.group_cpu}.get(name, False)
    ways = {
        By.GROUP: group,
        By.NAMESPACE: name == "processes_max" and means.namespace and "NPROC" in means.rlimits,
        By.WATCHED: name == "disk_max" or (name == "memory_max" and means.looks),
        By.EACH: _RLIMITS.get(name) in means.rlimits,
    }
    return [by for by, works in ways.items() if works]


_RLIMITS: Final[Mapping[str, str]] = {"memory_max": "AS", "cpu_max": "CPU", "file_max": "FSIZE", "open_files": "NOFILE"}
_USUAL: Final[Mapping[By, str]] = {
    By.GROUP: "{name} holds for all processes together",
    By.NAMESPACE: "{name} holds for all processes together",
    By.EACH: "{name} holds for each process alone",
    By.WATCHED: "{name} is looked at from time to time",
    By.NOBODY: "nothing holds {name} here",
}
_WORDS: Final[Mapping[tuple[str, By], str]] = {
    (
        "memory_max",
        By.EACH,
    ): "{name} holds for the address space of each process alone; programs that reserve much more than they use fail early",
    ("memory_max", By.WATCHED): "{name} holds for all processes together, and is looked at from time to time",
    ("cpu_max", By.GROUP): "{name} is counted for all processes together, and looked at from time to time",
    ("processes_max", By.NOBODY): "nothing holds {name} here: no pids controller, and no user namespace for the agent",
}


def rlimits(settings: Settings, found: tuple[Held, ...]) -> tuple[tuple[str, int], ...]:
    """`LaunchSpec.rlimits` of an agent whose limits are held as `found`. NPROC is not among them: see `By.NAMESPACE`."""
    asked = {one.name: one for one in found}
    each = {_RLIMITS[name]: math.ceil(one.value) for name, one in asked.items() if one.by is By.EACH}
    if "cpu_max" in asked:  # no one process may use more than all of them together; this holds without anybody looking
        each["CPU"] = math.ceil(asked["cpu_max"].value)
    if settings.memory_max:
        each["AS"] = min(each.get("AS", settings.memory_max), settings.memory_max)
    return tuple(sorted(each.items()))


@dataclass(frozen=True, slots=True)
class Used:
    """What is known of an agent that has ended, or that goes on. 0 also where nobody counts it."""

    oom_kills: int = 0
    refused_forks: int = 0
    cpu_s: float = 0.0
    disk: int = 0


SIGXCPU: Final = 24
SIGXFSZ: Final = 25
"""The same numbers on Linux (x86, ARM, RISC-V) and macOS."""


def passed(limits: Limits, used: Used, signal: int | None = None, code: int | None = None) -> str:
    """The limit that an agent met, in plain words; empty when it met none, or lived with it and ended well (`code` 0).

    `signal` and `code` are of its end, both None while it goes on; a shell reports a signal of its child as code 128 + signal.
    """
    if code == 0:
        return ""
    number = code - 128 if code is not None and code > 128 else signal
    if limits.disk_max and used.disk > limits.disk_max:
        return f"disk_max: its files take {size(used.disk)}, it may have {size(limits.disk_max)}"
    if limits.cpu_max and (used.cpu_s >= limits.cpu_max or number == SIGXCPU):
        return f"cpu_max: it used {max(used.cpu_s, limits.cpu_max):.0f} s of processor time, it may have {limits.cpu_max:.0f} s"
    if used.oom_kills:
        return f"out of memory: memory_max is {size(limits.memory_max)}, and the kernel killed {used.oom_kills} of its processes"
    if number == SIGXFSZ:
        return f"file_max: a file grew past {size(limits.file_max)}"
    if used.refused_forks:
        return f"processes_max: it may have {limits.processes_max} at once, and {used.refused_forks} more were refused"
    return ""
