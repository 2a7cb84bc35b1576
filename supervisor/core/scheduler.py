"""Which ready tasks start next, on which free slots. Pure: the same crew gives the same answer.

Starting more agents than the models can serve only makes all of them wait, so while requests queue in the gateway some classes are held
back: batch first, then normal, interactive never. A task that is held back starts all the same when nothing else lives: whatever a delay
comes from, it must not stop the crew for good.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice

from supervisor.core.crew import Crew, Rank, TaskClass
from supervisor.core.draft import Draft

HOLDS_FROM_S: Mapping[TaskClass, float] = {TaskClass.BATCH: 30.0, TaskClass.NORMAL: 120.0}
"""A class is held back when a request would wait this long, and until it would wait less than half of it, so that one request more or
less does not start and stop the crew. 120 s is half of what a request is held for by default (`hold`, 240 s): beyond it, one more agent
brings those at work close to the answer 429. Who works for nobody until morning gives way at a quarter of that."""


def pick(crew: Draft) -> list[str]:
    """The tasks to start now, first one first: interactive before normal before batch, then higher priority, then older."""
    living = len(crew.living())
    free = crew.slots - living
    if not crew.admitting or free <= 0:
        return []
    welcome = _first(free, (crew.ready(name) for name in TaskClass if name not in crew.held_back))
    return welcome if welcome or living else _first(1, map(crew.ready, TaskClass))


def _first(count: int, queues: Iterable[Iterable[Rank]]) -> list[str]:
    return [name for _, _, name in islice(chain.from_iterable(queues), count)]


def held_back(before: Collection[TaskClass], delay_s: float, *, parked: bool) -> frozenset[TaskClass]:
    """The classes to hold back now, given those `before`. `parked`: nothing is served until some limit's reset."""
    return frozenset(
        name for name, limit in HOLDS_FROM_S.items() if parked or delay_s >= limit or (name in before and delay_s >= limit / 2)
    )


def why_held(delay_s: float, *, parked: bool) -> str:
    """Why a task of a class that is held back waits, in a person's words."""
    if parked:
        return "waits for the model limit (nothing is served before its reset)"
    if delay_s < 1.0:
        return "waits for the model limit"
    return f"waits for the model limit (a request waits {f'{delay_s:.0f}s' if delay_s < 120 else f'{delay_s / 60:.0f}m'})"


def waiting_for_traffic(crew: Crew) -> int:
    """How many tasks could start and do not because the models are busy."""
    return sum(len(crew.ready[name]) for name in crew.held_back)


def wakes_at(crew: Crew) -> float | None:
    """The earliest monotonic time at which a backoff ends, or None: the loop need not wake before it for the scheduler's sake."""
    return crew.resting[0][0] if crew.resting else None
