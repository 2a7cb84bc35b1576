"""Escape sequences in text that strangers made: which one colours, and which steer a terminal otherwise. Pure, standard library only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from supervisor.kernel.errors import one_line

PIECE = re.compile(
    r"\x1b\[([0-9;:]*)m"  # colours and weights, the one that may survive
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # titles, clipboard, links and other strings, up to their end
    r"|\x1b\[[0-?]*[ -/]*(?:[@-~]|$)"  # cursor, modes, erasing
    r"|\x1b[ -/]*(?:[0-~]|$)"
    r"|([\x0e\x0f])"  # to line drawing and back
)
"""One sequence: group 1 has the numbers of a colour, group 2 the change of the character set."""


_COLOR = re.compile(r"(\x1b\[[0-9;:]*m)")
_ENDS = ("\x1b[m", "\x1b[0m")
_EXTENDED = re.compile(r"[345]8[;:](?:5[;:]\d*|2(?:[;:]\d*){3})")
"""Numbers of a colour: one of a palette, or red, green and blue."""
_HIDES = re.compile(r"(?:^|[;:])0*8(?:[;:]|$)")
"""Text of the colour of what is behind it."""


def escaped(text: str) -> str:
    """Return `text` with line feeds and tabs as they are, and everything else that could steer a terminal as an escape."""
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in text.split("\n"))


def for_terminal(text: str) -> str:
    """Return `text` as a terminal may have it: `escaped`, but colours and weights survive, and end with the text. So do line ends of
    `\\r\\n`."""
    if text.isascii() and text.replace("\n", " ").replace("\t", " ").isprintable():
        return text
    pieces = _COLOR.split(text)
    found = [
        piece if at % 2 and not _HIDES.search(_EXTENDED.sub("", piece[2:-1])) else _line_ends(piece) for at, piece in enumerate(pieces)
    ]
    colors = [piece for piece in found[1::2] if piece.startswith("\x1b")]
    if colors and colors[-1] not in _ENDS:
        found.insert(-1 if not found[-1].strip("\n") else len(found), _ENDS[1])
    return "".join(found)


def _line_ends(text: str) -> str:
    return "\r\n".join(map(escaped, text.split("\r\n")))


def in_texts(value: Any, change: Callable[[str], str]) -> Any:
    """JSON with every text in it changed, the names of its keys too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(name)): in_texts(inner, change) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [in_texts(inner, change) for inner in value]
    return value


def plain(text: str) -> str:
    """`text` without any of them. Other control characters stay: `errors.one_line` shows them."""
    return PIECE.sub("", text) if "\x1b" in text or "\x0e" in text else text
