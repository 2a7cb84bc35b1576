"""The types of what a request about the memory, mail or leases says. Nothing that an agent says in one is to be believed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

from supervisor.kernel.codec import Bound

_PROJECT = re.compile(r"[0-9a-f]{12}")


def filled(text: str) -> str:
    """Return a text without the space around it. Raises ValueError for an empty one."""
    if not (found := text.strip()):
        raise ValueError("it must be given, as text")
    return found


def _project(text: str) -> str:
    if not _PROJECT.fullmatch(text):
        raise ValueError("it is 12 hex digits")
    return text


def at_most(most: int) -> Callable[[str], str]:
    """Return a rule for a text that may have so many bytes."""

    def fits(text: str) -> str:
        if not text.strip():
            raise ValueError("it must be given, as text")
        if (size := len(text.encode())) > most:
            raise ValueError(f"it is too long: {size} bytes, at most {most}; put it into a file and name that")
        return text

    return fits


Word = Annotated[str, Bound(0, 200), filled]
"""A name or a few words, without space around them."""
Project = Annotated[str, _project]
