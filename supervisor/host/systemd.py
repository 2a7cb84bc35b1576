"""The door to systemd's user manager: `systemctl --user`, and the unit files of this user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from supervisor.core.errors import Refused, ToolFailed, last_line
from supervisor.host import files

_DEADLINE_S = 20.0
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
