"""Runs, the newest first, and one run with its tasks, what they waited for and what they took."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Mapping
from typing import Any

from supervisor.core.errors import NightcrewError, one_line
from supervisor.core.units import rfc3339
from supervisor.faces import candidates, model_usage, nights, status, tasks_json, waited
from supervisor.faces.web.models.asked import ROWS, Asked, opened
from supervisor.faces.web.models.written import of_run as written
from supervisor.gateway.account import reading, schema
from supervisor.gateway.account.reading import Totals
from supervisor.host.paths import Home
from supervisor.ledger import archive, queries
from supervisor.ledger import nights as night_rows
from supervisor.ledger.queries import RunView, TaskView

Shape = dict[str, Any]


def runs(home: Home, asked: Asked) -> Shape:
    """`runs`, the newest first, also those that were archived; `older`: the run before which the next page begins, None at the end."""
    before = asked.get("before", "")
    with opened(home.ledger) as db:
        found = _page(db, before) if not before or queries.has_run(db, before) else []
        shapes = [_run(home, db, view) for view in found]
        shapes += _archived(home, db, before if not found else "", ROWS + 1 - len(found))
    return {"runs": shapes[:ROWS], "older": shapes[ROWS - 1]["id"] if len(shapes) > ROWS else None}


def _page(db: sqlite3.Connection, before: str) -> list[RunView]:
    return queries.runs(db, ROWS + 1, gates=False, before=before)


def _archived(home: Home, db: sqlite3.Connection, before: str, room: int) -> list[Shape]:
    """Of the archive, those that the ledger does not have: runs on their way are in both."""
    if room <= 0 or not home.archive.exists():
        return []
    found: list[RunView] = []
    with contextlib.closing(archive.connect(home.archive)) as kept:
        at = before if queries.has_run(kept, before) else ""
        while len(found) < room and (page := queries.runs(kept, ROWS, gates=False, before=at)):
            found += [view for view in page if not queries.has_run(db, view.id)]
            at = page[-1].id
        return [{**_run(home, kept, view), "archived": True} for view in found[:room]]


def _run(home: Home, db: sqlite3.Connection, view: RunView) -> Shape:
    night = night_rows.of_run(db, view.id)
    return {
        **tasks_json.run(view),
        "archived": False,
        "reports": written(home, view.id),
        "night": None if night is None else {"state": str(night.state), "terms": nights.words(night.terms), "why": one_line(night.why)},
    }


def run(home: Home, asked: Asked) -> Shape:
    """`run`; `spent`: what all of it took, by the gateway's account, None where nothing is known; `waits`: see `waited.of_tasks`; `tasks`,
    in the plan's order from `after` on, and `more`: the task after which the next page begins; `groups` of candidates among them. Raises
    NotFound."""
    name, after = asked.get("run", ""), asked.get("after", "")
    with contextlib.closing(archive.reader(home.ledger, home.archive, name)) if home.ledger.exists() else opened(home.ledger) as db:
        view = queries.run(db, name)
        found = queries.some_of_run(db, name, after, ROWS + 1)
        tasks = [str(row[0]) for row in db.execute("SELECT id FROM task WHERE run = ?", (name,))]
        return {
            "run": _run(home, db, view),
            "spent": _spent(home, name),
            "waits": _waits(db, tasks, float(asked.get("now") or 0.0)),
            "tasks": [_task(one) for one in found[:ROWS]],
            "more": found[ROWS - 1].id if len(found) > ROWS else None,
            "groups": candidates.of_tasks(db, [one.id for one in found[:ROWS]]),
        }


def _spent(home: Home, name: str) -> Shape | None:
    with contextlib.suppress(NightcrewError), opened(home.gateway_account, schema.ACCOUNT) as db:
        return _total(reading.of_run(db, name))
    return None


def _total(found: Totals) -> Shape:
    return {
        "requests": found.requests, "tokens": found.tokens.total, "input": found.tokens.limited_input, "output": found.tokens.output,
        "cache_read": found.tokens.cache_read, "cost_usd": found.cost_usd, "known_usd": found.known_usd, "estimated": found.estimated,
        "wait_s": round(found.wait_s, 1), "under_way": found.under_way,
    }  # fmt: skip


def _waits(db: sqlite3.Connection, tasks: list[str], now: float) -> Shape | None:
    found = waited.of_tasks(db, tasks, now)
    if found is None:
        return None
    top = [{**one, "whom": waited.whom(one)} for one in found["top"]]
    return {**found, "top": top, "said": waited.sentence(found)}


def _task(view: TaskView) -> Shape:
    """One line of a table."""
    result = view.result or {}
    spent = model_usage.of([view.result])
    waits: Mapping[str, Any] = result.get("waits") or {}
    diff: Mapping[str, Any] = result.get("diff") or {}
    return {
        "id": view.id, "name": view.name, "title": view.title, "kind": view.kind, "state": str(view.state), "epoch": view.epoch,
        "why": one_line(status.why(view) or status.last_message(view.result)), "branch": view.branch,
        "started": rfc3339(view.started or view.created), "ended": rfc3339(view.ended),
        "seconds": _lasted(view), "queue_s": waits.get("queue_s"), "tokens_s": waits.get("tokens_s"), "human_s": waits.get("human_s"),
        "tokens": spent["tokens"] if spent else None, "cost_usd": spent["cost_usd"] if spent else None,
        "files": diff.get("files"), "plus": diff.get("plus"), "minus": diff.get("minus"),
    }  # fmt: skip


def _lasted(view: TaskView) -> float | None:
    begin = view.started or view.created
    return round(view.ended - begin, 1) if view.ended and begin else None
