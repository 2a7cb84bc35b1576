"""One request about the memory of a project: who asks, and what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from supervisor.core.errors import UsageError
from supervisor.daemon.memory.desk import MemoryDesk

PERSON = "person"


@dataclass(frozen=True, slots=True)
class Request:
    """`args` of an agent are its own text: nothing of it is to be believed."""

    desk: MemoryDesk
    project: str
    author: str
    """`person`, or the task of the token."""
    epoch: int | None
    args: dict[str, Any]

    def text(self, name: str, most: int) -> str:
        """An argument that must be there. Raises UsageError."""
        value = self.args.get(name)
        if not isinstance(value, str) or not value or len(value) > most:
            raise UsageError("not a request", on=name, why=f"text of 1 to {most} characters")
        return value

    def number(self, name: str, default: float, most: float) -> float:
        """An argument from 0 to `most`. Raises UsageError."""
        value = self.args.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise UsageError("not a request", on=name, why=f"a number from 0 to {most:.0f}")
        return value
