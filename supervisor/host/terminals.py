"""What the kernel knows of a terminal that a program reads: who has it, and what nobody has read yet. Looking changes nothing."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.host import procfs


@dataclass(frozen=True, slots=True)
class Terminal:
    """One look at a terminal."""

    unread: int
    """Bytes that were typed and that no program has read; of a terminal that hands on whole lines, those of whole lines."""
    by_lines: bool
    """It hands on whole lines (canonical mode): the kernel then drops what is beyond `LINE_MAX` bytes in one of them."""
    foreground: tuple[int, ...]
    """The processes that it belongs to now (its foreground process group), by pid."""


LINE_MAX = 4095
"""Bytes of the longest line, with its end, in canonical mode (N_TTY_BUF_SIZE less one, drivers/tty/n_tty.c)."""


Groups = Mapping[int, Sequence[int]]
"""The processes of each process group, by pid."""


def groups() -> Groups:
    """Read /proc once for any number of terminals that are looked at together."""
    found: dict[int, list[int]] = {}
    for seen in procfs.table().values():
        found.setdefault(seen.group, []).append(seen.pid)
    return found


def look(path: str, pid: int, together: Groups | None = None) -> Terminal | None:
    """The terminal at `path`, which process `pid` has as its own; None when it is gone or cannot be looked at.

    `together`: `groups` as of a moment ago. Without it only the processes below `pid` are looked at, as they are now.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        (unread,) = struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, bytes(4)))
        by_lines = bool(termios.tcgetattr(handle)[3] & termios.ICANON)
    except (OSError, termios.error):
        return None
    finally:
        os.close(handle)
    return Terminal(unread, by_lines, _foreground(pid, together))


def ring(path: str) -> bool:
    """Ring the bell of a terminal of ours; False when it is none, or does not take it now."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return os.isatty(handle) and os.write(handle, b"\a") == 1
    except OSError:
        return False
    finally:
        os.close(handle)


def _foreground(pid: int, together: Groups | None) -> tuple[int, ...]:
    """Field 8 of /proc/PID/stat is the group; its members are those that name it in field 5."""
    fields = _stat(pid)
    wanted = int(fields[5]) if len(fields) > 5 else -1
    if wanted < 0:
        return ()
    if together is None:
        own = (procfs.look(pid), *procfs.descendants(pid))
        together = {wanted: [seen.pid for seen in own if seen is not None and seen.group == wanted]}
    return tuple(sorted(together.get(wanted, ())))


def _stat(pid: int) -> list[bytes]:
    """Fields 3 and on: the name before them may hold anything."""
    return procfs.slurp(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def variable(pid: int, name: str) -> str:
    """An environment variable that a process was started with; empty when it has none, or cannot be looked at."""
    entries = procfs.slurp(f"/proc/{pid}/environ").split(b"\0")
    return next((os.fsdecode(entry.partition(b"=")[2]) for entry in entries if entry.startswith(name.encode() + b"=")), "")


def inner_pid(pid: int) -> int:
    """The number by which a process knows itself, in the innermost of its PID namespaces."""
    lines = procfs.slurp(f"/proc/{pid}/status").splitlines()
    found = next((line.split()[-1] for line in lines if line.startswith(b"NSpid:")), b"")
    return int(found) if found.isdigit() else pid


def start_ticks(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 when the process is gone."""
    seen = procfs.look(pid)
    return seen.ticks if seen is not None else 0


def age_s(pids: tuple[int, ...]) -> float:
    """Seconds since the oldest of these processes began; 0 when there is none."""
    began = min((ticks for ticks in map(start_ticks, pids) if ticks), default=None)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began / os.sysconf("SC_CLK_TCK") if began is not None else 0.0


def name(pid: int) -> str:
    """The kernel's name for what a process runs, at most 15 bytes."""
    return os.fsdecode(procfs.slurp(f"/proc/{pid}/comm").strip())


def claude_folder(pid: int) -> Path | None:
    """Where a Claude Code of this process keeps its files, by the environment that it was started with."""
    chosen, home = variable(pid, "CLAUDE_CONFIG_DIR"), variable(pid, "HOME")
    place = Path(chosen) if chosen else Path(home) / ".claude" if home else None
    return place if place is not None and place.is_absolute() else None
