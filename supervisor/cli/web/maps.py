"""Maps, the newest first, read from their files: what is done, what failed, who works at what."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

from supervisor.core.errors import NightcrewError, one_line
from supervisor.core.units import rfc3339
from supervisor.daemon.mapping import book
from supervisor.faces.status import cut
from supervisor.faces.web.models.asked import Asked, number
from supervisor.host.paths import Home

MAPS, WORKERS, FAILED = 20, 50, 20
TEXT = 200
"""Characters of an item, and of why it failed."""
_NAME = re.compile(r"[0-9a-f]{12}\Z")
Shape = dict[str, Any]


def maps(home: Home, asked: Asked) -> Shape:
    """`maps`, those that were written last first, from the `skip`th on; `older`: how many come before the next page."""
    skip = number(asked, "skip") or 0
    names = _newest(home.root / "maps")
    shown = names[skip : skip + MAPS]
    return {"maps": [_map(home, name) for name in shown], "older": skip + MAPS if len(names) > skip + MAPS else None}


def _newest(directory: Path) -> list[str]:
    found = []
    with contextlib.suppress(FileNotFoundError):
        for place in directory.iterdir():
            with contextlib.suppress(OSError):
                if _NAME.match(place.name):
                    found.append(((place / "map.db").lstat().st_mtime, place.name))
    return [name for _, name in sorted(found, reverse=True)]


def _map(home: Home, name: str) -> Shape:
    try:
        with contextlib.closing(book.connect_readonly(book.file(home, name))) as db:
            return _shape(name, db)
    except NightcrewError as error:
        return {"id": name, "trouble": error.line()}


def _shape(name: str, db: sqlite3.Connection) -> Shape:
    about, counts = book.about(db), book.counts(db)
    leases = db.execute("SELECT task, epoch, shard, json_array_length(positions) AS items FROM lease ORDER BY task LIMIT ?", (WORKERS,))
    workers = [dict(row) for row in leases]
    left, item_s = counts["waiting"], float(about["item_s"])
    return {
        "id": name, "trouble": "", "title": one_line(str(about["title"])), "run": about["run"] or None, "state": about["state"],
        "why": one_line(str(about["why"])), "began": rfc3339(about["began"] or None), "ended": rfc3339(about["ended"] or None),
        "out": about["out"], "does": _does(str(about["what"])), **counts, "workers": workers, "item_s": item_s or None,
        "left_s": left * item_s / len(workers) if workers and item_s and left else None, "undone": about["undone"],
        "failures": _failures(db),
    }  # fmt: skip


def _does(what: str) -> str:
    return str(json.loads(what).get("executor") or "")


def _failures(db: sqlite3.Connection) -> list[Shape]:
    """The first items that failed, each with why."""
    sql = "SELECT name, tries, text FROM item WHERE state = 'failed' ORDER BY position LIMIT ?"
    return [{"item": _text(_decoded(row["name"])), "tries": row["tries"], "why": _text(row["text"])} for row in db.execute(sql, (FAILED,))]


def _decoded(name: bytes) -> str:
    return bytes(name).decode("utf-8", "replace")


def _text(given: object) -> str:
    return cut(one_line(str(given or "")), TEXT)
