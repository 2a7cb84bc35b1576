"""Hardens the process that holds the providers' keys, so that others cannot look into it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import sys
from collections.abc import Mapping

_PR_SET_DUMPABLE = 4  # <linux/prctl.h>
PASSED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS", "NIGHTCREW_LOG_FORMAT",
    }
)  # fmt: skip
"""What the supervisor starts it with: what its sockets' place, certificates and a keyring's program depend on. No key and no proxy."""
_KEPT = PASSED | {
    "SHELL", "TZ", "LANGUAGE", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "NIGHTCREW_HOME", "NIGHTCREW_CONFIG",
    "NIGHTCREW_DIE_AT", "NIGHTCREW_TAG",
}  # fmt: skip
"""What it keeps of a person's environment who starts it."""


def clean_environment(env: Mapping[str, str]) -> dict[str, str] | None:
    """What is left of an environment when everything that the gateway has no use for is out; None when nothing is.

    Variables are dropped by starting anew: /proc shows those with which a process began, whatever it does to them later.
    """
    kept = {name: text for name, text in env.items() if name in _KEPT or name.startswith("LC_")}
    return kept if kept.keys() != env.keys() else None


def harden() -> list[str]:
    """No core files, no reading of this process's memory and environment by the user's other processes, files and sockets that only
    the user can open. Returns what could not be done, in words for the log.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # some systems refuse a limit that they themselves call the highest
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # two sockets a stream; the usual 1024 ends at 500 streams
    if not sys.platform.startswith("linux"):
        return ["other processes of this user may be able to read this process's memory: only Linux can forbid it"]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        return [f"other processes of this user may be able to read this process's memory: {os.strerror(ctypes.get_errno())}"]
    return []
