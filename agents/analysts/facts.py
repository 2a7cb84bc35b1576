"""What is seen in files, in the types of `core.analysis`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from supervisor.core.analysis.merge import merge
from supervisor.core.analysis.types import REPOSITORY, Facts, Finding, Perspective, Severity, Shard


@dataclass(frozen=True, slots=True)
class Seen:
    """What one perspective sees in some files."""

    counts: Mapping[str, int] = field(default_factory=dict)
    findings: Sequence[Finding] = ()
    files: int = 1
    lines: int = 0
    unparsable: int = 0


def total(perspective: Perspective, shard: Shard, parts: Sequence[Seen]) -> Facts:
    """All of it as one, by the rules by which shards become one."""
    every = [_facts(perspective, Shard(index, len(parts)), seen) for index, seen in enumerate(parts, 1)]
    return replace(merge(every).get(perspective, Facts(perspective)), shard=shard)


def _facts(perspective: Perspective, part: Shard, seen: Seen) -> Facts:
    return Facts(
        perspective=perspective,
        shard=part,
        files=seen.files,
        lines=seen.lines,
        unparsable=seen.unparsable,
        counts=seen.counts,
        severities=Counter(finding.severity for finding in seen.findings),
        findings=tuple(seen.findings),
        hot=_hot(seen.findings),
    )


def _hot(findings: Iterable[Finding]) -> dict[str, tuple[int, int, int]]:
    by_file: defaultdict[str, Counter[Severity]] = defaultdict(Counter)
    for finding in findings:
        if finding.file != REPOSITORY:
            by_file[finding.file][finding.severity] += 1
    return {file: (counts[Severity.HIGH], counts[Severity.MEDIUM], counts[Severity.LOW]) for file, counts in by_file.items()}
