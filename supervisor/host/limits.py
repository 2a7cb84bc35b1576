"""What one agent may use, as the kernel's resource limits, and what this host can enforce."""

from __future__ import annotations

import os
import resource
import sys
from dataclasses import dataclass

from supervisor.core.spec import Settings

_NAMES = {"memory_max": "AS", "file_max": "FSIZE", "open_files": "NOFILE"}
_RLIMIT_LOCKS = 10  # see supervisor.core.records.mark


def rlimits(settings: Settings) -> tuple[tuple[str, int], ...]:
    """`LaunchSpec.rlimits` of an agent: for each process alone, except that nothing limits their number (the kernel counts a user's
    processes all together). A setting of 0 leaves that limit as it is. Core dumps are off in any case, the runner sees to it."""
    chosen = ((name, getattr(settings, key)) for key, name in _NAMES.items())
    return tuple((name, value) for name, value in chosen if value)


@dataclass(frozen=True, slots=True)
class Support:
    """What holds on this host, found by asking the kernel and not by its version."""

    limits: frozenset[str]
    """Names of settings whose limit exists here."""
    mark: bool
    """The inherited mark can be set, so daemons that shed the environment tag are found after the runner was killed."""
    affinity: bool
    """Agents can be kept on a set of cores."""
    pidfd: bool
    """A signal cannot reach a later owner of a pid."""


def probe() -> Support:
    """Ask this host. Changes nothing."""
    return Support(
        limits=frozenset(key for key, name in _NAMES.items() if hasattr(resource, f"RLIMIT_{name}")),
        mark=_can_mark(),
        affinity=hasattr(os, "sched_setaffinity"),
        pidfd=_has_pidfd(),
    )


def shortfalls(support: Support) -> list[str]:
    """What this host cannot do for us, one sentence each, for a person to see when the supervisor starts."""
    found = [f"this system cannot enforce {name}" for name in sorted(_NAMES.keys() - support.limits)]
    if not support.mark:
        found.append("daemons that shed their environment are not found after a kill -9 of their runner: no inherited mark here")
    if not support.affinity:
        found.append("agents cannot be kept on a set of cores here")
    if not support.pidfd:
        found.append("signals go by pid and not by pidfd here")
    return found


def _can_mark() -> bool:
    if sys.platform != "linux":
        return False
    return os.geteuid() == 0 or resource.getrlimit(_RLIMIT_LOCKS)[1] == resource.RLIM_INFINITY


def _has_pidfd() -> bool:
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True
