"""The commands that analysts run: a deadline for each, and nothing of it left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
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


class _Stop:
    """A signal that came while a child was being started: nobody could have ended that child yet."""

    starting = False
    number = 0


def stop(number: int) -> None:
    """What a signal's handler does: exit with 128 + `number`, once each child that was started is known."""
    if _Stop.starting:
        _Stop.number = number
    else:
        sys.exit(128 + number)


def run(command: Command, directory: Path) -> bytes:
    """Its stdout. Raises ToolMissing, or ToolFailed with its last word on stderr or because it took too long."""
    process = _start(command, directory)
    try:
        _Stop.starting = False
        if _Stop.number:
            sys.exit(128 + _Stop.number)
        out, err = process.communicate(timeout=command.timeout_s)
    except subprocess.TimeoutExpired as late:
        raise ToolFailed(f"{command.name} was stopped", why=f"no answer in {command.timeout_s:g} s") from late
    finally:
        _end(process)
    if process.returncode not in command.codes:
        raise ToolFailed(f"{command.name} failed", why=last_line(err.decode("utf-8", "replace")) or f"exit status {process.returncode}")
    return out


def _start(command: Command, directory: Path) -> subprocess.Popen[bytes]:
    """A signal that comes meanwhile is held back until the caller has the child."""
    _Stop.starting = True
    try:
        return subprocess.Popen(
            command.argv,
            cwd=directory,
            env=command.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
    except OSError as error:
        _Stop.starting = False
        if not isinstance(error, FileNotFoundError | PermissionError):
            raise
        raise ToolMissing(f"{command.name} cannot be started", on=command.argv[0], why=error.strerror or "") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it with its children: it leads a group of its own, and while it is not reaped the id is still its."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
