"""Several tasks that try the same: candidates, their ranks, and what a judge is shown. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.kernel import codec
from supervisor.kernel.format import duration, money
from supervisor.kernel.states import TaskState

# Candidate ranking
# -----------------
# Rank a group's candidates, and say why each stands where it does. Pure: the same facts give the same ranking.
#
# Nothing that a gate prints counts: a candidate's own code runs in the process that prints it, and in the process that writes a
# report. One criterion after the other decides, in the order of CRITERIA; a later one only among those that all before it call
# equal. What nobody measured ranks behind what was measured, and is said. Where nothing tells two apart the plan's order does, and
# that is said as well.


SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one candidate. None is what nobody knows."""

    task: str
    """Full id."""
    state: TaskState
    epoch: int = 0
    tip: str = ""
    """The commit that holds what it left; empty: nothing does."""
    gate: bool | None = None
    """Whether it passed its gate; None: none ran."""
    gate_why: str = ""
    """Of one that it did not pass."""
    weakened: tuple[str, ...] | None = None
    """What it changed that may make its gate say less."""
    judged: int | None = None
    """Its place by the judge, from 0; of several that the judge did not tell apart, the same."""
    files: int | None = None
    """That it changed."""
    lines: int | None = None
    """That it added and removed."""
    cost_usd: float | None = None
    seconds: float | None = None
    """From its start to its end."""

    @property
    def done(self) -> bool:
        """Whether it can be chosen."""
        return self.state is TaskState.DONE

    @property
    def changed(self) -> bool | None:
        """Whether it left anything."""
        return None if self.files is None else self.files > 0


Key = tuple[int, float]
"""The smaller one is better; what nobody knows is behind everything known."""
UNKNOWN: Key = (1, 0.0)


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing by which candidates are compared."""

    name: str
    key: Callable[[Facts], Key]
    words: Callable[[Facts], str]


def _less(value: float | None) -> Key:
    return UNKNOWN if value is None else (0, float(value))


def _more(value: float | None) -> Key:
    return UNKNOWN if value is None else (0, -float(value))


def _gate(facts: Facts) -> str:
    if facts.gate is None:
        return "none ran"
    return "passed" if facts.gate else f"not passed ({facts.gate_why})" if facts.gate_why else "not passed"


def _weakened(facts: Facts) -> str:
    if facts.weakened is None:
        return "unknown"
    return f"changed what its gate goes by ({'; '.join(facts.weakened[:2])})" if facts.weakened else "as it was"


def _said(value: float | None, words: Callable[[float], str]) -> str:
    return "unknown" if value is None else words(value)


def _shown(value: float | None, digits: int) -> float | None:
    """About as it is printed: two that look the same are the same."""
    return None if value is None else round(value, digits)


CRITERIA: tuple[Criterion, ...] = (
    Criterion("end", lambda one: (0, 0.0 if one.done else 1.0), lambda one: str(one.state)),
    Criterion("gate", lambda one: _less(None if one.gate is None else not one.gate), _gate),
    Criterion("change", lambda one: _more(one.changed), lambda one: _said(one.changed, lambda is_so: "something" if is_so else "nothing")),
    Criterion("what the gate goes by", lambda one: _less(None if one.weakened is None else bool(one.weakened)), _weakened),
    Criterion("judge", lambda one: _less(one.judged), lambda one: _said(one.judged, lambda place: f"place {place + 1:.0f}")),
    Criterion("lines changed", lambda one: _less(one.lines), lambda one: _said(one.lines, "{:.0f}".format)),
    Criterion("cost", lambda one: _less(_shown(one.cost_usd, 2)), lambda one: _said(_shown(one.cost_usd, 2), money)),
    Criterion("time", lambda one: _less(_shown(one.seconds, 1)), lambda one: _said(one.seconds, duration)),
)
"""In this order. `docs/best-of.md` lists them."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one candidate stands."""

    facts: Facts
    why: str
    """What decided between it and the one before it; of the first, between it and the second."""


def rank(found: Iterable[Facts]) -> tuple[Place, ...]:
    """All of them, the best first. `found` is in the plan's order."""
    ordered = sorted(found, key=lambda one: [criterion.key(one) for criterion in CRITERIA])
    return tuple(Place(one, _why(ordered, index)) for index, one in enumerate(ordered))


def best(places: Sequence[Place]) -> Facts | None:
    """The one that is chosen by itself: the first, when it is done and did not fail its gate; None when none is."""
    first = places[0].facts if places else None
    return first if first is not None and first.done and first.gate is not False else None


def _why(ordered: Sequence[Facts], index: int) -> str:
    if len(ordered) == 1:
        return "the only one"
    one, other = (ordered[0], ordered[1]) if index == 0 else (ordered[index], ordered[index - 1])
    where = f"{'ahead of' if index == 0 else 'behind'} {_name(other)}"
    decided = next((criterion for criterion in CRITERIA if criterion.key(one) != criterion.key(other)), None)
    if decided is None:
        return f"{where} by the plan's order: nothing tells them apart"
    return f"{where} by {decided.name}: {decided.words(one)}, against {decided.words(other)}"


def _name(facts: Facts) -> str:
    return facts.task.partition("/")[2] or facts.task


def shape(places: Sequence[Place], notes: Sequence[str] = ()) -> str:
    """As the ledger keeps it and `--json` gives it. `notes`: what else is to be said of the comparison."""
    rows = [{**codec.shape(place.facts), "place": number, "why": place.why} for number, place in enumerate(places, start=1)]
    return codec.dumps({"schema": SCHEMA, "criteria": [one.name for one in CRITERIA], "places": rows, "notes": list(notes)})


def of_shape(text: str) -> tuple[tuple[Place, ...], tuple[str, ...]]:
    """What `shape` wrote, also by an older version: the places, and the notes."""
    found = json.loads(text)
    return tuple(Place(codec.load(Facts, row), row["why"]) for row in found["places"]), tuple(found.get("notes", ()))


def of_result(task: str, state: TaskState, epoch: int, result: Mapping[str, Any] | None, judged: int | None = None) -> Facts:
    """What `result.json` says of a candidate; None: no attempt of it has ended."""
    if result is None:
        return Facts(task, state, epoch, judged=judged)
    gate, diff, measured = result.get("gate") or {}, result.get("diff") or {}, result.get("measured") or {}
    weakens = measured.get("weakens")
    return Facts(
        task,
        state,
        epoch,
        tip=result.get("tip") or "",
        gate=gate.get("passed"),
        gate_why=gate.get("why") or "",
        weakened=None if weakens is None else tuple(weakens),
        judged=judged,
        files=diff.get("files"),
        lines=diff["plus"] + diff["minus"] if diff else None,
        cost_usd=result.get("cost_usd"),
        seconds=result["spawn_to_done_ms"] / 1000 if result.get("spawn_to_done_ms") is not None else None,
    )
