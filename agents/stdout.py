"""The real stdout, kept out of everybody's reach until the one line is written."""

from __future__ import annotations

import os


def claim() -> int:
    """Take stdout aside and let descriptor 1 be stderr, for this process, its libraries and its children. Returns where the line goes."""
    kept = os.dup(1)  # not inherited by children
    os.dup2(2, 1)
    return kept


def put(kept: int, line: str) -> None:
    """Write `line` and a newline, all of it, and close `kept`. Raises OSError when the reader is gone."""
    os.set_blocking(kept, True)  # in a pipe that somebody made non-blocking the line would end where the pipe is full
    with os.fdopen(kept, "wb") as file:
        file.write(f"{line}\n".encode("ascii"))
