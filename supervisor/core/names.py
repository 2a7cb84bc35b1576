"""Run ids and slugs that nightcrew makes, and the name that a person may have meant. User text never becomes a tmux, git or file name."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Collection

RUN_ALPHABET = "23456789abcdefghjkmnpqrstvwxyz"
"""No 0/o, 1/l/i, u: a run id is read aloud and typed."""

MAX_SLUG = 26
"""`<run:9>_<slug>_<epoch:<=10>` then stays within tmux names of 48 characters."""


def run_id(month: int, day: int, draw: int) -> str:
    """`MMDD-xxxx`: sorts by day within a year, and 30^4 values a day. `draw` is any non-negative random integer."""
    letters = []
    for _ in range(4):
        draw, index = divmod(draw, len(RUN_ALPHABET))
        letters.append(RUN_ALPHABET[index])
    return f"{month:02d}{day:02d}-{''.join(letters)}"


def slug(text: str, taken: Collection[str]) -> str:
    """A name of `[a-z0-9_-]`, 1 to MAX_SLUG characters, that starts with a letter or digit and is not in `taken`.

    `a.b`, `a:b` and `A b` all want `a-b`; the first gets it and the others `a-b-2`, `a-b-3`.
    """
    plain = unicodedata.normalize("NFKD", text[:200]).encode("ascii", "ignore").decode().lower()
    stem = re.sub(r"[^a-z0-9_]+", "-", plain).strip("-_")[:MAX_SLUG].rstrip("-_") or "task"
    return stem if stem not in taken else _numbered(stem, taken)


def _numbered(stem: str, taken: Collection[str]) -> str:
    """A free `stem-N`. By doubling and halving: counting up took minutes for a plan of thousands of ids with one long beginning."""

    def name(count: int) -> str:
        suffix = f"-{count}"
        return stem[: MAX_SLUG - len(suffix)].rstrip("-_") + suffix

    last_taken, free = 1, 2
    while name(free) in taken:
        last_taken, free = free, 2 * free
    while free - last_taken > 1:
        middle = (last_taken + free) // 2
        last_taken, free = (middle, free) if name(middle) in taken else (last_taken, middle)
    return name(free)


def nearest(word: str, known: Collection[str]) -> str:
    """`did you mean X?`, or the known names as far as a person would read them."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(sorted(known)[:20])}{', ...' if len(known) > 20 else ''}"
