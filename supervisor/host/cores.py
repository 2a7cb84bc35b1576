"""Which cores the agents run on, and which one stays with the supervisor.

Measured with 8 busy agents on 2 cores: keeping a core free cut the supervisor's fork+exec p90 from 8-11 ms to under 1; but half the cores
is half the agents' throughput. So a core is kept only where it is a small part, and always with all its threads, since two threads of a
core take time from one another. Agents share one *set* of cores: single cores lose throughput as soon as agents are unequal. On large
machines the set can be cut into lanes, so that the agents of one lane share caches and stay on one NUMA node.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path

PINNING_FROM = 4
"""Cores from which on one is kept for the supervisor unasked, and lanes are made by `per_lane`."""


@dataclass(frozen=True, slots=True, order=True)
class Core:
    """A physical core that this process may use."""

    node: int
    """Its NUMA node; 0 where the system does not say."""
    cpus: tuple[int, ...]
    """CPU numbers of its threads, as far as this process may run on them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """CPU numbers of each side. `agents` is what `LaunchSpec.cores` takes: empty means no pinning."""

    supervisor: tuple[int, ...] = ()
    agents: tuple[int, ...] = ()


def plan(cores: Iterable[Core], reserve: int | None = None) -> Plan:
    """Share `cores`, see `topology`.

    `reserve` is how many of those with the lowest CPU numbers stay with the supervisor; None lets the rule above decide, 0 switches
    pinning off. At least one core always goes to the agents.
    """
    kept, left = _shared(cores, reserve)
    return Plan(_cpus(kept), _cpus(left)) if kept else Plan()


def lanes(cores: Iterable[Core], reserve: int | None, count: int) -> tuple[tuple[int, ...], ...]:
    """The agents' cores cut into `count` sets of CPU numbers, at most one for each core. Their sizes differ by one core at most, and the
    cores of a NUMA node lie together, so that as few sets as possible have cores of two."""
    left = sorted(_shared(cores, reserve)[1])
    count = max(1, min(count, len(left)))
    bounds = [len(left) * number // count for number in range(count + 1)]
    return tuple(_cpus(left[first:last]) for first, last in pairwise(bounds))


def choose(wanted: tuple[int, ...] | int, reserve: int | None, cores: Iterable[Core], turn: int = 0) -> tuple[int, ...]:
    """The cores of one task, as `LaunchSpec.cores` takes them.

    `wanted` is the task's own word: CPU numbers, which are taken as they are; how many of the agents' CPUs it shall have, of different
    cores as far as they go; or 0 for the plan's whole set. Different `turn`s give tasks that want a few different ones, as far as they go
    round.
    """
    if not isinstance(wanted, int):
        return tuple(sorted(set(wanted)))
    kept, left = _shared(cores, reserve)
    if wanted <= 0:
        return _cpus(left) if kept else ()
    pool = [cpu for threads in zip_longest(*(core.cpus for core in left)) for cpu in threads if cpu is not None]
    count = min(wanted, len(pool))
    return tuple(sorted(pool[(turn * count + step) % len(pool)] for step in range(count)))


def _shared(cores: Iterable[Core], reserve: int | None) -> tuple[Sequence[Core], Sequence[Core]]:
    """The supervisor's, and the agents'."""
    ordered = sorted(set(cores), key=lambda core: core.cpus)
    if reserve is None:
        reserve = 1 if len(ordered) >= PINNING_FROM else 0
    kept = max(0, min(reserve, len(ordered) - 1))
    return ordered[:kept], ordered[kept:]


def _cpus(cores: Iterable[Core]) -> tuple[int, ...]:
    return tuple(sorted(cpu for core in cores for cpu in core.cpus))


def usable() -> tuple[int, ...]:
    """The CPU numbers this process may run on: fewer than the machine has inside a cpuset. Without affinity (macOS), all."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def for_agents(reserve: int | None) -> tuple[int, ...]:
    """The CPU numbers that agents may use here, pinned or not."""
    return plan(topology(), reserve).agents or usable()


def topology(cpus: Iterable[int] | None = None, system: Path = Path("/sys/devices/system")) -> tuple[Core, ...]:
    """The physical cores of `cpus` (by default all that are usable), by their lowest CPU number. Where the system does not say which CPUs
    are threads of one core, each counts as a core."""
    nodes = {cpu: int(file.parent.name[4:]) for file in system.glob("node/node*/cpulist") for cpu in _listed(file)}
    wanted = frozenset(usable() if cpus is None else cpus)
    cores = {Core(nodes.get(cpu, 0), _siblings(cpu, wanted, system)) for cpu in wanted}
    return tuple(sorted(cores, key=lambda core: core.cpus))


def _siblings(cpu: int, wanted: frozenset[int], system: Path) -> tuple[int, ...]:
    together = _listed(system / f"cpu/cpu{cpu}/topology/thread_siblings_list")
    return tuple(sorted(wanted.intersection(together))) if cpu in together else (cpu,)


def _listed(file: Path) -> list[int]:
    """The CPU numbers of a list of the kernel's, such as `0-3,8`; none where the file is not there or is no such list."""
    try:
        words = file.read_text().strip().split(",")
        ranges = [tuple(map(int, word.split("-"))) for word in words if word]
    except (OSError, ValueError):
        return []
    return [cpu for found in ranges for cpu in range(found[0], found[-1] + 1)]
