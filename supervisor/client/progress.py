"""Watching a crew at work, on stderr: a line an agent that changes in place on a terminal, a line a change anywhere else."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from supervisor.client import follow, terminal
from supervisor.host.paths import Home
from supervisor.kernel.errors import one_line
from supervisor.kernel.format import age
from supervisor.kernel.states import TaskState
from supervisor.store.queries import TaskView
from supervisor.views import status

_STYLES = {"31": "red", "32": "green", "33": "yellow", "36": "cyan", "2": "dim"}


def watch(home: Home, run: str, heading: str) -> list[TaskView]:
    """Show the run until every task of it has ended; returns them. Ctrl-C passes through: the tasks go on."""
    console = terminal.console()
    if not sys.stderr.isatty() or console.is_dumb_terminal:  # FORCE_COLOR makes rich call a pipe a terminal
        return follow.print_changes(home, run, err=True)
    views: list[TaskView] = []
    with Live(console=console, auto_refresh=False, transient=False) as live:
        for followed in follow.looks(home, run):
            views = followed.all()
            live.update(_picture(heading, views, home.root), refresh=True)
    console.print()
    return views


def _picture(heading: str, views: list[TaskView], root: Path) -> Group:
    now = time.time()
    table = Table.grid(padding=(0, 2), expand=True)
    for width in (1, max((len(view.name) for view in views), default=1), 10, 7):
        table.add_column(width=width, no_wrap=True, justify="right" if width == 7 else "left")
    table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    for view in views:
        sign, code = status.SIGNS[view.state]
        table.add_row(
            Text(sign, style=_STYLES[code]),
            Text(view.name),
            Text(view.attempt_state or str(view.state) if view.state is TaskState.RUNNING else str(view.state), style=_STYLES[code]),
            Text(age(status.seconds(view, now)), style="dim"),
            Text(one_line(_says(view, root)), style="dim" if view.final else ""),
        )
    return Group(
        Text(heading, style="bold", no_wrap=True, overflow="ellipsis"), table, Text(status.tally(status.counted(views)), style="dim")
    )


def _says(view: TaskView, root: Path) -> str:
    """Why it ended badly, or the last line that it printed for people."""
    if view.final and view.state is not TaskState.DONE:
        return status.why(view)
    directory = root / "runs" / view.id / str(view.epoch)
    return status.last_line(directory / "stderr.log") if view.epoch else view.title
