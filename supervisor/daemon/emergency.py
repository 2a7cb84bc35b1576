"""The emergency stop, as the supervisor honours it. The sentinel file is all of it: it holds over restarts, whoever wrote it.

Runners stop their agents and let them go (`agents/runner/emergency.py`), the gateway serves nobody meanwhile, and here nothing starts,
nothing is let go on, and no deadline ends what cannot move.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from supervisor.core.crew import Crew
from supervisor.core.errors import NightcrewError, Refused
from supervisor.core.events import EmergencyChanged, Event
from supervisor.daemon.jobs import Doors

RUNNERS = "stopped"
"""In an attempt's directory: its runner holds its tree (see `agents/runner/emergency.py`)."""
LOOK_S = 0.1
HOOK_S = 0.9
"""The program of a hook waits a second for us."""
_RUNNERS_S = 5.0
"""A runner that lives lets its tree go within half a second of the thaw; the record of one that was killed is not waited for longer."""
WHY = "everything is stopped (nightcrew stop-all); nightcrew thaw lets it go on"


class Emergency:
    """What the sentinel of one home says."""

    def __init__(self, doors: Doors, alert: Callable[[str], None]) -> None:
        self._home = doors.home
        self._ledger = doors.ledger
        self._alert = alert

    @property
    def is_on(self) -> bool:
        """Whether everything is to stand still now."""
        return self._home.sentinel.exists()

    def why(self) -> str:
        """Why nothing new may start; empty when this does not forbid it."""
        return WHY if self.is_on else ""

    def news(self, crew: Crew) -> list[Event]:
        """What the crew does not know of it yet; it is said, and is in the history, once."""
        if self.is_on is crew.stopped:
            return []
        self._alert(self.why() or "what nightcrew stop-all had stopped goes on")
        with contextlib.suppress(NightcrewError):  # a ledger that cannot be written keeps nothing from being stopped
            self._ledger.journal(None, None, "thawed" if crew.stopped else "stopped all", {"why": "a person asked"})
        return [EmergencyChanged(not crew.stopped)]

    def refuse(self) -> None:
        """Raise Refused for what cannot be done while everything is stopped."""
        if self.is_on:
            raise Refused("not now", why="everything is stopped", kept="everything as it is", hint="nightcrew thaw")

    async def held(self) -> None:
        """Until the sentinel is gone, for as long as a hook of an agent waits: by then its runner has stopped it."""
        until = time.monotonic() + HOOK_S
        while self.is_on and time.monotonic() < until:
            await asyncio.sleep(LOOK_S)

    def touches(self, task: str, epoch: int) -> bool:
        """Whether an attempt's tree is stopped because of the sentinel, or may be any moment."""
        return self.is_on or (self._home.attempt(task, epoch) / RUNNERS).exists()

    async def lifted(self, task: str, epoch: int, worth_it: Callable[[], bool]) -> None:
        """Until the attempt's runner has let its tree go, or waiting is not `worth_it` any more."""
        until: float | None = None
        while self.touches(task, epoch) and worth_it():
            until = None if self.is_on else until or time.monotonic() + _RUNNERS_S
            if until is not None and time.monotonic() > until:
                return
            await asyncio.sleep(LOOK_S)
