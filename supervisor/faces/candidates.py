"""The candidates of a group side by side: lines and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from supervisor.core import candidate_ranking
from supervisor.core.candidate_ranking import Facts
from supervisor.core.errors import one_line
from supervisor.ledger.comparing import Comparison

_HEAD = ("", "candidate", "state", "gate", "tests", "cover", "judge", "lines", "cost", "time")


def lines(found: Comparison) -> Iterator[str]:
    """A table, the best first, a line for each why, and what else is to be said."""
    rows = [_HEAD, *(_row(number, place.facts, found) for number, place in enumerate(found.places, start=1))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    for number, place in enumerate(found.places, start=1):
        yield f"{number}  {_short(place.facts.task)}: {one_line(place.why)}"
    for place in found.places:
        yield from (f"   {_short(place.facts.task)} {one_line(why)}" for why in place.facts.weakened or ())
    yield from (one_line(note) for note in found.notes)


def _row(number: int, facts: Facts, found: Comparison) -> tuple[str, ...]:
    chosen = found.choice is not None and found.choice.winner == facts.task
    gate = "-" if facts.gate is None else "passed" if facts.gate else "failed"
    return (
        f"{number}{'*' if chosen else ''}",
        _short(facts.task),
        str(facts.state),
        f"{gate}, weaker" if facts.weakened else gate,
        *("-" if text is None else text for text in _numbers(facts)),
    )


def _numbers(facts: Facts) -> Iterator[str | None]:
    yield None if facts.tests is None else str(facts.tests)
    yield None if facts.coverage is None else candidate_ranking.percent(facts.coverage)
    yield None if facts.judged is None else str(facts.judged + 1)
    yield None if facts.lines is None else str(facts.lines)
    yield None if facts.cost_usd is None else f"${facts.cost_usd:.2f}"
    yield None if facts.seconds is None else f"{facts.seconds:.1f} s"


def _short(task: str) -> str:
    return task.partition("/")[2] or task


def next_step(found: Comparison) -> str:
    """What came of it, or what a person may do now."""
    group = found.group.id
    if found.choice is not None:
        return f"{found.choice.winner} was chosen by {found.choice.by}: {one_line(found.choice.why)}; next: nightcrew take {group}"
    if found.group.state != "waiting":
        return f"{group} is {found.group.state}: nothing was chosen; next: nightcrew retry {group}"
    best = candidate_ranking.best(found.places)
    if found.open:
        return f"{len(found.open)} of {len(found.places)} have not ended; next: nightcrew wait {group}"
    if found.group.decide == "gate" or best is None:
        return "the first that passed its gate is chosen once everything has ended"
    return f"a person chooses; next: nightcrew diff {best.task}, nightcrew choose {group} {_short(best.task)}"


def shape(found: Comparison) -> dict[str, Any]:
    """As `--json` has it."""
    ranking = json.loads(candidate_ranking.shape(found.places, found.notes))
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
