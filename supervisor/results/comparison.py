"""Compare the candidates of a group: their ranking as lines, JSON and rows of a report, and what a judge of them sees."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from supervisor.kernel.errors import HostError, Refused, one_line
from supervisor.kernel.format import duration, money
from supervisor.kernel.gate_files import flags
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import FINAL, Choice, TaskState
from supervisor.results import candidates, judging, ranking
from supervisor.results.candidates import Group
from supervisor.results.judging import Verdict
from supervisor.results.ranking import Place
from supervisor.store import queries
from supervisor.store.queries import TaskView
from worktrees import merge, tree_merge

if TYPE_CHECKING:
    from supervisor.store.ledger import Ledger
    from supervisor.store.rows import LaunchRow
    from worktrees.repository import Repository


@dataclass(frozen=True, slots=True)
class Comparison:
    """A group, its candidates in order, and what was chosen."""

    group: Group
    places: tuple[Place, ...]
    notes: tuple[str, ...]
    """What is to be said of the comparison beside the places, such as what judges said."""
    choice: Choice | None
    """Then places and notes are those by which it was made."""

    @property
    def open(self) -> list[str]:
        """The candidates that have not ended."""
        return [place.facts.task for place in self.places if place.facts.state not in FINAL]


def compare(db: sqlite3.Connection, group: Group) -> Comparison:
    """By what the ledger has now; once one was chosen, as it was then."""
    made = candidates.choice(db, group.id)
    if made is not None:
        return Comparison(group, *ranking.of_shape(made.ranking), choice=made)
    views = {view.id: view for view in queries.several(db, group.candidates)}
    verdicts, said = _verdicts(queries.several(db, group.judges), group, shown(views.values()))
    judged, notes = _judged(verdicts)
    found = [ranking.of_result(one.id, one.state, one.epoch, one.result, judged.get(one.id)) for one in views.values()]
    return Comparison(group, ranking.rank(found), (*said, *notes), choice=None)


def shown(views: Iterable[TaskView]) -> list[str]:
    """Those of the candidates that a judge sees: the others cannot be chosen."""
    return [view.id for view in views if view.state is TaskState.DONE]


def _verdicts(judges: Sequence[TaskView], group: Group, seen: Sequence[str]) -> tuple[list[Verdict], list[str]]:
    found: list[Verdict] = []
    notes: list[str] = []
    for judge_round, view in enumerate(judges, start=1):
        if not view.final:
            notes.append(f"{view.id} has not judged yet: it is {view.state}")
            continue
        known = judging.letters(group.candidates, seen, group.id, judge_round)
        said = _said(view, known) if view.state is TaskState.DONE else f"it is {view.state}"
        if isinstance(said, Verdict):
            found.append(said)
        elif view.state is not TaskState.SKIPPED:
            notes.append(f"{view.id} judged nothing: {said}")
    return found, notes


def _said(view: TaskView, known: Mapping[str, str]) -> Verdict | str:
    result = view.result or {}
    agent = result.get("agent")
    answer = result.get("output") if agent is None else judging.answer_in(str(agent.get("message") or ""))
    return judging.read(answer, known)


def _judged(verdicts: Sequence[Verdict]) -> tuple[Mapping[str, int], list[str]]:
    """Places by two rounds over the same candidates. One alone says nothing: how often it would have said the same is not known."""
    if len(verdicts) < 2:
        return {}, ["the judge was heard once, which does not count"] if verdicts else []
    first, second = verdicts[0], verdicts[1]
    return judging.places(first.ranking, second.ranking), list(_reasons(first, second))


def _reasons(first: Verdict, second: Verdict) -> Iterator[str]:
    placed = judging.places(first.ranking, second.ranking)
    ties: dict[int, list[str]] = {}
    for task, place in placed.items():
        ties.setdefault(place, []).append(task)
    for tied in ties.values():
        if len(tied) > 1:
            yield f"the judge does not tell {', '.join(sorted(tied))} apart: their order changed when it saw them the other way round"
    for task in first.ranking:
        for verdict in (first, second):
            if text := verdict.reasons.get(task):
                yield f"the judge of {task}: {text}"


# Text
# ----


HEADS = ("", "candidate", "state", "gate", "judge", "lines", "cost", "time")
NUMBERS = HEADS[4:]
"""Of these, the columns of figures."""
NONE = "-"
"""In a cell: nobody knows."""


def lines(found: Comparison) -> Iterator[str]:
    """A table, the best first, a line for each why, and what else is to be said."""
    rows = [HEADS, *cells(shape(found))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for number, place in enumerate(found.places, start=1):
        yield f"{number}  {short(place.facts.task)}: {one_line(place.why)}"
    for place in found.places:
        yield from (f"   {short(place.facts.task)} {one_line(why)}" for why in place.facts.weakened or ())
    yield from (one_line(note) for note in found.notes)


def cells(group: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The rows below HEADS of what `shape` made. The chosen one is marked."""
    winner = (group["choice"] or {}).get("winner")
    return [_row(place, chosen=place["task"] == winner) for place in group["places"]]


