"""Counters from the ledger: what was written since it was last read, in bounded steps; and what is so now. Read-only.

Numbers of rows grow, but the newest rows of a table may have moved to the archive, and then the next one gets a number that was given
before. So how far a table was read is never believed to be beyond its newest row.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from supervisor.features.metrics import catalog
from supervisor.features.metrics.catalog import Counts, Entry
from supervisor.kernel.account import Measured
from supervisor.kernel.names import attempt_name
from supervisor.store import open_counts

ROWS = 5000
"""Of one step: some 30 ms."""


@dataclass(frozen=True, slots=True)
class Living:
    """An attempt that has not ended."""

    task: str
    epoch: int
    state: str
    """Of the attempt."""
    paused: bool
    measured: Measured


@dataclass(frozen=True, slots=True)
class Moment:
    """What is so now, as the ledger has it."""

    living: tuple[Living, ...] = ()
    tasks: Mapping[str, int] = field(default_factory=dict)
    """That have not ended, by state."""
    leases: Mapping[str, int] = field(default_factory=dict)
    """That are held, by mode."""
    waits: Mapping[str, int] = field(default_factory=dict)
    """That last, by kind."""
    nights: int = 0
    """That are under way."""


def count(db: sqlite3.Connection, counts: Counts, rows: int = ROWS) -> tuple[Moment, bool]:
    """Count at most `rows` rows of each table; what is so now, and whether there is more to count."""
    db.execute("BEGIN")  # one view of all of it: who lives has no end that is counted already
    try:
        more = _journal(db, counts, rows) | _waits(db, counts, rows)
        moment = _moment(db)
    finally:
        db.execute("ROLLBACK")
    for one in moment.living:
        catalog.living(counts, one.task, one.epoch, one.measured)
    if not more:
        counts.forget([*(attempt_name(one.task, one.epoch) for one in moment.living), *(of for of in counts.seen if "/" not in of)])
    return moment, more


def _journal(db: sqlite3.Connection, counts: Counts, rows: int) -> bool:
    since = min(counts.read.journal, _newest(db, "SELECT max(seq) FROM journal"))
    found = db.execute(_ENTRIES, (since, rows)).fetchall()
    for row in found:
        catalog.entry(counts, _entry(db, row))
    counts.read.journal = int(found[-1]["seq"]) if found else since
    return len(found) == rows


def _entry(db: sqlite3.Connection, row: sqlite3.Row) -> Entry:
    event = str(row["event"])
    data = json.loads(row["data"]) if event.startswith(("end ", "night ")) else {}
    night = {str(state): int(number) for state, number in db.execute(_NIGHT, (data.get("run"),))} if event == "night ended" else {}
    account = json.loads(row["account"]) if row["account"] else {}
    return Entry(event, str(row["task"] or ""), int(row["epoch"] or 0), data, account, night)


def _waits(db: sqlite3.Connection, counts: Counts, rows: int) -> bool:
    cursor = counts.read.waits
    since = min(cursor.last, _newest(db, "SELECT max(number) FROM wait"))
    found = db.execute("SELECT number, kind, since, ended FROM wait WHERE number > ? ORDER BY number LIMIT ?", (since, rows)).fetchall()
    old = db.execute(_OPEN_WAITS, (json.dumps(sorted(cursor.open)),)).fetchall()
    cursor.open.clear()
    for row in (*old, *found):
        if row["ended"] is None:
            cursor.open.add(int(row["number"]))
        else:
            catalog.waited(counts, str(row["kind"]), row["ended"] - row["since"])
    cursor.last = int(found[-1]["number"]) if found else since
    return len(found) == rows


def _moment(db: sqlite3.Connection) -> Moment:
    nights = db.execute("SELECT count(*) FROM night WHERE state <> 'ended'").fetchone()[0]
    return Moment(
        living=tuple(_living(db)),
        tasks=open_counts.of(db),
        leases=_by(db, "SELECT mode, count(*) FROM lease WHERE ended IS NULL GROUP BY mode"),
        waits=_by(db, "SELECT kind, count(*) FROM wait WHERE ended IS NULL GROUP BY kind"),
        nights=int(nights),
    )


def _living(db: sqlite3.Connection) -> Iterator[Living]:
    # `state` is spelled out so that SQLite uses the partial index of attempts that are not released.
    sql = "SELECT task, epoch, state, paused, account FROM attempt WHERE state <> 'released' AND end IS NULL"
    for row in db.execute(sql):
        yield Living(row["task"], row["epoch"], row["state"], row["paused"] is not None, Measured.of(row["account"]))


def _by(db: sqlite3.Connection, sql: str) -> dict[str, int]:
    return {str(name): int(number) for name, number in db.execute(sql)}


def _newest(db: sqlite3.Connection, sql: str) -> int:
    return int(db.execute(sql).fetchone()[0] or 0)


_ENTRIES = """
    SELECT j.seq, j.event, j.task, j.epoch, j.data, a.account FROM journal j
    LEFT JOIN attempt a ON j.event LIKE 'end %' AND a.task = j.task AND a.epoch = j.epoch
    WHERE j.seq > ? ORDER BY j.seq LIMIT ?
"""
_OPEN_WAITS = "SELECT number, kind, since, ended FROM wait WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"
_NIGHT = "SELECT t.state, count(*) FROM run r JOIN task t ON t.run = r.id WHERE r.night = ? AND r.night <> '' GROUP BY t.state"
