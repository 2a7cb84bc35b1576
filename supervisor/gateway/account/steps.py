"""The account's newest minutes in steps of time, for charts. Read-only, and no more rows than a window has: see `reading`."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.gateway.account import reading
from supervisor.gateway.account.reading import Figures

BREAKERS_MAX = 200
"""Changes of breakers that are read."""
Charged = Mapping[tuple[str, str], tuple[int, int, int]]
"""By pool and agent: requests, input tokens as limits count them, output tokens."""


@dataclass(frozen=True, slots=True)
class Step:
    """What was sent in it. `at` is its end, wall clock."""

    at: float
    figures: Figures
    charged: Charged


def steps(db: sqlite3.Connection, now: float, step_s: float, count: int) -> list[Step]:
    """The `count` steps up to the last whole one before `now`, oldest first; fewer when there were more than `reading.NEWEST` requests.
    A request counts where it was sent, and once it has ended."""
    end = now // step_s * step_s
    begin = end - count * step_s
    rows = db.execute(
        f"SELECT {reading.COLUMNS}, {reading.asked(db)}, model FROM request"  # noqa: S608 - our own
        " WHERE at >= ? AND at < ? AND end IS NOT NULL ORDER BY at DESC LIMIT ?",
        (begin, end, reading.NEWEST),
    ).fetchall()
    if len(rows) == reading.NEWEST:
        begin = (rows[-1]["at"] // step_s + 1) * step_s
    away = db.execute(
        "SELECT at, agent, status, waited_ms FROM turned_away WHERE at >= ? AND at < ? ORDER BY at DESC LIMIT ?",
        (begin, end, reading.NEWEST),
    ).fetchall()
    sent, turned = _by_step(rows, begin, step_s), _by_step(away, begin, step_s)
    return [_step(begin + (at + 1) * step_s, sent.get(at, []), turned.get(at, []), step_s) for at in range(round((end - begin) / step_s))]


def _by_step(rows: list[sqlite3.Row], begin: float, step_s: float) -> dict[int, list[sqlite3.Row]]:
    found: dict[int, list[sqlite3.Row]] = {}
    for row in rows:
        found.setdefault(int((row["at"] - begin) // step_s), []).append(row)
    return found


def _step(at: float, rows: list[sqlite3.Row], away: list[sqlite3.Row], step_s: float) -> Step:
    requests, given, put_out = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row in rows:
        key = str(reading.pool_of(row)), str(row["agent"])
        requests[key] += 1
        given[key] += row["input"] + row["cache_write"]
        put_out[key] += row["output"]
    charged = {key: (requests[key], given[key], put_out[key]) for key in requests}
    return Step(at, reading.figures(rows, away, step_s), charged)


@dataclass(frozen=True, slots=True)
class BreakerChange:
    """A breaker of a pool came to another state."""

    at: float
    pool: str
    breaker: str
    state: str
    why: str


def breakers(db: sqlite3.Connection, since: float) -> list[BreakerChange]:
    """The newest changes of all breakers, oldest first: those after `since`, and of each pool's breakers the last one before."""
    newest = db.execute("SELECT at, about, data FROM journal WHERE event = 'breaker' ORDER BY seq DESC LIMIT ?", (BREAKERS_MAX,)).fetchall()
    found, before = list[BreakerChange](), set[tuple[str, str]]()
    for row in newest:
        one = _change(row)
        if one.at >= since:
            found.append(one)
        elif (one.pool, one.breaker) not in before:
            before.add((one.pool, one.breaker))
            found.append(one)
    return found[::-1]


def _change(row: sqlite3.Row) -> BreakerChange:
    data: dict[str, Any] = json.loads(row["data"])
    return BreakerChange(row["at"], str(row["about"]), str(data.get("breaker", "")), str(data.get("after", "")), str(data.get("why", "")))
