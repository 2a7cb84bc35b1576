"""Text that strangers made, as lines that are painted (see `supervisor.faces.sgr`). Pure."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from supervisor.faces.sgr import Look, runs


def strips(text: str) -> list[Strip]:
    """The lines of `text` as they are painted."""
    return [strip(line) for line in text.split("\n")]


def strip(line: str) -> Strip:
    """One line."""
    return Strip([Segment(said, _style(look)) for said, look in runs(line)])


@lru_cache(maxsize=4096)
def _style(look: Look) -> Style:
    if not look:
        return Style.null()
    return Style(**{name: _color(value) if name.endswith("color") else value for name, value in look})  # type: ignore[arg-type]  # weights


def _color(value: object) -> Color:
    return Color.from_rgb(*value) if isinstance(value, tuple) else Color.from_ansi(value)  # type: ignore[arg-type]  # of `Look`
