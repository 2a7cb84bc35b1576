"""One supervisor a user: a lock that the kernel gives back when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from supervisor.core.errors import Refused
from supervisor.host import files, foreign, procfs

HANDOVER_S = 60.0
"""How long a new supervisor waits for the git processes of one that was killed: they are asked to end when it does."""
_LOOK_S = 0.02


class DaemonLock:
    """Hold it for as long as this object is open. When the holder dies it is free as soon as the last process that inherited `handle`
    has ended too: those are git processes at work in the same worktrees."""

    def __init__(self, path: Path) -> None:
        """Raises Refused, naming the holder's pid and the lock's path, when another supervisor runs, or its git processes do not end."""
        # The directory is locked, not the file: whoever deletes a "stale" lock file, or a cleaner of /tmp, must not let a second one in.
        self.handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        deadline = time.monotonic() + HANDOVER_S
        while not _taken(self.handle):
            pid, ticks = _written(path)
            if _lives(pid, ticks) or time.monotonic() > deadline:
                os.close(self.handle)
                raise _busy(pid, path, lives=_lives(pid, ticks))
            time.sleep(_LOOK_S)
        me = procfs.look(os.getpid())
        files.atomic_write(path, f"{os.getpid()} {me.ticks if me else 0}\n".encode())

    def close(self) -> None:
        """Let another supervisor start."""
        os.close(self.handle)


def holder(path: Path) -> int | None:
    """The pid of the running supervisor, or None. Takes nothing and waits for nothing."""
    try:
        fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pid, ticks = _written(path)
        return pid if _lives(pid, ticks) else None
    finally:
        os.close(fd)
    return None


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _written(path: Path) -> tuple[int, int]:
    """Pid and start ticks that the holder wrote; zeros while it has not yet."""
    words = (foreign.read_plain(path, 64) or b"").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 and all(word.isdigit() for word in words) else (0, 0)


def _lives(pid: int, ticks: int) -> bool:
    seen = procfs.look(pid) if pid else None
    return seen is not None and not seen.dead and seen.ticks == ticks


def _busy(pid: int, path: Path, *, lives: bool) -> Refused:
    why = f"it holds {path}" if lives else f"it is gone, but a git process of it still holds {path}"
    return Refused(
        "a supervisor is already running",
        on=f"pid {pid or 'unknown'}",
        why=why,
        kept="it and its agents",
        hint="nightcrew status, or nightcrew down",
    )
