"""The lock of an index that a killed git left: git itself never removes one."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from supervisor.host import processes
from supervisor.host.foreign import folder

OLD_S = 60.0
"""No git of a person's that still writes an index takes so long; one that waits for an editor lives, and is seen."""


def remove(git_dir: Path, checkout: Path) -> bool:
    """Remove `index.lock` of `git_dir` where it is nobody's: older than OLD_S, open in no process, and no git at work in the checkout.
    Whether it was removed."""
    lock = git_dir / "index.lock"
    with contextlib.suppress(OSError), folder(git_dir) as here:
        before = here.look(lock.name)
        if before is None or time.time() - before.st_mtime < OLD_S or _in_use(lock, checkout):
            return False
        again = here.look(lock.name)
        if again is None or (again.st_ino, again.st_mtime_ns) != (before.st_ino, before.st_mtime_ns):
            return False  # a git has it by now
        here.remove(lock.name)
        return True
    return False


def _in_use(lock: Path, checkout: Path) -> bool:
    users = processes.occupied()
    at_work = [who.pid for place in (checkout, lock.parent) for who in users(place)]
    return bool(users(lock)) or any(Path(processes.command(pid).partition(" ")[0]).name == "git" for pid in at_work)
