"""The tasks of an analysis, and what the lead makes of their results. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from supervisor.kernel.format import duration, listed, many
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import FINAL
from supervisor.results import findings
from supervisor.results.findings import REPOSITORY, Facts, Finding, Perspective, Score, Severity, Shard, hottest, merge, order, summed

# Speedup
# -------
# What running at once was worth: set-up apart from work, and the plain truth in one sentence. Pure arithmetic on wall-clock
# seconds.


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
        return f"{listed(found.spoilt, 3)} failed or ran more than once, so the times say nothing about running at once."
    apart = found.began_apart_s or 0.0
    return _worth(found) + (f" The analysts were to begin together, but began {duration(apart)} apart." if apart > APART_S else "")


def _worth(found: Figures) -> str:
    who, cores = many(found.agents, "analyst"), many(found.usable_cores, "usable core")
    at_once, alone = found.parallel, found.sequential
    if alone is None or found.speedup is None:
        measure = "; --baseline measures what one after another would have taken" if found.agents > 1 else ""
        return f"{who} took {duration(at_once.elapsed_s)}{' at once' if found.agents > 1 else ''} on {cores}{measure}."
    took = f"one after another {who} took {duration(alone.elapsed_s)}, at once {duration(at_once.elapsed_s)}"
    if found.speedup_work is None or found.efficiency_usable is None:
        return f"{took[0].upper()}{took[1:]}; the work was too short to compare."
    work = f"of that work {duration(alone.work_s)} and {duration(at_once.work_s)}"
    if found.speedup_work < HELPED:
        return f"Running at once did not help: {took}; {work}, on {cores}."
    won = "" if found.speedup >= HELPED else " Set-up took what was won."
    return f"{took[0].upper()}{took[1:]}; {work}: {found.speedup_work:.2f} times as fast, {_share_of_cores(found, cores)}.{won}"


def _share_of_cores(found: Figures, cores: str) -> str:
    best = min(found.agents, found.usable_cores)
    if found.efficiency_usable is not None and found.efficiency_usable > POSSIBLE:
        return f"more than {cores} can give: something else slowed the runs one by one, so measure again"
    return f"{100 * (found.efficiency_usable or 0):.0f}% of the {best}.00 that {cores} allow"


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


# Lead
# ----
# The lead: what the analysts said becomes one health score, what to fix first, and what to do next. Deterministic and offline.


SCHEMA = 1
MAX_ISSUES = 20
MAX_HOT_SPOTS = 30
MAX_ACTIONS = 6


@dataclass(frozen=True, slots=True)
class Told:
    """What one analyst's task came to."""

    task: str
    perspective: Perspective
    shard: str
    phase: Phase
    state: str
    reason: str
    """Why it did not end well; empty when it did."""
    facts: Facts | None
    """None unless it is done and said what an analyst says."""

    @property
    def over(self) -> bool:
        """Whether it has ended, however it ended. One that has not is no failure."""
        return self.state in FINAL


def summary(told: Iterable[Told], found: Figures | None) -> dict[str, Any]:
    """The summary as a JSON object of schema 1: the lead's one line, and `summary` of report.json. The same input in any order gives
    the same bytes."""
    crew = sorted((one for one in told if one.phase is Phase.CREW), key=lambda one: one.task)
    asked = _by_perspective(crew)
    facts = merge(one.facts for one in crew if one.facts is not None)
    points = {name: findings.score(merged) for name, merged in facts.items()}
    files, lines = _extent(facts, asked)
    failed = [one for one in crew if one.facts is None and one.over]
    left = sum(not one.over for one in crew)
    return {
        "schema": SCHEMA,
        "health": findings.health(points),
        "weights": {str(name): findings.WEIGHTS[name] for name in asked},
        "files": files,
        "lines": lines,
        "perspectives": [_perspective(name, facts.get(name), points.get(name), tasks) for name, tasks in asked.items()],
        "issues": list(map(_shown, issues(facts.values()))),
        "hot_spots": hot_spots(facts.values()),
        "actions": actions(facts, points, failed, left),
        "failed": list(map(_failure, failed)),
        "parallel": "The analysts are still at work." if left else plainly(found),
    }


def _by_perspective(crew: Sequence[Told]) -> dict[Perspective, list[Told]]:
    """The perspectives that were asked for, in their order."""
    found: dict[Perspective, list[Told]] = {name: [] for name in Perspective}
    for one in crew:
        found[one.perspective].append(one)
    return {name: tasks for name, tasks in found.items() if tasks}


