"""When and how something starts by itself: timetables, systemd units, crontabs. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

# Timetable
# ---------
# When a night starts by itself: a time of day on some days of the week, as systemd and cron write it, and when a start comes too
# late.
#
# Pure: every moment is local time without a zone, as a clock on the wall shows it. So a time that the clocks skip, or show twice,
# is one time, and its date names the night.


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


# Unit files
# ----------
# The text of systemd user units: systemd.unit(5), systemd.service(5), systemd.timer(5). Pure.
#
# A value that comes from a path is quoted: `%` begins a specifier in a unit file, `"` and a backslash are special in quotes, and a
# line break is an escape. Variables are not looked for: each ExecStart begins with `:`.


RESTART_S = 5
"""Seconds until a supervisor that died is started again."""
_UNSAFE = re.compile(r'[\x00-\x1f\x7f"\'\\]')
"""What systemd takes in no path of a program (`string_is_safe` there)."""
_VIA_SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')


@dataclass(frozen=True, slots=True)
class Program:
    """What a unit or a cron line runs."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def quote_for_unit(word: str) -> str:
    """One word of an ExecStart or Environment line."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text) + '"'


def _exec(argv: Sequence[str]) -> str:
    words = argv if not _UNSAFE.search(argv[0]) else (*_VIA_SHELL, *argv)
    return ":" + " ".join(map(quote_for_unit, words))


def _service(marker: str, title: str, program: Program, rest: Mapping[str, str], install: str = "", unit: Sequence[str] = ()) -> str:
    lines = [f"# {marker}", "[Unit]", f"Description={title}", *unit, "", "[Service]", "Type=exec", f"ExecStart={_exec(program.argv)}"]
    lines += [f"Environment={quote_for_unit(f'{name}={text}')}" for name, text in program.env.items()]
    # The agents' tmux server begins in the unit's control group and outlives it: only the command itself ends with the unit.
    lines += ["KillMode=process", "OOMPolicy=continue", *(f"{key}={value}" for key, value in rest.items())]
    lines += ["", "[Install]", f"WantedBy={install}"] if install else []
    return "\n".join(lines) + "\n"


def night_service(marker: str, name: str, program: Program) -> str:
    """The unit that a night's timer starts. It hands the plan over and ends; the night itself is the supervisor's."""
    return _service(marker, f"nightcrew: the night {name}", program, {"TimeoutStopSec": "60"})


def night_timer(marker: str, name: str, table: Timetable) -> str:
    """Its timer. A start that was missed while the machine was off or asleep is made up for; the command then decides whether it is too
    late."""
    lines = [f"# {marker}", "[Unit]", f"Description=nightcrew: starts the night {name}, {table.words}", "", "[Timer]"]
    lines += [f"OnCalendar={table.on_calendar()}", "Persistent=true", "AccuracySec=1s", "", "[Install]", "WantedBy=timers.target"]
    return "\n".join(lines) + "\n"


def supervisor_service(marker: str, program: Program, stays: Sequence[int]) -> str:
    """The unit of the supervisor: at login, and again after a crash. `stays`: exit codes after which it is not started again."""
    rest = {
        "Restart": "on-failure",
        "RestartSec": str(RESTART_S),
        "RestartPreventExitStatus": " ".join(map(str, stays)),
        "TimeoutStopSec": "60",
    }
    # One that cannot live is not started for ever.
    limits = ("StartLimitIntervalSec=600", "StartLimitBurst=20")
    return _service(marker, "nightcrew: the supervisor of the crew", program, rest, "default.target", limits)


# Cron lines
# ----------
# Lines of a crontab that are ours: crontab(5). Pure.
#
# Each ends with a shell comment that names it, so that a line of ours is found by its end, whatever a person changed before that,
# and nothing else is ever taken out. A line holds no path of a plan or of a repository.


LINE_MAX = 990
"""Bytes of a command that every cron takes: Debian's holds 1,000."""

STARTS_MAX = 100
"""A supervisor that cannot live is not started for ever."""


def quote_for_cron(word: str) -> str:
    """A word for the shell that cron starts. cron itself makes a line break of `%`, unless a backslash is before it."""
    return shlex.quote(word).replace("%", "\\%")


def command(program: Program) -> str:
    """The program with its variables."""
    variables = [f"{name}={quote_for_cron(text)}" for name, text in program.env.items()]
    return " ".join([*variables, *map(quote_for_cron, program.argv)])


def night(table: Timetable, program: Program, lock: str, log: str, marker: str) -> str:
    """The line that starts a night. While one start holds `lock`, by flock(1), there is no second."""
    start = command(Program(("flock", "-n", lock, *program.argv), program.env))
    return f"{table.cron_fields()} {start} >>{quote_for_cron(log)} 2>&1 # {marker}"


def supervisor(program: Program, stays: Sequence[int], log: str, marker: str) -> str:
    """The line that starts the supervisor at boot, and again when it ends with a status that is not 0 and none of `stays`; at most
    STARTS_MAX times until the next boot."""
    codes = "|".join(map(str, [0, *stays]))
    once = f"{command(program)}; case $? in {codes}) break;; esac; i=$((i+1)); sleep {RESTART_S}"
    return f"@reboot (i=0; while [ $i -lt {STARTS_MAX} ]; do {once}; done) >>{quote_for_cron(log)} 2>&1 # {marker}"


def why_not(line: str) -> str:
    """Why cron cannot hold the line; empty when it can."""
    if "\n" in line or "\r" in line or "\0" in line:
        return "a path in it holds a line break"
    if len(line.encode("utf-8", "surrogateescape")) > LINE_MAX:
        return f"it has more than {LINE_MAX} bytes"
    return ""


def with_line(text: str, line: str, marker: str) -> str:
    """The crontab with the line of `marker` in it once, at its end; other lines stay as they are."""
    before = without(text, marker)
    return f"{before}{'' if not before or before.endswith(chr(10)) else chr(10)}{line}\n"


def without(text: str, marker: str) -> str:
    """The crontab without the lines of `marker`."""
    return "".join(line for line in _lines(text) if not is_ours(line, marker))


def found(text: str, marker: str) -> str:
    """The line of `marker`, without its end; empty when it is not there, or is commented out."""
    return next((line.strip() for line in _lines(text) if is_ours(line, marker) and not line.lstrip().startswith("#")), "")


def _lines(text: str) -> list[str]:
    """With their ends. cron knows no other end of a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def is_ours(line: str, marker: str) -> bool:
    """Whether a line ends with the marker."""
    return line.rstrip().endswith(f" # {marker}")
