"""Making the report of a run, telling where it is, and opening it: `analyze` and `report`."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import textwrap
import time
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from supervisor.client import common, reading
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotFound, UsageError
from supervisor.kernel.format import many
from supervisor.results import conflicts
from supervisor.store import archive, queries
from supervisor.views.report import model, pages, words

if TYPE_CHECKING:
    from worktrees.repository import Repository

SHOWN_ISSUES = 5
LOOK_S = 10.0
"""For comparing results."""


@dataclass(frozen=True, slots=True)
class Published:
    """A report, and the page that shows it."""

    report: dict[str, Any]
    page: Path


def run_named(where: Home, name: str | None, preferred: Callable[[sqlite3.Connection, str | None], str | None] = lambda _, __: None) -> str:
    """The full id of the run that a name means. Without one: what `preferred` says of the repository around the current directory (its
    project, None outside of any), else its newest run. Raises NotFound."""
    db = common.ledger(where) if name is None else common.holding(where, name)
    if name is not None:
        here = queries.project_at(db, str(Path.cwd()))
        return queries.one(db, queries.match_tasks(db, common.typed(name), here)[0]).run
    repository = _repository(where)
    project = repository.project if repository is not None else None
    if (found := preferred(db, project)) is not None:
        return found
    newest = queries.runs(db, 1, project, gates=False) or _archived(where, project)
    if not newest:
        on = f" of {repository.root}" if repository else ""
        raise NotFound(f"no run{on} yet", hint="nightcrew analyze" if repository else "nightcrew run PLAN, or nightcrew analyze PATH")
    if repository is None:
        common.say(f"this is no repository: the newest run of all, {newest[0].id} of {newest[0].root}")
    return newest[0].id


def _archived(where: Home, project: str | None) -> list[queries.RunView]:
    with contextlib.suppress(NotFound), contextlib.closing(archive.connect(where.archive)) as kept:
        return queries.runs(kept, 1, project)
    return []


def _repository(where: Home) -> Repository | None:
    """The one around the current directory, if any."""
    from worktrees.git import Git
    from worktrees.repository import discover

    try:
        return discover(Git(where.root / "git"), Path.cwd())
    except NotFound:
        return None


def place_for(output: Path | None) -> Path | None:
    """`output` as a directory that can be written, made when it is missing. This is checked before the work, so that no result is lost.
    Raises UsageError or what making it raises."""
    if output is None:
        return None
    where = output.absolute()
    if where.is_dir() and not os.access(where, os.W_OK | os.X_OK):
        raise UsageError("cannot write a report", on=str(where), why="the directory is not writable", hint="another --output")
    if not where.is_dir():
        files.private_dir(where)
    return where


def build(home: Home, run: str) -> dict[str, Any]:
    """The report of a run as it stands: the shape of report.json."""
    db = common.ledger(home, run)
    view = queries.run(db, run)
    report = model.build(db, view, home.root, time.time())
    ready = [task["id"] for task in report["tasks"] if words.takeable(task)]
    matrix = reading.last_matrix(home, db, view.project, LOOK_S) if ready else None
    gone = set(ready) - {side.task for side in matrix.sides} if matrix is not None and not matrix.left_out else set()
    report["tasks"] = [{**task, "to_take": task["id"] in ready and task["id"] not in gone} for task in report["tasks"]]
    return {**report, "conflicts": conflicts.of_tasks(matrix, ready) if matrix is not None else None}


def publish(home: Home, report: dict[str, Any], output: Path | None) -> Published:
    """Write the report to the directory of its run or to `output`; with a baseline `benchmark_results.json` too."""
    directory = (
        output.absolute() if output is not None else home.root / "runs" / report["run"]["id"]
    )  # a page to open has an absolute address
    page = pages.write(report, directory)
    if (figures := model.benchmark(report)) is not None:
        files.atomic_write(directory / "benchmark_results.json", json.dumps(figures, indent=2).encode() + b"\n")
    return Published(report, page)


def show(published: Published, *, as_json: bool, opened: bool | None) -> None:
    """The report on stdout as JSON; else its essence there, and the page in a browser: see `show_in_browser`."""
    if as_json:
        click.echo(json.dumps(published.report, indent=2))
    else:
        print_summary(published)
        show_in_browser(published.page, wanted=opened)


def print_summary(published: Published) -> None:
    """The essence on stdout, for a terminal or a pipe, and where the whole is."""
    report, width = words.shown(published.report), common.width()
    running = report["run"]["state"] == "running"
    if running:
        click.echo(f"still running: {words.verdict(report).sentence.rstrip('.')}")
    if report["summary"] is not None:
        for line in [""] * running + _summary(report, width):
            click.echo(line)
    click.echo(f"report: {published.page}")
    if running:
        click.echo(f"again: nightcrew report {report['run']['id']}")


def show_in_browser(page: Path, *, wanted: bool | None) -> None:
    """Open the page. Unasked only where a person sits at a graphical desktop: a text browser would take the terminal over."""
    desktop = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if wanted is False or (wanted is None and not (desktop and sys.stdout.isatty())):
        return
    if not webbrowser.open(page.as_uri()) and wanted:
        common.say(f"no browser could be started; open {page}")


def _summary(report: Mapping[str, Any], width: int) -> list[str]:
    """Sentences, which may end in a place or in a command to type, are wrapped to `width` and never cut."""
    summary = report["summary"]
    lines = [*_wrapped(_headline(report, summary), width, "")]
    if report["exclude"]:
        lines += _wrapped(f"nobody looked at {', '.join(report['exclude'])}", width, "")
    lines += ["", *(line for one in summary["perspectives"] for line in _perspective(one, width))]
    if issues := words.issues(report)[:SHOWN_ISSUES]:
        lines += ["", "fix first", *(line for issue in issues for line in _issue(issue, width))]
    if summary["actions"]:
        lines += ["", "next", *(line for action in summary["actions"] for line in _wrapped(action, width, "  ", "    "))]
    said = "" if report["run"]["state"] == "running" else summary["parallel"]
    return [*lines, "", *(_wrapped(said, width, "") if said else [])]


def _headline(report: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    health = "health unknown" if summary["health"] is None else f"health {summary['health']:.0f} of 100"
    basis = f" {said}" if (said := words.basis(summary)) else ""
    size = f"{many(summary['files'], 'Python file')}, {many(summary['lines'], 'line')}"
    return f"{health}{basis}: {report['repository']['name']}, {size}"


def _perspective(one: Mapping[str, Any], width: int) -> list[str]:
    """`security      85.4  48 issues (4 high, 12 medium)`: the score that counts in the health, and what it rests on."""
    score = "-" if one["score_per_kloc"] is None else f"{one['score_per_kloc']:.1f}"
    state = "" if one["state"] == "done" else f"{one['state']}: {one['reason']}" if one["reason"] else str(one["state"])
    said = "; ".join(filter(None, (words.rests_on(one), state)))
    return _wrapped(f"{one['name']:<11}  {score:>5}  {said}".rstrip(), width, "  ", " " * 22)


def _issue(issue: words.Issue, width: int) -> list[str]:
    more = f" and {issue.others}" if issue.others else ""
    return [
        *_wrapped(f"{issue.severity:<6}  {issue.message} ({issue.code})", width, "  ", " " * 10),
        *_wrapped(f"{issue.places[0]}{more}", width, " " * 10),
    ]


def _wrapped(text: str, width: int, indent: str, then: str | None = None) -> list[str]:
    further = indent if then is None else then
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=further, break_long_words=False, break_on_hyphens=False)
