"""Lines of a crontab that are ours: crontab(5). Pure.

Each ends with a shell comment that names it, so that a line of ours is found by its end, whatever a person changed before that, and
nothing else is ever taken out. A line holds no path of a plan or of a repository.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from supervisor.core.timetable import Timetable
from supervisor.core.unit_files import RESTART_S, Program

LINE_MAX = 990
"""Bytes of a command that every cron takes: Debian's holds 1,000."""

STARTS_MAX = 100
"""A supervisor that cannot live is not started for ever."""


def quoted(word: str) -> str:
    """A word for the shell that cron starts. cron itself makes a line break of `%`, unless a backslash is before it."""
    return shlex.quote(word).replace("%", "\\%")


def command(program: Program) -> str:
    """The program with its variables."""
    variables = [f"{name}={quoted(text)}" for name, text in program.env.items()]
    return " ".join([*variables, *map(quoted, program.argv)])


def night(table: Timetable, program: Program, lock: str, log: str, marker: str) -> str:
    """The line that starts a night. While one start holds `lock`, by flock(1), there is no second."""
    start = command(Program(("flock", "-n", lock, *program.argv), program.env))
    return f"{table.cron_fields()} {start} >>{quoted(log)} 2>&1 # {marker}"


def supervisor(program: Program, stays: Sequence[int], log: str, marker: str) -> str:
    """The line that starts the supervisor at boot, and again when it ends with a status that is not 0 and none of `stays`; at most
    STARTS_MAX times until the next boot."""
    codes = "|".join(map(str, [0, *stays]))
    once = f"{command(program)}; case $? in {codes}) break;; esac; i=$((i+1)); sleep {RESTART_S}"
    return f"@reboot (i=0; while [ $i -lt {STARTS_MAX} ]; do {once}; done) >>{quoted(log)} 2>&1 # {marker}"


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
