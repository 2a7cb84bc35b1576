"""Whether an agent comes near the memory that it may have, and whether it leaks: pure, from looks at it over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from supervisor.core.units import size

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
        f"it grows by {size(round(slope * 60))} a minute, steadily for {span / 60:.0f} minutes (a leak?): "
        f"{bounds.name} of {size(bounds.limit)} is met in {math.ceil(left_s / 60)} minutes"
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
