"""How many agents can live at once: as many as the scarcest of cores, memory, tokens and the user's own cap carries. Pure.

What one agent takes is learned per kind from the attempts that ended, beginning with an assumption. An assumption is small and binds
little, so that it stops nobody who could work; but a crew whose size nobody set grows beyond `Means.start` only for kinds whose needs are
measured (docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

MIB = 2**20
KNOWN = 5
"""Attempts from which on a need is learned; with fewer it is an assumption."""
TEACHES_S = 10.0
"""A shorter attempt teaches only how long attempts take and what they cost: most of it is its start."""
MEMORY_FADE = 0.05
"""The learned peak falls by this part of the difference when an attempt took less, and rises at once when one took more: too much memory
ends agents, too little use of it costs only time."""
NEWEST = 0.1
"""Weight of the newest attempt in the other means, once there are enough."""
PER_CORE = 2.0
"""Agents that keep a core busy all the time and may share one."""
CEILING = 1000
"""More than the largest `slots`."""
MOST = 200
"""Agents at once when the user set no cap."""


@dataclass(frozen=True, slots=True)
class Need:
    """What one agent of a kind takes. Each count says from how many attempts the value beside it was learned; below `KNOWN` it is
    assumed."""

    cores: float = 0.1
    """Processors that it keeps busy, on average over its life."""
    memory: int = 384 * MIB
    """Bytes at its peak, all its processes together."""
    tpm: float = 0.0
    """Tokens per minute, on average over its life."""
    wall_s: float = 0.0
    """Seconds that an attempt takes; 0: not known."""
    cores_from: int = 0
    memory_from: int = 0
    tpm_from: int = 0
    usd: float = 0.0
    """What an attempt costs, US dollars; 0: not known, or nothing."""
    usd_from: int = 0

    @property
    def known(self) -> bool:
        """Whether both what the machine gives are measured."""
        return min(self.cores_from, self.memory_from) >= KNOWN

    def assumed(self) -> list[str]:
        """The resources of which nobody has measured enough."""
        counts = {"cores": self.cores_from, "memory": self.memory_from, "tokens": self.tpm_from}
        return [name for name, count in counts.items() if count < KNOWN]


AGENT = Need()
"""Of a kind that takes a prompt: it mostly waits for its model."""
COMMAND = Need(memory=32 * MIB)
"""Of any other: nobody knows what it does."""


@dataclass(frozen=True, slots=True)
class Took:
    """What one attempt took. None: not measured."""

    wall_s: float
    cpu_s: float | None = None
    peak_memory: int | None = None
    tokens: int | None = None
    usd: float | None = None
    contended: bool = True
    """It had to share the processors with more than they carry, or nobody knows: it would have taken more."""


@dataclass(frozen=True, slots=True)
class Means:
    """What there is for agents."""

    cap: int | None
    """The user's `slots`; None: not set."""
    start: int
    """Slots that are given whatever processors are needed, and all that are given for unknown needs when there is no cap."""
    cores: float
    memory: int | None = None
    """Bytes that agents may still take, beside what those that live have and will have; None: nobody knows."""
    tpm: float | None = None
    """Tokens per minute that the limits give; None: no limit is known."""
    contended: bool = False
    """Something mostly waits for a processor now, whoever keeps them busy."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many agents each resource carries, and which one binds."""

    slots: int
    """At least 1."""
    binding: str
    """`cap`, `cores`, `memory` or `tokens`; of equal ones the first in this order."""
    carries: Mapping[str, int]
    """By resource; those that do not bind, because need or means are not known, are left out."""
    next: Need
    """What one more agent would take."""


def start(usable_cores: int) -> int:
    """Slots of a crew of which nothing is known: two for each core, at least eight."""
    return max(8, 2 * usable_cores)


def learn(before: Need, took: Took) -> Need:
    """The need after one more attempt."""
    after = replace(before, wall_s=_mean_of(before.wall_s, took.wall_s, 1 if before.wall_s else 0, NEWEST))
    if took.usd is not None:
        after = replace(after, usd=_mean_of(before.usd, took.usd, before.usd_from, NEWEST), usd_from=before.usd_from + 1)
    if took.wall_s < TEACHES_S:
        return after
    if took.cpu_s is not None and not (took.contended and took.cpu_s / took.wall_s < before.cores):
        cores = _mean_of(before.cores, took.cpu_s / took.wall_s, before.cores_from, NEWEST)
        after = replace(after, cores=cores, cores_from=before.cores_from + 1)
    if took.peak_memory is not None:
        after = replace(after, memory=_peak(before, took.peak_memory), memory_from=before.memory_from + 1)
    if took.tokens is not None:
        tpm = _mean_of(before.tpm, took.tokens / took.wall_s * 60, before.tpm_from, NEWEST)
        after = replace(after, tpm=tpm, tpm_from=before.tpm_from + 1)
    return after


