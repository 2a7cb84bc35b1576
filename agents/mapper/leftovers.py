"""What an item started and left behind: none of it lives on beside a later item, whatever session or process group it went to.

On Linux orphans come to the process that called `watch`, so nothing below it can get away from it. Elsewhere only the item's own process
group is ended, by who started it, and the rest with the worker.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from agents.runner.child import adopt_orphans
from supervisor.core.errors import ToolFailed
from supervisor.host import procfs
from supervisor.host.procfs import Seen

PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class _Watch:
    pid: int
    """Who watches: a fork of it does not."""
    before: frozenset[tuple[int, int]]
    """Keys of what lived below it when it began, such as what the module of a function started."""


_watch = _Watch(0, frozenset())


def watch() -> None:
    """From now on `end` of this very process finds whatever is started below it."""
    global _watch
    adopt_orphans()
    _watch = _Watch(os.getpid(), frozenset(seen.key for seen in procfs.descendants(os.getpid())))


def end() -> None:
    """Kill and reap whatever was started below this process since `watch`; nothing when that was not called. No child whose exit code
    somebody wants may be there. Costs one system call when there is none. Raises ToolFailed when something cannot be ended in about 2 s."""
    if _watch.pid != os.getpid() or not procfs.has_proc() or not _reap():
        return
    halted = procfs.halt(_living, lambda seconds: time.sleep(min(seconds, PAUSE_S)), time.monotonic, 0.0)
    if halted.survivors or _living():
        pids = ", ".join(str(seen.pid) for seen in _living()[:5])
        raise ToolFailed("what an item started cannot be ended", on=f"pid {pids}")


def _living() -> list[Seen]:
    """While the kernel says that there is a child, an empty look may have been a race with an exit: then everything is read."""
    if not _reap():
        return []
    return _since(procfs.descendants(os.getpid())) or _since(list(procfs.below([os.getpid()], procfs.table()).values()))


def _since(found: list[Seen]) -> list[Seen]:
    return [seen for seen in found if not seen.dead and seen.key not in _watch.before]


def _reap() -> bool:
    """Collect every child that ended; False when there is none left, not even a running one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True
