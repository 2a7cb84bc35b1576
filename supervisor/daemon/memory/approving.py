"""A person decides about what agents wrote: the operations `approve` and `reject` of the verb `mem`.

An agent may replace its proposal at any moment, so an approval is of one version: the one that it names, or that was shown last.
"""

from __future__ import annotations

from typing import Any

from memory.layout import PATH_MAX
from memory.pages import front_matter
from memory.plain_text import cleaned
from memory.store import PERSON, QUARANTINE, Author, Put, Store
from supervisor.core.errors import Refused
from supervisor.daemon.memory.request import Request

BEGINNING = 400
"""Characters of a text that a refusal has."""
LINES = 5


def note_shown(asked: Request, shape: dict[str, Any]) -> None:
    """Remember which version of what waits a person was shown. One that was cut was not shown."""
    asked.desk.shown[asked.project, shape["path"].removeprefix(QUARANTINE)] = "" if shape["cut"] else shape["version"]


async def approve(asked: Request) -> Put:
    """`path` of what waits, `version` (none: the one that a person was last shown). Raises Refused when it is another one by now."""
    path, version = asked.text("path", PATH_MAX + len(QUARANTINE)).removeprefix(QUARANTINE), asked.args.get("version")
    seen = asked.desk.shown.get((asked.project, path), "") if version is None else str(version)

    def decide(store: Store) -> Put:
        if asked.author != PERSON.name:
            return store.approve(path, Author(asked.author))  # refused there
        waits = store.read(f"{QUARANTINE}{path}")
        if waits is not None and waits.version != seen:
            raise _unseen(path, waits.version, waits.text, seen)
        return store.approve(path, PERSON, waits.version if waits is not None else None)

    done = await asked.desk.of(asked.project, decide)
    asked.desk.shown.pop((asked.project, path), None)
    return done


def _unseen(path: str, version: str, text: str, seen: str) -> Refused:
    begin = " | ".join(cleaned(front_matter(text)[1]).strip().split("\n")[:LINES])[:BEGINNING]
    return Refused(
        "will not approve what nobody was shown",
        on=path,
        why=f"it is version {version}{f', not {seen}' if seen else ''}, and begins: {begin}",
        kept="it still waits",
        hint=f"nightcrew mem approve {path} --version {version}",
    )
