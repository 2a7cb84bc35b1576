"""The doors to the crontab and to systemd's user manager."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from supervisor.host import files
from supervisor.kernel.errors import Refused, ToolFailed, ToolMissing, last_line
from supervisor.kernel.format import duration

# Crontab
# -------
# The door to the user's crontab: `crontab -l` and `crontab -`, and nothing else.
#
# A crontab that cannot be read is never written, and neither is one that somebody else changed since it was read. What was there is
# given back byte by byte.


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
        raise ToolFailed("crontab did not answer", on=f"in {duration(_DEADLINE_S)}", kept="the crontab", hint="crontab -l") from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return last_line(done.stderr.decode("utf-8", "replace")) or f"exit status {done.returncode}"


# Systemd
# -------
# The door to systemd's user manager: `systemctl --user`, and the unit files of this user.


_ANSWERS = ("running", "degraded", "starting", "initializing", "maintenance")


def user_manager() -> str:
    """Why no user manager answers here, in words; empty when one does."""
    if shutil.which("systemctl") is None:
        return "systemctl is not on the PATH"
    try:
        done = _systemctl("is-system-running")
    except ToolFailed as error:
        return error.line()
    said = done.stdout.strip()
    return "" if said in _ANSWERS else last_line(done.stderr) or f"it says {said or 'nothing'}"


def unit_directory(environ: Mapping[str, str]) -> Path:
    """Where this user's own unit files lie."""
    base = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or Path.home()) / ".config"
    return Path(base).absolute() / "systemd" / "user"


def write(directory: Path, units: Mapping[str, str]) -> None:
    """Write unit files by their names. Each begins with a marker of ours; Refused for a file that is there and does not."""
    refuse_strange(directory, units)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in units.items():
        files.atomic_write(directory / name, text.encode("utf-8", "surrogateescape"), 0o644)


def remove(directory: Path, units: Mapping[str, str]) -> list[str]:
    """Remove those of the files that are there; returns their names. Refused, with all kept, for one that lacks the marker."""
    refuse_strange(directory, units)
    there = [name for name in units if (directory / name).exists()]
    for name in there:
        (directory / name).unlink()
    return there


def refuse_strange(directory: Path, units: Mapping[str, str]) -> None:
    """Raises Refused when one of the files is there and does not begin with the marker, the first line of its text in `units`."""
    for name, text in units.items():
        _refuse_strange(directory / name, text)


def _refuse_strange(file: Path, text: str) -> None:
    marker = text.partition("\n")[0]
    try:
        ours = file.read_bytes().decode("utf-8", "surrogateescape").startswith(f"{marker}\n")
    except FileNotFoundError:
        return
    except OSError as error:
        raise ToolFailed("cannot read", on=str(file), why=error.strerror or str(error)) from error
    if not ours:
        why = f"its first line is not {marker!r}, so nightcrew did not write it"
        raise Refused("will not touch the unit", on=str(file), why=why, kept="it as it is", hint="move it away, then again")


def order(*words: str) -> str:
    """`systemctl --user WORDS`; what it printed. Raises ToolFailed."""
    done = _systemctl(*words)
    if done.returncode != 0:
        why = last_line(done.stderr) or f"exit status {done.returncode}"
        raise ToolFailed(f"systemctl --user {words[0]} failed", on=" ".join(words[1:]), why=why, hint="systemctl --user status")
    return done.stdout


def is_active(unit: str) -> str:
    """How the unit is, in systemd's word: `active`, `inactive`, `failed`, `unknown`."""
    try:
        return _systemctl("is-active", unit).stdout.strip() or "unknown"
    except ToolFailed:
        return "unknown"


def _systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["systemctl", "--user", "--no-pager", *words],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolFailed("systemctl --user did not answer", why=str(error)) from None


def lingers() -> bool:
    """Whether this user's manager runs also while the user is not logged in."""
    try:
        done = subprocess.run(
            ["loginctl", "show-user", str(os.getuid()), "--property=Linger", "--value"],
            capture_output=True,
            text=True,
            timeout=_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "yes"
