"""What one agent may use, and whether its memory grows too much. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final

from supervisor.kernel.format import duration, size
from supervisor.kernel.settings import Settings
from supervisor.kernel.snapshots import SnapshotSpec
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import TaskClass

# Limits
# ------
# What one agent may use, by what each limit is held on this host, and what to say when one ended it.
#
# A limit is about the agent as a whole: everything that it starts, together. Where the kernel counts that (a control group) it is
# held at once. Elsewhere it is held for each process, or looked at from time to time, or not at all, and whoever starts the agent
# says which.


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


def limits_of(settings: Settings, task: TaskSpec, snapshot: SnapshotSpec | None = None) -> Limits:
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
        return (
            f"cpu_max: it used {duration(round(max(used.cpu_s, limits.cpu_max)))} of processor time, it may have {duration(limits.cpu_max)}"
        )
    if used.oom_kills:
        return f"out of memory: memory_max is {size(limits.memory_max)}, and the kernel killed {used.oom_kills} of its processes"
    if number == SIGXFSZ:
        return f"file_max: a file grew past {size(limits.file_max)}"
    if used.refused_forks:
        return f"processes_max: it may have {limits.processes_max} at once, and {used.refused_forks} more were refused"
    return ""


# Memory watch
# ------------
# Whether an agent comes near the memory that it may have, and whether it leaks: pure, from looks at it over time.


KEPT = 64
"""Looks that are kept of one agent; when there are as many, every second one goes, so that they reach back to its beginning."""
LEAK_LOOKS = 12
LEAK_S = 300.0
"""Growth is named once it was seen this often and over this many seconds: a build that swells and shrinks takes less."""
LEAK_PART, LEAK_BYTES = 0.25, 32 * 2**20
"""It grew by at least this share of what it had, and by at least so much."""
LEAK_STEADY = 0.9
"""How well a straight line has to describe it (r squared, 0 to 1)."""
LEAK_HORIZON_S = 4 * 3600.0
"""A line that meets the limit later than this is not worth a word."""


class Step(StrEnum):
    """What to do about an agent."""

    WARN = "warn"
    NAME_LEAK = "leak"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one agent may have."""

    limit: int
    """Bytes: its `memory_max`, else what the machine has."""
    name: str = "memory_max"
    """What `limit` is, for people."""
    warn: float = 0.0
    """Share of `limit` from which a person is told; 0: never."""
    restart: float = 0.0
    """Share of `limit` from which its work is rescued and it begins again; 0: never."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What is remembered of one agent."""

    looks: tuple[tuple[float, int], ...] = ()
    """Monotonic seconds and bytes, oldest first."""
    said: frozenset[Step] = frozenset()
    """What was said of it: each once, until it is well below again."""


def look(before: Watched, at: float, memory: int, bounds: Bounds) -> tuple[Watched, Step | None, str]:
    """With one more look: what to do about the agent now, and why in plain words; None when there is nothing new."""
    now = replace(before, looks=_thinned((*before.looks, (at, memory))))
    if bounds.warn and memory < 0.9 * bounds.warn * bounds.limit:
        now = replace(now, said=now.said - {Step.WARN})
    step, why = _step(now, memory, bounds)
    if step is None or step in now.said:
        return now, None, ""
    return replace(now, said=now.said | {step}), step, why


def _step(now: Watched, memory: int, bounds: Bounds) -> tuple[Step | None, str]:
    held = f"it holds {size(memory)}, {memory / bounds.limit:.0%} of {bounds.name}"
    leak = next(filter(None, (_leak(looks, bounds) for looks in _since(now.looks))), "")
    if bounds.restart and memory >= bounds.restart * bounds.limit:
        return Step.RESTART, "; ".join(filter(None, (held, leak)))
    if bounds.warn and memory >= bounds.warn * bounds.limit and Step.WARN not in now.said:
        return Step.WARN, "; ".join(filter(None, (held, leak)))
    return (Step.NAME_LEAK, leak) if leak else (None, "")


def _since(looks: Sequence[tuple[float, int]]) -> Iterator[Sequence[tuple[float, int]]]:
    """All of them, their newer half, the newer half of that: an agent may begin to grow at any time."""
    while len(looks) >= LEAK_LOOKS:
        yield looks
        looks = looks[len(looks) // 2 :]


def _leak(looks: Sequence[tuple[float, int]], bounds: Bounds) -> str:
    """What its growth looks like when that is steady and meets the limit soon; empty otherwise."""
    span = looks[-1][0] - looks[0][0]
    if span < LEAK_S or looks[-1][1] - looks[0][1] < LEAK_BYTES:
        return ""
    slope, steady = _line(looks)
    grown, now = slope * span, looks[-1][1]
    if grown < max(LEAK_BYTES, LEAK_PART * looks[0][1]) or steady < LEAK_STEADY:
        return ""
    left_s = max(0.0, bounds.limit - now) / slope
    if left_s > LEAK_HORIZON_S:
        return ""
    return (
        f"it grows by {size(round(slope * 60))} a minute, steadily for {duration(span)} (a leak?): "
        f"{bounds.name} of {size(bounds.limit)} is met in {duration(left_s)}"
    )


def _line(looks: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """The slope of the line that fits best, bytes a second, and how well it fits (r squared)."""
    mean_at, mean = (sum(look[index] for look in looks) / len(looks) for index in (0, 1))
    over = sum((at - mean_at) ** 2 for at, _ in looks)
    spread = sum((memory - mean) ** 2 for _, memory in looks)
    both = sum((at - mean_at) * (memory - mean) for at, memory in looks)
    if not over or not spread:
        return 0.0, 0.0
    return both / over, both * both / (over * spread)


def _thinned(looks: tuple[tuple[float, int], ...]) -> tuple[tuple[float, int], ...]:
    return looks if len(looks) <= KEPT else (*looks[:-1:2], looks[-1])


# Processor share
# ---------------
# How much of the processor an agent gets beside you, by the class of its task. Pure.
#
# Three things hold it, since none works everywhere (measured with 50 busy agents on 2 cores, decision 0030): the policy and
# niceness of its processes count beside processes of the same control group or session; the niceness of its session counts where
# the kernel shares time between sessions (`sched_autogroup_enabled`), which makes the former mean nothing beside yours; and the
# weight of a control group of its class holds in both cases, whatever sessions it starts.


FULL = 100
"""The weight of a control group that nobody changed, and of a session."""
_NORMAL, _BATCH = 50, 5
_NICEST = 19


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """The share of one agent's processes."""

    nice: int = 0
    """Added to the niceness of its processes, and that of its session. Its I/O priority follows: the kernel derives it from niceness and
    policy where nobody sets it."""
    idle: bool = False
    """Its processes give way to every other one at once (SCHED_IDLE)."""
    weight: int = FULL
    """Of all agents of its class together, as `cpu.weight` of a control group counts."""

    def of_one(self, slots: int) -> int:
        """The weight of an agent that has a group of its own, so that `slots` of them weigh what their class does."""
        return max(1, self.weight // max(1, slots))


def processor_share_of(task_class: TaskClass, nice: int) -> ProcessorShare:
    """The share of a class; `nice` is the settings' for normal tasks. A person waits for interactive ones: those are like your own
    commands. Batch tasks get what is left, and a twentieth of a session's share while nothing is."""
    match task_class:
        case TaskClass.INTERACTIVE:
            return ProcessorShare()
        case TaskClass.NORMAL:
            return ProcessorShare(nice, weight=_NORMAL)
        case TaskClass.BATCH:
            return ProcessorShare(_NICEST, idle=True, weight=_BATCH)
