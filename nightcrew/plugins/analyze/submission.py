"""From `nightcrew analyze` to a submission: how large the repository is decides how many analysts share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.kinds import kinds
from supervisor.client import submit
from supervisor.client.submit import Workplace
from supervisor.host import cores
from supervisor.kernel.spec import RunSpec, Submission
from supervisor.results import analysis as results
from supervisor.results.analysis import Wanted
from worktrees.repository import Extent, extent, resolve


@dataclass(frozen=True, slots=True)
class Analysis:
    """What will be handed over, and what was seen of the repository to decide it."""

    submission: Submission
    extent: Extent
    cores: int
    """That the analysts may use."""


def prepare(place: Workplace, wanted: Wanted, base: str | None, key: str | None, environ: Mapping[str, str]) -> Analysis:
    """The crew for the repository at `place`. Raises NotFound when `base` names no commit, ToolFailed when git cannot read it."""
    base = base if base is not None else place.project.base or "HEAD"
    commit = resolve(place.repository, base)
    seen = extent(place.repository, commit, ".py")
    mine = usable_cores(place)
    shards = results.shards(wanted.perspectives, seen.files, seen.size, mine, place.settings.slots)
    tasks = results.crew(wanted, shards, mine, {name: kinds()[name].program for name in ("analyst", "lead")})
    spec = RunSpec(title=f"analysis of {place.repository.root.name}", tasks=tasks, base=base)
    return Analysis(submit.submission(spec, place, None, key, environ), seen, mine)


def usable_cores(place: Workplace) -> int:
    """How many cores the analysts have: all that agents may use."""
    return len(cores.for_agents(place.settings.cores_reserve))
