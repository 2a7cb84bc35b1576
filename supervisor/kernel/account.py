"""What one attempt took, and where its time went: `account` of `result.json` and of the ledger.

While it lives the account holds what was measured of its processes (`Measured`); when it has ended the times and the tokens join it.
What nobody measured is None.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import add
from typing import Any

from supervisor.kernel import codec
from supervisor.kernel.capacity import KNOWN

# Account
# -------


Span = tuple[float, float]
"""From when to when, in seconds of one clock."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What an attempt's processes have of the graphics processors, as the vendor's tool says."""

    memory: int | None = None
    """Bytes, all its processes together; None where the tool does not say."""
    utilisation: float | None = None
    """Share of the processors' time, 0 to 1 for each device; None where the tool does not say it of a process."""


@dataclass(frozen=True, slots=True)
class Tree:
    """All processes of an attempt at one moment, its runner included."""

    processes: int
    memory: int
    """Bytes. What several processes share counts once (PSS). Of a process of which the kernel does not say so, or not in time, all counts
    but what it has of files: a part of it may be counted twice."""
    cpu_s: float
    """Of those that live and of the children that they waited for."""
    agent_cpu_s: float
    """Of the agent's own process and of ours around it; the rest of `cpu_s` is its tools'."""
    gpu: Gpu | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What the looks at a living attempt came to."""

    samples: int = 0
    memory: int = 0
    """Bytes at the newest look."""
    peak_memory: int | None = None
    """The most at any look, and not less than the most that one process had at once."""
    processes: int = 0
    peak_processes: int | None = None
    cpu_s: float | None = None
    agent_cpu_s: float | None = None
    peak_gpu_memory: int | None = None
    gpu_utilisation: float | None = None
    """The mean over the looks at which the tool said it."""
    gpu_samples: int = 0
    warning: str = ""
    """What was said of its memory last, for people."""

    @classmethod
    def of(cls, account: str | None) -> Measured:
        """Read the ledger's column, also of an attempt that has ended: what it says null of takes the default."""
        shape: dict[str, Any] = json.loads(account or "{}")
        return codec.load(cls, {name: value for name, value in shape.items() if value is not None})

    def after(self, tree: Tree) -> Measured:
        """With one more look."""
        new = replace(
            self,
            samples=self.samples + 1,
            memory=tree.memory,
            peak_memory=max(self.peak_memory or 0, tree.memory),
            processes=tree.processes,
            peak_processes=max(self.peak_processes or 0, tree.processes),
            cpu_s=max(self.cpu_s or 0.0, tree.cpu_s),
            agent_cpu_s=max(self.agent_cpu_s or 0.0, tree.agent_cpu_s),
        )
        return new._with_gpu(tree.gpu) if tree.gpu is not None else new

    def _with_gpu(self, gpu: Gpu) -> Measured:
        memory = self.peak_gpu_memory if gpu.memory is None else max(self.peak_gpu_memory or 0, gpu.memory)
        if gpu.utilisation is None:
            return replace(self, peak_gpu_memory=memory)
        before = (self.gpu_utilisation or 0.0) * self.gpu_samples
        mean = (before + gpu.utilisation) / (self.gpu_samples + 1)
        return replace(self, peak_gpu_memory=memory, gpu_utilisation=mean, gpu_samples=self.gpu_samples + 1)


@dataclass(frozen=True, slots=True)
class Life:
    """The times of one attempt: wall-clock seconds since 1970, and sums in seconds."""

    queued: float
    """When it could have started, had there been a slot."""
    spawned: float
    started: float | None
    """When its command began; None: it never did, or nobody wrote it down."""
    ended: float
    model: tuple[Span, ...] = ()
    """Its requests at the models, each from its sending to its end."""
    waited: tuple[Span, ...] = ()
    """Its requests' waits for their turn at the gateway."""
    human_s: float | None = None
    """How long it waited for a person; None: nobody tells of this kind of agent."""
    paused_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Used:
    """What is known at the end beside the looks."""

    cpu_s: float | None = None
    """Of every process that was waited for."""
    process_memory: int = 0
    """The most that one process had in memory at once, bytes; 0: not known."""
    tokens: int | None = None
    """What counts against a limit: input that came from no cache, what was written to one, and output."""
    all_tools: bool = False
    """It is no agent of ours to tell from its tools: a command, all of whose processor time is a tool's."""


