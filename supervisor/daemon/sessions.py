"""For the person at the keyboard: attaching to panes. Runs in the process of the command."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from agents.tmux import PaneView, Tmux
from supervisor.core.errors import NotFound, NotRunning, UsageError
from supervisor.core.records import attempt_name
from supervisor.daemon import lock
from supervisor.daemon.start import SESSION
from supervisor.host.paths import Home


def attach(home: Home, task: str, epoch: int) -> int:
    """Show the attempt's pane until the person detaches or it ends. Returns tmux's exit code. Raises NotFound when it has no session."""
    wanted = attempt_name(task, epoch)
    with contextlib.closing(Tmux(home.tmux_socket)) as tmux:
        session = next((pane.session_id for pane in _panes(tmux) if pane.tags.get("attempt") == wanted), None)
        if session is None:
            raise NotFound("no session of", on=wanted, why="it has not started yet, or just ended", hint=f"nightcrew logs {task}")
        argv = tmux.attach_argv(session, os.environ)
    return _show(argv)


def attach_supervisor(home: Home) -> int:
    """Show the supervisor's own pane."""
    with contextlib.closing(Tmux(home.tmux_socket)) as tmux:
        session = next((pane.session_id for pane in _panes(tmux) if pane.tags.get("own") == SESSION and not pane.closed), None)
        if session is None:
            pid = lock.holder(home.lock)
            if pid is not None:
                raise NotFound(
                    "no pane of the supervisor",
                    on=f"pid {pid}",
                    why="it runs in another terminal or as a service, or its tmux server died",
                    hint="nightcrew status --watch",
                )
            raise NotRunning("no supervisor is running", hint="nightcrew up -d")
        argv = tmux.attach_argv(session, os.environ)
    return _show(argv)


def _panes(tmux: Tmux) -> list[PaneView]:
    return tmux.panes() if tmux.server_pid() is not None else []


def _show(argv: list[str]) -> int:
    if not sys.stdin.isatty():
        raise UsageError("attach needs a terminal", why="stdin is not one", hint="nightcrew logs -f NAME")
    return subprocess.run(argv, check=False).returncode
