"""Run every check, and show the findings."""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import shutil
import signal
import subprocess
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from supervisor.host.paths import Home, home, settings_file
from supervisor.kernel.errors import NightcrewError, one_line
from supervisor.kernel.format import duration
from supervisor.kernel.settings import Settings

# What is looked at
# -----------------
# What is looked at, and what one look gives.


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


# Examine
# -------
# Running every check, whatever is broken.


GROUPS = {
    "software": "machine:SOFTWARE_CHECKS",
    "machine": "machine:CHECKS",
    "environments": "machine:ENVIRONMENTS_CHECKS",
    "state": "state_directory:CHECKS",
    "crew": "crew:CHECKS",
}
"""Each group of checks, in their order, and the table of them as `module:name`."""
DEADLINE_S = 45.0
"""Of a whole examination. A check that has not answered by then is unknown and left behind: its thread ends with the process."""

Check = Callable[[CheckContext], Finding]


def examine(
    context: CheckContext, checks: Mapping[str, Mapping[str, Check]] | None = None, deadline_s: float = DEADLINE_S
) -> list[Checked]:
    """Every finding, in the order of the groups. Takes at most about `deadline_s` seconds and raises nothing that a check can raise."""
    found = [(group, name, check) for group, named in (checks or _all()).items() for name, check in named.items()]
    slots: list[Finding | None] = [None] * len(found)

    def look(index: int, check: Check) -> None:
        slots[index] = _guarded(check, context)

    threads = [threading.Thread(target=look, args=(index, check), daemon=True) for index, (_, _, check) in enumerate(found)]
    for thread in threads:
        thread.start()
    ends_at = time.monotonic() + deadline_s
    for thread in threads:
        thread.join(max(0.0, ends_at - time.monotonic()))
    late = unknown(f"no answer in {duration(deadline_s)}", "something that it looks at hangs", "look at the disks: dmesg, df")
    return [Checked(group, name, slots[index] or late) for index, (group, name, _) in enumerate(found)]


def _all() -> dict[str, Mapping[str, Check]]:
    return {group: _group(group) for group in GROUPS}


def _group(name: str) -> Mapping[str, Check]:
    """The checks of a group; when it cannot be imported, one that says why."""
    try:
        module, _, table = GROUPS[name].partition(":")
        checks: Mapping[str, Check] = getattr(importlib.import_module(f"supervisor.doctor.{module}"), table)
    except Exception as error:  # noqa: BLE001 - a foreign or half-installed package can raise anything, and is what doctor is asked about
        return {name: _broken(error)}
    return checks


def _broken(error: Exception) -> Check:
    why = one_line(f"{type(error).__name__}: {error}")

    def check(context: CheckContext) -> Finding:  # noqa: ARG001 - the shape of every check
        return Finding(State.FAIL, why, "nightcrew's own files, or what it needs, are not all here", "install nightcrew anew")

    return check


def _guarded(check: Check, context: CheckContext) -> Finding:
    try:
        return check(context)
    except NightcrewError as error:
        return unknown(one_line(": ".join(part for part in (error.what, error.on, error.why) if part)), fix=error.hint)
    except Exception as error:  # noqa: BLE001 - one check that no one foresaw to fail must not hide the others
        return unknown(one_line(f"{type(error).__name__}: {error}"))


def mend(checked: list[Checked]) -> list[dict[str, Any]]:
    """Do everything that is safe. Returns for each `group`, `name`, `done` (whether it worked) and `what`."""
    return [{"group": one.group, "name": one.name, **_mended(one.finding.mend)} for one in checked if one.finding.mend is not None]


def without_failed(checked: list[Checked], mended: list[dict[str, Any]]) -> list[Checked]:
    """The findings of a second examination, without the mendings that have just failed: they would fail again."""
    failed = {(one["group"], one["name"]) for one in mended if not one["done"]}
    return [replace(one, finding=replace(one.finding, mend=None)) if (one.group, one.name) in failed else one for one in checked]


def _mended(act: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"done": True, "what": act()}
    except NightcrewError as error:
        return {"done": False, "what": error.line()}
    except OSError as error:
        return {"done": False, "what": one_line(str(error))}


# Output
# ------
# Findings as a page of text, and as the object of `--json`.


SIGNS = {State.OK: ("✓", "32"), State.WARN: ("!", "33"), State.FAIL: ("✗", "31"), State.UNKNOWN: ("?", "36")}
"""A shape and a colour each; the shape alone is enough where there is no colour."""
_NAMES = 13
"""Columns of the longest name, `out of memory`."""
_TEXT = 2 + 2 + _NAMES + 2
_ROOM = 30
"""Columns that the text gets even on a terminal that is too narrow for it."""


def lines(checked: Sequence[Checked], width: int, *, color: bool) -> Iterator[str]:
    """A heading for each group, a line for each check, and below it, unless all is well, why it matters and what to do."""
    for number, (group, members) in enumerate(groupby(checked, lambda one: one.group)):
        if number:
            yield ""
        yield _styled(group.capitalize(), "1", color=color)
        for one in members:
            yield from _check(one, width, color=color)


def _check(one: Checked, width: int, *, color: bool) -> Iterator[str]:
    finding = one.finding
    sign, code = SIGNS[finding.state]
    well = finding.state is State.OK
    first, *rest = _wrapped(finding.seen, width) or [""]
    yield f"  {_styled(sign, code, color=color)} {one.name:<{_NAMES}}  {_styled(first, '2' if well else '', color=color)}".rstrip()
    for text in rest:
        yield " " * _TEXT + _styled(text, "2" if well else "", color=color)
    if well:
        return
    for text in _wrapped(finding.why, width):
        yield " " * _TEXT + _styled(text, "2", color=color)
    if finding.fix:  # never broken: half of a command that somebody copies must not run
        yield " " * _TEXT + "→ " + one_line(finding.fix)


def _wrapped(text: str, width: int) -> list[str]:
    """Broken only between words: a path that is too long stays whole."""
    return textwrap.wrap(one_line(text), max(_ROOM, width - _TEXT), break_long_words=False, break_on_hyphens=False)


def _styled(text: str, code: str, *, color: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if color and code and text else text


def counts(checked: Iterable[Checked]) -> dict[str, int]:
    """How many are in each state."""
    found = dict.fromkeys(map(str, State), 0)
    for one in checked:
        found[one.finding.state] += 1
    return found


def summary(checked: Sequence[Checked]) -> str:
    """One sentence on all, with the next command where one of ours helps."""
    number = counts(checked)
    parts = {"not working": number["fail"], "to look at": number["warn"], "unknown": number["unknown"]}
    bad = [f"{count} {what}" for what, count in parts.items() if count]
    text = ", ".join([*bad, f"{number['ok']} fine"]) if bad else f"all {number['ok']} are fine"
    mendable = sum(one.finding.mend is not None for one in checked)
    return f"{text}; next: nightcrew doctor --fix mends {mendable} of them" if mendable else text


def shape(checked: Sequence[Checked], mended: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` prints, beside `schema`."""
    return {
        "checks": [
            {
                "group": one.group,
                "name": one.name,
                "state": str(one.finding.state),
                "seen": one.finding.seen,
                "why": one.finding.why,
                "fix": one.finding.fix,
                "fixable": one.finding.mend is not None,
            }
            for one in checked
        ],
        "counts": counts(checked),
        "mended": mended,
    }
