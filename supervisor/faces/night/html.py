"""night.html: one file for a phone or a desk, see `report.page`. The lanes are drawn as SVG, so the page needs no script to be read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment

from supervisor.faces import candidates, waited
from supervisor.faces.night import lanes, words
from supervisor.faces.report import page
from supervisor.faces.report.words import many, number

_HERE = Path(__file__).parent
CARDS, LANES, TRIES = 12, 60, 30
"""Of one list; what is beyond is folded."""
TICKS = 5
"""Labels that a phone has room for below the lanes."""
_STEPS = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400)


def render(shape: Mapping[str, Any]) -> str:
    """The page of a report (see `shape`), with no reference to any other file."""
    facts = words.shown(shape)
    script, style = page.text(page.HERE / "copy.js"), _style()
    several = words.zoned(facts)
    return (
        _environment()
        .get_template("night.html.j2")
        .render(
            report=facts,
            several=several,
            ticks=ticks(facts["lanes"], several),
            kinds=_kinds(facts["lanes"]),
            script=script,
            style=style,
            policy=page.policy(script, style),
        )
    )


def policy() -> str:
    """The policy of every page that `render` makes."""
    return page.policy(page.text(page.HERE / "copy.js"), _style())


def ticks(drawn: Mapping[str, Any], several: bool) -> list[tuple[float, str]]:
    """Where full hours (or minutes) of the local clock lie on the axis, in percent, and what they are called."""
    zero, length = words.local(drawn["zero"]), drawn["length_s"]
    step = next((step for step in _STEPS if length / step <= TICKS), _STEPS[-1])
    midnight = zero.replace(hour=0, minute=0, second=0, microsecond=0)
    first = midnight + timedelta(seconds=step * (1 + (zero - midnight).total_seconds() // step))
    found: list[tuple[float, str]] = []
    at = first
    while (since := (at - zero).total_seconds()) < length and len(found) < 2 * TICKS:
        found.append((round(100 * since / length, 2), words.clock(_iso(at), several)))
        at += timedelta(seconds=step)
    return found


def _iso(at: datetime) -> str:
    return at.isoformat()


def _kinds(drawn: Mapping[str, Any]) -> dict[str, str]:
    """What the legend has to explain."""
    used = {kind for row in drawn["rows"] for _, _, kind in row["spans"]}
    return {kind: text for kind, text in lanes.KINDS.items() if kind in used}


@cache
def _style() -> str:
    return page.text(page.HERE / "report.css") + page.text(_HERE / "night.css")


@cache
def _environment() -> Environment:
    made = page.environment(_HERE)
    made.globals |= {"say": words, "waited": waited, "candidates": candidates, "CARDS": CARDS, "LANES": LANES, "TRIES": TRIES}
    made.filters |= {"number": number, "seconds": words.lasted, "many": many}
    return made
