"""One supervisor a user: a lock that the kernel gives back when its holder dies, however it dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from supervisor.core.errors import Refused


class DaemonLock:
    """Hold it for as long as this object is open. A dead holder's lock is simply free."""

    def __init__(self, path: Path) -> None:
        """Raises Refused, naming the holder's pid and the lock's path, when another process holds it."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._fd, 32, 0).decode().strip() or "unknown"
            os.close(self._fd)
            raise Refused(
                "a supervisor is already running", on=f"pid {pid}", why=f"it holds {path}", hint="nightcrew status, or nightcrew down"
            ) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Let another supervisor start."""
        os.close(self._fd)


def holder(path: Path) -> int | None:
    """The pid of the running supervisor, or None. Takes nothing and waits for nothing."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(fd, 32, 0).decode().strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(fd)
    return None
