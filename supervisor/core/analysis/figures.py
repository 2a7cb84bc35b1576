"""What running at once was worth: set-up apart from work, and the plain truth in one sentence. Pure arithmetic on wall-clock seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

HELPED = 1.05
"""A speedup below it is within what two runs of the same differ by."""


class Phase(StrEnum):
    """What an attempt of an analysis is for."""

    BASELINE = "baseline"
    """Alone, one after another, to compare with."""
    CREW = "crew"
    LEAD = "lead"


@dataclass(frozen=True, slots=True)
class Span:
    """One attempt's time, in seconds since 1970."""

    name: str
    """The analyst's name: the same in both phases."""
    phase: Phase
    created: float
    """Its attempt was committed: set-up (worktree, session, runner) begins."""
    began: float
    """Its command began; with `together`, after the wait for the others."""
    ended: float


@dataclass(frozen=True, slots=True)
class Side:
    """All attempts of one phase: from the first one's creation to the last one's end."""

    elapsed_s: float
    setup_s: float
    """One by one: all set-ups and pauses between. At once: until the first command began."""
    work_s: float
    """One by one: the sum of all work. At once: from the first command's begin to the last one's end."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One analyst: its work alone and beside the others."""

    name: str
    setup_s: float
    alone_s: float | None
    together_s: float


@dataclass(frozen=True, slots=True)
class Figures:
    """`benchmark_results.json`. Speedups and efficiencies are None without a baseline."""

    agents: int
    usable_cores: int
    parallel: Side
    sequential: Side | None
    speedup: float | None
    """Elapsed time one by one / at once: what a person waits."""
    speedup_work: float | None
    """The same of the work alone, set-up apart."""
    efficiency_agents: float | None
    """speedup_work / agents: 1.0 would need a core for each and equal pieces."""
    efficiency_usable: float | None
    """speedup_work / the cores that could be used: min(agents, usable cores)."""
    per_agent: tuple[Agent, ...]

    def to_json(self) -> dict[str, Any]:
        """As written to disk: the four seconds that everybody looks for stand at the top."""
        return {
            "sequential_s": self.sequential.elapsed_s if self.sequential else None,
            "parallel_s": self.parallel.elapsed_s,
            "setup_s": self.parallel.setup_s,
            "work_s": self.parallel.work_s,
            **asdict(self),
            "per_agent": [asdict(agent) for agent in self.per_agent],
        }


def figures(spans: Iterable[Span], usable_cores: int) -> Figures | None:
    """The figures of an analysis, or None when no analyst of the crew ran. A baseline counts only when it ran every analyst of the crew."""
    known = sorted(spans, key=lambda span: (span.began, span.name))
    crew = [span for span in known if span.phase is Phase.CREW]
    if not crew:
        return None
    alone = {span.name: span for span in known if span.phase is Phase.BASELINE}
    names = {span.name for span in crew}
    sequential = _one_by_one([alone[name] for name in sorted(names)]) if names <= alone.keys() else None
    parallel = _at_once(crew)
    speedup_work = _ratio(sequential.work_s, parallel.work_s) if sequential else None
    return Figures(
        agents=len(crew),
        usable_cores=usable_cores,
        parallel=parallel,
        sequential=sequential,
        speedup=_ratio(sequential.elapsed_s, parallel.elapsed_s) if sequential else None,
        speedup_work=speedup_work,
        efficiency_agents=_ratio(speedup_work, len(crew)),
        efficiency_usable=_ratio(speedup_work, min(len(crew), usable_cores)),
        per_agent=tuple(
            Agent(
                name=span.name,
                setup_s=_seconds(span.began - span.created),
                alone_s=_seconds(alone[span.name].ended - alone[span.name].began) if span.name in alone else None,
                together_s=_seconds(span.ended - span.began),
            )
            for span in sorted(crew, key=lambda span: span.name)
        ),
    )


def plainly(found: Figures | None) -> str:
    """One sentence on what the figures mean; it says so when running at once did not help."""
    if found is None:
        return "No analyst ran, so there is nothing to say about running them at once."
    at_once = f"{found.agents} analyst{'s' if found.agents != 1 else ''} at once took {found.parallel.elapsed_s:.1f} s"
    cores = f"{found.usable_cores} usable core{'s' if found.usable_cores != 1 else ''}"
    if found.sequential is None or found.speedup is None:
        return f"{at_once} on {cores}; --baseline measures what one after another would have taken."
    if found.speedup_work is None or found.efficiency_usable is None:
        return f"{at_once}; the work was too short to compare."
    work = f"{found.agents} analyst{'s' if found.agents != 1 else ''} at once worked {found.parallel.work_s:.1f} s"
    before = f"one after another {found.sequential.work_s:.1f} s"
    whole = f"with set-up it was {found.parallel.elapsed_s:.1f} s against {found.sequential.elapsed_s:.1f} s"
    if found.speedup_work < HELPED:
        return f"Running at once did not help: {work}, {before}, on {cores}; {whole}."
    best = min(found.agents, found.usable_cores)
    won = "" if found.speedup >= HELPED else ", so set-up took what was won"
    return (
        f"{work}, {before}: {found.speedup_work:.2f} times faster, {100 * found.efficiency_usable:.0f} % of the {best}.00 that "
        f"{cores} allow; {whole}{won}."
    )


def _one_by_one(spans: Sequence[Span]) -> Side:
    elapsed = max(span.ended for span in spans) - min(span.created for span in spans)
    work = sum(span.ended - span.began for span in spans)
    return Side(_seconds(elapsed), _seconds(elapsed - work), _seconds(work))


def _at_once(spans: Sequence[Span]) -> Side:
    created, began, ended = min(s.created for s in spans), min(s.began for s in spans), max(s.ended for s in spans)
    return Side(_seconds(ended - created), _seconds(began - created), _seconds(ended - began))


def _ratio(over: float | None, under: float) -> float | None:
    return None if over is None or under <= 0 else round(over / under, 3)


def _seconds(value: float) -> float:
    return round(max(0.0, value), 3)
