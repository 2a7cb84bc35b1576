"""`status` and `statusline`."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

import click

from memory import mail
from supervisor.client import common, reading, terminal
from supervisor.client.resolving import any_name
from supervisor.features.landing import view as landing_view
from supervisor.features.night import view as night_view
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import UsageError, one_line
from supervisor.kernel.format import clock, rfc3339
from supervisor.kernel.states import TaskState
from supervisor.results import verdicts
from supervisor.server import gateway_report, lock
from supervisor.store import archive, journal, queries
from supervisor.views import places, status, waits

RECENT = 5
ALL = 1_000_000
SHOWN = 50
"""Of those that do not run, and of each state in which tasks of the newest run ended: who has more asks for all, or for one run."""

_ASKING = (TaskState.RUNNING, TaskState.WAITING)
"""States in which something may wait for a person."""


@click.command()
@click.argument("name", required=False, shell_complete=any_name)
@click.option("-w", "--watch", is_flag=True, help="Redraw every second until Ctrl-C.")
@click.option("-a", "--all", "everything", is_flag=True, help="Every run, and failed tasks of earlier runs that still have a worktree.")
@click.option("--explain", is_flag=True, help="How the agents of NAME are, with each piece of evidence, its age and the rule that decided.")
@common.json_option
def command(name: str | None, watch: bool, everything: bool, explain: bool, as_json: bool) -> None:
    """Show what every agent does: state, age, and its last line or why it ended. With NAME: one task or one run.

    \b
    nightcrew status
    nightcrew status 1121-k3f9
    nightcrew status lint --json
    nightcrew status lint --explain
    """
    where = home()
    if explain:
        if name is None:
            raise UsageError("--explain needs a NAME", hint="nightcrew status --explain lint")
        _explain(where, name, as_json=as_json)
        return
    if watch:
        show_again("nightcrew status", lambda: _frame(where, name), as_json=as_json)
    db = common.holding(where, name) if name is not None else common.ledger(where) if where.ledger.exists() else None
    if as_json:
        gc.disable()  # it looked for garbage among 20,000 tasks, again and again, and there was none: a seventh of the whole
        try:
            _print_json(where, db, name, everything)
        finally:
            gc.enable()
    else:
        _print_text(where, db, name, everything)


def _explain(where: Home, name: str, *, as_json: bool) -> None:
    from supervisor.views import agent_status

    with contextlib.closing(common.holding(where, name)) as db:
        views = reading.named(db, name)
    now = time.time()
    found = reading.explained(where, views, now)
    if as_json:
        common.print_json(agents={task: agent_status.to_json(status) for task, status in found.items()})
        return
    for view in views:
        for line in agent_status.lines(view, found[view.id], now):
            click.echo(line)


def _all(db: sqlite3.Connection, name: str | None) -> tuple[list[queries.RunView], list[queries.TaskView]]:
    """For programs: nothing is left out."""
    if name is not None:
        views = reading.named(db, name)
        return [queries.run(db, run) for run in dict.fromkeys(view.run for view in views)], views
    runs = queries.runs(db, RECENT, gates=False)
    views = [*queries.unfinished(db), *queries.failed_before(db, runs[0].id if runs else "")]
    known = {view.id for view in views}
    if runs:
        views += [view for view in queries.ended_in(db, runs[0].id) if view.id not in known]
    return runs, views


def _every(where: Home, db: sqlite3.Connection) -> list[queries.RunView]:
    """The runs of the ledger and of the archive, newest first; once each, also those on their way."""
    runs = queries.runs(db, ALL)
    if where.archive.exists():
        with contextlib.closing(archive.connect(where.archive)) as kept:
            runs += [run for run in queries.runs(kept, ALL) if not queries.has_run(db, run.id)]
    return sorted(runs, key=lambda run: run.created, reverse=True)


def _print_json(where: Home, db: sqlite3.Connection | None, name: str | None, everything: bool) -> None:
    runs, views = _all(db, name) if db is not None else ([], [])
    if db is not None and name is None and everything:
        runs = _every(where, db)
    pid = lock.holder(where.lock)
    process = {"running": pid is not None, "pid": pid, "home": os.fspath(where.root), "stopped": where.sentinel.exists()}
    shape: dict[str, Any] = {"supervisor": process}
    shape["runs"] = [status.run_shape(run) for run in runs]
    shape["gateway"], _ = reading.gateway(where)
    needs = common.needs(where) if pid is not None else common.Needs()
    heard = gateway_report.hear(where) if pid is not None else gateway_report.Heard()
    held = reading.waiting(where, db, views, heard, needs, shape["gateway"]) if db is not None else status.NOTHING_WAITS
    shape["tasks"] = [{**status.task_shape(view), "waits_for": waits.shape(held.reasons.get(view.id))} for view in views]
    shape["deliveries"] = [one.shape() for one in reading.sent(db, views)] if db is not None else []
    shape["needs_person"] = [{**one, "since": rfc3339(one["since"])} for one in needs.asked]
    shape["mail"] = [one.shape(time.time()) for one in held.mail]
    shape["trains"] = landing_view.trains_under_way(db) if db is not None else []
    was_in = landing_view.outcomes(where.root, db, views) if db is not None else {}
    shape["results"] = {task: landing_view.outcome_shape(one) for task, one in was_in.items()}
    shape["conflicts"] = held.conflicts
    decided = verdicts.decisions(db, [view.id for view in views]) if db is not None else {}
    shape["reviews"] = {task: {"verdict": one.verdict, "commit": one.tip, "why": one.why} for task, one in decided.items()}
    shape["agent_states"] = held.states
    if db is not None and name is not None and len(views) == 1:
        shape["journal"] = journal.journal_of_task(db, views[0].id)
    common.print_json(**shape)


def _print_text(where: Home, db: sqlite3.Connection | None, name: str | None, everything: bool) -> None:
    if name is None:
        for line in night_view.not_started(where, datetime.now()):
            common.say(f"{line}; next: nightcrew night list")
    if db is None:
        common.say("nothing was ever run here; next: nightcrew run PLAN")
        return
    views, counts = _chosen(db, name, everything)
    heard = common.SupervisorWatch(where).look() if any(not view.final for view in views) else gateway_report.Heard()
    shape, said = reading.gateway(where) if name is None else (None, "")
    waiting = _waiting(where, db, views, shape, heard)
    _print_tasks(where, db, waiting, views, is_whole=name is None)
    if left := status.more(views, counts):
        click.echo(f"  … and {left}; nightcrew status --all, or nightcrew status RUN")
    if name is not None and len(views) == 1:
        _print_task(where, db, views[0], waiting)
    elif everything:
        _print_runs(where, db)
    elif not views:
        common.say("nothing to do; next: nightcrew run PLAN")
    for line in (*landing_view.under_way(db), *night_view.night_lines(db)) if name is None else ():
        common.show(status.cut(line, common.width()))
    if _is_worth_a_line(shape, views):
        common.show(status.cut(said, common.width()))
    if number := status.unconfined(views):
        agents = f"{number} agents work" if number > 1 else "1 agent works"
        common.say(f"{agents} without a sandbox, with all your rights")


def _print_tasks(where: Home, db: sqlite3.Connection, waiting: status.Waiting, views: list[queries.TaskView], *, is_whole: bool) -> None:
    """A line each, those that need a person first and the others by repository and run. `is_whole`: of all runs, with the mail for a person
    and one line for the workers of a map or the gates of a train."""
    now, layout = time.time(), status.Layout(common.width(), common.use_color())
    for line in mail.all_asked(waiting.mail, now) if is_whole else ():
        common.show(status.cut(line, layout.width))
    groups = places.listed(views, waiting, landing_view.of_gates(db, views)) if is_whole else _each(waiting.first(views))
    for heading, lines in groups:
        if heading:
            common.show(status.heading(heading, layout))
        for one in lines:
            common.show(status.line(one.view, now, layout, detail=one.says or status.detail(one.view, where.root), waits=waiting))


def _each(views: list[queries.TaskView]) -> list[tuple[str, list[places.Line]]]:
    return [("", [places.Line(view, (view.id,)) for view in views])]


def _print_runs(where: Home, db: sqlite3.Connection) -> None:
    for run in _every(where, db):
        tally = ", ".join(f"{number} {state}" for state, number in run.counts.items())
        click.echo(f"run {run.id}  {one_line(run.title)}  {tally}")


def _waiting(
    where: Home, db: sqlite3.Connection, views: list[queries.TaskView], shape: dict[str, Any] | None, heard: gateway_report.Heard
) -> status.Waiting:
    """`shape`: the gateway, None when it was not asked."""
    needs = common.needs(where) if any(view.state in _ASKING for view in views) else common.Needs()
    return reading.waiting(where, db, views, heard, needs, shape)


def _chosen(db: sqlite3.Connection, name: str | None, everything: bool) -> tuple[list[queries.TaskView], Counter[TaskState]]:
    """The tasks to show, and how many there are of each state with those that are left out."""
    if name is None and not everything:
        return reading.foremost(db, SHOWN)
    views = reading.named(db, name) if name is not None else [*queries.unfinished(db), *queries.failed_before(db, "")]
    return views, status.counted(views)


def _is_worth_a_line(shape: dict[str, Any] | None, views: list[queries.TaskView]) -> bool:
    """A gateway that runs is, and one that should since somebody works."""
    return shape is not None and (shape["running"] or any(not view.final for view in views))


def _print_task(where: Home, db: sqlite3.Connection, view: queries.TaskView, waiting: status.Waiting) -> None:
    if (reason := waiting.reasons.get(view.id)) is not None:
        click.echo(f"  waits     {one_line(reason.words)}")  # whole: the line above is cut to the terminal
    for line in reading.lines(where, db, view):
        click.echo(line)
    for entry in journal.journal_of_task(db, view.id):
        click.echo(f"  {status.history(entry)}")


def _frame(where: Home, name: str | None) -> str:
    views, counts, waiting = list[queries.TaskView](), Counter[TaskState](), status.NOTHING_WAITS
    trains: Mapping[str, places.Train] = {}
    shape, said = reading.gateway(where) if name is None else (None, "")
    if where.ledger.exists() or name is not None:
        with contextlib.closing(common.ledger(where) if name is None else common.holding(where, name)) as db:
            views, counts = _chosen(db, name, everything=False)
            heard = gateway_report.hear(where) if any(view.state is TaskState.READY for view in views) else gateway_report.Heard()
            waiting = _waiting(where, db, views, shape, heard)
            trains = landing_view.of_gates(db, views)
    gateway = said if _is_worth_a_line(shape, views) else ""
    return frame(where, views, counts, [], time.time(), gateway=gateway, waits=waiting, trains=trains)


# Watching
# --------
# A screen that is redrawn: a line for each agent, who waits for a person first, and the latest alerts.


PATH_COLUMNS = 40
NO_TRAINS: Mapping[str, places.Train] = {}
MAIL_MAX = 3
"""Requests by mail that are shown; the heading counts all."""


def show_again(instead: str, frame: Callable[[], str], *, as_json: bool) -> NoReturn:
    """Draw what `frame` gives every second until Ctrl-C. Raises UsageError unless stdout can be drawn on; `instead` is the command that
    needs no terminal."""
    if as_json:
        raise UsageError("--watch and --json do not go together", hint=f"{instead} --json")
    if not common.can_redraw():
        why = "stdout is not one" if not sys.stdout.isatty() else "TERM=dumb cannot move its cursor"
        raise UsageError("--watch needs a terminal", why=why, hint=instead)
    with terminal.live(screen=True) as show:
        while True:
            show(frame())
            time.sleep(1.0)


def frame(
    where: Home,
    views: list[queries.TaskView],
    counts: Counter[TaskState],
    alerts: list[str],
    now: float,
    *,
    gateway: str = "",
    waits: status.Waiting = status.NOTHING_WAITS,
    trains: Mapping[str, places.Train] = NO_TRAINS,
) -> str:
    """Return one screen: a heading with all the `counts`, the tasks that wait for a person and as many of the other `views` as fit, by
    repository and run, a count of the rest, the gateway's line if any, and the latest alerts. `trains`: the train of each gate, by task."""
    columns, rows = shutil.get_terminal_size()
    nobody = "" if lock.holder(where.lock) is not None else "  NO SUPERVISOR: nightcrew up -d"
    tally = ", ".join(filter(None, (waits.tally(), status.tally(counts, status.idle(views, waits.states))))) or "nothing to do"
    heading = f"nightcrew {_short(os.fspath(where.root), min(PATH_COLUMNS, columns // 3))}  {clock(now, seconds=True)}  {tally}{nobody}"
    asked = [status.cut(line, columns - 1) for line in mail.all_asked(waits.mail, now)[:MAIL_MAX]]
    room = max(1, rows - 3 - bool(gateway) - len(alerts[-3:]) - len(asked))
    groups = places.listed(views, waits, trains)
    shown = [one for heading, some in groups for one in _headed(heading, some)][:room]
    tasks = [one for one in shown if isinstance(one, places.Line)]
    ids = min(status.IDS, max((len(one.view.id) for one in tasks), default=0))  # what is asked needs the room on a narrow screen
    layout = status.Layout(columns - 1, common.use_color(), ids)
    lines = asked + [
        status.heading(one, layout)
        if isinstance(one, str)
        else status.line(one.view, now, layout, detail=one.says or status.detail(one.view, where.root), waits=waits)
        for one in shown
    ]
    names = {task for one in tasks for task in one.tasks}
    if left := status.more([view for view in views if view.id in names], counts):
        lines.append(status.cut(f"  … and {left}: nightcrew status", columns - 1))
    lines += [status.cut(gateway, columns - 1)] if gateway else []
    lines += [status.cut(f"! {one_line(alert)}", columns - 1) for alert in alerts[-3:]]
    return "\n".join([status.cut(heading, columns - 1), "", *lines])


def _headed(heading: str, lines: list[places.Line]) -> list[str | places.Line]:
    return [heading, *lines] if heading else [*lines]


def _short(path: str, most: int) -> str:
    """The end of a long path: what follows it in the heading matters more."""
    return path if len(path) <= most else f"…{path[1 - most :]}"


# Status line
# -----------
# `nightcrew statusline`.


@click.command()
def command_statusline() -> None:
    """Print the crew in a few characters, for the status line of tmux or a shell's prompt: `2? lint 3m 5W 3q`.

    2 need you, lint for 3 minutes; 5 work; 3 wait. An empty line says that nothing is to be done.

    \b
    tmux set-option -g status-right '#(nightcrew statusline)'
    """
    from supervisor.cli import summary

    summary.main()
