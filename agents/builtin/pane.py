"""What a person reads in the pane, on standard error: the model's text as it comes, a line for each tool call and for its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TextIO

from supervisor.core.errors import one_line

_WIDTH = 160
_SHOWN = {"bash": "command", "grep": "pattern", "glob": "pattern"}
"""Which of a tool's parameters says most; of all others it is the path."""


class Pane:
    """Lines for people. Nothing that a model or a command wrote can drive the terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._open = False

    def text(self, piece: str) -> None:
        """A piece of the model's text, as it comes."""
        shown = "\n".join(one_line(line.replace("\t", "    ")) for line in piece.split("\n"))
        if shown:
            self._write(shown)
            self._open = not shown.endswith("\n")

    def line(self, text: str) -> None:
        """One whole line."""
        self._write(("\n" if self._open else "") + _cut(one_line(text.replace("\t", "    "))) + "\n")
        self._open = False

    def call(self, name: str, given: Mapping[str, Any]) -> None:
        """A tool is called."""
        self.line(f"> {name} {given.get(_SHOWN.get(name, 'path'), '')}")

    def outcome(self, name: str, text: str, *, is_error: bool) -> None:
        """What came of it."""
        lines = text.splitlines() or [""]
        more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        self.line(f"  {'! ' if is_error else ''}{name}: {lines[0][: _WIDTH - 40]}{more}")

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):  # the pane is gone: the work goes on
            self._open = False


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
