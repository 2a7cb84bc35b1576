"""What starts a night or the supervisor by itself: units of systemd's user manager, or a line of the crontab where none answers.

Runs in the process of the command. Each entry carries a marker of ours with the state directory's tag, so that two state directories of
one user do not meet, and only what we wrote is ever removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.features.service import rules as service_rules
from supervisor.features.service.rules import Program, Timetable
from supervisor.host import autostart, files, processes, procfs
from supervisor.host.paths import Home
from supervisor.kernel import records
from supervisor.kernel.errors import NightcrewError, Refused, ToolMissing

SYSTEMD, CRON = "systemd", "cron"
STAYS = (2, 3, 6)
"""Exit codes of a supervisor that another start does not mend: no tmux, broken settings, another supervisor runs."""
SERVICE = "nightcrew-supervisor"
NO_CRON = "no cron daemon is seen to run"
START_CRON = "sudo service cron start"
_CRON_DAEMONS = frozenset({"cron", "crond", "anacron", "fcron", "bcron-start"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that starts by itself, before or after it is written."""

    by: str
    """SYSTEMD or CRON."""
    marker: str
    directory: Path
    """Of the unit files."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Text of each, by its name; empty with cron."""
    starts: str = ""
    """The unit that is enabled."""
    line: str = ""
    """Of the crontab; empty with systemd."""

    def shown(self) -> Iterator[str]:
        """All that is written, for who is asked about it."""
        if self.line:
            yield "one line of your crontab:"
            yield f"  {self.line}"
        for name, text in self.units.items():
            yield f"{self.directory / name}:"
            yield from (f"  {line}" for line in text.splitlines())


def chosen(wish: str = "") -> tuple[str, str]:
    """Which of the two is used here, and why not systemd. `wish` is one of them, or empty. Raises ToolMissing where there is none."""
    why = autostart.user_manager()
    by = wish or (CRON if why else SYSTEMD)
    if by == SYSTEMD and why:
        raise ToolMissing("no user manager of systemd answers", why=why, hint="--by cron, or log in where systemd runs")
    if by == CRON and not autostart.is_there():
        nothing = f"no user manager of systemd answers ({why}), and there is no crontab"
        raise ToolMissing("nothing starts commands here", why=nothing, hint="install cron (apt install cron)")
    return by, why


def night(home: Home, name: str, table: Timetable, by: str) -> Entry:
    """The entry that starts `nightcrew night run --installed NAME`."""
    marker = f"nightcrew night {name} {_tag(home)}"
    program = _program(home, "night", "run", "--installed", name)
    if by == CRON:
        line = service_rules.night(table, program, os.fspath(home.locks / f"night-{name}.lock"), os.fspath(night_log(home, name)), marker)
        return _of_cron(marker, line)
    unit = f"nightcrew-night-{name}-{_tag(home)}"
    texts = {
        f"{unit}.service": service_rules.night_service(marker, name, program),
        f"{unit}.timer": service_rules.night_timer(marker, name, table),
    }
    return Entry(SYSTEMD, marker, autostart.unit_directory(os.environ), texts, f"{unit}.timer")


def supervisor(home: Home, by: str) -> Entry:
    """The entry that starts `nightcrew service run`."""
    marker = f"nightcrew service {_tag(home)}"
    program = _program(home, "service", "run")
    if by == CRON:
        return _of_cron(marker, service_rules.supervisor(program, STAYS, os.fspath(home.root / "service.log"), marker))
    unit = f"{SERVICE}-{_tag(home)}.service"
    return Entry(
        SYSTEMD, marker, autostart.unit_directory(os.environ), {unit: service_rules.supervisor_service(marker, program, STAYS)}, unit
    )


def _of_cron(marker: str, line: str) -> Entry:
    if why := service_rules.why_not(line):
        raise Refused("cron cannot hold the line", why=why, kept="the crontab", hint="NIGHTCREW_HOME names a shorter, plainer path")
    return Entry(CRON, marker, Path(), line=line)


def night_log(home: Home, name: str) -> Path:
    """What a night that cron starts says."""
    return home.root / "nights" / f"{name}.log"


def _program(home: Home, *words: str) -> Program:
    return Program((sys.executable, "-I", "-m", "supervisor.cli.main", *words), {"NIGHTCREW_HOME": os.fspath(home.root)})


def _tag(home: Home) -> str:
    return records.tag(os.fspath(home.root), "", 0)[:12]


def write(home: Home, entry: Entry) -> None:
    """Put it where it starts things. Raises what the doors raise; units that could not be enabled are removed again."""
    if entry.by == CRON:
        if shutil.which("flock") is None:
            raise ToolMissing("no program", on="flock", why="it keeps a night from starting twice", hint="install util-linux")
        autostart.change(lambda text: service_rules.with_line(text, entry.line, entry.marker), _lock(home))
        return
    autostart.write(entry.directory, entry.units)
    try:
        autostart.order("daemon-reload")
        autostart.order("enable", *(["--now"] if entry.starts.endswith(".timer") else []), entry.starts)
    except NightcrewError:
        remove(home, entry)
        raise


def remove(home: Home, entry: Entry) -> bool:
    """Take it away, and nothing else. Whether there was something."""
    if entry.by == CRON:
        before = autostart.read()
        return autostart.change(lambda text: service_rules.without(text, entry.marker), _lock(home)) != before
    autostart.refuse_strange(entry.directory, entry.units)
    with contextlib.suppress(NightcrewError):  # a unit that is not loaded, or a manager that is gone: its file goes all the same
        autostart.order("disable", *(["--now"] if entry.starts.endswith(".timer") else []), entry.starts)
    gone = autostart.remove(entry.directory, entry.units)
    with contextlib.suppress(NightcrewError):
        autostart.order("daemon-reload")
    return bool(gone)


def wrong(entry: Entry) -> str:
    """What is wrong with an entry that was written, in words; empty: it is as it was written, and somebody looks at it."""
    if entry.by == CRON:
        line = service_rules.found(autostart.read(), entry.marker)
        if not line:
            return "its line is not in the crontab"
        return NO_CRON if not cron_runs() else "" if line == entry.line else "its line in the crontab was changed"
    for name, text in entry.units.items():
        try:
            if (entry.directory / name).read_bytes() != text.encode("utf-8", "surrogateescape"):
                return f"{name} was changed"
        except OSError:
            return f"{entry.directory / name} is gone"
    if entry.starts.endswith(".timer") and (state := autostart.is_active(entry.starts)) != "active":
        return f"{entry.starts} is {state}"
    return ""


def cron_runs() -> bool:
    """Whether a cron daemon is seen: a process of such a name."""
    return any(Path((processes.command(pid).split() or [""])[0]).name in _CRON_DAEMONS for pid in procfs.table())


def _lock(home: Home) -> Path:
    return files.private_dir(home.locks) / "crontab.lock"


def remarks(by: str, why_no_systemd: str) -> Iterator[str]:
    """What a person should know before it is written, a line each."""
    if by == CRON:
        if why_no_systemd:
            yield f"no user manager of systemd answers ({why_no_systemd}), so cron starts it"
        yield "cron makes up for nothing: a start while the machine is off or asleep is missed"
        if not cron_runs():
            yield "no cron daemon is seen to run: until one does, nothing starts"
    elif not autostart.lingers():
        yield "systemd starts it only while you are logged in; for all nights: loginctl enable-linger"
