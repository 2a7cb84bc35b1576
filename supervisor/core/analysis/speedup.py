"""What running at once was worth: set-up apart from work, and the plain truth in one sentence. Pure arithmetic on wall-clock seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from supervisor.core.analysis.types import many

HELPED = 1.05
"""A speedup below it is within what two runs of the same differ by."""
APART_S = 1.0
"""Analysts that were to begin together and begin further apart than this did not."""
POSSIBLE = 1.02
"""An efficiency above it is no efficiency but a disturbed measurement."""


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
    together: bool = False
    """It was to begin at the same moment as the others of the crew."""


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
    spoilt: tuple[str, ...] = ()
    """Analysts that failed or ran more than once: the elapsed times hold what that cost, so nothing is compared."""
    began_apart_s: float | None = None
    """From the first to the last begin of those that were to begin together; None when that was not asked."""

    def to_json(self) -> dict[str, Any]:
        """As written to disk: the four seconds that everybody looks for stand at the top."""
        return {
            "sequential_s": self.sequential.elapsed_s if self.sequential else None,
            "parallel_s": self.parallel.elapsed_s,
            "setup_s": self.parallel.setup_s,
            "work_s": self.parallel.work_s,
            **asdict(self),
        }


def figures(spans: Iterable[Span], usable_cores: int, spoilt: Iterable[str] = ()) -> Figures | None:
    """The figures of an analysis, or None when no analyst of the crew ended well. A baseline counts only when it ran every analyst of the
    crew and none is among `spoilt`, those of either phase that failed or ran more than once."""
    known = sorted(spans, key=lambda span: (span.began, span.name))
    crew = [span for span in known if span.phase is Phase.CREW]
    if not crew:
        return None
    alone = {span.name: span for span in known if span.phase is Phase.BASELINE}
    names = {span.name for span in crew}
    spoilt = tuple(sorted(set(spoilt)))
    sequential = _one_by_one([alone[name] for name in sorted(names)]) if names <= alone.keys() and not spoilt else None
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
        spoilt=spoilt,
        began_apart_s=_apart([span.began for span in crew if span.together]),
    )


def plainly(found: Figures | None) -> str:
    """In plain words what the figures mean; they say so when running at once did not help, or when `together` did not hold."""
    if found is None:
        return "No analyst ended well, so there is nothing to say about running them at once."
    if found.spoilt:
        some = ", ".join(found.spoilt[:3]) + (f" and {len(found.spoilt) - 3} more" if len(found.spoilt) > 3 else "")
        return f"{some} failed or ran more than once, so the times say nothing about running at once."
    apart = found.began_apart_s or 0.0
    return _worth(found) + (f" The analysts were to begin together, but began {apart:.1f} s apart." if apart > APART_S else "")


def _worth(found: Figures) -> str:
    who, cores = many(found.agents, "analyst"), many(found.usable_cores, "usable core")
    at_once, alone = found.parallel, found.sequential
    if alone is None or found.speedup is None:
        measure = "; --baseline measures what one after another would have taken" if found.agents > 1 else ""
        return f"{who} took {at_once.elapsed_s:.1f} s{' at once' if found.agents > 1 else ''} on {cores}{measure}."
    took = f"one after another {who} took {alone.elapsed_s:.1f} s, at once {at_once.elapsed_s:.1f} s"
    if found.speedup_work is None or found.efficiency_usable is None:
        return f"{took[0].upper()}{took[1:]}; the work was too short to compare."
    work = f"of that work {alone.work_s:.1f} and {at_once.work_s:.1f} s"
    if found.speedup_work < HELPED:
        return f"Running at once did not help: {took}; {work}, on {cores}."
    won = "" if found.speedup >= HELPED else " Set-up took what was won."
    return f"{took[0].upper()}{took[1:]}; {work}: {found.speedup_work:.2f} times as fast, {_share_of_cores(found, cores)}.{won}"


def _share_of_cores(found: Figures, cores: str) -> str:
    best = min(found.agents, found.usable_cores)
    if found.efficiency_usable is not None and found.efficiency_usable > POSSIBLE:
        return f"more than {cores} can give: something else slowed the runs one by one, so measure again"
    return f"{100 * (found.efficiency_usable or 0):.0f} % of the {best}.00 that {cores} allow"


def _one_by_one(spans: Sequence[Span]) -> Side:
    elapsed = max(span.ended for span in spans) - min(span.created for span in spans)
    work = sum(span.ended - span.began for span in spans)
    return Side(_seconds(elapsed), _seconds(elapsed - work), _seconds(work))


def _at_once(spans: Sequence[Span]) -> Side:
    created, began, ended = min(s.created for s in spans), min(s.began for s in spans), max(s.ended for s in spans)
    return Side(_seconds(ended - created), _seconds(began - created), _seconds(ended - began))


def _apart(begins: Sequence[float]) -> float | None:
    return _seconds(max(begins) - min(begins)) if begins else None


def _ratio(over: float | None, under: float) -> float | None:
    return None if over is None or under <= 0 else round(over / under, 3)


def _seconds(value: float) -> float:
    return round(max(0.0, value), 3)
