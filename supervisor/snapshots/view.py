"""Snapshots for people and as JSON, and what was measured of those that tasks started from."""

from __future__ import annotations

import json
import sqlite3
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age, duration, rfc3339, size
from supervisor.kernel.snapshots import Snapshot

NEWEST = 1000
"""Attempts that medians are made of, newest first."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians over attempts that started from a snapshot, seconds; None where there was none."""

    attempts: int
    fork_s: float | None
    """From the attempt's row to its runner's first act."""
    work_s: float | None
    """From there to its end."""


def measured(db: sqlite3.Connection, snapshot: str) -> Measured:
    """What attempts that started from `snapshot` took."""
    rows = db.execute(
        "SELECT created, result FROM attempt WHERE snapshot = ? AND result IS NOT NULL ORDER BY created DESC LIMIT ?", (snapshot, NEWEST)
    ).fetchall()
    results = [(row["created"], json.loads(row["result"])) for row in rows]
    times = [(created, _at(of["started"]), _at(of["ended"])) for created, of in results if of.get("started") and of.get("ended")]
    if not times:
        return Measured(0, None, None)
    fork_s = statistics.median(max(0.0, started - created) for created, started, _ in times)
    return Measured(len(times), fork_s, statistics.median(max(0.0, ended - started) for _, started, ended in times))


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def as_json(row: Snapshot) -> dict[str, Any]:
    """One snapshot; times are RFC 3339 UTC, durations seconds, sizes bytes."""
    spec = asdict(row.spec)
    return {
        "id": row.id,
        "name": row.spec.name,
        "kind": str(row.spec.kind),
        "state": str(row.state),
        "reason": row.reason,
        "base": row.base_oid,
        "made_of": {**{key: spec[key] for key in ("setup", "verify", "preload", "copy")}, "lock_files": dict(row.digests)},
        "uses": row.uses,
        "setup_s": row.setup_s,
        "freeze_s": row.freeze_s,
        "disk": row.disk,
        "created": rfc3339(row.created),
        "used": rfc3339(row.used),
    }


def table(rows: Sequence[Snapshot], now: float) -> str:
    """One line each."""
    lines = [f"{'NAME':<24}{'STATE':<10}{'KIND':<12}{'BASE':<10}{'SET-UP':>9}{'DISK':>9}{'USES':>6}  MADE"]
    for row in rows:
        lines.append(
            f"{row.spec.name:<24}{row.state:<10}{row.spec.kind:<12}{row.base_oid[:8]:<10}{duration(row.setup_s):>9}{size(row.disk):>9}"
            f"{row.uses:>6}  {age(now - row.created)} ago" + (f"  {one_line(row.reason)}" if row.reason else "")
        )
    return "\n".join(lines)


def page(row: Snapshot, changed: Sequence[str], taken: Measured, now: float) -> str:
    """All about one."""
    spec = row.spec
    facts = [
        ("id", row.id.partition("/")[2]),
        ("state", f"{row.state}{f': {one_line(row.reason)}' if row.reason else ''}"),
        ("kind", str(spec.kind)),
        ("made", f"{age(now - row.created)} ago at commit {row.base_oid[:12]}"),
        *(("setup", one_line(command)) for command in spec.setup),
        *(("verify", one_line(command)) for command in spec.verify),
        *((("preload", ", ".join(spec.preload)),) if spec.preload else ()),
        *(("copy", one_line(pattern)) for pattern in spec.copy),
        *((("lock files", ", ".join(map(one_line, row.digests))),) if row.digests else ()),
        ("took", f"{duration(row.setup_s)} to set up, {duration(row.freeze_s)} to freeze"),
        ("disk", size(row.disk)),
        ("used by", f"environments now: {row.uses}; last {age(now - row.used)} ago"),
        *((("starts in", f"{duration(taken.fork_s)}, the median of {taken.attempts}"),) if taken.fork_s is not None else ()),
        *(("changed", one_line(why)) for why in changed),
    ]
    return "\n".join(f"{name:<12}{text}" for name, text in facts)
