"""A result as JSON for the page of its diff: what speaks against it, one line a file, the lines with their tokens. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Token
from pygments.util import ClassNotFound

from supervisor.core.errors import one_line
from supervisor.core.file_diffs import FileDiff, Hunk
from supervisor.core.reviews import named
from supervisor.faces import review
from supervisor.faces.review import Review

LINES_MAX = 5000
"""Lines of all files together that a browser is given."""
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


def shape(found: Review) -> dict[str, Any]:
    """By key: `about`, `order`, and one for each file, so that what one more commit changed is what is sent."""
    said: dict[str, Any] = {"about": _about(found)}
    left, order = LINES_MAX, list[str]()
    for one in found.diffs:
        name = f"file:{named(one.path)}"
        said[name] = made = _file(found, one, left)
        left -= len(made["lines"])
        order.append(name)
    said["order"] = order
    return said


def _about(found: Review) -> dict[str, Any]:
    head = list(review.head(found))[1:]
    return {
        "tip": found.tip,
        "base": found.base,
        "merged": found.merged,
        "verdict": found.verdict,
        "head": [[text, meant] for text, meant in head if not text.startswith("comment ")],
        "waiting": sum(one.sent is None for one in found.comments),
        "final": found.view.final,
    }


def _file(found: Review, one: FileDiff, left: int) -> dict[str, Any]:
    rows = list(_lines(one, left))
    comments = [
        {
            "number": said.number,
            "line": said.last,
            "text": said.text,
            "sent": said.sent is not None,
            "outdated": said.tip != found.tip,
        }
        for said in found.comments
        if said.path == named(one.path)
    ]
    return {
        "path": named(one.path),
        "shown": one_line(one.path),
        "was": one_line(one.old_path),
        "status": one.status,
        "plus": one.plus,
        "minus": one.minus,
        "note": "binary" if one.binary else "too large to be shown whole" if one.cut else one.what,
        "flags": [one_line(flag.why) for flag in found.flags if flag.path == one.path and flag.weakens],
        "lines": rows,
        "more": sum(len(hunk.lines) for hunk in one.hunks) > sum(row[2] != "@" for row in rows),
        "comments": comments,
    }


def _lines(one: FileDiff, left: int) -> Iterator[list[Any]]:
    """Each with its number in the older and the newer file, its sign (`@` between hunks) and its spans."""
    lexer = _lexer(one)
    for number, hunk in enumerate(one.hunks):
        if left <= 0:
            return
        if number:
            yield [None, None, "@", []]
        yield from _hunk(hunk, lexer, left, crlf=one.crlf)
        left -= len(hunk.lines)


def _hunk(hunk: Hunk, lexer: Lexer | None, left: int, *, crlf: bool) -> Iterator[list[Any]]:
    texts = [_shown(text.removesuffix("\r") if crlf else text) for _, text in hunk.lines[:left]]
    for (old, new, sign, _), spans in zip(hunk.numbered(), _colored(texts, lexer), strict=False):
        yield [old, new, sign, spans]


def _shown(text: str) -> str:
    return one_line(text.expandtabs(4)[:WIDE_MAX]) + (" ..." if len(text) > WIDE_MAX else "")


def _lexer(one: FileDiff) -> Lexer | None:
    if one.plus + one.minus > COLORED_MAX or any(len(text) > COLORED_WIDE for hunk in one.hunks for _, text in hunk.lines):
        return None
    try:
        return get_lexer_for_filename(one.path, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _colored(texts: Sequence[str], lexer: Lexer | None) -> list[list[list[str]]]:
    """The spans of each line. A lexer that loses or makes lines is not believed."""
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
    whole = ["".join(span[0] for span in spans) for spans in made]
    return made if whole == list(texts) else plain


def _join(spans: list[list[str]], text: str, name: str) -> None:
    if spans and (spans[-1][1] if len(spans[-1]) > 1 else "") == name:
        spans[-1][0] += text
    else:
        spans.append([text, name] if name else [text])


def _class(kind: Any) -> str:
    return next((name for of, name in _CLASSES if kind in of), "")
