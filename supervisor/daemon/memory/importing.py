"""The operation `import`: a file of another memory, for a person."""

from __future__ import annotations

from typing import Any

from memory.layout import DAY_MAX, PATH_MAX, Kind, checked
from memory.store import PERSON, Store
from memory.versions import version_of
from supervisor.core.errors import Refused, UsageError
from supervisor.daemon.memory import request
from supervisor.daemon.memory.request import Request


async def take(asked: Request) -> dict[str, Any]:
    """`path` and `text`. A file that is here and is not the same stays, and the text is kept beside it; of a day the records are added that
    are not here. Returns `path`, `same`, and `conflict`: the file beside it, or nothing. Raises Refused for an agent."""
    if asked.author != request.PERSON:
        raise Refused("only a person may do that", on="import", why="it says itself who wrote what")
    path, text = asked.text("path", PATH_MAX), asked.args.get("text")
    kind = checked(path)
    if not isinstance(text, str) or len(text) > DAY_MAX:
        raise UsageError("not a request", on="text", why=f"text of at most {DAY_MAX} characters")
    return await asked.desk.of(asked.project, lambda store: _take(store, path, kind, text))


def _take(store: Store, path: str, kind: Kind, text: str) -> dict[str, Any]:
    if kind is Kind.EPISODIC:
        return {"path": path, "same": not store.add_day(path, text, PERSON), "conflict": ""}
    here = store.read(path)
    if here is not None and here.version == version_of(text.encode("utf-8", "replace")):
        return {"path": path, "same": True, "conflict": ""}
    put = store.put(path, text, PERSON, if_version="")
    return {"path": put.path, "same": False, "conflict": put.conflict}
