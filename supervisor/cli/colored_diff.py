"""A difference of two commits in lines for a terminal: numbers of both files, signs, and the colours of the file's language."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from supervisor.core.errors import one_line
from supervisor.core.file_diffs import FileDiff, Hunk

LINES_MAX = 20_000
"""Lines of all files together that are shown."""
COLORED_MAX = 3000
"""Lines of one file that are coloured by its language: 0.2 ms each."""
WIDE_MAX = 2000
"""Characters of one line."""
_STYLES = {"bad": "bold red", "good": "green", "title": "bold", "faint": "dim", "": ""}
_SIGNS = {"+": "on #10301a", "-": "on #3a1418", " ": ""}
_PLAIN_SIGNS = {"+": "green", "-": "red", " ": ""}


def styled(lines: Iterable[tuple[str, str]], *, color: bool) -> Iterator[str]:
    """Lines with how each is meant, as the terminal takes them."""
    yield from _printed((Text(text, _STYLES[meant]) for text, meant in lines), color=color)


def lines(diffs: Iterable[FileDiff], *, color: bool) -> Iterator[str]:
    """Every file with its hunks; each line begins with its number in the older and in the newer file. At most LINES_MAX."""
    left = LINES_MAX
    for one in diffs:
        if left <= 0:
            yield "... more is not shown: nightcrew diff"
            return
        shown = list(_file(one, left, color=color))
        left -= len(shown)
        yield from _printed(shown, color=color)


def _file(one: FileDiff, left: int, *, color: bool) -> Iterator[Text]:
    was = f"{one_line(one.old_path)} -> " if one.old_path else ""
    yield Text("")
    yield Text(f"{one.status} {was}{one_line(one.path)}", "bold underline" if color else "")
    if one.binary:
        yield Text("  binary", "dim")
    if one.cut:
        yield Text("  too large to be shown whole", "dim")
    lexer = _lexer(one) if color else None
    for hunk in one.hunks:
        if left <= 0:
            yield Text("  ... more is not shown: nightcrew diff", "dim")
            return
        yield Text(f"  {'.' * 5} {'.' * 5}", "dim")
        yield from _hunk(hunk, lexer, left)
        left -= len(hunk.lines)


def _lexer(one: FileDiff) -> str | None:
    if one.plus + one.minus > COLORED_MAX or any(len(text) > WIDE_MAX for hunk in one.hunks for _, text in hunk.lines):
        return None
    found = Syntax.guess_lexer(one.path)
    return None if found == "default" else found


def _hunk(hunk: Hunk, lexer: str | None, left: int) -> Iterator[Text]:
    shown = [one_line(text.expandtabs(4)[:WIDE_MAX]) + (" ..." if len(text) > WIDE_MAX else "") for _, text in hunk.lines[:left]]
    code = _highlighted(shown, lexer)
    signs = _SIGNS if lexer else _PLAIN_SIGNS
    for (old, new, sign, _), text in zip(hunk.numbered(), code, strict=False):
        row = Text(f"  {old or '':>5} {new or '':>5} ", "dim")
        row.append(f"{sign} ", _PLAIN_SIGNS.get(sign, ""))
        body = text.copy()
        body.stylize(signs.get(sign, ""))
        yield row.append_text(body)


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
