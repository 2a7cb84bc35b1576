"""Counters that outlive every process: what was counted by now, and up to where the rows were read that it was counted from.

Both are written down together (`to_json`), so that a row is counted once, whoever was killed in between, and no counter ever goes back.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.core.metrics.catalog import BY_NAME, Metric, MetricType

Labels = tuple[str, ...]
OTHER = "other"
MOST = {"agent": 100, "model": 50, "scope": 100}
"""So many different values of a label are kept apart for ever, the first ones; every later one is `other`."""
SERIES_MAX = 2000
"""Of one metric; what would be more is counted under `other`."""
LABEL_MAX = 80
"""Characters of a label's value."""


@dataclass(slots=True)
class Spread:
    """A histogram: how many fell into each bucket (the last one has no bound), and their sum."""

    buckets: list[int]
    total: float = 0.0

    def observe(self, bounds: tuple[float, ...], value: float) -> None:
        """Count one more."""
        self.buckets[bisect_left(bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class Cursor:
    """How far a table was read whose rows are written when something begins and changed when it ends."""

    last: int = 0
    open: set[int] = field(default_factory=set)
    """Rows up to `last` that had not ended."""


@dataclass(slots=True)
class Read:
    """How far each table was read."""

    journal: int = 0
    waits: Cursor = field(default_factory=Cursor)
    requests: Cursor = field(default_factory=Cursor)
    turned_away: int = 0
    breakers: int = 0


class Counts:
    """All counters and histograms of the catalog."""

    def __init__(self) -> None:
        self.read = Read()
        self.values: dict[str, dict[Labels, float]] = {}
        self.spreads: dict[str, dict[Labels, Spread]] = {}
        self.seen: dict[str, dict[str, float]] = {}
        """By living attempt, what of it was counted already: `cpu` and `tools` in seconds. By supervisor, its `overflows`."""
        self._known: dict[str, set[str]] = {label: set() for label in MOST}

    # Counting ------------------------------------------------------------------------------------------------------------------------

    def add(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Count; less than nothing counts as nothing."""
        family = self.values.setdefault(metric.name, {})
        key = self._key(metric, labels, family)
        family[key] = family.get(key, 0.0) + max(0.0, by)

    def observe(self, metric: Metric, *labels: str, value: float) -> None:
        """Count a value in a histogram."""
        family = self.spreads.setdefault(metric.name, {})
        key = self._key(metric, labels, family)
        if key not in family:
            family[key] = Spread([0] * (len(metric.buckets) + 1))
        family[key].observe(metric.buckets, max(0.0, value))

    def ratchet(self, metric: Metric, *labels: str, of: str, what: str, to: float) -> None:
        """Count what the growing value `what` of `of` has grown by since it was last seen."""
        seen = self.seen.setdefault(of, {})
        self.add(metric, *labels, by=to - seen.get(what, 0.0))
        seen[what] = max(to, seen.get(what, 0.0))

    def forget(self, kept: Iterable[str]) -> None:
        """Drop what was seen of all others: they have ended."""
        self.seen = {name: self.seen[name] for name in kept if name in self.seen}

    def _key(self, metric: Metric, labels: Labels, family: Mapping[Labels, object]) -> Labels:
        key = tuple(self.bounded(name, value) for name, value in zip(metric.labels, labels, strict=True))
        if key in family or len(family) < SERIES_MAX:
            return key
        return tuple(OTHER if name in MOST else value for name, value in zip(metric.labels, key, strict=True))

    def bounded(self, name: str, value: str) -> str:
        """The value as it is shown."""
        value = tidy(value)
        known = self._known.get(name)
        if known is None or value in known:
            return value
        if len(known) >= MOST[name]:
            return OTHER
        known.add(value)
        return value

    # Keeping -------------------------------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The form in which it is kept."""
        read = self.read
        cursors = {name: {"last": one.last, "open": sorted(one.open)} for name, one in (("waits", read.waits), ("requests", read.requests))}
        shape = {
            "read": {"journal": read.journal, "turned_away": read.turned_away, "breakers": read.breakers, **cursors},
            "values": {name: [[*key, value] for key, value in family.items()] for name, family in self.values.items()},
            "spreads": {name: [[*key, one.buckets, one.total] for key, one in family.items()] for name, family in self.spreads.items()},
            "seen": self.seen,
            "known": {name: sorted(values) for name, values in self._known.items()},
        }
        return json.dumps(shape, separators=(",", ":"))

    def copy(self) -> Counts:
        """One to try with."""
        return Counts.from_json(self.to_json())

    @classmethod
    def from_json(cls, text: str) -> Counts:
        """What `to_json` wrote; a metric whose labels or buckets are others now begins anew. Raises ValueError, KeyError, TypeError or
        AttributeError for anything else."""
        shape: dict[str, Any] = json.loads(text)
        made, read = cls(), shape["read"]
        cursors = {name: Cursor(int(read[name]["last"]), set(map(int, read[name]["open"]))) for name in ("waits", "requests")}
        made.read = Read(int(read["journal"]), cursors["waits"], cursors["requests"], int(read["turned_away"]), int(read["breakers"]))
        for name, rows in shape["values"].items():
            if (metric := BY_NAME.get(name)) is not None and metric.type is MetricType.COUNTER:
                made.values[name] = {tuple(key): float(value) for *key, value in rows if len(key) == len(metric.labels)}
        for name, rows in shape["spreads"].items():
            if (metric := BY_NAME.get(name)) is not None:
                made.spreads[name] = {
                    tuple(key): Spread(list(map(int, buckets)), float(total))
                    for *key, buckets, total in rows
                    if len(key) == len(metric.labels) and len(buckets) == len(metric.buckets) + 1
                }
        made.seen = {str(of): {str(what): float(value) for what, value in seen.items()} for of, seen in shape["seen"].items()}
        made._known = {name: set(map(str, shape["known"].get(name, ()))) for name in MOST}
        return made


def tidy(value: str) -> str:
    """A label's value without what is no text, and cut: names are given by agents and clients."""
    shown = "".join(sign if sign.isprintable() else "�" for sign in value[:LABEL_MAX])
    return shown or "none"


def agent_name(task: str) -> str:
    """A task's name without its run: a job that runs every night is one agent."""
    return task.partition("/")[2] or task
