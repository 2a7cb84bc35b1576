"""The commands that analysts run: a deadline for each, and nothing of it left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import ToolFailed, ToolMissing, last_line


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and how long it may take."""

    name: str
    """For people: `git`, `bandit`."""
    argv: Sequence[str]
    timeout_s: float
    env: Mapping[str, str] | None = None
    codes: tuple[int, ...] = (0,)
    """Exit codes that mean it worked."""


def run(command: Command, directory: Path) -> bytes:
    """Its stdout. Raises ToolMissing, or ToolFailed with its last word on stderr or because it took too long."""
    try:
        process = subprocess.Popen(
            command.argv,
            cwd=directory,
            env=command.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise ToolMissing(f"{command.name} cannot be started", on=command.argv[0], why=error.strerror or "") from error
    try:
        out, err = process.communicate(timeout=command.timeout_s)
    except subprocess.TimeoutExpired as late:
        raise ToolFailed(f"{command.name} was stopped", why=f"no answer in {command.timeout_s:g} s") from late
    finally:
        _end(process)
    if process.returncode not in command.codes:
        raise ToolFailed(f"{command.name} failed", why=last_line(err.decode("utf-8", "replace")) or f"exit status {process.returncode}")
    return out


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it with its children: it leads a group of its own, and while it is not reaped the id is still its."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
