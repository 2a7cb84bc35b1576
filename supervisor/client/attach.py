"""For the person at the keyboard: sessions and shells where an agent works."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.runner.loop import Spec
from agents.tmux import Tmux
from agents.tmux_control import PaneView
from supervisor.client.start import SESSION
from supervisor.host import untrusted_fs
from supervisor.host.paths import Home
from supervisor.kernel.errors import NotFound, NotRunning, Refused, UsageError
from supervisor.kernel.names import attempt_name
from supervisor.kernel.states import TaskState
from supervisor.sandbox import executors
from supervisor.server import lock
from supervisor.server.attempts import isolation
from supervisor.store.queries import TaskView
from worktrees.backends import UserOverlay

# Sessions
# --------
# For the person at the keyboard: attaching to panes. Runs in the process of the command.


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


# Shell
# -----
# A shell for a person where an attempt works: its worktree, its repository, its environment, its sandbox. Runs in the process of
# the command.


_ORDERS_MAX = 2**22


def run(home: Home, view: TaskView, words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run `words`, or the person's shell, as the newest attempt of a task sees the machine. Returns its exit code.

    It gets a sandbox of its own by the attempt's policy: the same files and network, but its own processes and /dev. Raises NotFound when
    the attempt has no orders or its worktree is gone, Refused when its files can be seen by its agent alone.
    """
    directory = home.attempt(view.id, view.epoch)
    orders = untrusted_fs.read_plain(directory / "launch.spec", _ORDERS_MAX) if view.epoch else None
    if orders is None or view.worktree is None or not Path(view.worktree).is_dir():
        why = "its worktree was removed" if view.worktree else "it has not started yet"
        raise NotFound("no place to open a shell in for", on=view.id, why=why, hint=f"nightcrew status {view.id}")
    if view.backend == UserOverlay.name and view.state is TaskState.RUNNING:
        why = "while it runs its files are mounted in its own namespace only"
        raise Refused("cannot open a second view of its files", on=view.id, why=why, kept="it runs on", hint=f"nightcrew attach {view.id}")
    spec = Spec(orders)
    command = [*_sandbox(spec, directory), *(words or (environ.get("SHELL") or "/bin/sh",))]
    own = {os.fsencode(name): os.fsencode(environ[name]) for name in ("TERM", "COLORTERM", "LANG") if name in environ}
    return subprocess.run(command, cwd=spec.cwd, env={**spec.env, **own}, check=False).returncode


def _sandbox(spec: Spec, directory: Path) -> tuple[str, ...]:
    """What runs a command as the agent was run; a forked one got its policy in a file."""
    if not spec.policy:
        return tuple(map(os.fsdecode, spec.wrap))
    words = untrusted_fs.read_plain(directory / isolation.POLICY, _ORDERS_MAX) or b""
    return executors.enter([os.fsdecode(word) for word in words.split(b"\0") if word])
