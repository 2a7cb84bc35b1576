"""What is looked at, and what one look gives."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil

from supervisor.host.paths import Home, home, settings_file
from supervisor.kernel.format import duration
from supervisor.kernel.spec import Settings

# Check context
# -------------
# What is looked at, and how: everything that a check reads is named here, so that a test can give another machine.


TOOL_S = 5.0
"""Seconds that a program or a socket has to answer."""
AGENT_S = 30.0
"""Seconds that an agent's program has to answer. Six of them, asked at once on two cores with a load of 11, took 1 to 17 s (measured)."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a program answered; `code` is None when it could not be started or did not end in time, and `text` says which."""

    code: int | None
    text: str
    is_late: bool = False
    """It did not end in time."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """One machine, one user, one state directory, one current directory."""

    home: Home
    config: Path
    """The user's settings file."""
    cwd: Path
    environ: Mapping[str, str]
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    run: Path = Path("/run")
    rlimit: Callable[[int], tuple[int, int]] = resource.getrlimit
    mounts: Callable[[], Sequence[tuple[str, str, str, str]]] = lambda: psutil.disk_partitions(all=True)
    """Device, mount point, type and options of every mounted file system, oldest first."""
    tool_s: float = TOOL_S
    agent_s: float = AGENT_S
    settings: Settings = field(default_factory=Settings)

    @property
    def slots(self) -> int:
        """Attempts alive at once: what the machine has to carry."""
        return self.settings.slots

    def which(self, program: str) -> str | None:
        """Its path on the PATH of this context."""
        return shutil.which(program, path=self.environ.get("PATH", os.defpath))

    def ask(self, *argv: str, limit_s: float | None = None) -> Said:
        """Run a program to its end, or kill it with all its children after `limit_s` seconds (default: `tool_s`). Its stdout and stderr
        are one text."""
        limit_s = self.tool_s if limit_s is None else limit_s
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(self.environ),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return Said(None, f"{argv[0]} cannot be started: {error.strerror or error}")
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
            if process.stdout is not None:
                process.stdout.close()  # not read to its end: a hung tmux server holds the other end of its client's
            process.wait()
            return Said(None, f"{argv[0]} did not answer in {duration(limit_s)}", is_late=True)
        return Said(process.returncode, output.decode("utf-8", "replace").strip())

    def read(self, path: Path) -> str | None:
        """A small text file of the kernel's, without the white space around it; None when it is not there."""
        try:
            return path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    @property
    def systemd(self) -> bool:
        """Whether systemd runs here, as sd_booted(3) finds out."""
        return (self.run / "systemd" / "system").is_dir()

    @property
    def cgroup(self) -> str | None:
        """Our path in the tree of control groups of systemd, as `/user.slice/...`."""
        lines = (self.read(self.proc / "self" / "cgroup") or "").splitlines()
        found = [path for _, names, path in (line.split(":", 2) for line in lines if line.count(":") >= 2) if names in ("", "name=systemd")]
        return max(found, key=len, default=None)


def existing(path: Path) -> Path:
    """The directory `path`, or the nearest one above it that exists: a check makes no directory that stays."""
    return next(one for one in (path, *path.parents) if one.is_dir())


def here() -> CheckContext:
    """This machine as the command line sees it. Settings that cannot be read count as the defaults: the check of them says so."""
    config, settings = Path(), Settings()
    with contextlib.suppress(Exception):  # what reads them may itself be what is broken; its own check says so
        from supervisor.config import user
        from supervisor.host import cores

        config, usable = settings_file(), len(cores.usable())
        settings = user.load(Path(os.devnull) / "none", usable)
        settings = user.load(config, usable)
    return CheckContext(home=home(), config=config, cwd=Path.cwd(), environ=dict(os.environ), settings=settings)


# Finding
# -------
# What one look gives.


class State(StrEnum):
    """How well something is."""

    OK = "ok"
    WARN = "warn"
    """It works, and may hurt one night."""
    FAIL = "fail"
    """Something of nightcrew does not work."""
    UNKNOWN = "unknown"
    """It could not be looked at: no evidence of anything."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen of one thing, and what to do about it."""

    state: State
    seen: str
    why: str = ""
    """Why it matters, for whoever does not know."""
    fix: str = ""
    """What a person does about it: a command where there is one."""
    mend: Callable[[], str] | None = None
    """Does the safe part of it and says what it did. Raises NightcrewError or OSError when it cannot."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A finding with the name and the group of its check."""

    group: str
    name: str
    finding: Finding


def ok(seen: str) -> Finding:
    """All is well."""
    return Finding(State.OK, seen)


def warn(seen: str, why: str, fix: str, mend: Callable[[], str] | None = None) -> Finding:
    """It works, and may hurt one night."""
    return Finding(State.WARN, seen, why, fix, mend)


def fail(seen: str, why: str, fix: str, mend: Callable[[], str] | None = None) -> Finding:
    """Something of nightcrew does not work."""
    return Finding(State.FAIL, seen, why, fix, mend)


def unknown(seen: str, why: str = "", fix: str = "") -> Finding:
    """It could not be looked at."""
    return Finding(State.UNKNOWN, seen, why, fix)
