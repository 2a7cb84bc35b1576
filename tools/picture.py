"""Draws captured terminals as SVG: one screen, or the frames of a recording.

    tmux capture-pane -e -p > screen && python tools/picture.py 'what it shows' 'nightcrew analyze' screen > docs/crew.svg

Each further pair of a command and a file is drawn below the one before. Text stays text, in whatever monospaced font the reader has;
each run of equal style is stretched to its columns, so that nothing moves. tools/pictures.py makes the others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
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
Row = list[Segment]
Frames = Sequence[tuple[float, Sequence[Row]]]
"""Since when each was on the screen, in seconds, and its rows."""


def main(description: str, *pairs: str) -> str:
    rows: list[Row] = []
    for command, file in zip(pairs[::2], pairs[1::2], strict=True):
        rows += [[]] if rows else []
        rows.append([Segment("$ ", Style(color="color(2)")), Segment(command, Style(bold=True))])
        rows += [segments(line) for line in Path(file).read_text(encoding="utf-8").rstrip().splitlines()]
    columns = max(sum(segment.cell_length for segment in row) for row in rows)
    return framed(description, "\n".join(drawn(rows)), columns, len(rows))


def screen(description: str, rows: Sequence[Row], columns: int) -> str:
    """One screen of a terminal."""
    return framed(description, "\n".join(drawn(rows)), columns, len(rows))


def animated(description: str, frames: Frames, seconds: float, columns: int, still: int) -> str:
    """A recording that plays for ever. What does not move it shows the frame number `still`: a reader who asked for less motion, and a
    program that draws no animations."""
    spans, shown_still = spans_of(frames, seconds), set(drawn(frames[still][1]))
    together: dict[tuple[tuple[tuple[float, float], ...], bool], list[str]] = {}
    for element, times in spans.items():
        together.setdefault((tuple(times), element in shown_still), []).append(element)
    styles, groups = list[str](), list[str]()
    for number, ((times, on), elements) in enumerate(together.items()):
        if times == ((0.0, seconds),):
            groups.append("\n".join(elements))
            continue
        styles.append(
            f".k{number}{{visibility:{'visible' if on else 'hidden'};animation-name:k{number}}}{keyframes(number, times, seconds)}"
        )
        groups.append(f'<g class="k{number}">{"".join(elements)}</g>')
    timing = f"g[class]{{animation-duration:{seconds:g}s;animation-timing-function:step-end;animation-iteration-count:infinite}}"
    calm = "@media (prefers-reduced-motion:reduce){g[class]{animation-name:none!important}}"
    style = f"<style>{timing}{''.join(styles)}{calm}</style>"
    return framed(description, "\n".join([style, *groups]), columns, max(len(rows) for _, rows in frames))


def spans_of(frames: Frames, seconds: float) -> Mapping[str, list[tuple[float, float]]]:
    """By what is drawn, from when until when it is there."""
    spans: dict[str, list[tuple[float, float]]] = {}
    ends = [*(at for at, _ in frames[1:]), seconds]
    for (at, rows), end in zip(frames, ends, strict=True):
        for element in drawn(rows):
            times = spans.setdefault(element, [])
            if times and times[-1][1] == at:
                times[-1] = times[-1][0], end
            else:
                times.append((at, end))
    return spans


def keyframes(number: int, times: Sequence[tuple[float, float]], seconds: float) -> str:
    """One step for each time that it comes or goes."""
    steps = {0.0: "hidden"}
    for begin, end in times:
        steps |= {begin: "visible"} | ({end: "hidden"} if end < seconds else {})
    said = "".join(f"{round(100 * at / seconds, 2):g}%{{visibility:{what}}}" for at, what in sorted(steps.items()))
    return f"@keyframes k{number}{{{said}}}"


def framed(description: str, body: str, columns: int, rows: int) -> str:
    """A window around it."""
    width, height = round(2 * LEFT + columns * WIDE), TOP + HIGH * rows
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


def segments(line: str) -> Row:
    """One line of `tmux capture-pane -e`."""
    console = Console(width=500, legacy_windows=False)
    return [segment for segment in Text.from_ansi(line).render(console) if segment.text.strip("\n")]


def drawn(rows: Sequence[Row]) -> Iterator[str]:
    """The elements of all rows."""
    for index, row in enumerate(rows):
        yield from line_of(row, TOP + HIGH * index)


def line_of(row: Row, y: int) -> list[str]:
    made, column = [], 0
    for segment in row:
        if segment.style is not None and segment.style.reverse:
            place = f'x="{LEFT + WIDE * column:g}" y="{y - 13}" width="{WIDE * segment.cell_length:g}" height="{HIGH}"'
            made.append(f'<rect {place} fill="{ink(segment.style)}"/>')
        for part in re.finditer(r"\S+(?: \S+)*", segment.text):  # an SVG swallows spaces, so each run of words has its own place
            x = LEFT + WIDE * (column + cell_len(segment.text[: part.start()]))
            place = f'x="{x:g}" y="{y}" textLength="{WIDE * cell_len(part[0]):g}" lengthAdjust="spacingAndGlyphs"'
            made.append(f"<text {place}{look(segment.style)}>{escape(part[0], quote=False)}</text>")
        column += segment.cell_length
    return made


def ink(style: Style) -> str:
    """The colour of what is written, before it is reversed."""
    color = COLORS.get(style.color.number or 0, "") if style.color else DIM if style.dim else STRONG if style.bold else ""
    return color or INK


def look(style: Style | None) -> str:
    if style is None:
        return ""
    color = PAPER if style.reverse else ink(style)
    return (f' fill="{color}"' if color != INK else "") + (' font-weight="bold"' if style.bold else "")


if __name__ == "__main__":
    sys.stdout.write(main(*sys.argv[1:]))
