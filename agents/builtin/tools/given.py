"""What a model gave a tool: checked, since it may be anything. And where files may be."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTPUT_MAX = 30_000
"""Characters of one result."""


class ToolError(Exception):
    """The call cannot be done; its text is what the model is told."""


class Given:
    """The input of one call."""

    def __init__(self, shape: Any) -> None:
        if not isinstance(shape, dict):
            raise ToolError("the input is not an object")
        self._shape = shape

    def text(self, name: str, default: str | None = None) -> str:
        """A text. Without a `default` it must be given. Raises ToolError."""
        value = self._shape.get(name, default)
        if not isinstance(value, str):
            raise ToolError(f"{name!r} is missing" if value is None else f"{name!r} is not a text")
        if "\0" in value and name != "content":
            raise ToolError(f"{name!r} holds a NUL character")
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number from `least` to `most`. Raises ToolError."""
        value = self._shape.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise ToolError(f"{name!r} is not a number from {least:g} to {most:g}")
        return float(value)

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers, by default none. Raises ToolError."""
        value = self._shape.get(name) or []
        if not isinstance(value, list) or not all(type(number) is int for number in value):
            raise ToolError(f"{name!r} is not a list of whole numbers")
        return value

    def flag(self, name: str) -> bool:
        """True or false, by default false. Raises ToolError."""
        value = self._shape.get(name, False)
        if not isinstance(value, bool):
            raise ToolError(f"{name!r} is neither true nor false")
        return value


@dataclass(frozen=True, slots=True)
class Place:
    """The worktree's root, with no link in its path, and directories outside it where files may be too."""

    root: Path
    others: tuple[Path, ...] = ()

    def resolve(self, name: str) -> Path:
        """The file of that name, with every link followed. Raises ToolError when that is outside."""
        path = Path(os.path.realpath(self.root / name))
        if not any(path.is_relative_to(place) for place in (self.root, *self.others)):
            raise ToolError(f"{name}: that is {path}, outside the worktree {self.root}; only bash goes there")
        return path

    def shown(self, path: Path) -> str:
        """From the root where it is below it."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)


def shortened(text: str, most: int = OUTPUT_MAX) -> str:
    """`text` with its middle left out when it is longer than `most` characters."""
    if len(text) <= most:
        return text
    head, tail = most * 2 // 3, most // 3
    return f"{text[:head]}\n[... {len(text) - head - tail} characters left out ...]\n{text[-tail:]}"
