"""One run as `report.json`, and what its charts draw."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from memory import mail as mail_rows
from memory import reports
from memory.mail import Pair
from supervisor import __version__
from supervisor.host.paths import Home
from supervisor.kernel.format import duration, rfc3339
from supervisor.kernel.states import TaskState
from supervisor.results import analysis as results
from supervisor.results import comparison, verdicts
from supervisor.results.analysis import CORES, PHASE, Phase
from supervisor.results.findings import Finding, Severity, order
from supervisor.results.verdicts import Decision
from supervisor.store import queries
from supervisor.store.queries import RunView, TaskView
from supervisor.views import figures, gateway, status, waits
from supervisor.views.document import Lane, Lanes, ticks
from supervisor.views.report.words import SEVERITIES, Report, file, number, parts

# Model
# -----
# One run as `report.json`: what the ledger holds of it and what its analysts, if any, found. All else is drawn from this.


SCHEMA = 1
"""In the run's directory: what a model wrote about it, `{"text", "model"}`."""
NOTES_MAX = 50
"""Of a task's notes."""


def build(db: sqlite3.Connection, run: RunView, root: Path, now: float) -> dict[str, Any]:
    """The report of a run as it stands. `root` is the state directory, `now` wall-clock seconds."""
    views = queries.of_run(db, run.id)
    outcomes = queries.outcomes(db, run.id)
    analysts = results.told(outcomes)
    found = results.figures(results.spans(outcomes), _cores(outcomes), results.spoilt(outcomes))
    crew = [one.facts for one in analysts if one.facts is not None and one.phase is Phase.CREW]
    summary = results.summary(analysts, found) if analysts else None
    decided = verdicts.decisions(db, [view.id for view in views])
    groups = comparison.of_tasks(db, [view.id for view in views])
    chosen = comparison.chosen(groups)
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
        "spent": figures.total(task["spent"] for task in tasks),
        "memory": reports.of_run(db, run.id, run.created, root / "projects" / run.project),
        "mail": [pair(one) for one in mail_rows.pairs(db, run.project, {view.id for view in views})],
        "waits": waits.of_tasks(db, [view.id for view in views], now),
        "choices": groups,
        "routes": gateway.by_work(Home(root), db, [view.id for view in views]),
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
        "spent": figures.of(json.loads(row["result"]) for row in attempts if row["result"]),
        "last_line": status.last_message(view.result) or _last_line(root / "runs" / view.id / str(view.epoch)),
        "attempts": [_attempt(row) for row in attempts],
    }


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    result = json.loads(row["result"]) if row["result"] else {}
    return {
        "epoch": row["epoch"],
        "created": row["created"],
        "up": results.seconds(result.get("up")) or row["started"],
        "began": results.seconds(result.get("started")),
        "ended": results.seconds(result.get("ended")) or row["ended"],
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


# Charts
# ------
# The pictures of the page. Pure.


MAX_ROWS = 60
"""Of a timeline: more is taller than any screen."""
MAX_FILES = 12
"""Of the hot spots; the table has them all."""
_LABELS = {"setup": "set-up", "held": "held for the others", "work": "work", "bad": "did not end well"}


def scores(summary: Mapping[str, Any]) -> Lanes:
    """The score per 1,000 lines of each perspective, with its weight; a perspective without one keeps its empty row."""
    rows = []
    for one in summary["perspectives"]:
        score, weight = one["score_per_kloc"], summary["weights"].get(one["name"], 0)
        spans = [] if score is None else [(0.0, score, "score", f"{one['name']}: {number(score)}")]
        rows.append(Lane(f"{one['name']} × {weight}: {number(score)}", spans))
    return Lanes(rows, 100)


def hot_spots(summary: Mapping[str, Any]) -> Lanes:
    """The worst files, their findings side by side by severity: the graver, the taller."""
    rows = []
    for spot in summary["hot_spots"][:MAX_FILES]:
        at, spans = 0, []
        for name in SEVERITIES:
            if count := spot[name]:
                spans.append((float(at), float(at + count), name, f"{file(spot['file'])}: {count} {name}"))
                at += count
        rows.append(Lane(file(spot["file"]), spans))
    return Lanes(rows, max((span[1] for row in rows for span in row.spans), default=1), [(name, name) for name in SEVERITIES])


def timeline(report: Report) -> list[tuple[str, Lanes]]:
    """One picture for a baseline and one for the crew, with their titles. Both begin at 0 and share one scale, so that lengths compare."""
    tasks = [task for task in report["tasks"] if task["attempts"]]
    baseline = [task for task in tasks if task["phase"] == "baseline"]
    crew = [task for task in tasks if task["phase"] != "baseline"]
    now = datetime.fromisoformat(report["generated"]).timestamp()
    title = "At once" if baseline else ""
    panels = [(name, _panel(some[:MAX_ROWS], now)) for name, some in (("One after another", baseline), (title, crew)) if some]
    longest = max((span[1] for _, rows in panels for row in rows for span in row.spans), default=0) or 1
    kinds = {span[2] for _, rows in panels for row in rows for span in row.spans}
    legend = [(kind, words) for kind, words in _LABELS.items() if kind in kinds]
    return [(name, Lanes(rows, longest, legend, ticks(longest))) for name, rows in panels if any(row.spans for row in rows)]


def _panel(tasks: Sequence[Mapping[str, Any]], now: float) -> list[Lane]:
    zero = min(attempt["created"] for task in tasks for attempt in task["attempts"])
    return [Lane(task["name"], [span for attempt in task["attempts"] for span in _spans(task, attempt, zero, now)]) for task in tasks]


def _spans(task: Mapping[str, Any], attempt: Mapping[str, Any], zero: float, now: float) -> Iterator[tuple[float, float, str, str]]:
    pieces = parts(attempt, now)
    for index, (part, begin, end) in enumerate(pieces, 1):
        bad = index == len(pieces) and attempt["end"] not in ("done", None)
        said = f"{task['name']}: {_LABELS[part]} {duration(end - begin)}" + (f", then {attempt['end']}" if bad else "")
        yield round(begin - zero, 3), round(end - zero, 3), "bad" if bad else part, said
