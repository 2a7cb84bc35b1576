"""Nights for people and as JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from supervisor.features.night import rows as night_rows
from supervisor.features.night.rows import NightRow
from supervisor.host.paths import Home
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import clock, date_time, money, rfc3339
from supervisor.kernel.night import NightTerms, Timetable
from supervisor.kernel.states import TaskState


@dataclass(frozen=True, slots=True)
class Listed:
    """A night, and what has become of its tasks so far."""

    row: NightRow
    title: str
    counts: dict[str, int]
    """Tasks by state."""


def every_night(db: sqlite3.Connection) -> list[Listed]:
    """All nights, the newest first; those that agents added count with them."""
    return [
        Listed(row, str(db.execute("SELECT title FROM run WHERE id = ?", (row.run,)).fetchone()[0]), _counts(db, row.run))
        for row in night_rows.every(db)
    ]


def _counts(db: sqlite3.Connection, run: str) -> dict[str, int]:
    counted = """SELECT t.state, count(*) AS many FROM run r JOIN task t ON t.run = r.id WHERE r.night = ? AND r.night <> ''
                 GROUP BY t.state ORDER BY t.state"""
    return {str(state): int(many) for state, many in db.execute(counted, (run,))}


def night_lines(db: sqlite3.Connection) -> list[str]:
    """One line for each night under way, for `status`."""
    found = []
    for row in night_rows.under_way(db):
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
        began = date_time(row.began)
        lines.append(f"{row.run:<11}{row.state:<9}{began:<18}{ended:<7}{done:>9}  {one_line(words(row.terms))}")
        if row.why:
            lines.append(f"{'':<11}{one_line(row.why)}")
    return "\n".join(lines)


def words(terms: NightTerms) -> str:
    """The terms in a person's words."""
    said = [
        f"until {clock(terms.until)}" if terms.until else "",
        money(terms.cost_max) if terms.cost_max else "",
        f"{terms.parallel} at once" if terms.parallel else "",
    ]
    return ", ".join(filter(None, said)) or "no deadline and no cap"


# Installed nights
# ----------------
# Nights that start by themselves, as `night list`, `status` and `doctor` show them. Standard library only: `status` imports this.


_MAX = 2**20
Shape = Mapping[str, Any]


def every_installed_night(home: Home, now: datetime) -> list[dict[str, Any]]:
    """Each installed night by its name: `name plan repo at days terms by consented next last`, the last two local times and what came of
    the newest start (`due outcome why run at`) or null. A record that cannot be read has only its `name` and what is `wrong`."""
    return [_one(home, file, now) for file in sorted((home.root / "nights").glob("*.json"))]


def _one(home: Home, file: Path, now: datetime) -> dict[str, Any]:
    try:
        shape = _read(file)
        table = Timetable(int(shape["table"]["minute"]), tuple(shape["table"]["days"]))
        return {
            "name": file.stem,
            **{key: shape[key] for key in ("plan", "repo", "base", "terms", "by", "digest")},
            "when": table.words,
            "consented": rfc3339(shape["at"]),
            "next": f"{table.next(now):%Y-%m-%d %H:%M}",
            "last": _last(home, file.stem),
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        return {"name": file.stem, "wrong": one_line(f"{type(error).__name__}: {error}")}


def _last(home: Home, name: str) -> dict[str, Any] | None:
    try:
        shape = _read(home.root / "nights" / f"{name}.last")
        return {**{key: str(shape[key]) for key in ("due", "outcome", "why", "run")}, "at": rfc3339(shape["at"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _read(file: Path) -> dict[str, Any]:
    with file.open("rb") as opened:
        shape = json.loads(opened.read(_MAX))
    if not isinstance(shape, dict):
        raise TypeError("not an object")
    return shape


def installed_night_lines(nights: list[dict[str, Any]]) -> Iterator[str]:
    """For people, two lines each."""
    for night in nights:
        if "wrong" in night:
            yield f"{night['name']}: cannot be read: {night['wrong']}"
            continue
        yield one_line(f"{night['name']}: {night['when']}, by {night['by']}; next {night['next']}; {night['plan']}")
        yield f"    {_last_words(night['last'])}"


def _last_words(last: Shape | None) -> str:
    if last is None:
        return "has not started yet"
    run, why = (f" as {last['run']}" if last["run"] else ""), (f": {last['why']}" if last["why"] else "")
    return one_line(f"last due {last['due']}: {last['outcome']}{run}{why}")


def not_started(home: Home, now: datetime) -> list[str]:
    """A line for each night whose newest start came to nothing."""
    found = ((night["name"], night.get("last")) for night in every_installed_night(home, now))
    return [
        one_line(
            f"the night {name} of {last['due']} was {'not started' if last['outcome'] == 'failed' else last['outcome']}: {last['why']}"
        )
        for name, last in found
        if last is not None and last["outcome"] != "started"
    ]
