"""Who keeps a flock: the kernel frees it when the last process that inherited its handle has ended, not when its taker has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.identity import Identity
from supervisor.host import processes, procfs


@dataclass(frozen=True, slots=True)
class Holder:
    """A living process with a handle by which a flock is held."""

    who: Identity
    taker: int
    """Pid of the process that took the lock; 0 when the kernel cannot say, as in a container after that process has ended."""

    @property
    def inherited(self) -> bool:
        """Whether it was handed the lock by the process that took it, which is not itself."""
        return self.who.pid != self.taker


def holders(path: Path) -> list[Holder]:
    """Every process, without this one, that holds the exclusive flock on `path`. A process that has `path` open by a handle of its own is
    not among them, and neither is one of another user unless we are root. Empty where there is no /proc."""
    try:
        place = path.stat()
    except OSError:
        return []
    return [holder for pid in procfs.table() if pid != os.getpid() for holder in _held(pid, place)]


def _held(pid: int, place: os.stat_result) -> Iterator[Holder]:
    who = processes.identity(pid)
    try:
        names = os.listdir(f"/proc/{pid}/fdinfo") if who is not None else []  # noqa: PTH208 - once a process of the machine
    except OSError:  # it ended, or is not ours to look into
        names = []
    for name in names:
        taker = _taker(procfs.slurp(f"/proc/{pid}/fdinfo/{name}"))
        if who is not None and taker is not None and _is_same(f"/proc/{pid}/fd/{name}", place):
            yield Holder(who, taker)
            return


def _taker(fdinfo: bytes) -> int | None:
    """From `lock: 1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`: 4711. None when no flock is held by this handle."""
    for line in fdinfo.splitlines():
        words = line.split()
        if words[:1] == [b"lock:"] and words[2:5] == [b"FLOCK", b"ADVISORY", b"WRITE"]:
            return int(words[5])
    return None


def _is_same(link: str, place: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(link), place)  # noqa: PTH116 - follows the handle, which no path can
    except OSError:
        return False
