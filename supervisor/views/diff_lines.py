"""The lines of a diff with the parts of each that are coloured by its language, for a terminal and for a page. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Token
from pygments.util import ClassNotFound
from rich.console import Console
from rich.text import Text

from supervisor.kernel.errors import one_line
from supervisor.kernel.gate_files import FileDiff, Hunk

COLORED_MAX = 3000
"""Lines of one file that are coloured by its language."""
COLORED_WIDE, COLORED_CHARS = 400, 40_000
"""Characters of one of its lines, and of a hunk: how long a lexer takes for what a stranger wrote may grow with their square."""
WIDE_MAX = 2000
"""Characters of one line."""
_CLASSES = (
    (Token.Comment, "tc"),
    (Token.Literal.String, "ts"),
    (Token.Literal.Number, "tn"),
    (Token.Keyword, "tk"),
    (Token.Name.Function, "tf"),
    (Token.Name.Class, "tf"),
    (Token.Name.Decorator, "td"),
    (Token.Name.Builtin, "tb"),
    (Token.Name.Tag, "tk"),
    (Token.Name.Attribute, "td"),
    (Token.Operator.Word, "tk"),
)


class Line(NamedTuple):
    """A line of a hunk: its numbers in the older and the newer file, its sign, and its parts: a text, and its class if it has one."""

    old: int | None
    new: int | None
    sign: str
    parts: list[list[str]]


def of_hunk(one: FileDiff, hunk: Hunk, lexer: Lexer | None, most: int) -> Iterator[Line]:
    """At most so many lines of a hunk of a file."""
    texts = [_shown(text.removesuffix("\r") if one.crlf else text) for _, text in hunk.lines[:most]]
    for (old, new, sign, _), parts in zip(hunk.numbered(), _colored(texts, lexer), strict=False):
        yield Line(old, new, sign, parts)


def lexer_of(one: FileDiff) -> Lexer | None:
    """What colours a file; None: it stays as it is."""
    if one.plus + one.minus > COLORED_MAX or any(len(text) > COLORED_WIDE for hunk in one.hunks for _, text in hunk.lines):
        return None
    try:
        return get_lexer_for_filename(one.path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _shown(text: str) -> str:
    return one_line(text.expandtabs(4)[:WIDE_MAX]) + (" ..." if len(text) > WIDE_MAX else "")


def _colored(texts: Sequence[str], lexer: Lexer | None) -> list[list[list[str]]]:
    """The parts of each line. A lexer that loses or makes lines is not believed."""
    plain = [[[text]] if text else [] for text in texts]
    if lexer is None or sum(map(len, texts)) > COLORED_CHARS:
        return plain
    made: list[list[list[str]]] = [[]]
    for kind, value in lexer.get_tokens("\n".join(texts)):
        for place, part in enumerate(value.split("\n")):
            if place:
                made.append([])
            if part:
                _join(made[-1], part, _class(kind))
    whole = ["".join(part[0] for part in parts) for parts in made]
    return made if whole == list(texts) else plain


def _join(parts: list[list[str]], text: str, name: str) -> None:
    if parts and (parts[-1][1] if len(parts[-1]) > 1 else "") == name:
        parts[-1][0] += text
    else:
        parts.append([text, name] if name else [text])


def _class(kind: Any) -> str:
    return next((name for of, name in _CLASSES if kind in of), "")


# For a terminal
# --------------


LINES_MAX = 20_000
"""Lines of all files together that are shown."""
Beside = Mapping[tuple[str, int], Sequence[str]]
_STYLES = {"bad": "bold red", "good": "green", "title": "bold", "faint": "dim", "": ""}
_SIGNS = {"+": "bold green reverse", "-": "bold red reverse", " ": ""}
"""Of the sign alone where the line has the colours of its language: those are the terminal's own, readable on what it has behind them."""
_LINES = {"+": "green", "-": "red", " ": ""}
"""Of the whole line where it has none."""
_LANGUAGE = {"tc": "dim", "ts": "yellow", "tn": "blue", "tk": "blue", "tf": "green", "td": "magenta", "tb": "cyan"}
"""By the classes of `_CLASSES`."""


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
    lexer = lexer_of(one) if color else None
    for hunk in one.hunks:
        if left <= 0:
            yield Text("  ... more is not shown: nightcrew diff", "dim")
            return
        yield Text(f"  {'.' * 5} {'.' * 5}", "dim")
        yield from _hunk(one, hunk, of_hunk(one, hunk, lexer, left), beside, is_colored=lexer is not None)
        left -= len(hunk.lines)


def _hunk(one: FileDiff, hunk: Hunk, lines: Iterable[Line], beside: Beside, *, is_colored: bool) -> Iterator[Text]:
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
