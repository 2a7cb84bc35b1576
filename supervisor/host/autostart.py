"""What starts a night or the supervisor by itself: units of systemd's user manager, or a line of the crontab where none answers.

Runs in the process of the command. Each entry carries a marker of ours with the state directory's tag, so that two state directories of
one user do not meet, and only what we wrote is ever removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.host import files, processes, procfs
from supervisor.host.paths import Home
from supervisor.kernel import names
from supervisor.kernel.errors import NightcrewError, Refused, ToolFailed, ToolMissing, last_line
from supervisor.kernel.format import duration
from supervisor.kernel.kind import allowed
from supervisor.kernel.night import Timetable

# Entries
# -------


SYSTEMD, CRON = "systemd", "cron"
STAYS = (2, 3, 6)
"""Exit codes of a supervisor that another start does not mend: no tmux, broken settings, another supervisor runs."""
SERVICE = "nightcrew-supervisor"
NO_CRON = "no cron daemon is seen to run"
START_CRON = "sudo service cron start"
_CRON_DAEMONS = frozenset({"cron", "crond", "anacron", "fcron", "bcron-start"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that starts by itself, before or after it is written."""

    by: str
    """SYSTEMD or CRON."""
    marker: str
    directory: Path
    """Of the unit files."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Text of each, by its name; empty with cron."""
    starts: str = ""
    """The unit that is enabled."""
    line: str = ""
    """Of the crontab; empty with systemd."""

    def shown(self) -> Iterator[str]:
        """All that is written, for who is asked about it."""
        if self.line:
            yield "one line of your crontab:"
            yield f"  {self.line}"
        for name, text in self.units.items():
            yield f"{self.directory / name}:"
            yield from (f"  {line}" for line in text.splitlines())


def chosen(wish: str = "") -> tuple[str, str]:
    """Which of the two is used here, and why not systemd. `wish` is one of them, or empty. Raises ToolMissing where there is none."""
    why = user_manager()
    by = wish or (CRON if why else SYSTEMD)
    if by == SYSTEMD and why:
        raise ToolMissing("no user manager of systemd answers", why=why, hint="--by cron, or log in where systemd runs")
    if by == CRON and not has_crontab():
        nothing = f"no user manager of systemd answers ({why}), and there is no crontab"
        raise ToolMissing("nothing starts commands here", why=nothing, hint="install cron (apt install cron)")
    return by, why


def night(home: Home, name: str, table: Timetable, by: str) -> Entry:
    """The entry that starts `nightcrew night run --installed NAME`."""
    marker = f"nightcrew night {name} {_tag(home)}"
    program = _program(home, "night", "run", "--installed", name)
    if by == CRON:
        line = night_line(table, program, os.fspath(home.locks / f"night-{name}.lock"), os.fspath(night_log(home, name)), marker)
        return _of_cron(marker, line)
    unit = f"nightcrew-night-{name}-{_tag(home)}"
    texts = {
        f"{unit}.service": night_service(marker, name, program),
        f"{unit}.timer": night_timer(marker, name, table),
    }
    return Entry(SYSTEMD, marker, unit_directory(os.environ), texts, f"{unit}.timer")


def supervisor(home: Home, by: str) -> Entry:
    """The entry that starts `nightcrew service run`."""
    marker = f"nightcrew service {_tag(home)}"
    program = _program(home, "service", "run")
    if by == CRON:
        return _of_cron(marker, supervisor_line(program, STAYS, os.fspath(home.root / "service.log"), marker))
    unit = f"{SERVICE}-{_tag(home)}.service"
    return Entry(SYSTEMD, marker, unit_directory(os.environ), {unit: supervisor_service(marker, program, STAYS)}, unit)


def _of_cron(marker: str, line: str) -> Entry:
    if why := why_not(line):
        raise Refused("cron cannot hold the line", why=why, kept="the crontab", hint="NIGHTCREW_HOME names a shorter, plainer path")
    return Entry(CRON, marker, Path(), line=line)


def night_log(home: Home, name: str) -> Path:
    """What a night that cron starts says."""
    return home.root / "nights" / f"{name}.log"


def _program(home: Home, *words: str) -> Program:
    return Program((sys.executable, "-I", "-m", "supervisor.cli.main", *words), {"NIGHTCREW_HOME": os.fspath(home.root)})


def _tag(home: Home) -> str:
    return names.tag(os.fspath(home.root), "", 0)[:12]


