"""What the charts draw: each is rows of horizontal spans on one scale, as plain JSON for report.js. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from supervisor.faces.report.words import SEVERITIES, Report, file, number, parts, seconds

MAX_ROWS = 60
"""Of a timeline: more would be taller than any screen, and browsers refuse canvases beyond 16,384 pixels."""
MAX_FILES = 12
"""Of the hot spots; the table has them all."""

Chart = dict[str, Any]
"""{"rows": [label], "lanes": spans side by side in a row, "max": end of the scale, "unit": "" or "s", "keep": "head" or "tail" of a
label that is too long, "spans": [[row, lane, begin, end, style, text], …]}; the styles are drawn by report.js."""


def all_charts(report: Report) -> dict[str, Chart]:
    """Every chart that has something to show, by its name: scores, hot, and time-0, time-1 for the panels of the timeline."""
    summary = report["summary"]
    found = {} if summary is None else {"scores": scores(summary), "hot": hot_spots(summary)}
    found |= {f"time-{index}": chart for index, (_, chart) in enumerate(timeline(report))}
    return {name: chart for name, chart in found.items() if chart["spans"]}


def scores(summary: Mapping[str, Any]) -> Chart:
    """Both scores of each perspective; one that has none keeps its empty row."""
    spans = []
    for row, one in enumerate(summary["perspectives"]):
        for lane, (key, name) in enumerate((("score_per_kloc", "per 1,000 lines"), ("score", "plain"))):
            if (value := one[key]) is not None:
                spans.append([row, lane, 0, value, name.split()[0], f"{one['name']}, {name}: {number(value)}"])
    return _chart([one["name"] for one in summary["perspectives"]], spans, top=100, lanes=2)


def hot_spots(summary: Mapping[str, Any]) -> Chart:
    """The worst files, their findings side by side by severity."""
    spans = []
    worst = summary["hot_spots"][:MAX_FILES]
    for row, spot in enumerate(worst):
        at = 0
        for name in SEVERITIES:
            if count := spot[name]:
                spans.append([row, 0, at, at + count, name, f"{file(spot['file'])}: {count} {name}"])
                at += count
    return _chart([file(spot["file"]) for spot in worst], spans, keep="tail")


def timeline(report: Report) -> list[tuple[str, Chart]]:
    """One panel for a baseline and one for the crew, with their titles. Both begin at 0 s and share one scale, so that lengths compare."""
    tasks = [task for task in report["tasks"] if task["attempts"]]
    baseline = [task for task in tasks if task["phase"] == "baseline"]
    crew = [task for task in tasks if task["phase"] != "baseline"]
    now = datetime.fromisoformat(report["generated"]).timestamp()
    title = "At once" if baseline else ""
    panels = [(name, _panel(some, now)) for name, some in (("One after another", baseline), (title, crew)) if some]
    longest = max((chart["max"] for _, chart in panels), default=0)
    return [(name, chart | {"max": longest}) for name, chart in panels]


def _panel(tasks: Sequence[Mapping[str, Any]], now: float) -> Chart:
    shown = tasks[:MAX_ROWS]
    zero = min(attempt["created"] for task in shown for attempt in task["attempts"])
    spans = []
    for row, task in enumerate(shown):
        for attempt in task["attempts"]:
            pieces = parts(attempt, now)
            for index, (part, begin, end) in enumerate(pieces, 1):
                bad = index == len(pieces) and attempt["end"] not in ("done", None)
                text = f"{task['name']}: {_LABELS[part]} {seconds(end - begin)}" + (f", then {attempt['end']}" if bad else "")
                spans.append([row, 0, round(begin - zero, 3), round(end - zero, 3), "bad" if bad else part, text])
    return _chart([task["name"] for task in shown], spans, unit="s")


def styles(panels: Sequence[tuple[str, Chart]]) -> set[str]:
    """What the legend has to explain."""
    return {span[4] for _, chart in panels for span in chart["spans"]}


_LABELS = {"setup": "set-up", "held": "held for the others", "work": "work"}


def _chart(rows: list[str], spans: list[list[Any]], *, top: float = 0, lanes: int = 1, unit: str = "", keep: str = "head") -> Chart:
    top = top or max((span[3] for span in spans), default=0) or 1
    return {"rows": rows, "lanes": lanes, "max": top, "unit": unit, "keep": keep, "spans": spans}
