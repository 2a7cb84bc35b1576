"""The door to the user's crontab: `crontab -l` and `crontab -`, and nothing else.

A crontab that cannot be read is never written, and neither is one that somebody else changed since it was read. What was there is given
back byte by byte.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from supervisor.core.errors import Refused, ToolFailed, ToolMissing, last_line

_DEADLINE_S = 20.0
_NONE = b"no crontab for"
"""What every `crontab -l` says, with exit status 1, for a user who has none."""


def is_there() -> bool:
    """Whether this machine has the program."""
    return shutil.which("crontab") is not None


def read() -> str:
    """The crontab as text, bytes that are not UTF-8 as surrogates; empty when there is none. Raises ToolMissing, ToolFailed."""
    done = _run("-l", b"")
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "surrogateescape")
    if _NONE in done.stderr and not done.stdout:
        return ""
    raise ToolFailed("cannot read the crontab", why=_said(done), kept="the crontab", hint="crontab -l")


def change(edit: Callable[[str], str], lock: Path) -> str:
    """Replace the crontab by what `edit` makes of it, and return that. `lock`: a file of ours; two of our own commands take turns by it.

    Raises ToolMissing and ToolFailed, and Refused when the crontab changed meanwhile or is not what was written.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        before = read()
        after = edit(before)
        if after == before:
            return after
        _same(before, "it was changed meanwhile")
        _write(after)
        _same(after, "it is not what was written")
        return after
    finally:
        os.close(handle)


def _write(text: str) -> None:
    done = _run("-", text.encode("utf-8", "surrogateescape")) if text else _run("-r", b"")
    if done.returncode != 0:
        raise ToolFailed("cannot write the crontab", why=_said(done), kept="the old one", hint="crontab -e")


def _same(text: str, why: str) -> None:
    if read() != text:
        raise Refused("will not change the crontab", why=why, kept="it as it is", hint="crontab -l, then again")


def _run(argument: str, given: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("crontab")
    if program is None:
        raise ToolMissing("no program", on="crontab", why="nothing else starts commands here", hint="install cron (apt install cron)")
    try:
        # LC_ALL: what it says of a user without one is compared.
        env = {**os.environ, "LC_ALL": "C"}
        return subprocess.run([program, argument], input=given, capture_output=True, timeout=_DEADLINE_S, check=False, env=env)
    except subprocess.TimeoutExpired:
        raise ToolFailed("crontab did not answer", on=f"in {_DEADLINE_S:g} s", kept="the crontab", hint="crontab -l") from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return last_line(done.stderr.decode("utf-8", "replace")) or f"exit status {done.returncode}"
