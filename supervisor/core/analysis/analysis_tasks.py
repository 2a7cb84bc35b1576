"""The crew of an analysis: who looks at what, in which pieces, and who comes after whom. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.core.analysis.speedup import Phase
from supervisor.core.analysis.types import Perspective, Shard
from supervisor.core.spec import TaskSpec

COST_S_PER_MB: Mapping[Perspective, float] = {
    Perspective.SECURITY: 3.4,
    Perspective.COMPLEXITY: 0.45,
    Perspective.DOCSTRINGS: 0.2,
    Perspective.TESTS: 0.2,
    Perspective.STRUCTURE: 0.2,
}
"""Processor time, the mean of Django 5.2 (18 MB) and SymPy 1.14 (26 MB) on one core of a busy machine. Only their ratio decides much."""
PIECE_MIN_S = 2.0
"""A piece that takes less costs more to start than it saves."""
PIECE_MAX_FILES = 5000
"""More than this one process should not take: a failure loses less, and a progress line says more."""
PIECES_MAX = 8
"""Of one perspective. Beyond it the set-up of worktrees is what takes the time."""
PHASE = "ANALYST_PHASE"
CORES = "ANALYST_CORES"
MODEL = "LEAD_MODEL"
LEAD_S = 60.0
PROSE_S = 300.0
"""The lead's model has so long to answer, its turn at the gateway included."""
TOGETHER = "ANALYST_TOGETHER"
"""Set where an analyst was to begin at the same moment as the others, so that the figures can say when it did not."""
TITLES: Mapping[Perspective, str] = {
    Perspective.SECURITY: "Look for security flaws",
    Perspective.COMPLEXITY: "Measure how complex the functions are",
    Perspective.DOCSTRINGS: "Count what is documented",
    Perspective.TESTS: "Count the tests",
    Perspective.STRUCTURE: "Look at files, classes and functions",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a person asked for."""

    perspectives: tuple[Perspective, ...] = tuple(Perspective)
    model: str = ""
    """That writes the lead's summary in prose; empty: none does."""
    baseline: bool = False
    together: bool = False
    timeout_s: float = 600.0
    """Of each analyst; a single command of it gets nine tenths, so that the analyst can still say what hung."""
    exclude: tuple[str, ...] = ()
    """Patterns of files to leave out."""


def shards(perspectives: Iterable[Perspective], files: int, size: int, cores: int, slots: int) -> dict[Perspective, int]:
    """Into how many pieces each perspective is split, for `files` Python files of `size` bytes in all on `cores` cores.

    A perspective is split when it would keep one core busy after all others are done, or when it has more files than one process
    should take; never into so many that they could not all run at once on `slots`.
    """
    cost = {name: COST_S_PER_MB[name] * size / 1e6 for name in perspectives}
    piece = max(PIECE_MIN_S, sum(cost.values()) / (1.5 * cores))
    pieces = {
        name: max(1, min(PIECES_MAX, max(math.ceil(seconds / piece), math.ceil(files / PIECE_MAX_FILES)), files))
        for name, seconds in cost.items()
    }
    while sum(pieces.values()) > max(slots, len(pieces)):
        smallest = min((name for name in pieces if pieces[name] > 1), key=lambda name: cost[name] / (pieces[name] - 1))
        pieces[smallest] -= 1
    return pieces


def crew(wanted: Wanted, pieces: Mapping[Perspective, int], cores: int, commands: Mapping[str, tuple[str, ...]]) -> tuple[TaskSpec, ...]:
    """The tasks, in the order in which they should start: the baseline one after another, then the crew at once, then the lead.

    `commands` are what the kinds `analyst` and `lead` run.
    """
    analysts = tuple(
        _analyst(name, Shard(index, pieces[name]), wanted, commands["analyst"])
        for name in wanted.perspectives
        for index in range(1, pieces[name] + 1)
    )
    alone = _chain(analysts) if wanted.baseline else ()
    last_alone = tuple(task.name for task in alone[-1:])
    at_once = tuple(replace(task, after=last_alone, after_on="finished") for task in analysts)
    if wanted.together:
        at_once = tuple(replace(task, together="crew", params={**task.params, TOGETHER: "1"}) for task in at_once)
    lead = TaskSpec(
        name="lead",
        title="Merge what the analysts found",
        kind="lead",
        argv=commands["lead"],
        params={PHASE: str(Phase.LEAD), CORES: str(cores), **({MODEL: wanted.model} if wanted.model else {})},
        after=tuple(task.name for task in (*alone, *at_once)),
        after_on="finished",
        timeout_s=LEAD_S + (PROSE_S if wanted.model else 0.0),
        retries=1,
    )
    return (*alone, *at_once, lead)


def _analyst(name: Perspective, shard: Shard, wanted: Wanted, command: tuple[str, ...]) -> TaskSpec:
    part = f", part {shard.index} of {shard.of}" if shard.of > 1 else ""
    return TaskSpec(
        name=f"{name}-{shard.index}" if shard.of > 1 else str(name),
        title=TITLES[name] + part,
        kind="analyst",
        argv=command,
        params={
            "ANALYST": str(name),
            "ANALYST_SHARD": str(shard),
            "ANALYST_TIMEOUT": f"{0.9 * wanted.timeout_s:g}",
            PHASE: str(Phase.CREW),
            **({"ANALYST_EXCLUDE": "\n".join(wanted.exclude)} if wanted.exclude else {}),
        },
        timeout_s=wanted.timeout_s,
    )


def _chain(analysts: Sequence[TaskSpec]) -> tuple[TaskSpec, ...]:
    """Each alone, after the one before has ended."""
    made: list[TaskSpec] = []
    for task in analysts:
        made.append(
            replace(
                task,
                name=f"alone-{task.name}",
                title=f"{task.title}, alone",
                params={**task.params, PHASE: str(Phase.BASELINE)},
                after=tuple(before.name for before in made[-1:]),
                after_on="finished",
            )
        )
    return tuple(made)
