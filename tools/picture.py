"""Draws a captured terminal as SVG, for the README.

    tmux capture-pane -e -p > screen && python tools/picture.py 'what it shows' 'nightcrew analyze' screen > docs/crew.svg

Each further pair of a command and a file is drawn below the one before. Text stays text, in whatever monospaced font the reader has;
each run of equal style is stretched to its columns, so that nothing moves.
"""

from __future__ import annotations

import re
import sys
from html import escape
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

WIDE, HIGH, LEFT, TOP = 8.0, 18, 18, 60
COLORS = {1: "#ff7b72", 2: "#56d364", 3: "#e3b341", 4: "#79c0ff", 5: "#d2a8ff", 6: "#76c7d6"}
"""By the number of the ANSI colour."""
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
PAPER, BAR, INK, DIM, STRONG = "#14171c", "#21262d", "#c9d1d9", "#7d8590", "#ffffff"


def main(description: str, *pairs: str) -> str:
    rows: list[list[Segment]] = []
    for command, file in zip(pairs[::2], pairs[1::2], strict=True):
        rows += [[]] if rows else []
        rows.append([Segment("$ ", Style(color="color(2)")), Segment(command, Style(bold=True))])
        rows += [segments(line) for line in Path(file).read_text(encoding="utf-8").rstrip().splitlines()]
    columns = max(sum(segment.cell_length for segment in row) for row in rows)
    width, height = round(2 * LEFT + columns * WIDE), TOP + HIGH * len(rows)
    body = "\n".join(drawn for index, row in enumerate(rows) for drawn in line_of(row, TOP + HIGH * index))
    dots = "".join(
        f'<circle cx="{22 + 18 * n}" cy="16" r="5.5" fill="{fill}"/>' for n, fill in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img"
  aria-label="{escape(description)}" font-family="{FONT}" font-size="13.3" fill="{INK}">
<title>{escape(description)}</title>
<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>
<path d="M0 8a8 8 0 0 1 8-8h{width - 16}a8 8 0 0 1 8 8v24H0z" fill="{BAR}"/>{dots}
{body}
</svg>
"""


def segments(line: str) -> list[Segment]:
    console = Console(width=500, legacy_windows=False)
    return [segment for segment in Text.from_ansi(line).render(console) if segment.text.strip("\n")]


def line_of(row: list[Segment], y: int) -> list[str]:
    drawn, column = [], 0
    for segment in row:
        for part in re.finditer(r"\S+(?: \S+)*", segment.text):  # an SVG swallows spaces, so each run of words has its own place
            x = LEFT + WIDE * (column + cell_len(segment.text[: part.start()]))
            place = f'x="{x:g}" y="{y}" textLength="{WIDE * cell_len(part[0]):g}" lengthAdjust="spacingAndGlyphs"'
            drawn.append(f"<text {place}{look(segment.style)}>{escape(part[0])}</text>")
        column += cell_len(segment.text)
    return drawn


def look(style: Style | None) -> str:
    if style is None:
        return ""
    color = COLORS.get(style.color.number or 0, "") if style.color else DIM if style.dim else STRONG if style.bold else ""
    return (f' fill="{color}"' if color else "") + (' font-weight="bold"' if style.bold else "")


if __name__ == "__main__":
    sys.stdout.write(main(*sys.argv[1:]))
