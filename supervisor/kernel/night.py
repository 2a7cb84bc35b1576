"""The terms of a night, when a night starts by itself, and the window of the day in which batch tasks start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from supervisor.kernel.states import BatchTime

# Window
# ------
# The window of the day in which batch tasks start.


@dataclass(frozen=True, slots=True)
class Window:
    """From one minute of the day to another, over midnight when the end is the earlier one. By the clock on the wall: on the day on which
    it is set back, the window may be open for an hour longer or twice; see `batch_time` for the day on which it is set forward."""

    begin: int
    """Minutes after midnight."""
    end: int

    def holds(self, minute: int) -> bool:
        """Whether that minute of the day lies in it; the end does not."""
        if self.begin < self.end:
            return self.begin <= minute < self.end
        return minute >= self.begin or minute < self.end

    def __str__(self) -> str:
        return f"{self.begin // 60:02}:{self.begin % 60:02}-{self.end // 60:02}:{self.end % 60:02}"


def batch_time(window: Window | None, minutes: Iterable[int], *, when_idle: bool) -> BatchTime:
    """Whether batch tasks may start: in the window, and outside of it, or without one, when idle if that is asked. `minutes` of the day:
    the one that the clock shows, and for an hour after it was set forward also the one that it would show, so that a window which it
    leaps over opens all the same."""
    if window is not None and any(map(window.holds, minutes)):
        return BatchTime.ALWAYS
    if when_idle:
        return BatchTime.IDLE
    return BatchTime.ALWAYS if window is None else BatchTime.NEVER


def why_batch_waits(window: Window | None, now: BatchTime) -> str:
    """Why a batch task does not start, in a person's words; empty when the time is not the reason."""
    match now:
        case BatchTime.ALWAYS:
            return ""
        case BatchTime.IDLE:
            return "waits until no other task runs or waits" + (f", or for {window}" if window else "")
        case BatchTime.NEVER:
            return f"waits for {window}"


# Night
# -----
# A night: a run with terms. Until when tasks start, how long those that run may take after that, and what all of it may cost.
#
# Pure: every moment is seconds since 1970, every amount US dollars.


class OnCap(StrEnum):
    """What becomes of the tasks that run when the cap is reached."""

    DRAIN = "drain"
    """They go on, while each request fits below it."""
    STOP = "stop"
    """They are stopped."""


class NightState(StrEnum):
    """How far a night has come; it never goes back."""

    OPEN = "open"
    CLOSING = "closing"
    """Nothing starts any more; what runs goes on."""
    OVER = "over"
    """What runs is being stopped."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class NightTerms:
    """Within what a night stays."""

    until: float = 0.0
    """No task starts from then on; 0: no such time."""
    grace_s: float = 600.0
    """How long those that run then may still take."""
    cost_max: float = 0.0
    """What all its requests may cost together; 0: no cap of its own."""
    parallel: int = 0
    """Of its agents so many live at once; 0: as many as there are slots."""
    on_cap: OnCap = OnCap.DRAIN


@dataclass(frozen=True, slots=True)
class NightOrder:
    """What is handed over with the run that is to be a night."""

    terms: NightTerms
    plan: str = ""
    """Path of the plan's file, for people."""
    plan_hash: str = ""
    """SHA-256 of its bytes."""
    timer: str = ""
    """The timer that asked for it; empty: a person did."""


@dataclass(frozen=True, slots=True)
class NightDefaults:
    """`[night]` of config.toml: the terms of a night that does not say them itself, and what holds in every night."""

    until: str = ""
    """As it is written, since it means the next such time when a night begins."""
    grace_s: float = 600.0
    cost_max: float = 0.0
    parallel: int = 0
    on_cap: OnCap = OnCap.DRAIN
    inhibit_sleep: bool = True
    """While a night goes on the machine is asked not to sleep."""
    ask_max: int = 3
    """How often an agent that needs a person is asked about again."""
    quiet_hours: Window | None = None
    """When nothing but what is urgent is told."""


CENT = 1e-9
"""Dollars: what float sums may be off."""


@dataclass(frozen=True, slots=True)
class NightSpent:
    """What the requests of a night have cost, as the gateway says."""

    usd: float = 0.0
    """Of those that have ended."""
    reserved: float = 0.0
    """The most that those under way can cost."""
    refused: bool = False
    """One could not be sent, because it did not fit below the cap any more."""
    tasks: Mapping[str, float] = field(default_factory=dict)
    """Of tasks that have asked: what they cost, with the most that theirs under way can cost."""


