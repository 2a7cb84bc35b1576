"""The supervisor's own pane: a line for each agent, redrawn when something changed, and the latest alerts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol

from supervisor.cli import common
from supervisor.core.errors import LedgerError, UsageError, one_line
from supervisor.core.states import TaskState
from supervisor.daemon import lock
from supervisor.faces import status
from supervisor.host.paths import Home
from supervisor.ledger import queries, store

PATH_COLUMNS = 40


class _Crew(Protocol):
    counts: Counter[TaskState]


class _Shown(Protocol):
    alerts: list[str]

    @property
    def crew(self) -> _Crew: ...


class LiveView:
    """Draws on stdout while that is a terminal that can be drawn on."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._db: sqlite3.Connection | None = None
        self._read_at: int | None = None
        self._views: list[queries.TaskView] = []
        self._drawn_at = 0.0

    def refresh(self, loop: _Shown) -> None:
        """Draw again, at most once a second."""
        now = time.time()
        if abs(now - self._drawn_at) < 0.9 or not common.can_redraw():
            return
        first, self._drawn_at = not self._drawn_at, now
        try:
            text = frame(self._home, self._foremost(), +loop.crew.counts, loop.alerts, now)
        except (LedgerError, sqlite3.Error) as error:
            text = one_line(str(error))
        with contextlib.suppress(OSError):  # the terminal went away: the signal that says so decides what happens, not a failed line
            if first:  # what is on the screen moves up instead of being drawn over
                sys.stdout.write("\n" * shutil.get_terminal_size().lines)
            draw(text)

    def _foremost(self) -> list[queries.TaskView]:
        """What there is room for, and read again only after a commit: 200 idle agents took half of the supervisor's time to read every
        second, and never changed; 20,000 that wait took four fifths of it."""
        self._db = self._db or store.connect_readonly(self._home.ledger)
        version = int(self._db.execute("PRAGMA data_version").fetchone()[0])
        if version != self._read_at:
            self._views, self._read_at = queries.foremost(self._db, shutil.get_terminal_size().lines), version
        return self._views


def watch(instead: str, frame: Callable[[], str], *, as_json: bool) -> NoReturn:
    """Draw what `frame` gives every second until Ctrl-C. Raises UsageError unless stdout can be drawn on; `instead` is the command that
    needs no terminal."""
    if as_json:
        raise UsageError("--watch and --json do not go together", hint=f"{instead} --json")
    if not common.can_redraw():
        why = "stdout is not one" if not sys.stdout.isatty() else "TERM=dumb cannot move its cursor"
        raise UsageError("--watch needs a terminal", why=why, hint=instead)
    with whole_screen():
        while True:
            draw(frame())
            time.sleep(1.0)


def fitted(text: str) -> str:
    """As many lines as the terminal has rows for, each wiping what was behind it."""
    return "\x1b[K\n".join(text.splitlines()[: shutil.get_terminal_size().lines - 1]) + "\x1b[K"


def draw(text: str) -> None:
    """Show a frame in place of the one before."""
    sys.stdout.write(f"\x1b[H{text}\x1b[J")
    sys.stdout.flush()


@contextlib.contextmanager
def whole_screen() -> Iterator[None]:
    """The terminal's other screen, without a cursor: what was on the first one is there again afterwards."""
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def frame(
    home: Home, views: list[queries.TaskView], counts: Counter[TaskState], alerts: list[str], now: float, *, gateway: str = ""
) -> str:
    """One screen: a heading with all the `counts`, the most urgent of `views` that fit, what was left out, the gateway's line if any, and
    the latest alerts."""
    columns, rows = shutil.get_terminal_size()
    views = status.by_urgency(views)
    nobody = "" if lock.holder(home.lock) is not None else "  NO SUPERVISOR: nightcrew up -d"
    heading = f"nightcrew {_short(os.fspath(home.root))}  {status.clock(now)}  {status.tally(counts) or 'nothing to do'}{nobody}"
    room = max(1, rows - 3 - bool(gateway) - len(alerts[-3:]))
    color = common.use_color()
    lines = [status.line(view, now, width=columns - 1, color=color, detail=status.detail(view, home.root)) for view in views[:room]]
    if left := status.more(views[:room], counts):
        lines.append(status.cut(f"  … and {left}: nightcrew status", columns - 1))
    lines += [status.cut(gateway, columns - 1)] if gateway else []
    lines += [status.cut(f"! {one_line(alert)}", columns - 1) for alert in alerts[-3:]]
    return "\x1b[K\n".join([status.cut(heading, columns - 1), "", *lines]) + "\x1b[K"


def _short(path: str) -> str:
    """The end of a long path: what follows it in the heading matters more."""
    return path if len(path) <= PATH_COLUMNS else f"…{path[1 - PATH_COLUMNS :]}"
