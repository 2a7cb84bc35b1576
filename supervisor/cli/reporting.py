"""Making the report of a run, telling where it is, and opening it: `analyze` and `report`."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from supervisor.cli import common
from supervisor.faces import status
from supervisor.faces.report import model, write
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.ledger import queries

SHOWN_ISSUES = 5


@dataclass(frozen=True, slots=True)
class Published:
    """A report, and the page that shows it."""

    report: dict[str, Any]
    page: Path


def publish(home: Home, run: str, output: Path | None) -> Published:
    """Write the report of a run as it stands, to its own directory or to `output`; with a baseline `benchmark_results.json` too."""
    db = common.ledger(home)
    report = model.build(db, queries.run(db, run), home.root, time.time())
    directory = output if output is not None else home.root / "runs" / run
    written = write.write(report, directory)
    if (figures := model.benchmark(report)) is not None:
        files.atomic_write(directory / "benchmark_results.json", json.dumps(figures, indent=2).encode() + b"\n")
    return Published(report, written.html)


def print_summary(published: Published) -> None:
    """The essence on stdout, for a terminal or a pipe, and where the whole is."""
    report = published.report
    summary = report["summary"]
    width = common.width()
    if summary is not None:
        for line in _summary(report, summary, width):
            click.echo(line)
    click.echo(f"report: {published.page}")


def show_in_browser(page: Path, *, wanted: bool | None) -> None:
    """Open the page. Unasked only where a person sits at a graphical desktop: a text browser would take the terminal over."""
    desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if wanted is False or (wanted is None and not (desktop and sys.stdout.isatty())):
        return
    if not webbrowser.open(page.as_uri()) and wanted:
        common.say(f"no browser could be started; open {page}")


def _summary(report: Mapping[str, Any], summary: Mapping[str, Any], width: int) -> list[str]:
    """Rows of a table are cut to `width`; sentences, which may end in a command to type, are wrapped."""
    health = "health unknown" if summary["health"] is None else f"health {summary['health']:.0f} of 100"
    lines = [f"{health}: {report['repository']['name']}, {summary['files']:,} Python files, {summary['lines']:,} lines", ""]
    lines += [_perspective(one) for one in summary["perspectives"]]
    if summary["issues"]:
        lines += ["", "fix first"]
        for issue in summary["issues"][:SHOWN_ISSUES]:
            place = f"{issue['file']}:{issue['line']}" if issue["line"] else issue["file"]
            lines.append(status.cut(f"  {issue['severity']:<6}  {place}  {issue['message']} ({issue['code']})", width))
    lines += ["", "next", *(line for action in summary["actions"] for line in _wrapped(action, width, "  "))]
    return [*lines, "", *_wrapped(summary["parallel"], width, "")]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _perspective(one: Mapping[str, Any]) -> str:
    def points(value: float | None) -> str:
        return "  -  " if value is None else f"{value:5.1f}"

    note = f"  {one['state']}: {one['reason']}" if one["state"] != "done" else ""
    return f"  {one['name']:<11} {points(one['score_per_kloc'])} per 1,000 lines  {points(one['score'])} plain{note}"
