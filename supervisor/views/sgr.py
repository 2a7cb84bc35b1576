"""Text that strangers made, for a screen of ours: colours and weights survive, everything else that steers a terminal is dropped. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from supervisor.kernel.ansi import PIECE
from supervisor.kernel.errors import one_line

LINE_MAX = 4000
"""Characters of one line that are read; what a terminal shows in one is far less."""
_LINES = str.maketrans("jklmnqtuvwx`afgo", "┘┐┌└┼─├┤┴┬│◆▒°±⎺")
_WEIGHTS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 5: "blink", 7: "reverse", 9: "strike"}
_ENDS = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 25: ("blink",), 27: ("reverse",), 29: ("strike",)}
Look = tuple[tuple[str, object], ...]
"""What is not as usual, sorted by name: weights are True, `color` and `bgcolor` a number of the palette of 256 or a (red, green, blue)."""


def runs(line: str) -> Iterator[tuple[str, Look]]:
    """Pieces of one line that look the same: what stands after its last carriage return, as a terminal would have it."""
    kept = line.rstrip("\r").rpartition("\r")[2][:LINE_MAX].expandtabs(8)
    return ((said, look) for said, look in _pieces(kept) if said)


def _pieces(line: str) -> Iterator[tuple[str, Look]]:
    look: dict[str, object] = {}
    at, drawing = 0, False
    for found in PIECE.finditer(line):
        yield _shown(line[at : found.start()], drawing), _key(look)
        at = found.end()
        if found[1] is not None:
            _apply(look, found[1])
        elif found[2]:
            drawing = found[2] == "\x0e"
    yield _shown(line[at:], drawing), _key(look)


def _shown(said: str, drawing: bool) -> str:
    return one_line(said.translate(_LINES) if drawing else said)


def _key(look: dict[str, object]) -> Look:
    return tuple(sorted(look.items()))


def _apply(look: dict[str, object], codes: str) -> None:
    """Change `look` by the numbers of one sequence. What is no number of a colour or a weight changes nothing."""
    left = [int(one) if one.isdigit() and len(one) < 5 else 0 for one in re.split("[;:]", codes)]
    while left:
        match left.pop(0):
            case 0:
                look.clear()
            case 38 | 48 as which:
                _extended(look, "color" if which == 38 else "bgcolor", left)
            case 39:
                look.pop("color", None)
            case 49:
                look.pop("bgcolor", None)
            case code if code in _WEIGHTS:
                look[_WEIGHTS[code]] = True
            case code if code in _ENDS:
                for name in _ENDS[code]:
                    look.pop(name, None)
            case code:
                _plain_color(look, code)


def _plain_color(look: dict[str, object], code: int) -> None:
    for first, name, bright in ((30, "color", 0), (40, "bgcolor", 0), (90, "color", 8), (100, "bgcolor", 8)):
        if first <= code < first + 8:
            look[name] = code - first + bright


def _extended(look: dict[str, object], name: str, left: list[int]) -> None:
    match left[:4]:
        case [5, number, *_] if number < 256:
            look[name] = number
            del left[:2]
        case [2, red, green, blue] if max(red, green, blue) < 256:
            look[name] = (red, green, blue)
            del left[:4]
        case _:
            left.clear()
