"""The text of systemd user units: systemd.unit(5), systemd.service(5), systemd.timer(5). Pure.

A value that comes from a path is quoted: `%` begins a specifier in a unit file, `"` and a backslash are special in quotes, and a line
break is an escape. Variables are not looked for: each ExecStart begins with `:`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.core.timetable import Timetable

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


def quoted(word: str) -> str:
    """One word of an ExecStart or Environment line."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text) + '"'


def _exec(argv: Sequence[str]) -> str:
    words = argv if not _UNSAFE.search(argv[0]) else (*_VIA_SHELL, *argv)
    return ":" + " ".join(map(quoted, words))


def _service(marker: str, title: str, program: Program, rest: Mapping[str, str], install: str = "", unit: Sequence[str] = ()) -> str:
    lines = [f"# {marker}", "[Unit]", f"Description={title}", *unit, "", "[Service]", "Type=exec", f"ExecStart={_exec(program.argv)}"]
    lines += [f"Environment={quoted(f'{name}={text}')}" for name, text in program.env.items()]
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
