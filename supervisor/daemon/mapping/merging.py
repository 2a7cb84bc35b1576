"""The merge of a map: what its items changed, in their order, on one branch of the person's repository."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from supervisor.core.errors import NightcrewError, one_line
from supervisor.daemon.mapping import book
from supervisor.host.paths import Home
from worktrees.git import Git
from worktrees.integration import Edit, Integrated, Left, integrate
from worktrees.repository import discover


def merge(home: Home, git: Git, name: str, root: str, base: str) -> dict[str, Any]:
    """Merge what the items of the map that are done have changed; what came of it, as JSON for the summary. What git or the person's
    branch does not allow is said there as `why`: nothing moved then, and the next run of the map tries again."""
    with contextlib.closing(book.connect_readonly(book.file(home, name))) as db:
        rows = db.execute("SELECT position, name, text FROM item WHERE state = 'done' ORDER BY position")
        edits = _edits([(int(row["position"]), bytes(row["name"]).decode("utf-8", "backslashreplace"), str(row["text"])) for row in rows])
    try:
        return shape(integrate(discover(git, Path(root)), name, base, edits))
    except NightcrewError as error:
        return {"branch": None, "merged": 0, "left": [], "why": error.line()}


def _edits(rows: list[tuple[int, str, str]]) -> list[Edit]:
    """One for each commit: the items of an agent's shard have one together, and it stands where the first of them does."""
    found: dict[str, Edit] = {}
    for position, name, text in rows:
        value = json.loads(text)
        commit = value.get("commit") if isinstance(value, dict) else None
        if commit and commit not in found:
            found[commit] = Edit(position, one_line(name)[:200], str(value["base"]), str(commit))
    return list(found.values())


def shape(done: Integrated) -> dict[str, Any]:
    """As `merge` in `summary.json`."""
    return {"branch": done.branch, "tip": done.tip, "merged": len(done.merged), "left": [_left(one) for one in done.left], "why": ""}


def _left(one: Left) -> dict[str, Any]:
    files = [file.encode("utf-8", "backslashreplace").decode() for file in one.files]
    return {"position": one.edit.position, "item": one.edit.name, "why": one.why, "files": files, "ref": one.ref or None}
