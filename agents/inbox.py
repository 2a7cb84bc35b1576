"""Texts that people sent to a running agent: files `NUMBER.txt` in one directory, each whole from the start. The numbers grow."""

from __future__ import annotations

import contextlib
from pathlib import Path

NUMBER = "nightcrew_input"
"""Key of the `user` line which says that a text was given to the agent; its value is the text's number."""


class Inbox:
    """The texts of one attempt, each handed out once."""

    def __init__(self, directory: str) -> None:
        """`directory` may be empty: nobody can send anything then."""
        self._directory = directory
        self._last = 0

    def next(self) -> tuple[int, str] | None:
        """The oldest text that was not handed out, with its number; None when none waits now."""
        try:
            names = [file.name for file in Path(self._directory).iterdir()] if self._directory else []
        except OSError:  # it is made with the first text
            return None
        numbers = [int(name[:-4]) for name in names if name.endswith(".txt") and name[:-4].isdecimal()]
        for number in sorted(number for number in numbers if number > self._last):
            self._last = number
            with contextlib.suppress(FileNotFoundError):  # taken back: its agent read it in another way
                return number, Path(self._directory, f"{number}.txt").read_text(encoding="utf-8")
        return None
