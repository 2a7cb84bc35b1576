"""Nights for people and as JSON."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from supervisor.core.errors import one_line
from supervisor.core.night import NightTerms
from supervisor.core.states import TaskState
from supervisor.core.units import rfc3339
from supervisor.ledger import nights
from supervisor.ledger.nights import NightRow


@dataclass(frozen=True, slots=True)
class Listed:
    """A night, and what has become of its tasks so far."""

    row: NightRow
    title: str
    counts: dict[str, int]
    """Tasks by state."""


def every(db: sqlite3.Connection) -> list[Listed]:
    """All nights, the newest first; those that agents added count with them."""
    return [
        Listed(row, str(db.execute("SELECT title FROM run WHERE id = ?", (row.run,)).fetchone()[0]), _counts(db, row.run))
        for row in nights.every(db)
    ]


def _counts(db: sqlite3.Connection, run: str) -> dict[str, int]:
    counted = """SELECT t.state, count(*) AS many FROM run r JOIN task t ON t.run = r.id WHERE r.night = ? AND r.night <> ''
                 GROUP BY t.state ORDER BY t.state"""
    return {str(state): int(many) for state, many in db.execute(counted, (run,))}


def lines(db: sqlite3.Connection) -> list[str]:
    """One line for each night under way, for `status`."""
    found = []
    for row in nights.under_way(db):
        counts = _counts(db, row.run)
        done = f"{counts.get(TaskState.DONE, 0)} of {sum(counts.values())} done"
        found.append(one_line(f"night {row.run}  {words(row.terms)}  {done}" + (f"  {row.why}" if row.why else "")))
    return found


def as_json(night: Listed) -> dict[str, Any]:
    """Times are RFC 3339 UTC, durations seconds, amounts US dollars; null is a term that it does not have."""
    row, terms = night.row, night.row.terms
    return {
        "run": row.run,
        "title": night.title,
        "state": str(row.state),
        "until": rfc3339(terms.until) if terms.until else None,
        "grace_s": terms.grace_s,
        "cost_max": terms.cost_max or None,
        "parallel": terms.parallel or None,
        "on_cap": str(terms.on_cap),
        "began": rfc3339(row.began),
        "ended": rfc3339(row.ended) if row.ended is not None else None,
        "why": row.why,
        "plan": row.plan,
        "plan_hash": row.plan_hash,
        "timer": row.timer or None,
        "tasks": night.counts,
    }


def table(listed: Sequence[Listed]) -> str:
    """One line each, by the local time."""
    lines = [f"{'RUN':<11}{'STATE':<9}{'BEGAN':<18}{'ENDED':<7}{'DONE':>9}  TERMS"]
    for night in listed:
        row = night.row
        done = f"{night.counts.get(TaskState.DONE, 0)}/{sum(night.counts.values())}"
        ended = clock(row.ended) if row.ended is not None else "-"
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.began))
        lines.append(f"{row.run:<11}{row.state:<9}{began:<18}{ended:<7}{done:>9}  {one_line(words(row.terms))}")
        if row.why:
            lines.append(f"{'':<11}{one_line(row.why)}")
    return "\n".join(lines)


def words(terms: NightTerms) -> str:
    """The terms in a person's words."""
    said = [
        f"until {clock(terms.until)}" if terms.until else "",
        f"${terms.cost_max:.2f}" if terms.cost_max else "",
        f"{terms.parallel} at once" if terms.parallel else "",
    ]
    return ", ".join(filter(None, said)) or "no deadline and no cap"


def clock(wall: float) -> str:
    """The local time of day."""
    return time.strftime("%H:%M", time.localtime(wall))
