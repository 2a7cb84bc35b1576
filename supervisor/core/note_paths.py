"""Which paths a note of a project's memory can have, and how large it may be. `memory/layout.py` says where they lie."""

from __future__ import annotations

import re
from enum import StrEnum

PATH_MAX = 200
"""Characters of a path below `memory/`."""
NOTE_MAX = 64 * 2**10
CORE_MAX = 4 * 2**10
RECORD_MAX = 4 * 2**10
DAY_MAX = 32 * 2**20
"""Bytes of a file, of a line of a day, and of a day."""
CONFLICT = ".conflict-"
"""In the name of a file that is kept beside another."""
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")
_CORE = re.compile(rf"core({re.escape(CONFLICT)}[\w-]+)?\.md\Z", re.ASCII)
_NOTES = re.compile(rf"notes({re.escape(CONFLICT)}[\w-]+)?\.md\Z", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d\.jsonl\Z")


class Kind(StrEnum):
    """What a file is for."""

    CORE = "core"
    SEMANTIC = "semantic"
    PROCEDURAL = "procedural"
    EPISODIC = "episodic"
    NOTES = "notes"


WHERE = "it is core.md, semantic/NAME.md, procedural/NAME.md, episodic/YYYY-MM-DD.jsonl or agents/RUN/TASK/notes.md"
"""Where a note can lie, for people."""


def kind_of(path: str) -> Kind | None:
    """What a path below `memory/` is for; None for one at which nothing of ours may lie."""
    parts = path.split("/")
    if len(path) > PATH_MAX or not all(map(_PART.match, parts)):
        return None
    match parts:
        case [name] if _CORE.match(name):
            return Kind.CORE
        case ["semantic" | "procedural", name] if name.endswith(".md"):
            return Kind(parts[0])
        case ["episodic", day] if _DAY.match(day):
            return Kind.EPISODIC
        case ["agents", _, _, name] if _NOTES.match(name):
            return Kind.NOTES
        case _:
            return None


def size_max(path: str) -> int:
    """Bytes that a file at `path` may have for somebody to wait for it."""
    return CORE_MAX if kind_of(path) is Kind.CORE else NOTE_MAX
