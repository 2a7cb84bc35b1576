"""Draws the two tables of supervisor/kernel/states.py into docs/architecture.md. Run it after a change of either table:

.venv/bin/python tools/diagrams.py
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from supervisor.kernel.states import ATTEMPT_TRANSITIONS, FINAL, TASK_TRANSITIONS, AttemptState, TaskState

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"


S = TypeVar("S", bound=StrEnum)


def diagram(table: Mapping[S, Mapping[str, S]], first: S, last: Collection[S]) -> str:
    """A table as a Mermaid state diagram: one arrow a row, in the table's order."""
    arrows = [f"{state} --> {target}: {event}" for state, row in table.items() for event, target in row.items()]
    ends = [f"{state} --> [*]" for state in table if state in last]
    return "\n    ".join(["stateDiagram-v2", f"[*] --> {first}", *arrows, *ends])


def drawn(page: str) -> str:
    """The page with both diagrams as the tables are now. Raises KeyError when a marker is missing."""
    diagrams = {
        "task": diagram(TASK_TRANSITIONS, TaskState.WAITING, FINAL),
        "attempt": diagram(ATTEMPT_TRANSITIONS, AttemptState.LAUNCHING, {AttemptState.RELEASED}),
    }
    for name, text in diagrams.items():
        block = f"<!-- {name} states, drawn by tools/diagrams.py -->\n```mermaid\n{text}\n```\n<!-- end -->"
        page, found = re.subn(rf"<!-- {name} states.*?<!-- end -->", lambda _, block=block: block, page, flags=re.DOTALL)  # type: ignore[misc]
        if found != 1:
            raise KeyError(f"{name} states")
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