def _extent(facts: Mapping[Perspective, Facts], asked: Mapping[Perspective, Sequence[Told]]) -> tuple[int, int]:
    """Files and lines of the repository: of a perspective whose shards all answered, or else of the one that saw most."""
    whole = [facts[name] for name, tasks in asked.items() if all(one.facts is not None for one in tasks)]
    seen = whole or list(facts.values())
    return max((one.files for one in seen), default=0), max((one.lines for one in seen), default=0)


def issues(facts: Iterable[Facts]) -> list[Finding]:
    """The top issues to fix: worst severity first, and of one severity no perspective takes all places while another has some."""
    ranked: list[tuple[int, int, int, Finding]] = []
    for one in facts:
        seen: dict[Severity, int] = {}
        for finding in sorted(one.findings, key=order):
            seen[finding.severity] = place = seen.get(finding.severity, 0) + 1
            rank = list(Severity).index(finding.severity)
            ranked.append((rank, place, list(Perspective).index(finding.perspective), finding))
    return [finding for *_, finding in sorted(ranked, key=lambda item: (*item[:3], order(item[3])))[:MAX_ISSUES]]


def hot_spots(facts: Iterable[Facts]) -> list[dict[str, Any]]:
    """The files with the most findings over all perspectives, worst first."""
    hot = summed(item for one in facts for item in one.hot.items())
    return [{"file": file, "high": high, "medium": medium, "low": low} for file, (high, medium, low) in hottest(hot)[:MAX_HOT_SPOTS]]


def actions(facts: Mapping[Perspective, Facts], points: Mapping[Perspective, Score], failed: Sequence[Told], left: int = 0) -> list[str]:
    """What to do next, most urgent first; never empty. `left` is how many analysts have not ended yet."""
    found = [
        *_for_failed(failed),
        *_for_security(facts.get(Perspective.SECURITY)),
        *_for_unparsable(facts),
        *_for_complexity(facts.get(Perspective.COMPLEXITY)),
        *_for_tests(facts.get(Perspective.TESTS), points.get(Perspective.TESTS)),
        *_for_docstrings(facts.get(Perspective.DOCSTRINGS), points.get(Perspective.DOCSTRINGS)),
        *_for_structure(facts.get(Perspective.STRUCTURE)),
    ]
    if not found:
        files = max((one.files for one in facts.values()), default=0)
        if left:
            return [f"Wait: {many(left, 'analyst')} still at work."]
        found = ["Nothing urgent was found." if files else "There are no Python files here, so there was nothing to look at."]
    return found[:MAX_ACTIONS]


def _for_failed(failed: Sequence[Told]) -> Iterable[str]:
    if failed:
        names = " ".join(one.task for one in failed)
        yield f"The picture is not whole: {many(len(failed), 'analyst')} failed ({failed[0].reason}). Run again: nightcrew retry {names}"


def _for_security(facts: Facts | None) -> Iterable[str]:
    if facts is None:
        return
    for severity in (Severity.HIGH, Severity.MEDIUM):
        if number := facts.severities.get(severity, 0):
            first = next((finding for finding in facts.findings if finding.severity is severity), None)
            start = f", first {_place(first)} ({first.code})" if first else ""
            yield f"Look at {many(number, f'{severity}-severity security finding')}{start}."
            return


def _for_unparsable(facts: Mapping[Perspective, Facts]) -> Iterable[str]:
    broken = [finding for one in facts.values() for finding in one.findings if finding.code == "syntax-error"]
    if broken:
        number = max(one.unparsable for one in facts.values())
        yield f"Mend or exclude {many(number, 'file')} that Python cannot parse, first {_place(min(broken, key=order))}."


def _for_complexity(facts: Facts | None) -> Iterable[str]:
    if facts is not None and (worst := next((f for f in facts.findings if f.code == "complex-function"), None)):
        yield f"Split the most complex function: {_place(worst)}: {worst.message}."


def _for_tests(facts: Facts | None, point: Score | None) -> Iterable[str]:
    if facts is None or point is None or point.plain is None or point.plain >= 50:
        return
    if facts.counts["test_files"] == 0:
        yield f"Write a first test: there is none beside {many(facts.files, 'Python file')}."
    else:
        share = 100 * facts.counts["test_files"] / facts.files
        yield f"Write more tests: {share:.0f}% of the files are tests; 50% would score 100."


def _for_docstrings(facts: Facts | None, point: Score | None) -> Iterable[str]:
    if facts is None or point is None or point.plain is None or point.plain >= 60:
        return
    worst = facts.findings[0] if facts.findings else None
    start = f"; begin with {worst.file}" if worst else ""
    yield f"Document what others call: {point.plain:.0f}% of the public modules, classes and functions have a docstring{start}."


