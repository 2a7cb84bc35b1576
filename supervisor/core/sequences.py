"""Escape sequences in text that strangers made: which one colours, and which steer a terminal otherwise. Pure, standard library only."""

from __future__ import annotations

import re

PIECE = re.compile(
    r"\x1b\[([0-9;:]*)m"  # colours and weights, the one that may survive
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # titles, clipboard, links and other strings, up to their end
    r"|\x1b\[[0-?]*[ -/]*(?:[@-~]|$)"  # cursor, modes, erasing
    r"|\x1b[ -/]*(?:[0-~]|$)"
    r"|([\x0e\x0f])"  # to line drawing and back
)
"""One sequence: group 1 has the numbers of a colour, group 2 the change of the character set."""


def plain(text: str) -> str:
    """`text` without any of them. Other control characters stay: `errors.one_line` shows them."""
    return PIECE.sub("", text) if "\x1b" in text or "\x0e" in text else text