def write(home: Home, entry: Entry) -> None:
    """Put it where it starts things. Raises what the doors raise; units that could not be enabled are removed again."""
    if entry.by == CRON:
        if shutil.which("flock") is None:
            raise ToolMissing("no program", on="flock", why="it keeps a night from starting twice", hint="install util-linux")
        change_crontab(lambda text: with_line(text, entry.line, entry.marker), _crontab_lock(home))
        return
    _write_units(entry.directory, entry.units)
    try:
        _order("daemon-reload")
        _order("enable", *(["--now"] if entry.starts.endswith(".timer") else []), entry.starts)
    except NightcrewError:
        remove(home, entry)
        raise


def remove(home: Home, entry: Entry) -> bool:
    """Take it away, and nothing else. Whether there was something."""
    if entry.by == CRON:
        before = read_crontab()
        return change_crontab(lambda text: without(text, entry.marker), _crontab_lock(home)) != before
    _refuse_strange_units(entry.directory, entry.units)
    with contextlib.suppress(NightcrewError):  # a unit that is not loaded, or a manager that is gone: its file goes all the same
        _order("disable", *(["--now"] if entry.starts.endswith(".timer") else []), entry.starts)
    gone = _remove_units(entry.directory, entry.units)
    with contextlib.suppress(NightcrewError):
        _order("daemon-reload")
    return bool(gone)


def wrong(entry: Entry) -> str:
    """What is wrong with an entry that was written, in words; empty: it is as it was written, and somebody looks at it."""
    if entry.by == CRON:
        line = line_of(read_crontab(), entry.marker)
        if not line:
            return "its line is not in the crontab"
        return NO_CRON if not cron_runs() else "" if line == entry.line else "its line in the crontab was changed"
    for name, text in entry.units.items():
        try:
            if (entry.directory / name).read_bytes() != text.encode("utf-8", "surrogateescape"):
                return f"{name} was changed"
        except OSError:
            return f"{entry.directory / name} is gone"
    if entry.starts.endswith(".timer") and (state := _is_active(entry.starts)) != "active":
        return f"{entry.starts} is {state}"
    return ""


def cron_runs() -> bool:
    """Whether a cron daemon is seen: a process of such a name."""
    return any(Path((processes.command(pid).split() or [""])[0]).name in _CRON_DAEMONS for pid in procfs.table())


def _crontab_lock(home: Home) -> Path:
    return files.private_dir(home.locks) / "crontab.lock"


def remarks(by: str, why_no_systemd: str) -> Iterator[str]:
    """What a person should know before it is written, a line each."""
    if by == CRON:
        if why_no_systemd:
            yield f"no user manager of systemd answers ({why_no_systemd}), so cron starts it"
        yield "cron makes up for nothing: a start while the machine is off or asleep is missed"
        if not cron_runs():
            yield "no cron daemon is seen to run: until one does, nothing starts"
    elif not _lingers():
        yield "systemd starts it only while you are logged in; for all nights: loginctl enable-linger"


