"""Running the commands that prepare and verify a snapshot: one after the other, logged, and nothing of them left behind."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from supervisor.core import identity
from supervisor.core.environment import for_agent
from supervisor.core.errors import NightcrewError, TimedOut, ToolFailed
from supervisor.host import foreign, processes

SETUP_S = 3600.0
"""For all the commands of one snapshot: an hour is longer than any set-up that somebody waits for."""
_LOOK_S = 0.1
_GRACE_S = 2.0
_LAST_WORDS = 2000


@dataclass(frozen=True, slots=True)
class Bench:
    """Where set-up commands work."""

    tree: Path
    log: Path
    """Everything that they print; begun anew by `run`."""
    tmp: Path
    """A directory of theirs."""
    env: Mapping[str, str]
    """Allow-listed already."""
    tag: str
    """Carried by all that they start."""


def run(bench: Bench, steps: Sequence[tuple[str, Sequence[str]]], stop: threading.Event) -> None:
    """Run every command of `steps` (what it is for, the commands) by `/bin/sh -c` in the tree.

    Raises ToolFailed for the first that does not end well, TimedOut after `SETUP_S`, NightcrewError when `stop` is set. Whatever the
    commands started is ended first.
    """
    deadline = time.monotonic() + SETUP_S
    with bench.log.open("wb", buffering=0) as log:
        bench.log.chmod(0o600)
        for purpose, commands in steps:
            for command in commands:
                log.write(f"$ {command}\n".encode("utf-8", "backslashreplace"))
                _one(bench, purpose, command, log, _Until(deadline, stop))


@dataclass(frozen=True, slots=True)
class _Until:
    deadline: float
    stop: threading.Event


def _one(bench: Bench, purpose: str, command: str, log: IO[bytes], until: _Until) -> None:
    env = dict(for_agent(bench.env, {}, {"TMPDIR": str(bench.tmp), identity.TAG_VARIABLE: bench.tag}))
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], cwd=bench.tree, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    try:
        while process.poll() is None:
            if until.stop.wait(_LOOK_S):
                raise NightcrewError(f"{purpose} was cut off", on=command, why="the supervisor is leaving", kept="nothing of it")
            if time.monotonic() > until.deadline:
                raise TimedOut(f"{purpose} did not end", on=command, why=f"it took more than {SETUP_S / 60:.0f} min", kept="nothing of it")
    finally:
        processes.stop(bench.tag, None, _GRACE_S)  # also what a command left in the background: the files are about to be frozen
        process.wait()
    if process.returncode:
        why = f"exit {process.returncode}" if process.returncode > 0 else f"killed by signal {-process.returncode}"
        said = foreign.last_line(bench.log, _LAST_WORDS)
        why = ": ".join(filter(None, (why, "" if said.startswith("$ ") else said)))  # that is the command itself
        raise ToolFailed(f"{purpose} failed", on=command, why=why, kept="nothing of it", hint=f"less {bench.log}")
