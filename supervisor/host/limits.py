"""What one agent may use, as the kernel's resource limits, and what this host can enforce."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass

from supervisor.host import cgroups
from supervisor.kernel.limits import Means

_NAMES = {"memory_max": "AS", "file_max": "FSIZE", "open_files": "NOFILE"}
_RLIMIT_LOCKS = 10  # see supervisor.kernel.records.mark


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


def means(groups: cgroups.Support, namespace: bool) -> Means:
    """What holds the limits of an agent here. `namespace`: it will have a user namespace of its own; whether that holds the number of its
    processes is tried, which takes about 20 ms."""
    return Means(
        group_memory=groups.memory,
        group_processes=groups.processes,
        group_cpu=groups.cpu,
        namespace=namespace and not groups.processes and namespace_holds_processes(),
        rlimits=frozenset(name for name in ("AS", "CPU", "FSIZE", "NOFILE", "NPROC") if hasattr(resource, f"RLIMIT_{name}")),
    )


def namespace_holds_processes() -> bool:
    """Whether RLIMIT_NPROC, set inside a new user namespace, counts the processes in there alone, and holds them.

    Linux counts so from 5.14 on; before, it counted all processes of the user, and who is root outside is never held.
    """
    if sys.platform != "linux":
        return False
    tried = [sys.executable, "-I", "-S", "-c", _TRY_NAMESPACE]
    return (
        subprocess.run(tried, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout == b"held\n"
    )


_TRY_NAMESPACE = """
import ctypes, os, resource, signal

if ctypes.CDLL(None).unshare(0x10000000):  # CLONE_NEWUSER
    raise SystemExit("no user namespace")
resource.setrlimit(resource.RLIMIT_NPROC, (2, 2))
first = os.fork()  # fails where the user's other processes count too
if not first:
    signal.pause()
try:
    if not os.fork():
        os._exit(0)
    os.wait()
    print("not held")
except BlockingIOError:
    print("held")
finally:
    os.kill(first, signal.SIGKILL)
"""


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
