"""A difference of two commits in lines for a terminal: numbers of both files, signs, and the colours of the file's language."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from supervisor.kernel.errors import one_line
from supervisor.kernel.gate_files import FileDiff, Hunk

LINES_MAX = 20_000
"""Lines of all files together that are shown."""
COLORED_MAX = 3000
"""Lines of one file that are coloured by its language: 0.2 ms each."""
WIDE_MAX = 2000
"""Characters of one line."""
Beside = Mapping[tuple[str, int], Sequence[str]]
_STYLES = {"bad": "bold red", "good": "green", "title": "bold", "faint": "dim", "": ""}
_SIGNS = {"+": "bold green reverse", "-": "bold red reverse", " ": ""}
"""Of the sign alone where the line has the colours of its language: those are the terminal's own, readable on what it has behind them."""
_LINES = {"+": "green", "-": "red", " ": ""}
"""Of the whole line where it has none."""


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
    lexer = _lexer(one) if color else None
    crlf = one.crlf
    for hunk in one.hunks:
        if left <= 0:
            yield Text("  ... more is not shown: nightcrew diff", "dim")
            return
        yield Text(f"  {'.' * 5} {'.' * 5}", "dim")
        shown = [_shown(text.removesuffix("\r") if crlf else text) for _, text in hunk.lines[:left]]
        yield from _hunk(one.path, hunk, shown, beside, lexer)
        left -= len(hunk.lines)


def _lexer(one: FileDiff) -> str | None:
    if one.plus + one.minus > COLORED_MAX or any(len(text) > WIDE_MAX for hunk in one.hunks for _, text in hunk.lines):
        return None
    found = Syntax.guess_lexer(one.path)
    return None if found == "default" else found


def _hunk(path: str, hunk: Hunk, shown: list[str], beside: Beside, lexer: str | None) -> Iterator[Text]:
    code = _highlighted(shown, lexer)
    for place, ((old, new, sign, _), body) in enumerate(zip(hunk.numbered(), code, strict=False)):
        row = Text().append(f"  {old or '':>5} {new or '':>5} ", "dim")
        row.append(sign, _SIGNS.get(sign, "") if lexer else _LINES.get(sign, "")).append(" ")
        if lexer is None:
            body.stylize(_LINES.get(sign, ""))
        row.append_text(body)
        yield row.append("  (no line end)", "dim") if place in hunk.bare else row
        for line in beside.get((path, new or 0), ()):
            yield Text(f"{'':>13} | ", "yellow").append(line, "bold yellow")


def _shown(text: str) -> str:
    return one_line(text.expandtabs(4)[:WIDE_MAX]) + (" ..." if len(text) > WIDE_MAX else "")


def _highlighted(shown: list[str], lexer: str | None) -> list[Text]:
    if lexer is None:
        return [Text(line) for line in shown]
    made = Syntax("\n".join(shown), lexer, theme="ansi_dark", background_color="default").highlight("\n".join(shown))
    found = list(made.split("\n", allow_blank=True))
    return found[: len(shown)] if len(found) >= len(shown) else [Text(line) for line in shown]


def _printed(rows: Iterable[Text], *, color: bool) -> Iterator[str]:
    """By one console that writes into memory: lines are neither wrapped nor cut."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=color, no_color=not color, width=10_000, color_system="truecolor" if color else None)
    for row in rows:
        console.print(row, soft_wrap=True, end="")
        yield out.getvalue()
        out.seek(0)
        out.truncate()
