"""Where the memory of one project lies, and what may lie there.

    memory/core.md                  given to every agent
    memory/semantic/NAME.md         one fact a file
    memory/procedural/NAME.md       one way of doing something a file
    memory/episodic/YYYY-MM-DD.jsonl        what happened, a line each, only added to
    memory/agents/RUN/TASK/notes.md         one agent's own; nobody else writes there
    NAME.conflict-WHO.md            beside any of these: what somebody wrote who did not know the file as it was
    mail/person/{tmp,new,cur}       Maildirs: mail/RUN/TASK/{tmp,new,cur} for agents
    quarantine/                     what waits for a person's word, by the path that it would have
    archive/                        what was pruned or removed, by the path that it had
    memory.db                       every version of every file, and how often each is read

A path here is text below `memory/`, its parts divided by `/`. It is the name of a note everywhere: on the command line, in a task's
`after`, at agents.sock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import UsageError
from supervisor.core.note_paths import CONFLICT, CORE_MAX, DAY_MAX, NOTE_MAX, PATH_MAX, RECORD_MAX, WHERE, Kind, kind_of

__all__ = [
    "CONFLICT",
    "CORE_MAX",
    "DAY_MAX",
    "NOTE_MAX",
    "PATH_MAX",
    "RECORD_MAX",
    "WHERE",
    "Kind",
    "Layout",
    "checked",
    "kind_of",
    "notes_of",
]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of one project lies. `root` is its directory, `Home.project`."""

    root: Path

    @property
    def memory(self) -> Path:
        return self.root / "memory"

    @property
    def mail(self) -> Path:
        return self.root / "mail"

    @property
    def quarantine(self) -> Path:
        return self.root / "quarantine"

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    @property
    def book(self) -> Path:
        """The file of the versions."""
        return self.root / "memory.db"

    def mailbox(self, owner: str) -> Path:
        """Of a task, or of `person`."""
        return self.mail / owner


def checked(path: str) -> Kind:
    """As `kind_of`. Raises UsageError for a path at which nothing may lie."""
    found = kind_of(path)
    if found is None:
        hint = "names have letters, digits, dots, dashes and underscores"
        raise UsageError("not a path of the memory", on=path[:PATH_MAX], why=WHERE, hint=hint)
    return found


def notes_of(task: str) -> str:
    """The path of an agent's own notes."""
    return f"agents/{task}/notes.md"


def is_conflict(path: str) -> bool:
    """Whether it was kept beside the file that it was meant for."""
    return CONFLICT in path


def beside(path: str, who: str, number: int = 1) -> str:
    """Where a text for `path` is kept that came too late, or from somebody who may not write there yet; the `number`th of them."""
    name = re.sub(r"[^A-Za-z0-9_]+", "-", who).strip("-")[:60] or "unknown"
    more = f"-{number}" if number > 1 else ""
    return f"{path.removesuffix('.md')}{CONFLICT}{name}{more}.md"


def meant(path: str) -> str:
    """The path that `beside` was given."""
    return f"{path.partition(CONFLICT)[0]}.md" if is_conflict(path) else path


def size_max(kind: Kind) -> int:
    """Bytes that a file of the kind may have."""
    return {Kind.CORE: CORE_MAX, Kind.EPISODIC: DAY_MAX}.get(kind, NOTE_MAX)
