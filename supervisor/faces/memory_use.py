"""What the agents of a run had from the memory of their project, and what they left in it."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from memory.layout import Layout
from memory.versions import BOOK
from supervisor.core.errors import LedgerError
from supervisor.ledger import store

TOP = 10
"""Notes that are named."""
_WRITTEN = """
SELECT count(DISTINCT path) FROM change WHERE state = 'done' AND action IN ('put', 'append', 'approve', 'quarantine')
AND substr(author, 1, length(:run) + 1) = :run || '/'
"""
_READ = """
SELECT path, sum(given) AS given, sum(read) AS asked, count(*) AS agents,
       EXISTS (SELECT 1 FROM change c WHERE c.path = reading.path AND c.state = 'done' AND c.at < :since) AS earlier
FROM reading WHERE substr(task, 1, length(:run) + 1) = :run || '/' GROUP BY path ORDER BY sum(given + read) DESC, path
"""
_BRIEFED = "SELECT task, epoch FROM briefed WHERE substr(task, 1, length(:run) + 1) = :run || '/'"


def of_run(ledger: sqlite3.Connection, run: str, since: float, root: Path) -> dict[str, Any] | None:
    """`root` is the project's directory, `since` when the run was handed over. None where its agents had nothing to do with the memory.

    `written`: files that they wrote; `briefed`: attempts that were told something; `given`, `asked`: how often a note stood before a
    prompt, and how often one was asked for; `from_earlier`: of the notes so read, how many were there before this run; `top`: the most read
    ones, `path`, `given`, `asked`, `agents`, `earlier`; `first_hit_ratio`: share of the first requests of those that were told something
    that the provider read from its cache, None when nobody counted.
    """
    if not Layout(root).book.exists():
        return None
    try:
        with contextlib.closing(store.connect_readonly(Layout(root).book, book=BOOK)) as db:
            read = db.execute(_READ, {"run": run, "since": since}).fetchall()
            written = int(db.execute(_WRITTEN, {"run": run}).fetchone()[0])
            briefed = [(str(row["task"]), int(row["epoch"])) for row in db.execute(_BRIEFED, {"run": run})]
    except LedgerError:  # a report is no place to mend it: the verbs of the memory say so
        return None
    if not read and not written and not briefed:
        return None
    return {
        "written": written,
        "briefed": len(briefed),
        "given": sum(row["given"] for row in read),
        "asked": sum(row["asked"] for row in read),
        "from_earlier": sum(bool(row["earlier"]) for row in read),
        "top": [{**dict(row), "earlier": bool(row["earlier"])} for row in read[:TOP]],
        "first_hit_ratio": _first_hits(ledger, briefed),
    }


def _first_hits(ledger: sqlite3.Connection, briefed: list[tuple[str, int]]) -> float | None:
    cached = total = 0
    for key in briefed:
        row = ledger.execute("SELECT result FROM attempt WHERE task = ? AND epoch = ? AND result IS NOT NULL", key).fetchone()
        first = json.loads(row["result"]).get("first_request") if row is not None else None
        if first:
            cached += first["cache_read"]
            total += first["input"] + first["cache_read"] + first["cache_write"]
    return round(cached / total, 4) if total else None


def sentence(used: Mapping[str, Any]) -> str:
    """All but the list, in one or two sentences."""
    ratio = used["first_hit_ratio"]
    hits = f" {ratio:.0%} of their first requests was read from the provider's cache." if ratio is not None else ""
    return (
        f"Notes stood {used['given']} times before a prompt and were asked for {used['asked']} times; {used['from_earlier']} of them were "
        f"there before this run. The agents wrote {used['written']} files.{hits}"
    )