def _mean_of(before: float, newest: float, samples: int, least: float) -> float:
    """The first measurement takes the place of the assumption."""
    return before + max(least, 1.0 / (samples + 1)) * (newest - before)


def _peak(before: Need, memory: int) -> int:
    if memory >= before.memory or not before.memory_from:
        return memory
    return round(before.memory - MEMORY_FADE * (before.memory - memory))


def capacity(means: Means, living: Iterable[Need], waiting: Iterable[tuple[Need, int]]) -> Capacity:
    """What the means carry, beside the needs of those that live. `waiting`: the need of each kind that waits, and how many wait of it."""
    alive = list(living)
    mean = _mean(list(waiting)) or _mean([(need, 1) for need in alive]) or AGENT
    trusted = mean.known and means.memory is not None
    cap = means.cap if means.cap is not None else max(means.start, MOST if trusted else means.start)
    carries = {"cap": cap}
    if mean.cores_from >= KNOWN:
        left = means.cores * PER_CORE - sum(need.cores for need in alive)
        more = _more(left, mean.cores)
        carries["cores"] = max(min(means.start, cap), len(alive) + (min(0, more) if means.contended else more))
    if means.memory is not None:
        carries["memory"] = len(alive) + _more(means.memory, mean.memory)
    if means.tpm is not None and mean.tpm_from >= KNOWN:
        carries["tokens"] = len(alive) + _more(means.tpm - sum(need.tpm for need in alive), mean.tpm)
    binding = min(carries, key=lambda name: carries[name])
    return Capacity(max(1, carries[binding]), binding, carries, mean)


def _more(left: float, each: float) -> int:
    """How many more of `each` fit into what is left, below 0 when there are too many already; never more than `CEILING`."""
    if left < 0:
        return -1
    return int(min(CEILING, left / each)) if each > 0 else CEILING


def _mean(needs: list[tuple[Need, int]]) -> Need | None:
    total = sum(count for _, count in needs)
    if not total:
        return None
    return Need(
        cores=sum(need.cores * count for need, count in needs) / total,
        memory=round(sum(need.memory * count for need, count in needs) / total),
        tpm=sum(need.tpm * count for need, count in needs) / total,
        wall_s=sum(need.wall_s * count for need, count in needs) / total,
        cores_from=min(need.cores_from for need, _ in needs),
        memory_from=min(need.memory_from for need, _ in needs),
        tpm_from=min(need.tpm_from for need, _ in needs),
        usd=sum(need.usd * count for need, count in needs) / total,
        usd_from=min(need.usd_from for need, _ in needs),
    )


@dataclass(frozen=True, slots=True)
class Growth:
    """When the crew grows and shrinks within what is carried, one slot at a look: by how many tasks wait for a start, or by how long the
    last of them is predicted to wait. The default grows and shrinks with what is carried."""

    above: float = 0.0
    below: float = 0.0
    seconds: bool = False
    """Whether the two are seconds; otherwise they are tasks."""


def predicted_wait_s(depth: int, slots: int, need: Need) -> float:
    """How long the last of `depth` waiting tasks waits for its start when attempts go on taking as long as they took; 0 when nobody
    knows."""
    return depth / max(1, slots) * need.wall_s


@dataclass(frozen=True, slots=True)
class Size:
    """A crew."""

    slots: int
    living: int
    """Attempts that take a slot."""
    waiting: int
    """Tasks that could start."""


def grown(now: Size, found: Capacity, means: Means, growth: Growth) -> int:
    """The slots from now on: never more than is carried, and never fewer than `means.start` unless fewer are carried.

    Without a rule they are what is carried, at once when the user set a cap. Without one the crew has at most an eighth more than live, so
    that what a few attempts taught is tried step by step, and an idle crew is small again.
    """
    if growth.above or growth.below:
        load = predicted_wait_s(now.waiting, now.slots, found.next) if growth.seconds else now.waiting
        wanted = now.slots + (1 if load > growth.above else -1 if load < growth.below else 0)
    else:
        wanted = found.slots if means.cap is not None else now.living + max(1, now.living // 8)
    return max(1, min(found.slots, max(means.start, wanted)))