@dataclass(frozen=True, slots=True)
class Night:
    """A night that has not ended."""

    run: str
    terms: NightTerms
    state: NightState = NightState.OPEN
    why: str = ""
    """Why nothing starts any more; empty while it is open."""
    until_words: str = ""
    """`until` as the local clock shows it."""
    spent: NightSpent = field(default_factory=NightSpent)
    unheard: float = 0.0
    """Dollars that attempts which ended since the gateway said `spent` are expected to have cost beyond it."""

    def left(self) -> float:
        """Dollars that no request has spent; only with a cap."""
        return self.terms.cost_max - self.spent.usd

    @property
    def stops_by_cap(self) -> bool:
        """Whether its cap is reached and stops what runs."""
        return self.why == CAP_REACHED and self.terms.on_cap is OnCap.STOP

    def is_over(self, wall: float) -> bool:
        """Whether what runs is to be stopped, of one that starts nothing any more."""
        return self.stops_by_cap or bool(self.terms.until and wall >= self.terms.until + self.terms.grace_s)


CAP_REACHED = "the night's cost_max was reached"
"""`Night.why` of one that closed for its cap."""


# Timetable
# ---------
# When a night starts by itself: a time of day on some days of the week, as systemd and cron write it, and when a start comes too
# late. Every moment is local time without a zone, as a clock on the wall shows it. So a time that the clocks skip, or show twice, is
# one time, and its date names the night.


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
EVERY_DAY = tuple(range(7))
_LONG = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
LATE_H = 6
"""Without a deadline a start is made up for when it is at most this late, such as after a boot or a sleep."""


@dataclass(frozen=True, slots=True)
class Timetable:
    """A time of day, and the days of the week on which it counts."""

    minute: int
    """After midnight."""
    days: tuple[int, ...] = EVERY_DAY
    """0 is Monday; in order, none twice, at least one."""

    @property
    def time(self) -> str:
        """`22:30`."""
        return f"{self.minute // 60:02}:{self.minute % 60:02}"

    @property
    def words(self) -> str:
        """For people: `22:30 every day`, `22:30 on mon, tue`."""
        when = "every day" if self.days == EVERY_DAY else f"on {', '.join(DAYS[day] for day in self.days)}"
        return f"{self.time} {when}"

    def cron_fields(self) -> str:
        """The five fields of crontab(5); there Sunday is 0."""
        days = "*" if self.days == EVERY_DAY else ",".join(str((day + 1) % 7) for day in self.days)
        return f"{self.minute % 60} {self.minute // 60} * * {days}"

    def on_calendar(self) -> str:
        """The calendar event of systemd.time(7)."""
        days = "" if self.days == EVERY_DAY else f"{','.join(DAYS[day].capitalize() for day in self.days)} "
        return f"{days}*-*-* {self.time}:00"

    def newest(self, now: datetime) -> datetime:
        """The last such moment until `now`."""
        at = now.replace(hour=self.minute // 60, minute=self.minute % 60, second=0, microsecond=0)
        while at > now or at.weekday() not in self.days:
            at -= timedelta(days=1)
        return at

    def next(self, now: datetime) -> datetime:
        """The first such moment after `now`."""
        at = self.newest(now) + timedelta(days=1)
        while at.weekday() not in self.days:
            at += timedelta(days=1)
        return at


def parse_time(text: str) -> int:
    """Minutes after midnight of `22:30`. Raises ValueError."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError('give a time of day, such as "22:30"')
    return int(found[1]) * 60 + int(found[2])


def parse_days(text: str) -> tuple[int, ...]:
    """The days of `mon-fri,sun`; a range may go over the end of the week. Raises ValueError."""
    found: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        begin, end = _day(first), _day(last if dash else first)
        found |= {day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)}
    return tuple(sorted(found))


def _day(word: str) -> int:
    if word not in (*DAYS, *_LONG):
        raise ValueError(f'give days such as "mon-fri" or "mon,wed,sun"; {word!r} is none')
    return DAYS.index(word[:3])


def too_late(due: datetime, now: datetime, until: datetime | None) -> str:
    """Why a start that was `due` is not made up for at `now`, in words; empty: it is. `until`: the night's deadline, when it has one."""
    if until is not None and now >= until:
        return f"the start of {due:%Y-%m-%d %H:%M} was missed, and that night ended at {until:%H:%M}"
    if until is None and now - due > timedelta(hours=LATE_H):
        return f"the start of {due:%Y-%m-%d %H:%M} was missed by more than {LATE_H} hours"
    return ""
