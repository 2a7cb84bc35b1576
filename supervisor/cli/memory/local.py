"""Reading without a supervisor: the files as they are, `memory.db` and the ledger opened to be read. Shapes are those of
the supervisor's answers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from memory import disk, history, layout, note
from memory.history import Wanted
from memory.layout import Kind, Layout
from memory.listing import Entry, Listing, Replacement, no_such, refused
from memory.versions import Versions
from memory.writing import QUARANTINE
from supervisor.core.errors import ConfigError, NotFound
from supervisor.core.mail import PERSON
from supervisor.core.notes import MemoryTerms
from supervisor.daemon.memory.mail_listing import listed
from supervisor.host.paths import Home
from supervisor.ledger import store, task_names

Args = dict[str, Any]


def answer(where: Home, verb: str, asked: Args) -> dict[str, Any] | None:
    """What the supervisor would answer; None for an operation that only it can do."""
    if verb == "mail":
        return _mails(where, asked) if asked["op"] == "ls" else None
    ops: dict[str, Callable[[Layout, Args], dict[str, Any]]] = {"ls": _ls, "show": _show, "log": _log, "quarantine": _quarantine}
    op = ops.get(asked["op"])
    if asked["op"] == "show" and str(asked["path"]).startswith(QUARANTINE):
        return None  # a supervisor remembers what was shown
    return op(Layout(where.project(asked["project"])), asked) if op is not None else None


def everything(where: Home, project: str) -> Iterator[tuple[str, str, float, dict[str, Any] | None]]:
    """Every file: path, text, when it was changed, and its newest change by a door."""
    there = Layout(where.project(project))
    with _versions(there) as kept:
        for entry in Listing(there.root, "memory").entries():
            found = disk.read(there.root, f"memory/{entry.path}", layout.size_max(entry.kind))
            newest = kept.changes(entry.path, 1) if kept is not None else []
            if found is not None:
                shape = history.told(newest[0]) if newest else None
                yield entry.path, found.data.decode("utf-8", "replace"), entry.mtime, shape


def _ls(there: Layout, asked: Args) -> dict[str, Any]:
    files = Listing(there.root, "memory")
    found = [_shape(entry) for entry in files.entries() if entry.path.startswith(asked.get("prefix") or "")]
    return {"entries": found, "more": 0, **refused(files.strange(), files.misnamed())}


def _quarantine(there: Layout, _: Args) -> dict[str, Any]:
    return {"entries": list(map(_shape, Listing(there.root, "quarantine").entries()))}


def _shape(entry: Entry) -> dict[str, Any]:
    return {"kind": str(entry.kind), **{name: getattr(entry, name) for name in ("path", "size", "mtime", "version", "title")}}


def _show(there: Layout, asked: Args) -> dict[str, Any]:
    path, version = str(asked["path"]), asked.get("version")
    kind = layout.checked(path)
    if version:
        with _versions(there) as kept:
            data = _content(kept, path, str(version))
    else:
        found = disk.read(there.root, f"memory/{path}", layout.size_max(kind))
        if found is None:
            raise no_such(path, [entry.path for entry in Listing(there.root, "memory").entries()])
        data, version = found.data, found.version
    text = data.decode("utf-8", "replace")
    known = note.parse(text).meta.get("id") if kind is not Kind.EPISODIC else None
    with _versions(there) as kept:
        believed = Replacement(_approval, kept.by_person if kept is not None else lambda _: False)
        newer = believed.of(Listing(there.root, "memory").entries(), path, kind, known)
    return {"path": path, "kind": str(kind), "version": version, "text": text, "superseded_by": newer}


def _approval() -> frozenset[Kind]:
    """As the supervisor has it; by default where the settings cannot be read, which hides no note."""
    from supervisor.config import user  # only here: it costs short commands much

    try:
        return user.load(user.path(), usable_cores=1).memory.approval
    except ConfigError:
        return MemoryTerms().approval


def _log(there: Layout, asked: Args) -> dict[str, Any]:
    path = asked.get("path")
    with _versions(there) as kept:
        wanted = Wanted(path, int(asked.get("limit") or 100), asked.get("before"), patch=bool(asked.get("patch")))
        return history.page(kept, wanted) if kept is not None else {"changes": [], "before": None}


def _mails(where: Home, asked: Args) -> dict[str, Any]:
    if not where.ledger.exists():
        return {"pairs": []} if asked.get("pairs") else {"mails": []}
    with contextlib.closing(store.connect_readonly(where.ledger)) as db:
        of = str(asked.get("of") or PERSON)
        owner = of if of == PERSON else task_names.match_task(db, of, asked["project"])
        return listed(db, asked["project"], PERSON, owner, asked, time.time())


def _content(kept: Versions | None, path: str, start: str) -> bytes:
    version = next(iter(kept.versions_like(path, start)), "") if kept is not None and len(start) >= 4 else ""
    data = kept.content(version) if kept is not None and version else None
    if data is None:
        raise NotFound("no such version is kept of", on=path, hint=f"nightcrew mem log {path}")
    return data


@contextlib.contextmanager
def _versions(there: Layout) -> Iterator[Versions | None]:
    """None where nothing was ever written through nightcrew."""
    if not there.book.exists():
        yield None
        return
    kept = Versions(there.book, reads=True)
    try:
        yield kept
    finally:
        kept.close()
