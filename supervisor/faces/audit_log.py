"""What was done, newest last: the ledger's journal, the records of the audit log and, of one task, its model calls."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from supervisor.core import anchors
from supervisor.core.audit_events import Recorded, recorded, trace_id
from supervisor.core.units import rfc3339
from supervisor.gateway.account import schema
from supervisor.host import audit
from supervisor.host.paths import Home
from supervisor.ledger import store
from supervisor.ledger.archive import ARCHIVE
from supervisor.ledger.store import LEDGER

Entry = dict[str, Any]
"""`at`, `who`, what `Recorded` has, `trace`, and where it stands: `in` and `number`."""


def entries(home: Home, secret: bytes, *, most: int, task: str = "", since: float = 0.0) -> list[Entry]:
    """The newest entries, at most `most`, of the task whose full id is given or of all; none from before `since`, wall-clock seconds."""
    found = [
        *_records(home, secret, task, since),
        *_journal(home, task, since, most),
        *(_calls(home, task, since, most) if task else ()),
    ]
    return sorted(found, key=lambda entry: (entry["at"], entry["in"], entry["number"]))[-most:]


def _records(home: Home, secret: bytes, task: str, since: float) -> Iterator[Entry]:
    for record in audit.events(home.audit, secret, lambda event: event != anchors.EVENT):
        one = recorded(str(record["event"]), None, None, record["data"])
        if (not task or one.task == task) and record["at"] >= (rfc3339(since) or ""):
            yield _entry(record["at"], record["who"], one, home.audit.name, record["seq"])


def _journal(home: Home, task: str, since: float, most: int) -> Iterator[Entry]:
    """Of the ledger and of what was archived of it; rows on their way are in both."""
    found: dict[int, sqlite3.Row] = {}
    for path, book in ((home.ledger, LEDGER), (home.archive, ARCHIVE)):
        if path.exists():
            with contextlib.closing(store.connect_readonly(path, book=book)) as db:
                rows = _newest(db, "seq, at, task, epoch, event, data FROM journal", "task", task, since, most)
                found = {int(row["seq"]): row for row in rows} | found
    for row in found.values():
        one = recorded(row["event"], row["task"], row["epoch"], json.loads(row["data"]))
        yield _entry(rfc3339(row["at"]), "supervisor", one, "journal", row["seq"])


def _calls(home: Home, task: str, since: float, most: int) -> Iterator[Entry]:
    if not home.gateway_account.exists():
        return
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        for row in _newest(db, f"id AS seq, *, {_TAPE} FROM request", "agent", task, since, most):
            data = {name: row[name] for name in _OF_A_CALL if name in row.keys()}  # noqa: SIM118 - `in row` looks at values
            one = Recorded("model call", row["agent"], row["epoch"], str(row["end"] or "under way"), row["flags"], data)
            yield _entry(rfc3339(row["at"]), "gateway", one, "account", row["seq"])


_OF_A_CALL = (
    "model", "asked", "upstream", "account", "attempt_no", "status", "input", "output", "cache_read", "cache_write", "cost_usd",
    "input_sha256", "output_sha256", "recording",
)  # fmt: skip
_TAPE = "(SELECT file FROM recording WHERE recording.request = request.id) AS recording"


def _newest(db: sqlite3.Connection, what: str, column: str, task: str, since: float, most: int) -> list[sqlite3.Row]:
    which = f"AND {column} = :task" if task else ""
    return db.execute(
        f"SELECT {what} WHERE at >= :since {which} ORDER BY 1 DESC LIMIT :most",
        {"since": since, "task": task, "most": most},
    ).fetchall()


def _entry(at: str | None, who: str, one: Recorded, where: str, number: int) -> Entry:
    shape: Mapping[str, Any] = asdict(one)
    return {"at": at, "who": who, **shape, "trace": trace_id(one.task) if one.task else None, "in": where, "number": number}
