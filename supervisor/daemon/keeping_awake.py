"""Keeps the machine awake while a night has something left to do, where it can and `night.inhibit_sleep` does not say otherwise."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.crew import Crew
from supervisor.core.requests import is_held_back
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.host.sleep_inhibitor import SleepInhibitor

AGAIN_S = 60.0
"""What keeps it awake can be refused or ended by others: then it is tried again after this."""


class KeepingAwake:
    """Of one supervisor. Belongs to the loop's thread."""

    def __init__(self, home: Home, clock: Clock, alert: Callable[[str], None], *, wanted: bool) -> None:
        self._clock = clock
        self._alert = alert
        self._wanted = wanted
        self._inhibitor = SleepInhibitor(home.root / "awake.log")
        self._holds = False
        self._again_at = 0.0

    def step(self, crew: Crew) -> None:
        """Hold or release, as the nights of now ask for."""
        run = next(filter(lambda run: _has_work(crew, run), crew.nights), None) if self._wanted else None
        try:
            if run is None:
                self.release()
            elif not self._holds and self._clock.monotonic() >= self._again_at:
                self._inhibitor.hold(f"work of the night {run} is under way")
                self._holds = True
            trouble = self._inhibitor.trouble() if self._holds else ""
        except OSError as error:
            trouble = error.strerror or str(error)
        if trouble:
            self.release()
            self._again_at = self._clock.monotonic() + AGAIN_S
            self._alert(f"the machine may fall asleep in the night: {trouble}")

    def release(self) -> None:
        """Let the machine sleep. Idempotent."""
        if self._holds:
            self._holds = False
            self._inhibitor.release()


def _has_work(crew: Crew, run: str) -> bool:
    """Whether something of a night can go on without a person."""
    return any(not is_held_back(crew.tasks[name]) for name in crew.by_night.get(run, ()))