_PLACES = ("NIGHTCREW_CONFIG", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
"""Variables beside those of `kernel.kind.allowed` that a start needs: they say where things lie."""


def consented(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of `environ` that what starts by itself is given."""
    return {**allowed(environ), **{name: environ[name] for name in _PLACES if name in environ}}


# Unit files
# ----------
# The text of systemd user units: systemd.unit(5), systemd.service(5), systemd.timer(5).
#
# A value that comes from a path is quoted: `%` begins a specifier in a unit file, `"` and a backslash are special in quotes, and a
# line break is an escape. Variables are not looked for: each ExecStart begins with `:`.


RESTART_S = 5
"""Seconds until a supervisor that died is started again."""
_UNSAFE = re.compile(r'[\x00-\x1f\x7f"\'\\]')
"""What systemd takes in no path of a program (`string_is_safe` there)."""
_VIA_SHELL = ("/bin/sh", "-c", 'exec "$0" "$@"')


@dataclass(frozen=True, slots=True)
class Program:
    """What a unit or a cron line runs."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def quote_for_unit(word: str) -> str:
    """One word of an ExecStart or Environment line."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", text) + '"'


def _exec(argv: Sequence[str]) -> str:
    words = argv if not _UNSAFE.search(argv[0]) else (*_VIA_SHELL, *argv)
    return ":" + " ".join(map(quote_for_unit, words))


def _service(marker: str, title: str, program: Program, rest: Mapping[str, str], install: str = "", unit: Sequence[str] = ()) -> str:
    lines = [f"# {marker}", "[Unit]", f"Description={title}", *unit, "", "[Service]", "Type=exec", f"ExecStart={_exec(program.argv)}"]
    lines += [f"Environment={quote_for_unit(f'{name}={text}')}" for name, text in program.env.items()]
    # The agents' tmux server begins in the unit's control group and outlives it: only the command itself ends with the unit.
    lines += ["KillMode=process", "OOMPolicy=continue", *(f"{key}={value}" for key, value in rest.items())]
    lines += ["", "[Install]", f"WantedBy={install}"] if install else []
    return "\n".join(lines) + "\n"


def night_service(marker: str, name: str, program: Program) -> str:
    """The unit that a night's timer starts. It hands the plan over and ends; the night itself is the supervisor's."""
    return _service(marker, f"nightcrew: the night {name}", program, {"TimeoutStopSec": "60"})


def night_timer(marker: str, name: str, table: Timetable) -> str:
    """Its timer. A start that was missed while the machine was off or asleep is made up for; the command then decides whether it is too
    late."""
    lines = [f"# {marker}", "[Unit]", f"Description=nightcrew: starts the night {name}, {table.words}", "", "[Timer]"]
    lines += [f"OnCalendar={table.on_calendar()}", "Persistent=true", "AccuracySec=1s", "", "[Install]", "WantedBy=timers.target"]
    return "\n".join(lines) + "\n"


def supervisor_service(marker: str, program: Program, stays: Sequence[int]) -> str:
    """The unit of the supervisor: at login, and again after a crash. `stays`: exit codes after which it is not started again."""
    rest = {
        "Restart": "on-failure",
        "RestartSec": str(RESTART_S),
        "RestartPreventExitStatus": " ".join(map(str, stays)),
        "TimeoutStopSec": "60",
    }
    # One that cannot live is not started for ever.
    limits = ("StartLimitIntervalSec=600", "StartLimitBurst=20")
    return _service(marker, "nightcrew: the supervisor of the crew", program, rest, "default.target", limits)


# Cron lines
# ----------
# Lines of a crontab that are ours: crontab(5).
#
# Each ends with a shell comment that names it, so that a line of ours is found by its end, whatever a person changed before that,
# and nothing else is ever taken out. A line holds no path of a plan or of a repository.


LINE_MAX = 990
"""Bytes of a command that every cron takes: Debian's holds 1,000."""

STARTS_MAX = 100
"""A supervisor that cannot live is not started for ever."""


def quote_for_cron(word: str) -> str:
    """A word for the shell that cron starts. cron itself makes a line break of `%`, unless a backslash is before it."""
    return shlex.quote(word).replace("%", "\\%")


def cron_command(program: Program) -> str:
    """The program with its variables."""
    variables = [f"{name}={quote_for_cron(text)}" for name, text in program.env.items()]
    return " ".join([*variables, *map(quote_for_cron, program.argv)])


def night_line(table: Timetable, program: Program, lock: str, log: str, marker: str) -> str:
    """The line that starts a night. While one start holds `lock`, by flock(1), there is no second."""
    start = cron_command(Program(("flock", "-n", lock, *program.argv), program.env))
    return f"{table.cron_fields()} {start} >>{quote_for_cron(log)} 2>&1 # {marker}"


def supervisor_line(program: Program, stays: Sequence[int], log: str, marker: str) -> str:
    """The line that starts the supervisor at boot, and again when it ends with a status that is not 0 and none of `stays`; at most
    STARTS_MAX times until the next boot."""
    codes = "|".join(map(str, [0, *stays]))
    once = f"{cron_command(program)}; case $? in {codes}) break;; esac; i=$((i+1)); sleep {RESTART_S}"
    return f"@reboot (i=0; while [ $i -lt {STARTS_MAX} ]; do {once}; done) >>{quote_for_cron(log)} 2>&1 # {marker}"


def why_not(line: str) -> str:
    """Why cron cannot hold the line; empty when it can."""
    if "\n" in line or "\r" in line or "\0" in line:
        return "a path in it holds a line break"
    if len(line.encode("utf-8", "surrogateescape")) > LINE_MAX:
        return f"it has more than {LINE_MAX} bytes"
    return ""


def with_line(text: str, line: str, marker: str) -> str:
    """The crontab with the line of `marker` in it once, at its end; other lines stay as they are."""
    before = without(text, marker)
    return f"{before}{'' if not before or before.endswith(chr(10)) else chr(10)}{line}\n"


def without(text: str, marker: str) -> str:
    """The crontab without the lines of `marker`."""
    return "".join(line for line in _lines(text) if not is_ours(line, marker))


def line_of(text: str, marker: str) -> str:
    """The line of `marker`, without its end; empty when it is not there, or is commented out."""
    return next((line.strip() for line in _lines(text) if is_ours(line, marker) and not line.lstrip().startswith("#")), "")


def _lines(text: str) -> list[str]:
    """With their ends. cron knows no other end of a line."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def is_ours(line: str, marker: str) -> bool:
    """Whether a line ends with the marker."""
    return line.rstrip().endswith(f" # {marker}")


# Crontab
# -------
# The door to the user's crontab: `crontab -l` and `crontab -`, and nothing else.
#
# A crontab that cannot be read is never written, and neither is one that somebody else changed since it was read. What was there is
# given back byte by byte.


_DEADLINE_S = 20.0
_NO_CRONTAB = b"no crontab for"
"""What every `crontab -l` says, with exit status 1, for a user who has none."""


def has_crontab() -> bool:
    """Whether this machine has the program."""
    return shutil.which("crontab") is not None


def read_crontab() -> str:
    """The crontab as text, bytes that are not UTF-8 as surrogates; empty when there is none. Raises ToolMissing, ToolFailed."""
    done = _crontab("-l", b"")
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "surrogateescape")
    if _NO_CRONTAB in done.stderr and not done.stdout:
        return ""
    raise ToolFailed("cannot read the crontab", why=_crontab_error(done), kept="the crontab", hint="crontab -l")


def change_crontab(edit: Callable[[str], str], lock: Path) -> str:
    """Replace the crontab by what `edit` makes of it, and return that. `lock`: a file of ours; two of our own commands take turns by it.

    Raises ToolMissing and ToolFailed, and Refused when the crontab changed meanwhile or is not what was written.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        before = read_crontab()
        after = edit(before)
        if after == before:
            return after
        _check_crontab(before, "it was changed meanwhile")
        _write_crontab(after)
        _check_crontab(after, "it is not what was written")
        return after
    finally:
        os.close(handle)


def _write_crontab(text: str) -> None:
    done = _crontab("-", text.encode("utf-8", "surrogateescape")) if text else _crontab("-r", b"")
    if done.returncode != 0:
        raise ToolFailed("cannot write the crontab", why=_crontab_error(done), kept="the old one", hint="crontab -e")


def _check_crontab(text: str, why: str) -> None:
    if read_crontab() != text:
        raise Refused("will not change the crontab", why=why, kept="it as it is", hint="crontab -l, then again")


def _crontab(argument: str, given: bytes) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which("crontab")
    if program is None:
        raise ToolMissing("no program", on="crontab", why="nothing else starts commands here", hint="install cron (apt install cron)")
    try:
        # LC_ALL: what it says of a user without one is compared.
        env = {**os.environ, "LC_ALL": "C"}
        return subprocess.run([program, argument], input=given, capture_output=True, timeout=_DEADLINE_S, check=False, env=env)
    except subprocess.TimeoutExpired:
        raise ToolFailed("crontab did not answer", on=f"in {duration(_DEADLINE_S)}", kept="the crontab", hint="crontab -l") from None


def _crontab_error(done: subprocess.CompletedProcess[bytes]) -> str:
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


def _write_units(directory: Path, units: Mapping[str, str]) -> None:
    """Write unit files by their names. Each begins with a marker of ours; Refused for a file that is there and does not."""
    _refuse_strange_units(directory, units)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in units.items():
        files.atomic_write(directory / name, text.encode("utf-8", "surrogateescape"), 0o644)


def _remove_units(directory: Path, units: Mapping[str, str]) -> list[str]:
    """Remove those of the files that are there; returns their names. Refused, with all kept, for one that lacks the marker."""
    _refuse_strange_units(directory, units)
    there = [name for name in units if (directory / name).exists()]
    for name in there:
        (directory / name).unlink()
    return there


def _refuse_strange_units(directory: Path, units: Mapping[str, str]) -> None:
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


def _order(*words: str) -> str:
    """`systemctl --user WORDS`; what it printed. Raises ToolFailed."""
    done = _systemctl(*words)
    if done.returncode != 0:
        why = last_line(done.stderr) or f"exit status {done.returncode}"
        raise ToolFailed(f"systemctl --user {words[0]} failed", on=" ".join(words[1:]), why=why, hint="systemctl --user status")
    return done.stdout


def _is_active(unit: str) -> str:
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


def _lingers() -> bool:
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
