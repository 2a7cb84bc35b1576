"""Patterns of paths in a memory, see `core.path_globs`."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.errors import UsageError, one_line
from supervisor.core.path_globs import covers, normalised


def matcher(glob: str) -> Callable[[str], bool]:
    """Whether a path below `memory/` is covered. Raises UsageError."""
    try:
        form = normalised(glob)
    except ValueError as error:
        raise UsageError("not a pattern", on=one_line(glob[:200]), why=str(error), hint="semantic/*.md, or **") from None
    return lambda path: covers(form, path)
