"""What was done, the newest first: the records of the audit log, read from its end, and the rows of the journal that they prove."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from supervisor.core import anchors
from supervisor.core.audit import trusted
from supervisor.core.audit_events import recorded
from supervisor.core.errors import NotFound, one_line
from supervisor.core.units import rfc3339
from supervisor.faces.web.models.asked import ROWS, Asked, before, number, opened
from supervisor.host import audit, foreign, secrets
from supervisor.host.paths import Home

TAIL = 256 * 2**10
"""Bytes of a look at the log: an anchor has up to some kilobytes, and `ROWS` of other records some 20."""
LONG = 300
"""Characters of a value that are shown."""
Shape = dict[str, Any]


def log(home: Home, asked: Asked) -> Shape:
    """`records`, the newest first, those before the byte `before`; `older`: the byte at which the next page ends; `head`: the number of the
    last record, by the file that says so. `foreign` counts the lines that are no records of ours. Raises NotFound while there is no log, or
    no secret to check it by."""
    secret = _secret(home)
    end = number(asked, "before")
    found = _lines(home, end)
    if found is None:
        raise NotFound("there is no audit log", on=home.audit.name, hint="nightcrew up -d")
    shown, others, oldest = [], 0, 0
    for at, line in reversed(found):
        oldest, shape = at, trusted(secret, line)
        others += shape is None
        shown += [_record(shape)] if shape is not None else []
        if len(shown) == ROWS:
            break
    head = audit.read_head(home.audit, secret)
    return {"records": shown, "foreign": others, "older": oldest or None, "head": head.seq if head is not None else None}


def _secret(home: Home) -> bytes:
    if not home.secret.exists():
        raise NotFound("the audit log cannot be read", why="no supervisor ever ran here, or its secret is gone", hint="nightcrew up -d")
    return secrets.own(home.secret)


def _lines(home: Home, end: int | None) -> list[tuple[int, bytes]] | None:
    """Whole lines before the byte `end`, or at the end of the log, each with where it begins; None when there is no log. What a writer
    has just begun is left out."""
    try:
        with foreign.open_plain(home.audit) as file:
            stop = min(os.fstat(file.fileno()).st_size, end if end is not None else 2**62)
            start = max(0, stop - TAIL)
            file.seek(start)
            data = file.read(stop - start)
    except OSError:
        return None
    skipped = data.find(b"\n") + 1 if start else 0
    found, at = list[tuple[int, bytes]](), start + skipped
    for line in data[skipped : data.rfind(b"\n") + 1].splitlines(keepends=True):
        found.append((at, line))
        at += len(line)
    return found


def _record(shape: Mapping[str, Any]) -> Shape:
    one = recorded(str(shape["event"]), None, None, shape["data"])
    is_anchor = shape["event"] == anchors.EVENT
    said = _anchored(shape["data"]) if is_anchor else _said(shape["data"])
    return {
        "seq": shape["seq"], "at": shape["at"], "who": shape["who"], "event": "proves rows" if is_anchor else shape["event"],
        "kind": one.kind, "task": one.task, "epoch": one.epoch, "anchor": is_anchor, "said": said, "mac": str(shape["mac"])[:12],
        "prev": str(shape["prev"])[:12],
    }  # fmt: skip


def _anchored(data: Mapping[str, Any]) -> str:
    ranges = data.get("rows") or []
    first, last = (ranges[0][0], ranges[-1][1]) if ranges else (0, 0)
    return f"{data.get('table')}, rows {first} to {last}, sha256 {str(data.get('sha256'))[:12]}"


def _said(data: Mapping[str, Any]) -> str:
    said = [f"{name} {_short(value)}" for name, value in data.items() if value not in (None, "", {}) and name not in ("task", "epoch")]
    return one_line(", ".join(said))[: 4 * LONG]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONG else f"{text[:LONG]}…"


def journal(home: Home, asked: Asked) -> Shape:
    """`rows` of the ledger's journal, the newest first, those before the number `before`; `older`: the number before which the next page
    begins."""
    with opened(home.ledger) as db:
        found = db.execute("SELECT * FROM journal WHERE seq < ? ORDER BY seq DESC LIMIT ?", (before(asked), ROWS + 1)).fetchall()
    shapes = []
    for row in found[:ROWS]:
        data = json.loads(row["data"])
        one = asdict(recorded(row["event"], row["task"], row["epoch"], data))
        shapes.append({**{name: one[name] for name in ("kind", "task", "epoch")}, "seq": row["seq"], "at": rfc3339(row["at"]),
                       "event": row["event"], "said": _said(data)})  # fmt: skip
    return {"rows": shapes, "older": found[ROWS - 1]["seq"] if len(found) > ROWS else None}
