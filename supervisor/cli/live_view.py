"""The supervisor's own pane."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from memory import mail as mail_rows
from memory.mail import Mail
from supervisor.cli.status import frame
from supervisor.client import common, terminal
from supervisor.contract import Feature, Supervisor
from supervisor.host.paths import Home
from supervisor.kernel.errors import LedgerError, NightcrewError, one_line
from supervisor.kernel.pressure import Verdict
from supervisor.server import requests
from supervisor.server.loop import Loop
from supervisor.store import conversations, queries, sqlite
from supervisor.views import status, waits

DRAW_S = 0.9
"""From one frame to the next, and from one question whether anybody sees them to the next, at least."""
LOOK_S = 3.0
"""From the end of one look at how all agents are to the next, at least."""
REST = 4.0
"""And so many times as long as that look took: it may ask tmux for 200 screens."""


class LiveView:
    """Draws on stdout while that is a terminal that can be drawn on, and somebody sees it. In a pane of our own tmux server to which
    nobody is attached the newest frame stays until somebody comes: frames, and the looks at all agents for them, were a fifth of what
    many agents that start at once cost the main thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._db: sqlite3.Connection | None = None
        self._read_at: int | None = None
        self._views: list[queries.TaskView] = []
        self._unsent: dict[str, str] = {}
        self._mail: list[Mail] = []
        self._drawn_at = 0.0
        self._asked: list[dict[str, Any]] = []
        self._states: dict[str, str] = {}
        """Who waited for a person when that was last looked at."""
        self._look: asyncio.Task[dict[str, Any]] | None = None
        self._began_at = self._ended_at = -LOOK_S
        self._is_shown = True
        self._asked_at = -DRAW_S
        self._asking: asyncio.Task[None] | None = None

    def refresh(self, loop: Loop) -> None:
        """Draw again, at most once a second, while somebody sees it."""
        now = time.time()
        if not common.can_redraw():
            return
        self._ask_who_sees(loop)
        if not self._is_shown or abs(now - self._drawn_at) < DRAW_S:
            return
        first, self._drawn_at = not self._drawn_at, now
        try:
            views = self._foremost()
            reasons = self._why_they_wait(loop, views, now)
            asked = {one["task"]: one for one in self._who_needs(loop)}
            waiting = status.Waiting(asked, self._unsent, self._states, reasons, self._mail)
            text = frame(self._home, views, +loop.crew.counts, loop.alerts.newest, now, waits=waiting)
        except (LedgerError, sqlite3.Error) as error:
            text = one_line(str(error))
        with contextlib.suppress(OSError):  # the terminal went away: the signal that says so decides what happens, not a failed line
            if first:  # what is on the screen moves up instead of being drawn over
                sys.stdout.write("\n" * shutil.get_terminal_size().lines)
            terminal.draw(text)

    def _ask_who_sees(self, loop: Loop) -> None:
        """Have tmux asked about once a second; its answer counts from the next step on, which comes at once for somebody who came."""
        now = time.monotonic()
        if now - self._asked_at >= DRAW_S and (self._asking is None or self._asking.done()):
            self._asked_at = now
            self._asking = asyncio.get_running_loop().create_task(self._who_sees(loop))

    async def _who_sees(self, loop: Loop) -> None:
        before = self._is_shown
        try:
            self._is_shown = await loop.jobs.within(loop.jobs.stoppers, _is_shown, loop)
        except NightcrewError:  # nobody can say: draw
            self._is_shown = True
        if self._is_shown and not before:
            loop.wake()

    def _foremost(self) -> list[queries.TaskView]:
        """What there is room for, and read again only after a commit: 200 idle agents took half of the supervisor's time to read every
        second, and never changed; 20,000 that wait took four fifths of it."""
        self._db = self._db or sqlite.connect_readonly(self._home.ledger)
        version = int(self._db.execute("PRAGMA data_version").fetchone()[0])
        if version != self._read_at:
            self._views, self._read_at = queries.foremost(self._db, shutil.get_terminal_size().lines), version
            self._unsent, self._mail = status.unsent(conversations.pending(self._db)), mail_rows.asked_of_person(self._db)
        return self._views

    def _why_they_wait(self, loop: Loop, views: list[queries.TaskView], now: float) -> dict[str, Verdict]:
        if self._db is None:
            return {}
        return waits.reasons(self._db, views, requests.conditions(loop), runs=True, wall=now)

    def _who_needs(self, loop: Loop) -> list[dict[str, Any]]:
        """As of the newest look that has ended, which says how the others are as well: it may ask tmux, and drawing waits for nothing."""
        if self._look is not None and self._look.done() and self._look.exception() is None:
            found = self._look.result()
            self._asked, self._states = sorted([*found["agents"], *found["choices"]], key=lambda one: one["since"]), found["states"]
        now = time.monotonic()
        if self._look is not None and not self._look.done():
            self._ended_at = now
        elif now - self._ended_at >= max(LOOK_S, REST * (self._ended_at - self._began_at)):
            self._began_at = self._ended_at = now
            self._look = asyncio.get_running_loop().create_task(requests.handle_needs(loop))
        return self._asked


FEATURE = Feature("live view", service="supervisor.cli.live_view:serve", step="supervisor.cli.live_view:refresh")


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Draw the supervisor's own pane inside."""
    supervisor.loop.services.put(LiveView(supervisor.home))
    yield


def refresh(loop: Loop) -> None:
    """Draw again, after a step of the loop."""
    loop.services.get(LiveView).refresh(loop)


def _is_shown(loop: Loop) -> bool:
    return loop.doors.observer.is_shown(os.ttyname(sys.stdout.fileno()))
