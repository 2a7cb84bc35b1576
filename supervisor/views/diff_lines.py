"""The lines of a diff with the parts of each that are coloured by its language, for a terminal and for a page. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Token
from pygments.util import ClassNotFound

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


def lexer(one: FileDiff) -> Lexer | None:
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
