"""One run as `report.json`: what the ledger holds of it and what its analysts, if any, found. All else is drawn from this."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from supervisor import __version__
from supervisor.core.analysis import analyst_results, lead, speedup
from supervisor.core.analysis.analysis_tasks import CORES, PHASE
from supervisor.core.analysis.speedup import Phase
from supervisor.core.analysis.types import Finding, Severity, order
from supervisor.core.mail import Pair
from supervisor.core.reviews import Decision
from supervisor.core.states import TaskState
from supervisor.core.units import rfc3339
from supervisor.faces import candidates, memory_use, model_usage, status, waited
from supervisor.ledger import mail, queries, reviews
from supervisor.ledger.queries import RunView, TaskView

SCHEMA = 1
"""In the run's directory: what a model wrote about it, `{"text", "model"}`."""
NOTES_MAX = 50
"""Of a task's notes."""


def build(db: sqlite3.Connection, run: RunView, root: Path, now: float) -> dict[str, Any]:
    """The report of a run as it stands. `root` is the state directory, `now` wall-clock seconds."""
    views = queries.of_run(db, run.id)
    outcomes = queries.outcomes(db, run.id)
    analysts = analyst_results.told(outcomes)
    found = speedup.figures(analyst_results.spans(outcomes), _cores(outcomes), analyst_results.spoilt(outcomes))
    crew = [one.facts for one in analysts if one.facts is not None and one.phase is Phase.CREW]
    summary = lead.summary(analysts, found) if analysts else None
    decided = reviews.decisions(db, [view.id for view in views])
    groups = candidates.of_tasks(db, [view.id for view in views])
    chosen = candidates.chosen(groups)
    tasks = [
        _task(db, view, outcome, root, decided.get(view.id)) | {"chosen": chosen.get(view.id)}
        for view, outcome in zip(views, outcomes, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "generated": rfc3339(now),
        "nightcrew": __version__,
        "run": _run(run, views, now),
        "repository": {"name": Path(run.root).name, "root": run.root, "base": run.base, "commit": run.base_oid},
        "summary": summary,
        "prose": _prose(outcomes),
        "findings": [_finding(one) for one in sorted((finding for facts in crew for finding in facts.findings), key=order)],
        "findings_total": sum(facts.severities.get(severity, 0) for facts in crew for severity in Severity),
        "exclude": _excluded(outcomes),
        "figures": found.to_json() if found else None,
        "spent": model_usage.total(task["spent"] for task in tasks),
        "memory": memory_use.of_run(db, run.id, run.created, root / "projects" / run.project),
        "mail": [pair(one) for one in mail.pairs(db, run.project, {view.id for view in views})],
        "waits": waited.of_tasks(db, [view.id for view in views], now),
        "choices": groups,
        "tasks": tasks,
    }


def pair(found: Pair) -> dict[str, Any]:
    """What one wrote to another, and about how many tokens the other was given by it."""
    return {"from": found.sender, "to": found.recipient, "messages": found.mails, "tokens": found.tokens}


def benchmark(report: Mapping[str, Any]) -> dict[str, Any] | None:
    """`benchmark_results.json`: the figures of an analysis that had a baseline, with the plain sentence; None without one."""
    found = report["figures"]
    if found is None or found["sequential"] is None:
        return None
    place = {"repo": report["repository"]["name"], "commit": report["repository"]["commit"], "files": report["summary"]["files"]}
    return {"schema": SCHEMA, "run": report["run"]["id"], **place, **found, "plainly": report["summary"]["parallel"]}


def _cores(outcomes: Iterable[Mapping[str, Any]]) -> int:
    given = (str(one["params"].get(CORES, "")) for one in outcomes if one["kind"] == "lead")
    return next((int(text) for text in given if text.isascii() and text.isdigit() and len(text) < 6 and int(text)), 1)


def _excluded(outcomes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Which files nobody looked at, as patterns: a repository's own file can name them, so the reader must know."""
    return sorted({pattern for one in outcomes for pattern in one["params"].get("ANALYST_EXCLUDE", "").splitlines()})


def _run(run: RunView, views: list[TaskView], now: float) -> dict[str, Any]:
    over = all(view.final for view in views)
    started = min((view.created for view in views if view.created), default=None)
    ended = max((view.ended for view in views if view.ended), default=None) if over else None
    state = "running" if not over else "done" if all(view.state is TaskState.DONE for view in views) else "failed"
    return {
        "id": run.id,
        "title": run.title,
        "state": state,
        "submitted": rfc3339(run.created),
        "started": rfc3339(started),
        "ended": rfc3339(ended),
        "wall_s": round((ended or now) - run.created, 3),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {**asdict(finding), "perspective": str(finding.perspective), "severity": str(finding.severity)}


def _task(db: sqlite3.Connection, view: TaskView, outcome: Mapping[str, Any], root: Path, decided: Decision | None) -> dict[str, Any]:
    result = view.result or {}
    attempts = queries.attempts(db, view.id)
    return {
        "id": view.id,
        "name": view.name,
        "title": view.title,
        "kind": outcome["kind"],
        "phase": outcome["params"].get(PHASE),
        "state": str(view.state),
        "reason": status.why(view),
        "epoch": view.epoch,
        "branch": view.branch,
        "commits": result.get("commits", 0),
        "diff": result.get("diff"),
        "review": None if decided is None else {"verdict": decided.verdict.value, "commit": decided.tip, "why": decided.why},
        "notes": result.get("notes", [])[:NOTES_MAX],
        "cpu_s": result.get("cpu_s"),
        "spent": model_usage.of(json.loads(row["result"]) for row in attempts if row["result"]),
        "last_line": status.last_message(view.result) or _last_line(root / "runs" / view.id / str(view.epoch)),
        "attempts": [_attempt(row) for row in attempts],
    }


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    result = json.loads(row["result"]) if row["result"] else {}
    return {
        "epoch": row["epoch"],
        "created": row["created"],
        "up": analyst_results.seconds(result.get("up")) or row["started"],
        "began": analyst_results.seconds(result.get("started")),
        "ended": analyst_results.seconds(result.get("ended")) or row["ended"],
        "end": row["end"],
        "cause": row["end_cause"],
    }


def _last_line(directory: Path) -> str:
    return status.last_line(directory / "stderr.log") or status.last_line(directory / "stdout.log")


def _prose(outcomes: Iterable[Mapping[str, Any]]) -> dict[str, str] | None:
    """What a model wrote for the lead; None where none did."""
    for one in outcomes:
        output = (one["result"] or {}).get("output") if one["kind"] == "lead" else None
        written = output.get("prose") if isinstance(output, dict) else None
        if isinstance(written, dict) and all(isinstance(written.get(key), str) for key in ("text", "model")):
            return {"text": written["text"], "model": written["model"]}
    return None