def _row(place: Mapping[str, Any], *, chosen: bool) -> tuple[str, ...]:
    gate = NONE if place["gate"] is None else "passed" if place["gate"] else "failed"
    return (
        f"{place['place']}{'*' if chosen else ''}",
        short(place["task"]),
        str(place["state"]),
        f"{gate}, weaker" if place["weakened"] else gate,
        *(NONE if text is None else text for text in _numbers(place)),
    )


def _numbers(place: Mapping[str, Any]) -> Iterator[str | None]:
    yield None if place["judged"] is None else str(place["judged"] + 1)
    yield None if place["lines"] is None else str(place["lines"])
    yield None if place["cost_usd"] is None else money(place["cost_usd"])
    yield None if place["seconds"] is None else duration(place["seconds"])


def short(task: str) -> str:
    """A task's name in its plan."""
    return task.partition("/")[2] or task


def next_step(found: Comparison) -> str:
    """What came of it, and what a person may do now."""
    said, commands = outcome(found)
    return f"{said}; next: {', '.join(commands)}" if commands else said


def outcome(found: Comparison) -> tuple[str, tuple[str, ...]]:
    """The same apart: a sentence without its full stop, and the commands."""
    group = found.group.id
    if found.choice is not None:
        said = f"{found.choice.winner} was chosen by {found.choice.by}: {one_line(found.choice.why)}"
        return said, (_typed("take", group),)
    if found.group.state != TaskState.WAITING:
        return f"{group} is {found.group.state}: nothing was chosen", (_typed("retry", group),)
    best = ranking.best(found.places)
    if found.open:
        return f"{len(found.open)} of {len(found.places)} have not ended", (_typed("wait", group),)
    if found.group.decide == "gate" or best is None:
        return "the first that passed its gate is chosen once everything has ended", ()
    return "a person chooses", (_typed("diff", best.task), _typed("choose", group, short(best.task)))


def _typed(*words: str) -> str:
    return f"nightcrew {' '.join(map(quote, words))}"


def of_tasks(db: sqlite3.Connection, tasks: Collection[str]) -> list[dict[str, Any]]:
    """The groups among these tasks as reports have them: `shape`, and `said` and `commands` as `outcome`."""
    found = [compare(db, group) for group in candidates.groups(db, tasks).values()]
    return [{**shape(one), "said": said, "commands": list(commands)} for one in found for said, commands in [outcome(one)]]


def chosen(groups: Sequence[Mapping[str, Any]]) -> dict[str, bool]:
    """Of every candidate, by its full id, whether it is the choice."""
    return {place["task"]: place["task"] == (group["choice"] or {}).get("winner") for group in groups for place in group["places"]}


def reasons(group: Mapping[str, Any]) -> list[str]:
    """Why each stands where it does, what weakens its gate, and what else is to be said of the comparison: one text each."""
    why = [f"{place['place']} {short(place['task'])}: {place['why']}" for place in group["places"]]
    weaker = [f"{short(place['task'])} {what}" for place in group["places"] for what in place["weakened"] or ()]
    return [*why, *weaker, *group["notes"]]


