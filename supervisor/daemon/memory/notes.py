"""Operations of the verb `mem` on the files themselves. Each takes a request and returns what memory/store.py says of it."""

from __future__ import annotations

from typing import Any

from memory import layout, note
from memory.history import CHANGES_MAX, Wanted, page
from memory.layout import NOTE_MAX, PATH_MAX, Kind
from memory.listing import no_such, refused
from memory.plain_text import cleaned, quoted
from memory.store import PERSON, QUARANTINE, Author, Change, Entry, Put, Store
from supervisor.core.errors import Refused, UsageError
from supervisor.daemon.memory import approving
from supervisor.daemon.memory.request import Request

LISTED_MAX = 2_000
"""Files of one answer."""
DAY_TAIL = 256 * 2**10
"""Characters of a day that one answer has: its newest."""


def author(asked: Request) -> Author:
    """Who asks. An agent whose task failed before is not trusted, and none is when a person said so."""
    if asked.author == PERSON.name:
        return PERSON
    loop = asked.desk.loop
    task = loop.crew.tasks.get(asked.author)
    kind, failures = (task.kind, task.tally.failures) if task is not None else ("", 0)
    return Author(asked.author, asked.epoch, kind, trusted=failures == 0)


async def ls(asked: Request) -> dict[str, Any]:
    """`prefix` (none: all) -> `entries`: path, kind, size, mtime, version, title, and of the front matter what is there; `more`: how many
    are not among them; `refused`: path and why of what is no file that anybody reads, and `more_refused`: how many more;
    `polls`: why changes on the disk are seen every 2 s only, or ""; `overflows`: how often the kernel dropped events since the start."""
    prefix = _optional(asked, "prefix", PATH_MAX) or ""

    def look(store: Store) -> dict[str, Any]:
        found = [entry for entry in store.entries() if entry.path.startswith(prefix)]
        shape = {"entries": list(map(_shape, found[:LISTED_MAX])), "more": max(0, len(found) - LISTED_MAX)}
        return {**shape, **refused(store.strange(), store.misnamed())}

    found, watch = await asked.desk.of(asked.project, look), asked.desk.watch
    return {**found, "polls": watch.why_polled(asked.project), "overflows": watch.overflows}


async def show(asked: Request) -> dict[str, Any]:
    """`path` (with `quarantine/` before it: what waits), `version` (none: as it is) -> path, kind, version, title, text, meta, `broken`,
    `superseded_by`. An agent is given the text as data: `quoted`, where it is not its own."""
    path, version = asked.text("path", PATH_MAX + len(QUARANTINE)), _optional(asked, "version", 16)
    if path.startswith(QUARANTINE):
        _check_person(asked, path)

    def look(store: Store) -> dict[str, Any]:
        kind = layout.checked(path.removeprefix(QUARANTINE))
        found = store.read(path) if version is None else None
        text = found.text if found is not None else store.older(path, version)[1] if version is not None else None
        if text is None:
            raise no_such(path, [entry.path for entry in store.entries()])
        return _shown(asked, store, path, kind, found.version if found is not None else str(version), text)

    found = await asked.desk.of(asked.project, look)
    if path.startswith(QUARANTINE):
        approving.note_shown(asked, found)
    else:
        await asked.desk.search.read(asked.project, [path], asked.author)
    return found


def _shown(asked: Request, store: Store, path: str, kind: Kind, version: str, text: str) -> dict[str, Any]:
    whole, text = len(text), text[-DAY_TAIL:]
    meta = note.parse(text).meta if kind is not Kind.EPISODIC else {"title": path}
    title = str(meta["title"])
    newer = store.superseding(path, kind, meta.get("id"))
    shape: dict[str, Any] = {"path": path, "kind": kind.value, "version": version, "title": title, "text": text}
    shape |= {"superseded_by": newer, "cut": whole - len(text)}
    if broken := meta.get("broken"):
        shape["broken"] = str(broken)
    if asked.author != PERSON.name:
        wrote = next((change.author for change in store.changes(path, 1)), "unknown")
        shape["text"] = cleaned(text, NOTE_MAX)
        if wrote != asked.author:
            shape["quoted"] = quoted(text, f"note {path}, version {version}, by {wrote}")
    return shape


