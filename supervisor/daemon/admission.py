"""Whether anything new may start, as far as this host says: looked at in every step of the loop."""

from __future__ import annotations

import time
from collections.abc import Callable

from supervisor.core.admission import ADMIT, MODEL_CODES, Decision, Held, Verdict
from supervisor.core.crew import Crew
from supervisor.core.events import AdmissionChanged, BatchTimeChanged, Event
from supervisor.core.spec import Settings
from supervisor.core.window import batch_time
from supervisor.daemon.jobs import Jobs
from supervisor.daemon.observation import Observer
from supervisor.host.clock import Clock

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