def shape(found: Comparison) -> dict[str, Any]:
    """As `--json` has it."""
    ranked = json.loads(ranking.shape(found.places, found.notes))
    made = found.choice
    return {
        "group": found.group.id,
        "state": str(found.group.state),
        "decide": str(found.group.decide),
        **{name: ranked[name] for name in ("criteria", "places", "notes")},
        "choice": None
        if made is None
        else {"winner": made.winner, "epoch": made.epoch, "commit": made.tip or None, "by": str(made.by), "why": made.why},
    }


# Judging
# -------
# Tell a judge which candidates it compares, measure a candidate when it ends, and find the tasks of a group.


def members(ledger: Ledger, names: Sequence[str]) -> list[str]:
    """Return the tasks to hold back or to let go on where a person names these: for a group its candidates and judges."""
    found = candidates.groups(ledger.db, names)
    every = (((*found[name].candidates, *found[name].judges) if name in found else (name,)) for name in names)
    return list(dict.fromkeys(task for tasks in every for task in tasks))


def to_retry(ledger: Ledger, names: Sequence[str]) -> list[str]:
    """Return the tasks that run again with these: for a group its tasks that are not done, and the group. Raises Refused for a group that
    has its choice."""
    found = candidates.groups(ledger.db, names)
    made = candidates.choices(ledger.db, list(found))
    wanted: list[str] = []
    for name in names:
        if name in made:
            why = f"{made[name].winner} was chosen of it, and that stays so"
            raise Refused("cannot retry", on=name, why=why, hint=f"nightcrew retry {made[name].winner}, or another candidate")
        views = queries.several(ledger.db, members(ledger, [name])) if name in found else []
        wanted += [*(view.id for view in views if view.state is not TaskState.DONE), name]
    return list(dict.fromkeys(wanted))


PATCH_MAX = 8 * 2**20
"""Bytes of one change that are read at most: what is larger is not shown at all."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What one judge is to see."""

    prompt: str
    """Of the task that the candidates had."""
    tips: Mapping[str, str]
    """By letter the commit that holds what a candidate left; empty: it left nothing."""


def judged(ledger: Ledger, row: LaunchRow) -> Judged:
    """Return what the judge of `row` sees: the candidates that are done now."""
    views = {view.id: view for view in queries.several(ledger.db, row.after)}
    group = next(iter(candidates.standings(ledger.db, list(views)).values())).group
    known = judging.letters(list(views), shown(views.values()), group, row.spec.judge_round)
    first = next(iter(views))
    asked = ledger.launch_row(first).spec.prompt or queries.one(ledger.db, group).title
    return Judged(asked, {letter: (views[one].result or {}).get("tip") or "" for letter, one in known.items()})


def told(repository: Repository, row: LaunchRow, seen: Judged) -> LaunchRow:
    """Return the row with the judge's whole prompt, and without the words that name the candidates. Git reads each change: call it in a
    thread."""
    diffs = {letter: merge.patch(repository, row.base_oid, tip, PATCH_MAX) if tip else b"" for letter, tip in seen.tips.items()}
    prompt = judging.told(seen.prompt, row.spec.prompt or "", diffs)
    return replace(row, after=(), spec=replace(row.spec, prompt=prompt))


NAMED = 20
"""Changes that weaken a gate, of those that are found."""


def measures(repository: Repository, spec: TaskSpec, base: str | None, tip: str | None) -> Mapping[str, Any]:
    """Return by what a candidate is compared with the others of its group, beside its gate and its size: `weakens`, its changes that may
    make its gate say less; None where git could not tell. `base` and `tip`: the commits at the two ends of its work, which is secured."""
    return {"weakens": _weakens(repository, spec, base, tip)}


def _weakens(repository: Repository, spec: TaskSpec, base: str | None, tip: str | None) -> list[str] | None:
    if tip is None or base is None:
        return None
    try:
        diffs = tuple(tree_merge.read_patch(repository, base, tip)) if tip != base else ()
        found = flags(tree_merge.of_diffs(repository, base, diffs), spec.gate_words if spec.gate else "")
    except HostError:
        return None
    return [f"{flag.path}: {flag.why}" for flag in found if flag.weakens][:NAMED]
