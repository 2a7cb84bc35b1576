"""One analyst's work from beginning to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agents.analysts import complexity, docstrings, security, sources, structure, tests
from agents.analysts.facts import Seen, total
from agents.analysts.parameters import Parameters
from agents.analysts.parsing import Module, Unparsable, parse, without_cycles
from agents.analysts.progress import Progress
from agents.analysts.sources import Source
from supervisor.core.analysis.types import Facts, Perspective

Look = Callable[[Module], Seen]
LOOKS: Mapping[Perspective, Look] = {
    Perspective.COMPLEXITY: complexity.look,
    Perspective.DOCSTRINGS: docstrings.look,
    Perspective.TESTS: tests.look,
    Perspective.STRUCTURE: structure.look,
}
"""The perspectives that look at one tree after the other; security leaves that to bandit."""


def survey(job: Parameters, root: Path, progress: Progress) -> Facts:
    """What `job` asks for, of the checkout at `root`. Raises ToolMissing or ToolFailed."""
    every = [source for source in sources.find(root, job.timeout_s) if not job.excluded(source.shown)]
    mine = sources.shard(every, job.shard)
    if job.perspective is Perspective.SECURITY:
        progress.say(f"0 of {len(mine):,} files")  # the first piece takes seconds
        bandit = security.Bandit(root, job.timeout_s)
        parts = security.survey(bandit, mine, lambda done: progress.at(done, len(mine)))
    else:
        parts = _look_at_each(job.perspective, root, mine, progress)
    if job.perspective is Perspective.TESTS and job.shard.index == 1:  # every shard knows all names; one says it
        parts = [*parts, Seen(findings=tests.repository(every), files=0)]
    if skipped := len(mine) - sum(part.files for part in parts):
        progress.say(f"{skipped:,} listed files are not plain files of this checkout and were left out")
    return total(job.perspective, job.shard, parts)


def _look_at_each(perspective: Perspective, root: Path, mine: Sequence[Source], progress: Progress) -> list[Seen]:
    parts = []
    with without_cycles():
        for done, source in enumerate(mine, 1):
            if seen := _look(perspective, root, source):
                parts.append(seen)
            progress.at(done, len(mine))
    return parts


def _look(perspective: Perspective, root: Path, source: Source) -> Seen | None:
    reports = perspective is Perspective.STRUCTURE
    if source.too_large:
        return Seen(unparsable=1, findings=[structure.too_large(source)] if reports else [])
    data = sources.content(root, source)
    if data is None:
        return None
    lines = sources.lines(data)
    tree = parse(data)
    if isinstance(tree, Unparsable):
        return Seen(lines=lines, unparsable=1, findings=[structure.unparsable(source, tree)] if reports else [])
    try:
        return replace(LOOKS[perspective](Module(source.shown, lines, source.is_test, tree)), lines=lines)
    except RecursionError:
        return Seen(lines=lines, unparsable=1)
