"""The crew, and lines of strangers, as JSON for our pages. What strangers wrote is text there, and text it stays: pages never read it as
markup. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from supervisor.core.errors import one_line
from supervisor.faces import sgr
from supervisor.faces.crew import Crew, Row

TEXT_MAX = 400
"""Characters of one thing that is said in a row."""
Span = list[Any]
"""A text, and classes, and where it has any its colour and that behind it as `#rrggbb`."""


def crew(found: Crew) -> dict[str, Any]:
    """By key: `sections`, `facts`, `troubles`, and one for each row."""
    said: dict[str, Any] = {f"row:{row.id}": _row(row) for row in found.rows()}
    said["sections"] = [
        {"group": one.group, "total": one.total, "left": one.left, "place": one.place, "rows": [row.id for row in one.rows]}
        for one in found.sections
    ]
    said["facts"] = [{"name": one.name, "value": one_line(one.value), "bad": one.bad} for one in found.facts]
    said["troubles"] = [one_line(one) for one in found.troubles]
    return said


def _row(row: Row) -> dict[str, Any]:
    view = row.view
    return {
        "id": view.id,
        "name": one_line(view.name),
        "title": row.title[:TEXT_MAX],
        "kind": view.kind,
        "state": view.state,
        "letter": row.letter,
        "word": row.word,
        "color": f"f{int(row.color) - 30}" if row.color != "2" else "dim",
        "since": row.since,
        "ended": row.ended,
        "place": row.place,
        "tasks": list(row.tasks) or [view.id],
        "asks": row.asks,
        "says": row.says[:TEXT_MAX],
        "paused": bool(view.paused) or view.state == "paused",
        "branch": view.branch or "",
        "epoch": view.epoch,
    }


def lines(given: Iterable[str]) -> list[list[Span]]:
    """Lines with SGR as spans of what looks the same."""
    return [[_span(text, dict(look)) for text, look in sgr.runs(line)] for line in given]


def _span(text: str, look: Mapping[str, object]) -> Span:
    ink, paper = look.get("color"), look.get("bgcolor")
    classes = [name for name in look if look[name] is True]
    classes += [f"{letter}{color}" for letter, color in (("f", ink), ("b", paper)) if isinstance(color, int) and color < 16]
    own = [_hex(color) if not (isinstance(color, int) and color < 16) else "" for color in (ink, paper)]
    return [text, " ".join(classes), *own] if any(own) else [text, " ".join(classes)] if classes else [text]


def _hex(color: object) -> str:
    """Of the colours beyond the first 16, which every terminal has alike."""
    match color:
        case (int(red), int(green), int(blue)):
            return f"#{red:02x}{green:02x}{blue:02x}"
        case int(number) if number >= 232:
            return f"#{8 + 10 * (number - 232):02x}" + f"{8 + 10 * (number - 232):02x}" * 2
        case int(number):
            steps = (0, 95, 135, 175, 215, 255)
            return "#" + "".join(f"{steps[(number - 16) // part % 6]:02x}" for part in (36, 6, 1))
        case _:
            return ""
