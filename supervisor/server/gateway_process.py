"""The gateway's process from outside: its record, starting it, stopping it. Nothing here waits for it but `stop`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from supervisor.gateway.lifecycle import PASSED, Record, read_record
from supervisor.host import processes, untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.names import Identity

MODULE = "supervisor.gateway"
STOP_S = 12.0
"""Streams in flight get 10 s when it is asked to stop."""


def running(home: Home) -> Record | None:
    """The last gateway's record when it lives and is a gateway of this home: an agent could have written anybody's pid there."""
    found = read_record(home)
    return found if found is not None and processes.alive(found.identity) and _is_one(found.identity.pid, home) else None


def _is_one(pid: int, home: Home) -> bool:
    return processes.runs(pid, *_words(home))


def _words(home: Home) -> tuple[str, ...]:
    """What only a gateway of this home has in its command line."""
    return ("-m", MODULE, "--home", str(home.root))


def all_of(home: Home) -> list[Identity]:
    """Every gateway process of this home, also one that is not ready yet and has written no record."""
    return processes.all_running(*_words(home))


def spawn(home: Home, settings_file: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start one, in a session of its own, so that it outlives us and our terminal. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    log = os.open(home.gateway_log, flags, 0o600)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-m", MODULE, "--home", str(home.root), "--config", str(settings_file)],
            cwd=home.root,
            env={name: environ[name] for name in PASSED if name in environ},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def stop(home: Home) -> list[Identity]:
    """End the gateway, if there is one. It is asked first, and killed when it has not ended in STOP_S seconds; one that is not ready yet
    serves nobody and is killed at once. Return what was ended. Blocks."""
    found, ready = all_of(home), running(home)
    for who in found:
        processes.send(who, signal.SIGTERM if ready is not None and who == ready.identity else signal.SIGKILL)
    deadline = time.monotonic() + STOP_S
    while any(map(processes.alive, found)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for who in found:
        processes.send(who, signal.SIGKILL)
    return found


def last_words(home: Home) -> str:
    """The last line that it said; empty when it said nothing."""
    return untrusted_fs.last_line(home.gateway_log).removeprefix("nightcrew gateway: ")
