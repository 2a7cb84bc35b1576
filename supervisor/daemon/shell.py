"""A shell for a person where an attempt works: its worktree, its repository, its environment, its sandbox. Runs in the process of the
command."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.runner.records import Spec
from supervisor.core.errors import NotFound, Refused
from supervisor.core.states import TaskState
from supervisor.daemon import isolation
from supervisor.host import foreign
from supervisor.host.paths import Home
from supervisor.host.sandbox import executors
from supervisor.ledger.queries import TaskView
from worktrees.backends.overlay import UserOverlay

_ORDERS_MAX = 2**22


def run(home: Home, view: TaskView, words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run `words`, or the person's shell, as the newest attempt of a task sees the machine. Returns its exit code.

    It gets a sandbox of its own by the attempt's policy: the same files and network, but its own processes and /dev. Raises NotFound when
    the attempt has no orders or its worktree is gone, Refused when its files can be seen by its agent alone.
    """
    directory = home.attempt(view.id, view.epoch)
    orders = foreign.read_plain(directory / "launch.spec", _ORDERS_MAX) if view.epoch else None
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
    words = foreign.read_plain(directory / isolation.POLICY, _ORDERS_MAX) or b""
    return executors.enter([os.fsdecode(word) for word in words.split(b"\0") if word])
