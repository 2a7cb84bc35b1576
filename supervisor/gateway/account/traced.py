"""The account's rows as the trace of a run has them. Read-only, standard library only."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from supervisor.core.gateway.types import Usage
from supervisor.core.trace_facts import Request
from supervisor.gateway.account.rows import BATCH

Place = tuple[str, int]
"""A task and the epoch of its attempt."""


def of_attempt(db: sqlite3.Connection, task: str, epoch: int, most: int) -> Iterator[Request]:
    """Its requests, in the order of their sending, at most `most`; those that we turned away follow."""
    yield from (_sent(dict(row)) for row in db.execute(f"SELECT * FROM request {_OF} LIMIT ?", (task, epoch, most)))  # noqa: S608 - a literal
    yield from (_away(dict(row)) for row in db.execute(f"SELECT rowid AS id, * FROM turned_away {_OF} LIMIT ?", (task, epoch, most)))  # noqa: S608


_OF = "WHERE agent = ? AND epoch = ? ORDER BY at"


def count(db: sqlite3.Connection, task: str, epoch: int) -> int:
    """How many there are of both."""
    row = db.execute(
        """SELECT (SELECT count(*) FROM request WHERE agent = :task AND epoch = :epoch)
                + (SELECT count(*) FROM turned_away WHERE agent = :task AND epoch = :epoch)""",
        {"task": task, "epoch": epoch},
    ).fetchone()
    return int(row[0])


def last_ended(db: sqlite3.Connection, task: str, epoch: int) -> float:
    """When the last of an attempt's requests was over, without batches, which outlive it; 0.0 when it made none."""
    batch = f"AND body_key NOT LIKE '{BATCH}%'" if _knows(db, "body_key") else ""
    row = db.execute(
        f"""SELECT max(at + max(0.0, coalesce(total_ms, 0.0) - queued_ms) / 1000) FROM request
            WHERE agent = ? AND epoch = ? AND end IS NOT NULL {batch}""",  # noqa: S608 - literals
        (task, epoch),
    ).fetchone()
    return float(row[0] or 0.0)


def is_asking(db: sqlite3.Connection, task: str, epoch: int) -> bool:
    """Whether a request of an attempt is under way that is no batch."""
    sql = f"SELECT 1 FROM request WHERE end IS NULL AND agent = ? AND epoch = ? AND body_key NOT LIKE '{BATCH}%'"  # noqa: S608 - a literal
    return db.execute(sql, (task, epoch)).fetchone() is not None


def ended(db: sqlite3.Connection, last: int, still_open: Iterable[int], most: int) -> tuple[list[tuple[Place, Request]], int, list[int]]:
    """The requests that were over beyond the row `last`, or of those that were under way, by their attempts; the last row that was looked
    at, and which of the rows up to there still go on. At most `most` new rows are looked at."""
    fresh = db.execute("SELECT * FROM request WHERE id > ? ORDER BY id LIMIT ?", (last, most)).fetchall()
    left = db.execute("SELECT * FROM request WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id", (json.dumps(list(still_open)),))
    rows = [dict(row) for row in [*left, *fresh]]
    found = [((str(row["agent"]), int(row["epoch"])), _sent(row)) for row in rows if row["end"] is not None]
    return found, max([last, *(int(row["id"]) for row in fresh)]), [int(row["id"]) for row in rows if row["end"] is None]


def turned_away(db: sqlite3.Connection, last: int, most: int) -> tuple[list[tuple[Place, Request]], int]:
    """The requests that we answered ourselves beyond the row `last`, and the last row that was looked at."""
    rows = [dict(row) for row in db.execute("SELECT rowid AS id, * FROM turned_away WHERE rowid > ? ORDER BY rowid LIMIT ?", (last, most))]
    return [((str(row["agent"]), int(row["epoch"])), _away(row)) for row in rows], max([last, *(int(row["id"]) for row in rows)])


def newest(db: sqlite3.Connection) -> tuple[int, int]:
    """The newest rows of both."""
    row = db.execute("SELECT (SELECT coalesce(max(id), 0) FROM request), (SELECT coalesce(max(rowid), 0) FROM turned_away)").fetchone()
    return int(row[0]), int(row[1])


def _sent(row: Mapping[str, Any]) -> Request:
    return Request(
        number=int(row["id"]),
        at=float(row["at"]),
        queued_s=max(0.0, float(row["queued_ms"]) / 1000),
        total_s=_seconds(row["total_ms"]),
        end=str(row["end"] or ""),
        model=str(row["model"]),
        asked=str(row.get("asked") or row["model"]),
        api=str(row["api"]),
        batch=str(row.get("body_key") or "").startswith(BATCH),
        status=row["status"],
        usage=Usage(*(int(row[name] or 0) for name in ("input", "output", "cache_read", "cache_write"))),
        cost_usd=row["cost_usd"],
        first_byte_s=_seconds(row["first_byte_ms"]),
        attempt_no=int(row["attempt_no"]),
        session=str(row["session"]),
        upstream=str(row["upstream"]),
        why=str(row["flags"]),
    )


def _away(row: Mapping[str, Any]) -> Request:
    waited = max(0.0, float(row["waited_ms"]) / 1000)
    return Request(
        int(row["id"]), float(row["at"]), waited, None, "turned away", str(row["model_class"]), "", str(row["api"]), sent=False,
        status=int(row["status"]), why=str(row["why"]),
    )  # fmt: skip


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _knows(db: sqlite3.Connection, column: str) -> bool:
    return any(row["name"] == column for row in db.execute("PRAGMA table_info(request)"))
