"""One supervisor a user: a lock that the kernel gives back when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

from supervisor.host import files, processes, procfs, untrusted_fs
from supervisor.kernel.errors import Refused
from supervisor.kernel.names import Identity

ASK_S = 0.2
"""How long a new supervisor leaves the processes that a killed one handed its lock before it asks them to end, by TERM."""
END_S = 2.2
"""From then on they are ended by KILL."""
HANDOVER_S = 8.0
"""When it gives up. What still lives then is stuck in the kernel, such as a process that waits for a dead disk."""
_LOOK_S = 0.02
_SEARCH_S = 0.2


class DaemonLock:
    """Hold it for as long as this object is open. When the holder dies it is free as soon as the last process that inherited `handle`
    has ended too: those are children of ours at work in the same worktrees, such as git. The next holder ends them within seconds.

    Who inherited it is known by the lock itself: the kernel says for each handle of a process whether it holds a lock, and nobody but its
    taker and who was handed the taker's own handle holds this one. So nothing else is ever signalled, and nobody while the taker lives.
    """

    def __init__(self, path: Path) -> None:
        """Raises Refused when another supervisor runs, or a child of a killed one does not end: it names the pid and the lock's path."""
        # The directory is locked, not the file: whoever deletes a "stale" lock file, or a cleaner of /tmp, must not let a second one in.
        self.handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _take(self.handle, path)
        except BaseException:
            os.close(self.handle)
            raise
        me = procfs.look(os.getpid())
        files.atomic_write(path, f"{os.getpid()} {me.ticks if me else 0}\n".encode())

    @property
    def is_removed(self) -> bool:
        """Whether the state directory was removed. One that was moved, or cannot be read for now, still has a link."""
        with contextlib.suppress(OSError):  # of a network file system that does not answer
            return not os.fstat(self.handle).st_nlink
        return False

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


def _take(fd: int, path: Path) -> None:
    began, asked = time.monotonic(), set[Identity]()
    pause = _LOOK_S
    while not files.try_lock(fd):
        pid, ticks = _written(path)
        waited = time.monotonic() - began
        if _lives(pid, ticks):
            raise _busy(pid, f"it holds {path}")
        if waited > HANDOVER_S:
            left = ", ".join(f"{who.pid} ({processes.command(who.pid)})" for who in _heirs(path, pid))
            raise _busy(
                pid, f"it is gone, but what it started still holds {path} and does not end: {left or 'this system does not say what'}"
            )
        if waited > ASK_S:
            _end(_heirs(path, pid), asked, kill=waited > END_S)
            pause = _SEARCH_S
        time.sleep(pause)


def _heirs(path: Path, pid: int) -> list[Identity]:
    """Who inherited the lock of the dead supervisor `pid`. Empty while its taker lives: a supervisor that has not yet written its pid."""
    found = processes.holders(path.parent)
    if not all(holder.inherited and holder.taker in (0, pid) for holder in found):
        return []
    return [holder.who for holder in found]


def _end(heirs: list[Identity], asked: set[Identity], *, kill: bool) -> None:
    """Ask each once, so that a git removes its own lock files, also one that somebody stopped; or end it."""
    for who in heirs:
        if kill:
            processes.send(who, signal.SIGKILL)
        elif who not in asked:
            asked.add(who)
            processes.send(who, signal.SIGTERM)
            processes.send(who, signal.SIGCONT)


def _written(path: Path) -> tuple[int, int]:
    """Pid and start ticks that the holder wrote; zeros while it has not yet."""
    words = (untrusted_fs.read_plain(path, 64) or b"").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 and all(word.isdigit() for word in words) else (0, 0)


def _lives(pid: int, ticks: int) -> bool:
    seen = procfs.look(pid) if pid else None
    return seen is not None and not seen.dead and seen.ticks == ticks


def _busy(pid: int, why: str) -> Refused:
    hint = "nightcrew status, or nightcrew down"
    return Refused("a supervisor is already running", on=f"pid {pid or 'unknown'}", why=why, kept="it and its agents", hint=hint)
