"""What a crew got of a limit, from the provider's own account alone; of the gateway only what it says of outside use is heard. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

REAL_S = (15.0, 60.0)
"""Outside use is what others took in one of these times before, whichever is more: nobody can see it at once, and it comes in bites."""
SPARE = 0.05
"""Part of a bucket that must be left beside the next request before it is called a stall that this one was not sent."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of the provider's buckets. `offered`, `drawn` and `outside` are sums since it was made; `/sim/stats` describes them."""

    per_minute: float
    capacity: float
    level: float
    offered: float
    drawn: float
    outside: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the provider and at the gateway."""

    at: float
    """Monotonic seconds."""
    arrived: int
    """Requests that came to the provider so far."""
    running: int
    """Those that it is serving."""
    refused: int
    """Those that it refused because of a limit, so far."""
    buckets: Mapping[str, Bucket]
    """By dimension; empty before the first request."""
    claimed: Mapping[str, float]
    """Outside use a minute, by dimension, as the gateway says; empty when it said nothing."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Who asks. There is always a next request, so whoever is not being served is waiting."""

    clients: int
    request: Mapping[str, float]
    """What one request takes on average, by dimension."""
    binding: str
    """The dimension whose limit is short."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one run; docs/bench.md says how each is reckoned."""

    upstream_429: int
    utilisation_after_1min: float
    phantom_outside_per_min: float
    phantom_outside_part: float
    phantom_outside_of: str
    stalls_s: float
    stall_at_s: float
    refused_at_s: tuple[float, ...]


def figures(samples: Sequence[Sample], demand: Demand, settle_s: float) -> Figures:
    """The first sample is of the moment at which the clients began. `settle_s`: how long learning may take before use is judged."""
    began = samples[0].at
    settled = next((sample for sample in samples if sample.at >= began + settle_s), samples[-1])
    part, name, per_minute = max(phantoms(samples), default=(0.0, "", 0.0))
    stall_s, stall_at = max(stalls(samples, demand), default=(0.0, began))
    return Figures(
        upstream_429=samples[-1].refused - samples[0].refused,
        utilisation_after_1min=utilisation(settled, samples[-1], demand),
        phantom_outside_per_min=per_minute,
        phantom_outside_part=part,
        phantom_outside_of=name,
        stalls_s=stall_s,
        stall_at_s=stall_at - began,
        refused_at_s=tuple(after.at - began for before, after in pairwise(samples) if after.refused > before.refused),
    )


def utilisation(first: Sample, last: Sample, demand: Demand) -> float:
    """What the crew was charged over what was free for it between two moments.

    Free is all refill, whether the bucket had room for it or not, less what others took, and what the bucket held at the beginning. What it
    holds at the end was free too, but for as much as it held at the beginning, or one request: less than that nobody can use.
    """
    name = demand.binding
    if name not in first.buckets or name not in last.buckets:
        return 0.0
    begin, end = first.buckets[name], last.buckets[name]
    held = max(0.0, begin.level)
    left = min(max(0.0, end.level), max(held, demand.request[name]))
    free = (end.offered - begin.offered) - (end.outside - begin.outside) + held - left
    return (end.drawn - begin.drawn) / free if free > 0 else 0.0


def phantoms(samples: Sequence[Sample]) -> Iterator[tuple[float, str, float]]:
    """(part of the limit, dimension, per minute) by which the gateway claims more outside use than there was, where it does."""
    places = [0] * len(REAL_S)
    for sample in samples:
        for index, window_s in enumerate(REAL_S):
            while samples[places[index] + 1 : places[index] + 2] and samples[places[index] + 1].at <= sample.at - window_s:
                places[index] += 1
        for name, claimed in sample.claimed.items():
            if name in sample.buckets:
                more = claimed - max(_outside_per_minute(samples[place], sample, name) for place in places)
                if more > 0:
                    yield more / sample.buckets[name].per_minute, name, more


def _outside_per_minute(first: Sample, last: Sample, name: str) -> float:
    before = first.buckets[name].outside if name in first.buckets else 0.0
    elapsed = last.at - first.at
    return (last.buckets[name].outside - before) * 60 / elapsed if elapsed > 0 else 0.0


def stalls(samples: Sequence[Sample], demand: Demand) -> Iterator[tuple[float, float]]:
    """(seconds, since when) of each time in which a request waited, the provider could have served it, and nothing came."""
    since: float | None = None
    for before, after in pairwise(samples):
        if after.arrived > before.arrived or not _could_serve(before, demand) or not _could_serve(after, demand):
            since = None
            continue
        since = before.at if since is None else since
        yield after.at - since, since


def _could_serve(sample: Sample, demand: Demand) -> bool:
    """Whether the provider could serve one more request, with `SPARE` left, when all that it serves now has been paid."""
    if sample.running >= demand.clients:
        return False
    return all(_has_room(bucket, demand.request.get(name, 0.0), sample.running, name) for name, bucket in sample.buckets.items())


def _has_room(bucket: Bucket, request: float, running: int, name: str) -> bool:
    still_to_come = running * request if name == "output" else 0.0  # input is charged at arrival, output as it is produced
    return bucket.level - still_to_come >= min(bucket.capacity, request + SPARE * bucket.capacity)
