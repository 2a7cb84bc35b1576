"""The morning report is written when a night ends, by a process of its own: the loop never waits for git, and a report that fails ends
nothing. What it says goes where the supervisor's own words go."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable

from supervisor.host.paths import Home, home

WRITE_S = 120.0
"""300 tasks take 2 s; git at a slow disk takes longer."""
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "NIGHTCREW_CONFIG")


def write(run: str, where: Home | None = None, alert: Callable[[str], None] = lambda _: None) -> None:
    """Begin to write night.html, night.md and night.json of a run into its directory, and return at once. When no process can be started
    `alert` is told; whoever asks for the report later gets it all the same."""
    place = (where or home()).root
    env = {name: os.environ[name] for name in _PASSED if name in os.environ} | {"NIGHTCREW_HOME": str(place)}
    argv = [sys.executable, "-I", "-m", "supervisor.cli.main", "night", "report", run, "--no-open"]
    try:
        writer = subprocess.Popen(argv, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        alert(f"the report of {run} was not written: {error.strerror}; next: nightcrew night report {run}")
        return
    threading.Thread(target=_await, args=(writer,), name="night-report", daemon=True).start()


def _await(writer: subprocess.Popen[bytes]) -> None:
    try:
        writer.wait(WRITE_S)
    except subprocess.TimeoutExpired:
        writer.kill()
        writer.wait()