def _for_structure(facts: Facts | None) -> Iterable[str]:
    if facts is not None and (
        worst := next((f for f in facts.findings if f.severity is not Severity.LOW and f.code != "syntax-error"), None)
    ):
        yield f"Divide {_place(worst)}: {worst.message}."


def _perspective(name: Perspective, facts: Facts | None, point: Score | None, told: Sequence[Told]) -> dict[str, Any]:
    lacking = sorted((one for one in told if one.facts is None), key=lambda one: one.over, reverse=True)  # a failure says more than a wait
    state = "done" if not lacking else "partial" if facts else "failed" if lacking[0].over else "running"
    return {
        "name": str(name),
        "state": state,
        "reason": lacking[0].reason if lacking else "" if facts and facts.files else "no Python files",
        "score": point.plain if point else None,
        "score_per_kloc": point.per_kloc if point else None,
        "formula": findings.FORMULAS[name][0],
        "formula_per_kloc": findings.FORMULAS[name][1],
        "files": facts.files if facts else 0,
        "counts": dict(facts.counts) if facts else {},
        "severities": {str(key): number for key, number in facts.severities.items()} if facts else {},
        "unparsable": facts.unparsable if facts else 0,
        "shards": len(told),
    }


def _shown(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "perspective": str(finding.perspective), "severity": str(finding.severity)}


def _failure(one: Told) -> dict[str, Any]:
    return {"task": one.task, "perspective": str(one.perspective), "shard": one.shard, "reason": one.reason}


def _place(finding: Finding) -> str:
    file = "(repository)" if finding.file == REPOSITORY else finding.file
    return f"{file}:{finding.line}" if finding.line else file


# Analysis tasks
# --------------
# The crew of an analysis: who looks at what, in which pieces, and who comes after whom. Pure.


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


# Analyst results
# ---------------
# From what a task came to (an entry of `after.json`) to what the lead works with. Nothing an analyst printed is believed unchecked.


def told(tasks: Iterable[Mapping[str, Any]]) -> list[Told]:
    """What each analyst among `tasks` came to; others are left out."""
    return [_told(task, Perspective(task["params"]["ANALYST"])) for task in tasks if _is_analyst(task)]


def _is_analyst(task: Mapping[str, Any]) -> bool:
    """By its kind: any task may have a parameter of that name."""
    return task["kind"] == "analyst" and task["params"].get("ANALYST") in set(Perspective)


def _phase(task: Mapping[str, Any]) -> Phase:
    """Of the crew unless it says otherwise: a plan may write anything there."""
    given = task["params"].get(PHASE)
    return Phase(given) if given in set(Phase) else Phase.CREW


def spans(tasks: Iterable[Mapping[str, Any]]) -> list[Span]:
    """The time of each analyst that ran to an end of its own."""
    return [found for task in tasks if _is_analyst(task) and task["state"] == "done" and (found := _span(task)) is not None]


def spoilt(tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of those that did not end well, or not at the first attempt."""
    return [
        str(task["name"])
        for task in tasks
        if _is_analyst(task) and task["state"] in FINAL and (task["state"] != "done" or (task["result"] or {}).get("epoch", 1) > 1)
    ]


def _told(task: Mapping[str, Any], perspective: Perspective) -> Told:
    facts, reason = _facts(task, perspective)
    return Told(
        task=str(task["id"]),
        perspective=perspective,
        shard=str(task["params"].get("ANALYST_SHARD", "1/1")),
        phase=_phase(task),
        state=str(task["state"]),
        reason=reason,
        facts=facts,
    )


def _facts(task: Mapping[str, Any], perspective: Perspective) -> tuple[Facts | None, str]:
    if task["state"] != "done":
        return None, str(task["reason"]).removeprefix(f"{task['state']}: ") or f"it is {task['state']}"
    try:
        facts = findings.read((task["result"] or {}).get("output"))
    except findings.WireError as error:
        return None, str(error)
    if facts.perspective is not perspective or str(facts.shard) != task["params"].get("ANALYST_SHARD", "1/1"):
        return None, f"it answered for {facts.perspective} {facts.shard}"
    return facts, ""


def _span(task: Mapping[str, Any]) -> Span | None:
    result = task["result"] or {}
    began, ended = seconds(result.get("started")), seconds(result.get("ended"))
    if began is None or ended is None:
        return None
    phase = _phase(task)
    name = str(task["name"]).removeprefix("alone-") if phase is Phase.BASELINE else str(task["name"])
    created = min(began, ended - result["spawn_to_done_ms"] / 1000)
    return Span(name, phase, created, began, ended, together=TOGETHER in task["params"])


def seconds(text: Any) -> float | None:
    """The seconds since 1970 of an RFC 3339 text; None for anything else."""
    return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
