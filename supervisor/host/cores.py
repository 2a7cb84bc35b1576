"""Which cores the agents run on, and which one stays with the supervisor.

Measured with 8 busy agents on 2 cores: keeping a core free cut the supervisor's fork+exec p90 from 8-11 ms to under 1, while `nice`
changed nothing visible; but half the cores is half the agents' throughput. So a core is kept only where it is a small part.
Agents share one *set* of cores: single cores lose throughput as soon as agents are unequal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

PINNING_FROM = 4
"""Cores from which on one is kept for the supervisor unasked."""


@dataclass(frozen=True, slots=True)
class Plan:
    """CPU numbers of each side. `agents` is what `LaunchSpec.cores` takes: empty means no pinning."""

    supervisor: tuple[int, ...] = ()
    agents: tuple[int, ...] = ()


def plan(cores: Iterable[int], reserve: int | None = None) -> Plan:
    """Share `cores` (the CPU numbers this process may use).

    `reserve` is how many of the lowest ones stay with the supervisor; None lets the rule above decide, 0 switches pinning off.
    At least one core always goes to the agents.
    """
    ordered = tuple(sorted(set(cores)))
    if reserve is None:
        reserve = 1 if len(ordered) >= PINNING_FROM else 0
    kept = min(max(reserve, 0), len(ordered) - 1)
    return Plan(ordered[:kept], ordered[kept:]) if kept > 0 else Plan()


def choose(wanted: tuple[int, ...] | int, reserve: int | None, cores: Iterable[int], turn: int = 0) -> tuple[int, ...]:
    """The cores of one task, as `LaunchSpec.cores` takes them.

    `wanted` is the task's own word: CPU numbers, which are taken as they are; how many of the agents' cores it shall have; or 0 for
    the plan's whole set. Different `turn`s give tasks that want a few cores different ones, as far as they go round.
    """
    if not isinstance(wanted, int):
        return tuple(sorted(set(wanted)))
    ordered = tuple(sorted(set(cores)))
    agents = plan(ordered, reserve).agents
    if wanted <= 0:
        return agents
    pool = agents or ordered
    count = min(wanted, len(pool))
    return tuple(sorted(pool[(turn * count + step) % len(pool)] for step in range(count)))


def usable() -> tuple[int, ...]:
    """The CPU numbers this process may run on: fewer than the machine has inside a cpuset. Without affinity (macOS), all."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
