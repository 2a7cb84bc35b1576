"""The machine that the crew works on, and what keeps tasks from starting there."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import assert_never

from supervisor.host import files, processes, untrusted_fs
from supervisor.host.clock import Clock, moment
from supervisor.host.paths import Home
from supervisor.kernel.audit import Said
from supervisor.kernel.crew import Crew
from supervisor.kernel.errors import DiskFull, LedgerError, NightcrewError, Refused
from supervisor.kernel.events import AdmissionChanged, BatchTimeChanged, EmergencyChanged, Event
from supervisor.kernel.format import duration
from supervisor.kernel.night import batch_time
from supervisor.kernel.pressure import ADMIT, MODEL_CODES, Decision, Held, Jumped, Outage, Slept, Verdict, between
from supervisor.kernel.settings import Settings
from supervisor.kernel.states import BatchTime
from supervisor.server.attempts.jobs import Doors, Jobs
from supervisor.server.attempts.observe import Observer
from supervisor.server.capacity import CapacityWatch
from supervisor.store.ledger import Ledger

# Admission
# ---------
# Whether anything new may start, as far as this host says; the emergency stop.


# Admission
# ---------
# Whether anything new may start, as far as this host says: looked at in every step of the loop.


HOUR_S, DAY = 3600.0, 24 * 60


class Admission:
    """Belongs to the loop's thread. `sources` say why nothing new may start, in a person's words, or nothing; the first word counts."""

    def __init__(self, observer: Observer, jobs: Jobs, settings: Settings, clock: Clock, alert: Callable[[str], None]) -> None:
        self._observer = observer
        self._jobs = jobs
        self._settings = settings
        self._clock = clock
        self._alert = alert
        self.sources: list[Callable[[], str]] = [self._no_disk, self._no_tmux]
        self.quiet_sources: list[Callable[[], str]] = []
        """Those that have told a person already."""
        self.codes: dict[Callable[[], str], str] = {self._no_disk: "disk", self._no_tmux: "tmux"}
        """The verdict's code when a source is the reason; `closed` for one that has none."""
        self.verdict = ADMIT
        """Of the whole crew, as of the last step."""

    def step(self, crew: Crew) -> list[Event]:
        """What changed for the crew."""
        return [*self._of_sources(crew), *self._of_clock(crew)]

    def _of_sources(self, crew: Crew) -> list[Event]:
        self.verdict = next(filter(None, map(self._judge, (*self.sources, *self.quiet_sources))), ADMIT)
        admitting = self.verdict is ADMIT
        if admitting == crew.admitting:
            return []
        if why_not := next(filter(None, (source() for source in self.sources)), ""):
            self._alert(f"nothing new starts: {why_not}; running agents go on")
        return [AdmissionChanged(admitting)]

    def _judge(self, source: Callable[[], str]) -> Verdict | None:
        why_not = source()
        if not why_not:
            return None
        code = self.codes.get(source, "closed")
        since = self.verdict.since if self.verdict.code == code else self._clock.wall()
        return Verdict(Decision.DEFER, code, f"nothing new starts: {why_not}", since)

    def _of_clock(self, crew: Crew) -> list[Event]:
        minutes = minutes_of_day(self._clock.wall())
        now = batch_time(self._settings.batch_window, minutes, when_idle=self._settings.batch_when_idle)
        return [] if now is crew.batch_time else [BatchTimeChanged(now)]

    def _no_disk(self) -> str:
        try:
            enough = self._observer.disk_free() >= self._settings.disk_free_min
        except OSError as error:
            return f"the state directory cannot be looked at: {error}"
        return "" if enough else "less free disk than disk_free_min"

    def _no_tmux(self) -> str:
        """Each start would be one more loss that is nobody's fault."""
        return "tmux did not answer; it is asked again every second" if self._jobs.doubtful else ""


def minutes_of_day(wall: float) -> list[int]:
    """Of this machine's time zone: what the clock shows, and in the hour after it was set forward also what it would show."""
    now, before = time.localtime(wall), time.localtime(wall - HOUR_S)
    minute, forward = now.tm_hour * 60 + now.tm_min, (now.tm_gmtoff - before.tm_gmtoff) // 60
    return [minute, (minute - forward) % DAY] if forward > 0 else [minute]


def why_held(held: Held) -> str:
    """What a person is told of the classes that are held back."""
    if all(verdict.code in MODEL_CODES for verdict in held.values()):
        return f"{' and '.join(sorted(held))} tasks wait until the models are less busy: nightcrew gateway status"
    return f"{' and '.join(sorted(held))} tasks wait until the machine is less busy: nightcrew capacity"


# Admission history
# -----------------
# Keeps in the ledger's history when starting became allowed or forbidden, for whom and why.


_Known = tuple[bool, tuple[tuple[str, str], ...], str]
_OPEN: _Known = (True, (), str(BatchTime.ALWAYS))


class AdmissionHistory:
    """Belongs to the loop's thread."""

    def __init__(self, ledger: Ledger, admission: Admission) -> None:
        self._ledger = ledger
        self._admission = admission
        self._kept = _OPEN

    def step(self, crew: Crew) -> None:
        """Journal what is not as it was last journalled. What a full disk keeps from that is kept by the next step."""
        now: _Known = crew.admitting, tuple(sorted((str(name), held.code) for name, held in crew.held_back.items())), str(crew.batch_time)
        if now == self._kept:
            return
        verdict: Verdict = next(iter(crew.held_back.values()), ADMIT) if now[0] else self._admission.verdict
        data = {"admitting": now[0], "held_back": dict(now[1]), "batch": now[2], "code": verdict.code, "why": verdict.words}
        with contextlib.suppress(DiskFull, LedgerError):
            self._ledger.journal(None, None, "admission", data)
            self._kept = now


# Emergency
# ---------
# The emergency stop, as the supervisor honours it. The sentinel file is all of it: it holds over restarts, whoever wrote it.
#
# Runners stop their agents and let them go (`agents/runner/loop.py`), the gateway serves nobody meanwhile, and here nothing
# starts, nothing is let go on, and no deadline ends what cannot move.


RUNNERS = "stopped"
"""In an attempt's directory: its runner holds its tree (see `agents/runner/loop.py`)."""
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
