"""Many shards of a perspective become one, in an order that does not depend on who ended first."""

from __future__ import annotations

from collections.abc import Iterable

from supervisor.core.analysis.hotspots import summed
from supervisor.core.analysis.types import COUNTS, Facts, Perspective, Severity, Shard, order

_GREATEST = frozenset({"worst"})


def merge(parts: Iterable[Facts]) -> dict[Perspective, Facts]:
    """The facts of each perspective that has any, in the order of Perspective. A shard given twice counts once: the one with more files."""
    found: dict[Perspective, dict[Shard, Facts]] = {}
    for part in sorted(parts, key=lambda facts: (facts.shard.of, facts.shard.index, -facts.files, facts.lines)):
        found.setdefault(part.perspective, {}).setdefault(part.shard, part)
    return {name: _one(name, list(found[name].values())) for name in Perspective if name in found}


def _one(name: Perspective, parts: list[Facts]) -> Facts:
    return Facts(
        perspective=name,
        files=sum(part.files for part in parts),
        lines=sum(part.lines for part in parts),
        unparsable=sum(part.unparsable for part in parts),
        counts={count: _total(count, parts) for count in COUNTS[name]},
        severities={severity: sum(part.severities.get(severity, 0) for part in parts) for severity in Severity},
        findings=tuple(sorted((finding for part in parts for finding in part.findings), key=order)),
        hot=summed(item for part in parts for item in part.hot.items()),
    )


def _total(name: str, parts: list[Facts]) -> int:
    numbers = [part.counts.get(name, 0) for part in parts]
    return max(numbers, default=0) if name in _GREATEST else sum(numbers)
