"""The machine that the crew works on, and what keeps tasks from starting there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import assert_never

from supervisor.host import files, processes, untrusted_fs
from supervisor.host.clock import Clock, moment
from supervisor.host.paths import Home
from supervisor.kernel.admission import Jumped, Outage, Slept, between
from supervisor.kernel.audit import Said
from supervisor.kernel.crew import Crew
from supervisor.kernel.errors import DiskFull, LedgerError, NightcrewError
from supervisor.kernel.events import Event
from supervisor.kernel.format import duration
from supervisor.kernel.spec import Settings
from supervisor.server.admission import Admission, AdmissionHistory, Emergency
from supervisor.server.attempts.jobs import Doors, Jobs
from supervisor.server.capacity import CapacityWatch
from supervisor.store.ledger import Ledger

# Outages
# -------
# Tells people that an outage began, and that it is over: once each, and in the history.


class Outages:
    """What was told last."""

    def __init__(self, ledger: Ledger, alert: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._alert = alert
        self._told = False

    def step(self, outage: Outage | None) -> None:
        """Tell what is new, given the outage that goes on."""
        if (outage is not None) is self._told:
            return
        self._told = outage is not None
        self._alert(outage.words() if outage is not None else "the outage is over, and tasks start again")
        event, data = ("outage", {"why": outage.why}) if outage is not None else ("outage over", {})
        with contextlib.suppress(DiskFull, LedgerError):  # the alert says it too
            self._ledger.journal(None, None, event, data)


# Timekeeping
# -----------
# Notices that the machine slept, that its wall clock was set and that it was restarted: each is said once, and is in the history.


_BOOT_MAX = 100
_KEPT = 100


class Timekeeping:
    """Of one supervisor. Belongs to the loop's thread."""

    def __init__(self, ledger: Ledger, clock: Clock, alert: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._clock = clock
        self._alert = alert
        self._before = moment(clock)
        self._slept: list[Slept] = []

    def step(self) -> None:
        """Look at the clocks."""
        before, self._before = self._before, moment(self._clock)
        for found in between(before, self._before):
            match found:
                case Slept(seconds, begin, end):
                    self._slept = [*self._slept[-_KEPT:], found]
                    self._say(f"the machine slept for {duration(seconds)}", "machine slept", seconds=seconds, **{"from": begin, "to": end})
                case Jumped(seconds):
                    way = "forward" if seconds > 0 else "back"
                    self._say(f"the machine's clock was set {way} by {duration(abs(seconds))}", "clock jumped", seconds=seconds)
                case _:
                    assert_never(found)

    def slept_since(self, wall: float) -> float:
        """Seconds that the machine slept after a moment of the wall clock, as far as this supervisor saw it: nobody was idle or silent in
        them. 0 for a moment that is not known (0)."""
        return sum(one.seconds for one in self._slept if one.end > wall) if wall else 0.0

    def note_boot(self, home: Home) -> None:
        """Say that the machine was restarted since a supervisor ran here last. What was running is then found lost by recovery."""
        now, before = processes.boot_id(), (untrusted_fs.read_plain(home.boot, _BOOT_MAX) or b"").decode("utf-8", "replace").strip()
        if now == before:
            return
        if before and now:
            self._say("the machine was restarted; what was running is run again", "machine rebooted", from_boot=before, to_boot=now)
        with contextlib.suppress(NightcrewError):  # a full disk: it is said once more next time
            files.atomic_write(home.boot, f"{now}\n".encode())

    def _say(self, text: str, event: str, **data: object) -> None:
        self._alert(text)
        with contextlib.suppress(DiskFull, LedgerError):  # the alert says it too
            self._ledger.journal(None, None, event, data)


# Machine
# -------


class Machine:
    """Look at the machine for the loop. Belongs to the loop's thread."""

    def __init__(self, doors: Doors, jobs: Jobs, settings: Settings, clock: Clock, alert: Callable[[Said], None]) -> None:
        self.emergency = Emergency(doors, alert)
        self.admission = Admission(doors.observer, jobs, settings, clock, alert)
        self.admission.quiet_sources.append(self.emergency.why)
        self.admission.codes[self.emergency.why] = "stopped"
        self.capacity = CapacityWatch(doors.ledger.needs, settings, clock)
        self.timekeeping = Timekeeping(doors.ledger, clock, alert)
        self._history = AdmissionHistory(doors.ledger, self.admission)
        self._outages = Outages(doors.ledger, alert)

    def look(self, crew: Crew) -> Iterable[Event]:
        """Return what is new of what may start."""
        return [*self.admission.step(crew), *self.capacity.step(crew)]

    def note(self, crew: Crew) -> None:
        """Write down and tell what is new, after a decision."""
        self._history.step(crew)
        self.timekeeping.step()
        self._outages.step(crew.health.outage)
