"""Text of strangers on its way to a browser: lines and tabs stay, what else would hide from a reader or turn a line around is shown as
an escape. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervisor.core.errors import one_line


def plain(value: Any) -> Any:
    """JSON with every text in it made plain, the names of its keys too."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "\n".join(map(_line, value.split("\n")))
    if isinstance(value, Mapping):
        return {plain(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def _line(text: str) -> str:
    return "\t".join(map(one_line, text.split("\t")))
