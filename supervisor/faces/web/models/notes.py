"""What agents know together: the notes of a project, one note with its versions and who read it, and what waits for a person.

Notes are agents' words: they are shown without what hides from a reader, and beside who wrote them.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from shlex import quote
from typing import Any

from memory import disk, history, note
from memory.history import Wanted
from memory.layout import Layout, is_conflict, kind_of
from memory.listing import Entry, Listing
from memory.plain_text import cleaned
from memory.versions import Versions
from memory.writing import QUARANTINE, limit, place
from supervisor.core.errors import NotFound, UsageError
from supervisor.faces.web.models.asked import ROWS, Asked, number, opened
from supervisor.faces.web.models.projects import chosen
from supervisor.host.paths import Home

READERS, CHANGES, WAITING = 10, 20, 50
_KNOWN = """
SELECT k.path, k.version, c.size, c.number, c.author, c.epoch, c.action, c.at, x.data FROM known k
LEFT JOIN change c ON c.number = (SELECT max(number) FROM change WHERE path = k.path AND state = 'done')
LEFT JOIN content x ON x.version = k.version
WHERE k.path > ? ORDER BY k.path LIMIT ?
"""
_READERS = "SELECT task, given, read, last FROM reading WHERE path = ? ORDER BY given + read DESC, task LIMIT ?"
Shape = dict[str, Any]


def notes(home: Home, asked: Asked) -> Shape:
    """`notes` of a project by their paths, those after `after`; `more`: the path after which the next page begins; on the first page
    `waiting`: what is in quarantine until a person says something, and `changes`, the newest."""
    with opened(home.ledger) as db:
        project, projects = chosen(db, asked)
    there, after = Layout(home.project(project)), asked.get("after", "")
    found: list[Shape] = []
    with _book(there) as kept:
        if kept is not None:
            found = [_note(row) for row in kept.db.execute(_KNOWN, (after, ROWS + 1))]
        changes = [] if after or kept is None else [_change(one) for one in history.page(kept, Wanted(limit=CHANGES))["changes"]]
    return {
        "project": project,
        "projects": projects,
        "notes": found[:ROWS],
        "more": found[ROWS - 1]["path"] if len(found) > ROWS else None,
        "waiting": [] if after else _waiting(there),
        "changes": changes,
    }


@contextlib.contextmanager
def _book(there: Layout) -> Iterator[Versions | None]:
    """None where nothing was ever written through nightcrew."""
    if not there.book.exists():
        yield None
        return
    with contextlib.closing(Versions(there.book, reads=True)) as kept:
        yield kept


def _note(row: sqlite3.Row) -> Shape:
    path = str(row["path"])
    kind = kind_of(path.removeprefix(QUARANTINE))
    meta = note.listed(bytes(row["data"]).decode("utf-8", "replace")) if row["data"] is not None and path.endswith(".md") else {}
    return {
        "path": path, "kind": str(kind) if kind else "", "size": row["size"], "version": row["version"],
        "title": str(meta.get("title") or ""),
        "author": row["author"] or "unknown", "epoch": row["epoch"], "action": row["action"], "at": row["at"],
        "quarantined": path.startswith(QUARANTINE), "conflict": is_conflict(path),
    }  # fmt: skip


def _waiting(there: Layout) -> list[Shape]:
    return [_entry(one) for one in Listing(there.root, "quarantine").entries()[:WAITING]]


def _entry(one: Entry) -> Shape:
    path, name = f"{QUARANTINE}{one.path}", quote(one.path)
    return {
        "path": path, "kind": str(one.kind), "size": one.size, "version": one.version, "title": one.title, "at": one.mtime,
        "type": [f"nightcrew mem show {quote(path)}", f"nightcrew mem approve {name}", f"nightcrew mem reject {name}"],
    }  # fmt: skip


def _change(one: Shape) -> Shape:
    return {**one, "quarantined": str(one["path"]).startswith(QUARANTINE)}


def one_note(home: Home, asked: Asked) -> Shape:
    """A note of a project as it is, or as it was by `version`: its `text`, cut where it is long; its `changes` before `before`; and on the
    first page its `readers`. Raises NotFound and UsageError."""
    with opened(home.ledger) as db:
        project, _ = chosen(db, asked)
    there, path = Layout(home.project(project)), asked.get("path", "")
    if kind_of(path.removeprefix(QUARANTINE)) is None:
        raise UsageError("not a path of the memory", on=path[:100], hint="nightcrew mem ls")
    with _book(there) as kept:
        data, version = _content(there, kept, path, asked.get("version", ""))
        found = history.page(kept, Wanted(path, CHANGES, number(asked, "before"))) if kept is not None else {"changes": [], "before": None}
        return {
            "project": project,
            "path": path,
            "version": version,
            "quarantined": path.startswith(QUARANTINE),
            "text": cleaned(data.decode("utf-8", "replace")),
            "bytes": len(data),
            "changes": found["changes"],
            "older": found["before"],
            "readers": [dict(row) for row in kept.db.execute(_READERS, (path, READERS))] if kept is not None else [],
        }


def _content(there: Layout, kept: Versions | None, path: str, version: str) -> tuple[bytes, str]:
    """Raises NotFound."""
    if version and kept is not None:
        known = next(iter(kept.versions_like(path, version)), "")
        if (data := kept.content(known) if known else None) is not None:
            return data, known
    found = None if version else disk.read(there.root, place(path), limit(path))
    if found is None:
        raise NotFound("no such note, or version of it", on=path, hint=f"nightcrew mem log {quote(path)}")
    return found.data, found.version
