"""A difference of two commits in lines for a terminal: numbers of both files, signs, and the colours of the file's language."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from supervisor.kernel.errors import one_line
from supervisor.kernel.gate_files import FileDiff, Hunk
from supervisor.views import diff_lines

LINES_MAX = 20_000
"""Lines of all files together that are shown."""
Beside = Mapping[tuple[str, int], Sequence[str]]
_STYLES = {"bad": "bold red", "good": "green", "title": "bold", "faint": "dim", "": ""}
_SIGNS = {"+": "bold green reverse", "-": "bold red reverse", " ": ""}
"""Of the sign alone where the line has the colours of its language: those are the terminal's own, readable on what it has behind them."""
_LINES = {"+": "green", "-": "red", " ": ""}
"""Of the whole line where it has none."""
_LANGUAGE = {"tc": "dim", "ts": "yellow", "tn": "blue", "tk": "blue", "tf": "green", "td": "magenta", "tb": "cyan"}
"""By the classes of `diff_lines`."""


def styled(lines: Iterable[tuple[str, str]], *, color: bool) -> Iterator[str]:
    """Lines with how each is meant, as the terminal takes them."""
    yield from _printed((Text(text, _STYLES[meant]) for text, meant in lines), color=color)


def lines(diffs: Iterable[FileDiff], beside: Beside, *, color: bool) -> Iterator[str]:
    """Every file with its hunks; each line begins with its number in the older and in the newer file. At most LINES_MAX. What `beside` has
    of a file and a number of a line in the newer file stands below that."""
    left = LINES_MAX
    for one in diffs:
        if left <= 0:
            yield "... more is not shown: nightcrew diff"
            return
        shown = list(_file(one, beside, left, color=color))
        left -= len(shown)
        yield from _printed(shown, color=color)


def _file(one: FileDiff, beside: Beside, left: int, *, color: bool) -> Iterator[Text]:
    was = f"{one_line(one.old_path)} -> " if one.old_path else ""
    yield Text("")
    title = Text(f"{one.status} {was}{one_line(one.path)}", "bold underline" if color else "")
    yield title.append(f"  {one.what}", "not bold not underline dim") if one.what else title
    if one.binary:
        yield Text("  binary", "dim")
    if one.cut:
        yield Text("  too large to be shown whole", "dim")
    lexer = diff_lines.lexer(one) if color else None
    for hunk in one.hunks:
        if left <= 0:
            yield Text("  ... more is not shown: nightcrew diff", "dim")
            return
        yield Text(f"  {'.' * 5} {'.' * 5}", "dim")
        yield from _hunk(one, hunk, diff_lines.of_hunk(one, hunk, lexer, left), beside, is_colored=lexer is not None)
        left -= len(hunk.lines)


def _hunk(one: FileDiff, hunk: Hunk, lines: Iterable[diff_lines.Line], beside: Beside, *, is_colored: bool) -> Iterator[Text]:
    for place, (old, new, sign, parts) in enumerate(lines):
        row = Text().append(f"  {old or '':>5} {new or '':>5} ", "dim")
        row.append(sign, (_SIGNS if is_colored else _LINES).get(sign, "")).append(" ")
        for text, *classes in parts:
            row.append(text, _LANGUAGE.get("".join(classes), "") if is_colored else _LINES.get(sign, ""))
        yield row.append("  (no line end)", "dim") if place in hunk.bare else row
        for line in beside.get((one.path, new or 0), ()):
            yield Text(f"{'':>13} | ", "yellow").append(line, "bold yellow")


def _printed(rows: Iterable[Text], *, color: bool) -> Iterator[str]:
    """By one console that writes into memory: lines are neither wrapped nor cut."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=color, no_color=not color, width=10_000, color_system="truecolor" if color else None)
    for row in rows:
        console.print(row, soft_wrap=True, end="")
        yield out.getvalue()
        out.seek(0)
        out.truncate()
