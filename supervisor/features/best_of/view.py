"""The candidates of a group side by side: lines and JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

from supervisor.features.best_of import comparing as best_of_comparing
from supervisor.features.best_of import rows as best_of_rows
from supervisor.features.best_of import rules as best_of_rules
from supervisor.features.best_of.comparing import Comparison
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import duration, money
from supervisor.kernel.states import TaskState

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
    best = best_of_rules.best(found.places)
    if found.open:
        return f"{len(found.open)} of {len(found.places)} have not ended", (_typed("wait", group),)
    if found.group.decide == "gate" or best is None:
        return "the first that passed its gate is chosen once everything has ended", ()
    return "a person chooses", (_typed("diff", best.task), _typed("choose", group, short(best.task)))


def _typed(*words: str) -> str:
    return f"nightcrew {' '.join(map(quote, words))}"


def of_tasks(db: sqlite3.Connection, tasks: Collection[str]) -> list[dict[str, Any]]:
    """The groups among these tasks as reports have them: `shape`, and `said` and `commands` as `outcome`."""
    found = [best_of_comparing.compare(db, group) for group in best_of_rows.groups(db, tasks).values()]
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
    ranking = json.loads(best_of_rules.shape(found.places, found.notes))
    made = found.choice
    return {
        "group": found.group.id,
        "state": str(found.group.state),
        "decide": str(found.group.decide),
        **{name: ranking[name] for name in ("criteria", "places", "notes")},
        "choice": None
        if made is None
        else {"winner": made.winner, "epoch": made.epoch, "commit": made.tip or None, "by": str(made.by), "why": made.why},
    }