async def put(asked: Request) -> dict[str, Any]:
    """`path`, `text`, `if_version` (none: whatever is there; "": nothing may be), `supersedes` (a path or an id) -> path, version,
    `conflict` (where the text was kept instead, or ""), `quarantined`."""
    path, text = asked.text("path", PATH_MAX), asked.args.get("text")
    if not isinstance(text, str) or len(text) > NOTE_MAX:
        raise UsageError("not a request", on="text", why=f"text of at most {NOTE_MAX} characters")
    if_version, instead = _optional(asked, "if_version", 64), _optional(asked, "supersedes", PATH_MAX)
    who = author(asked)
    asked.desk.write_budget.take(who, len(text))
    whole = note.rewritten(text, supersedes=instead) if instead else text
    return _put(await asked.desk.of(asked.project, lambda store: store.put(path, whole, who, if_version=if_version)))


async def append(asked: Request) -> dict[str, Any]:
    """`text`, `type`, `refs` -> `path` of the day; one that waits for a person has `quarantine/` before it."""
    record = {key: value for key, value in asked.args.items() if key in ("text", "type", "refs")}
    who = author(asked)
    asked.desk.write_budget.take(who, len(str(record)))
    return {"path": await asked.desk.of(asked.project, lambda store: store.append(record, who))}


async def rm(asked: Request) -> dict[str, Any]:
    """`path` -> path, `archived`: its path there."""
    path, who = asked.text("path", PATH_MAX), author(asked)
    return {"path": path, "archived": await asked.desk.of(asked.project, lambda store: store.remove(path, who))}


async def restore(asked: Request) -> dict[str, Any]:
    """`path`, `version` (its first digits, 4 or more; none: the last one that was another) -> as `put`."""
    path, version, who = asked.text("path", PATH_MAX), _optional(asked, "version", 16), author(asked)
    return _put(await asked.desk.of(asked.project, lambda store: store.restore(path, who, version)))


async def log(asked: Request) -> dict[str, Any]:
    """`path` (none: all), `limit`, `patch`, `before` (a number; none: the newest) -> `changes`, newest first: number, path, at, author,
    epoch, action, version, before, size, and with `patch` what changed, as `diff -u` says it; `before`: what to give for the next older
    ones, null when there are none. With `patch` an answer has at most 100."""
    path, limit = _optional(asked, "path", PATH_MAX + len(QUARANTINE)), int(asked.number("limit", 100, CHANGES_MAX))
    before = int(asked.number("before", 0, 2**62)) if asked.args.get("before") is not None else None
    wanted, is_person = Wanted(path, limit, before, patch=asked.args.get("patch") is True), asked.author == PERSON.name

    def shows(change: Change) -> bool:
        return is_person or not change.path.startswith(QUARANTINE)

    return await asked.desk.of(asked.project, lambda store: page(store.versions, wanted, shows))


async def quarantine(asked: Request) -> dict[str, Any]:
    """-> `entries` of what waits, as `ls`."""
    _check_person(asked, "the quarantine")

    def look(store: Store) -> dict[str, Any]:
        return {"entries": list(map(_shape, store.quarantined()[:LISTED_MAX]))}

    return await asked.desk.of(asked.project, look)


async def approve(asked: Request) -> dict[str, Any]:
    """`path` of what waits, `version` (none: the one that was shown last) -> as `put`."""
    return _put(await approving.approve(asked))


async def reject(asked: Request) -> dict[str, Any]:
    """`path` of what waits -> path, `archived`."""
    path, who = asked.text("path", PATH_MAX).removeprefix(QUARANTINE), author(asked)
    return {"path": path, "archived": await asked.desk.of(asked.project, lambda store: store.reject(path, who))}


def _check_person(asked: Request, what: str) -> None:
    if asked.author != PERSON.name:
        raise Refused("only a person sees", on=what, why="nobody approved it")


def _optional(asked: Request, name: str, most: int) -> str | None:
    """Raises UsageError."""
    value = asked.args.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > most):
        raise UsageError("not a request", on=name, why=f"text of at most {most} characters")
    return value


def _shape(entry: Entry) -> dict[str, Any]:
    known = {
        key: entry.meta[key] for key in ("id", "agent", "task", "tags", "paths", "expires", "supersedes", "broken") if key in entry.meta
    }
    shape = {"path": entry.path, "kind": str(entry.kind), "size": entry.size, "mtime": entry.mtime, "version": entry.version}
    return {**shape, "title": cleaned(entry.title), **known}


def _put(done: Put) -> dict[str, Any]:
    return {"path": done.path, "version": done.version, "conflict": done.conflict, "quarantined": done.quarantined}
