"""What a person is not there for, looked after at each step: outages, sleeps and restarts of the machine, a wall clock that was set, and in
a night what asks for a person and what keeps the machine awake."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.crew import Crew
from supervisor.core.events import Event
from supervisor.core.spec import Settings
from supervisor.daemon.jobs import Doors
from supervisor.daemon.keeping_awake import KeepingAwake
from supervisor.daemon.outages import Outages
from supervisor.daemon.setting_aside import SettingAside
from supervisor.daemon.timekeeping import Timekeeping
from supervisor.host.clock import Clock


class Incidents:
    """Of one supervisor. Belongs to the loop's thread."""

    def __init__(self, doors: Doors, clock: Clock, settings: Settings, tell: Callable[[Event], None], alert: Callable[[str], None]) -> None:
        self.timekeeping = Timekeeping(doors.ledger, clock, alert)
        self.setting_aside = SettingAside(doors.ledger, clock, tell, settings.night.ask_max)
        self._awake = KeepingAwake(doors.home, clock, alert, wanted=settings.night.inhibit_sleep)
        self._outages = Outages(doors.ledger, alert)
        self._home = doors.home

    def begin(self) -> None:
        """Before anything is recovered."""
        self.timekeeping.note_boot(self._home)

    def step(self, crew: Crew) -> None:
        """After each step of the loop."""
        self.timekeeping.step()
        self._outages.step(crew.health.outage)
        self.setting_aside.step(crew)
        self._awake.step(crew)

    def end(self) -> None:
        """The supervisor leaves."""
        self._awake.release()
