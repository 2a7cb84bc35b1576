"""When a plan will have ended and what it will have cost, from what such tasks took before. Pure.

A time is seconds from the start, an amount US dollars. What nobody knows is None, and makes every sum that needs it None; it is never 0.

The end of a task i on m slots lies between two bounds. No order can beat `max(chain_i, work_i / m)`; no order that keeps every slot busy is
worse than `chain_i + (work_i - chain_i) / m` (Graham 1966). `chain_i` is the longest chain of tasks that ends with i, `work_i` all that
starts before it or with it. So more slots are never later, and no end is before the longest chain.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from supervisor.kernel.capacity import KNOWN

LOW, HIGH = 0.1, 0.9
"""Quantiles of what was measured."""


@dataclass(frozen=True, slots=True)
class Span:
    """An amount between two bounds. `low` is 0 where nobody knows."""

    low: float = 0.0
    likely: float | None = None
    high: float | None = None

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, _sum(self.likely, other.likely), _sum(self.high, other.high))


NOTHING = Span(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of one task."""

    name: str
    after: tuple[str, ...] = ()
    seconds: Span = Span()
    dollars: Span = Span()


@dataclass(frozen=True, slots=True)
class Forecast:
    """Of a whole plan."""

    ends: Mapping[str, Span]
    """Of each task, in the order in which they are expected to start."""
    costs: Mapping[str, Span]
    """What all until this one have cost, in the same order."""
    end: Span
    cost: Span
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


def measured(samples: Sequence[float], most: float = 0.0) -> Span:
    """What one more is expected to take: the mean, and between which of the samples most lie. With fewer than KNOWN nobody knows, but
    that it takes at most `most` (0: no such bound)."""
    bound = most or None
    if len(samples) < KNOWN:
        return Span(high=bound)
    ordered = sorted(samples)
    low, high = (ordered[round(part * (len(ordered) - 1))] for part in (LOW, HIGH))
    mean = sum(ordered) / len(ordered)
    low, mean, high = min(low, mean), mean, max(high, mean)
    return Span(*(min(number, bound) for number in (low, mean, high))) if bound is not None else Span(low, mean, high)


def forecast(tasks: Sequence[Expected], slots: int, slots_by: str) -> Forecast:
    """Of tasks in the order in which they would start if none waited for another. `slots`, at least 1: how many live at once; `slots_by`:
    the resource that limits them."""
    ends: dict[str, Span] = {}
    costs: dict[str, Span] = {}
    chains: dict[str, Span] = {}
    work, cost = NOTHING, NOTHING
    for task in _in_order(tasks):
        chains[task.name] = chain = task.seconds + _longest([chains[name] for name in task.after if name in chains])
        work, cost = work + task.seconds, cost + task.dollars
        ends[task.name], costs[task.name] = _end(chain, work, slots), cost
    end, chain = _longest(ends.values()), _longest(chains.values())
    return Forecast(ends, costs, end, cost, "chain" if _binds(chain, work, slots) else slots_by)


def misfit(spans: Mapping[str, Span], bound: float) -> Misfit:
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


def _in_order(tasks: Sequence[Expected]) -> list[Expected]:
    """As given, but each after what it comes after; names of no task count as done."""
    place = {task.name: index for index, task in enumerate(tasks)}
    needs = {task.name: {name for name in task.after if name in place} for task in tasks}
    behind: dict[str, list[str]] = {}
    for name, before in needs.items():
        for need in before:
            behind.setdefault(need, []).append(name)
    ready = [place[name] for name, before in needs.items() if not before]
    heapq.heapify(ready)
    found = []
    while ready:
        task = tasks[heapq.heappop(ready)]
        found.append(task)
        for name in behind.get(task.name, ()):
            needs[name].discard(task.name)
            if not needs[name]:
                heapq.heappush(ready, place[name])
    return found


def _end(chain: Span, work: Span, slots: int) -> Span:
    return Span(max(chain.low, work.low / slots), _worst(chain.likely, work.likely, slots), _worst(chain.high, work.high, slots))


def _worst(chain: float | None, work: float | None, slots: int) -> float | None:
    return None if chain is None or work is None else chain + (work - chain) / slots


def _binds(chain: Span, work: Span, slots: int) -> bool:
    if chain.likely is None or work.likely is None:
        return chain.low >= work.low / slots and chain.low > 0
    return chain.likely >= work.likely / slots


def _longest(spans: Iterable[Span]) -> Span:
    found: Span = NOTHING
    for span in spans:
        found = Span(max(found.low, span.low), _most(found.likely, span.likely), _most(found.high, span.high))
    return found


def _most(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else max(one, other)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
