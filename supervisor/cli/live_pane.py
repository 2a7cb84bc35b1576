"""A screen that is redrawn: a line for each agent, who waits for a person first, and the latest alerts."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NoReturn

from memory import mail
from supervisor.client import common, terminal
from supervisor.host.paths import Home
from supervisor.kernel.errors import UsageError, one_line
from supervisor.kernel.format import clock
from supervisor.kernel.states import TaskState
from supervisor.server import lock
from supervisor.store import queries
from supervisor.views import places, status

PATH_COLUMNS = 40
NO_TRAINS: Mapping[str, places.Train] = {}
MAIL_MAX = 3
"""Requests by mail that are shown; the heading counts all."""


def watch(instead: str, frame: Callable[[], str], *, as_json: bool) -> NoReturn:
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
    home: Home,
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
    nobody = "" if lock.holder(home.lock) is not None else "  NO SUPERVISOR: nightcrew up -d"
    tally = ", ".join(filter(None, (waits.tally(), status.tally(counts, status.idle(views, waits.states))))) or "nothing to do"
    heading = f"nightcrew {_short(os.fspath(home.root), min(PATH_COLUMNS, columns // 3))}  {clock(now, seconds=True)}  {tally}{nobody}"
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
        else status.line(one.view, now, layout, detail=one.says or status.detail(one.view, home.root), waits=waits)
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
