"""Importing once what every fork will have, and refusing what a fork cannot have: another thread."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import site
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from agents.runner import warm as warm_programs
from supervisor.core.errors import Refused
from supervisor.host.procfs import slurp


def warm(modules: Sequence[str], path: Sequence[str]) -> None:
    """Import `modules`, looking into the directories `path` before our own packages.

    Raises Refused, naming the module that cannot be imported or that started a thread: a fork would have its locks but not the thread.
    """
    gc.disable()
    _put_first(path)
    for name in modules:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:
            raise Refused("cannot be preloaded", on=name, why=f"{type(error).__name__}: {error}", hint="leave it out of preload") from error
        if (count := threads()) != 1:
            hint = "leave it out of preload; OPENBLAS_NUM_THREADS=1 and the like keep some libraries single-threaded"
            raise Refused("cannot be preloaded", on=name, why=f"importing it started {count - 1} more thread(s)", hint=hint)


def freeze() -> None:
    """Collect, then take everything that lives out of the collector's sight, so that it writes into no page that forks share."""
    warm_programs.prepare()
    gc.collect()
    gc.freeze()
    gc.enable()


def threads() -> int:
    """Threads of this process, those that Python does not know too where the system tells."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


def resident() -> int:
    """Bytes of this process in memory."""
    pages = slurp("/proc/self/statm").split()
    if pages:
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, which has no /proc


def _put_first(packages: Sequence[str]) -> None:
    """Another environment's packages, and what its `.pth` files name, go between the standard library and our own packages."""
    ours = list(sys.path)
    at = next((at for at, entry in enumerate(ours) if Path(entry).name in ("site-packages", "dist-packages")), len(ours))
    for directory in packages:
        site.addsitedir(directory)
    sys.path[:] = [*ours[:at], *sys.path[len(ours) :], *ours[at:]]
