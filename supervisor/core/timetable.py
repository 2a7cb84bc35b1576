"""When a night starts by itself: a time of day on some days of the week, as systemd and cron write it, and when a start comes too late.

Pure: every moment is local time without a zone, as a clock on the wall shows it. So a time that the clocks skip, or show twice, is one
time, and its date names the night.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

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