def closed(measured: Measured, used: Used, life: Life) -> dict[str, Any]:
    """The account of an attempt that has ended, as a JSON object. Seconds and bytes. `local_s` is what is left of `wall_s`: its tools and
    its own work."""
    cpu_s = max(filter(None, (measured.cpu_s, used.cpu_s)), default=used.cpu_s)
    peak = max(measured.peak_memory or 0, used.process_memory)
    return {
        **_times(life),
        "cpu_s": _rounded(cpu_s),
        "tool_cpu_s": _rounded(cpu_s if used.all_tools else _tools(cpu_s, measured)),
        "agent_cpu_s": None if used.all_tools else _rounded(measured.agent_cpu_s),
        "tokens": used.tokens,
        "peak_memory": peak or None,
        "peak_processes": measured.peak_processes,
        "peak_gpu_memory": measured.peak_gpu_memory,
        "gpu_utilisation": _rounded(measured.gpu_utilisation),
        "samples": measured.samples,
    }


def _tools(cpu_s: float | None, measured: Measured) -> float | None:
    if cpu_s is None or measured.agent_cpu_s is None:
        return None
    return max(0.0, cpu_s - measured.agent_cpu_s)


def _times(life: Life) -> dict[str, float | None]:
    began = life.started or life.spawned
    wall = max(0.0, life.ended - began)
    within = (began, began + wall)
    model = covered(life.model, within)
    waited = covered((*life.model, *life.waited), within) - model
    away = min(wall, (life.human_s or 0.0) + life.paused_s)
    return {
        "wall_s": round(wall, 3),
        "slot_queue_s": round(max(0.0, life.spawned - life.queued), 3),
        "launch_s": round(max(0.0, began - life.spawned), 3),
        "model_s": round(model, 3),
        "token_queue_s": round(waited, 3),
        "human_s": _rounded(life.human_s),
        "paused_s": round(life.paused_s, 3),
        "local_s": round(max(0.0, wall - model - waited - away), 3),
    }


def covered(spans: Iterable[Span], within: Span) -> float:
    """Seconds of `within` that lie in at least one of the spans."""
    total, reached = 0.0, within[0]
    for begin, end in sorted(spans):
        begin, end = max(begin, reached), min(end, within[1])
        if end > begin:
            total, reached = total + end - begin, end
    return total


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


# Forecast
# --------
# When a plan will have ended and what it will have cost, from what such tasks took before. Pure.
#
# A time is seconds from the start, an amount US dollars. What nobody knows is None, and makes every sum that needs it None; it is never 0.
#
# The end of a task i on m slots lies between two bounds. No order can beat `max(chain_i, work_i / m)`; no order that keeps every
# slot busy is
# worse than `chain_i + (work_i - chain_i) / m` (Graham 1966). `chain_i` is the longest chain of tasks that ends with i, `work_i` all that
# starts before it or with it. So more slots are never later, and no end is before the longest chain.


LOW, HIGH = 0.1, 0.9
"""Quantiles of what was measured."""


@dataclass(frozen=True, slots=True)
class Range:
    """An amount between two bounds. `low` is 0 where nobody knows."""

    low: float = 0.0
    likely: float | None = None
    high: float | None = None

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, _known(add, self.likely, other.likely), _known(add, self.high, other.high))


NOTHING = Range(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of one task."""

    name: str
    after: tuple[str, ...] = ()
    seconds: Range = Range()
    dollars: Range = Range()


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of a whole plan."""

    ends: Mapping[str, Range]
    """Of each task, in the order in which they are expected to start."""
    costs: Mapping[str, Range]
    """What all until this one have cost, in the same order."""
    end: Range
    cost: Range
    binding: str
    """`chain` when the longest chain of tasks takes longer than the slots hold the others up; else the resource that the slots are limited
    by."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """What a bound means for the tasks of a plan."""

    out: tuple[str, ...] = ()
    """They do not fit by what is likely."""
    maybe: tuple[str, ...] = ()
    """They may not fit."""
    unknown: tuple[str, ...] = ()
    """Nobody knows."""


def measured(samples: Sequence[float], most: float = 0.0) -> Range:
    """What one more is expected to take: the mean, and between which of the samples most lie. With fewer than KNOWN nobody knows, but
    that it takes at most `most` (0: no such bound)."""
    bound = most or None
    if len(samples) < KNOWN:
        return Range(high=bound)
    ordered = sorted(samples)
    low, high = (ordered[round(part * (len(ordered) - 1))] for part in (LOW, HIGH))
    mean = sum(ordered) / len(ordered)
    low, mean, high = min(low, mean), mean, max(high, mean)
    return Range(*(min(number, bound) for number in (low, mean, high))) if bound is not None else Range(low, mean, high)


def forecast(tasks: Sequence[Expected], slots: int, slots_by: str) -> Forecast:
    """Of tasks in the order in which they would start if none waited for another. `slots`, at least 1: how many live at once; `slots_by`:
    the resource that limits them."""
    ends: dict[str, Range] = {}
    costs: dict[str, Range] = {}
    chains: dict[str, Range] = {}
    work, cost = NOTHING, NOTHING
    for task in [tasks[at] for at in in_order([(one.name, one.after) for one in tasks])]:
        chains[task.name] = chain = task.seconds + _longest([chains[name] for name in task.after if name in chains])
        work, cost = work + task.seconds, cost + task.dollars
        ends[task.name], costs[task.name] = _end(chain, work, slots), cost
    end, chain = _longest(ends.values()), _longest(chains.values())
    return Forecast(ends, costs, end, cost, "chain" if _binds(chain, work, slots) else slots_by)


def misfit(spans: Mapping[str, Range], bound: float) -> Misfit:
    """Which of `ends` or `costs` pass the bound."""
    out, maybe, unknown = [], [], []
    for name, span in spans.items():
        if (span.low if span.likely is None else span.likely) > bound:
            out.append(name)
        elif span.high is not None and span.high <= bound:
            continue
        elif span.likely is None:
            unknown.append(name)
        else:
            maybe.append(name)
    return Misfit(tuple(out), tuple(maybe), tuple(unknown))


def in_order(needs: Sequence[tuple[str, Collection[str]]], rank: Callable[[int], Any] = int) -> list[int]:
    """Return the places of what has these names and needs: each after what it needs, as far as that is among them. Of those that may come
    next the one of the lowest rank comes first, then as given; `rank` gets a place."""
    from graphlib import TopologicalSorter  # only here: short commands need none

    place = {name: at for at, (name, _) in enumerate(needs)}
    sorter = TopologicalSorter({at: {place[name] for name in before if name in place} - {at} for at, (_, before) in enumerate(needs)})
    sorter.prepare()
    ready: list[tuple[Any, int]] = []
    found: list[int] = []
    while sorter.is_active():
        for at in sorter.get_ready():
            heapq.heappush(ready, (rank(at), at))
        found.append(heapq.heappop(ready)[1])
        sorter.done(found[-1])
    return found


def _end(chain: Range, work: Range, slots: int) -> Range:
    return Range(max(chain.low, work.low / slots), _worst(chain.likely, work.likely, slots), _worst(chain.high, work.high, slots))


def _worst(chain: float | None, work: float | None, slots: int) -> float | None:
    return _known(lambda chain, work: chain + (work - chain) / slots, chain, work)


def _binds(chain: Range, work: Range, slots: int) -> bool:
    if chain.likely is None or work.likely is None:
        return chain.low >= work.low / slots and chain.low > 0
    return chain.likely >= work.likely / slots


def _longest(spans: Iterable[Range]) -> Range:
    found: Range = NOTHING
    for span in spans:
        found = Range(max(found.low, span.low), _known(max, found.likely, span.likely), _known(max, found.high, span.high))
    return found


def _known(made: Callable[[float, float], float], one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else made(one, other)
