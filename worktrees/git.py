"""The only door to git."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypedDict

from supervisor.host import files, procfs
from supervisor.kernel.errors import HostError, NightcrewError, ToolFailed, ToolHung, ToolMissing
from supervisor.kernel.format import duration
from worktrees.locks import MountNamespace, RepositoryLocks

if TYPE_CHECKING:
    from git.cmd import Git as Starter


# Stall detection
# ---------------
# Waits for a git process as long as it works, and stops one that does nothing.
#
# A git that met a pipe sleeps and does nothing. That is seen from outside: its threads sleep, its processor time and its input and
# output stand still. So do those of one that somebody stopped, and of one that is dead while a child of it keeps its pipes open. A
# git that reads a million files moves; one that waits for a disk is in another state of sleep.


LOOK_S = 0.5
STILL_LOOKS = 8
"""A git that did nothing between so many looks, 4 s, is stopped; git itself waits for a lock of another git at most 1 s. Looks are counted
and not the time, so that none is stopped because we stood still."""
STILL = f"it did nothing for {duration(STILL_LOOKS * LOOK_S)}, as when it waits for a pipe"
_TERM_S = 2.0
_PIPE_HOLDS = 2**12
"""Bytes: what every system's pipe takes at once when it is empty."""
_IDLE = (b"S", b"T", b"t", b"Z")
"""States of /proc/PID/stat in which nothing is done: asleep, stopped, traced, dead."""


class Stopped(Exception):
    """The process did not end and was stopped; the text says why."""


class Tail(threading.Thread):
    """Takes over what a process writes to its stderr, and keeps the end of it: a stranger's objects can make git say gigabytes."""

    def __init__(self, process: subprocess.Popen[bytes], size: int) -> None:
        super().__init__(daemon=True)
        self._pipe: IO[bytes] | None = process.stderr
        process.stderr = None
        self._size = size
        self._kept = b""
        self.start()

    def run(self) -> None:
        if self._pipe is not None:
            with self._pipe as pipe:
                while data := os.read(pipe.fileno(), self._size):
                    self._kept = (self._kept + data)[-self._size :]

    def end(self) -> bytes:
        """When the process has ended. Up to `size` bytes."""
        self.join()
        return self._kept


def communicate(process: subprocess.Popen[bytes], stdin: bytes, deadline_s: float) -> tuple[bytes, bytes]:
    """All that it says, once it has ended. Raises Stopped when `deadline_s` passed or it did nothing for long; it is ended then."""
    until = time.monotonic() + deadline_s
    watch = StallDetector(process.pid)
    _feed(process, stdin)
    while True:
        try:
            return process.communicate(timeout=min(LOOK_S, deadline_s))
        except subprocess.TimeoutExpired:
            pass
        is_still = watch.look()
        if time.monotonic() >= until:
            _end(process)
            raise Stopped(f"no answer in {duration(deadline_s)}")
        if is_still:
            _end(process)
            raise Stopped(STILL)


class StallDetector:
    """Looks at a process and all below it, every LOOK_S seconds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seen: object = None
        self._still = 0

    def look(self) -> bool:
        """Whether none of them has done anything for STILL_LOOKS looks in a row."""
        before, self._seen = self._seen, _doing(self._pid)
        self._still = self._still + 1 if self._seen is not None and self._seen == before else 0
        return self._still >= STILL_LOOKS


def _feed(process: subprocess.Popen[bytes], stdin: bytes) -> None:
    """By a thread where a pipe does not hold it: `Popen.communicate` writes nothing more once it has timed out (CPython 3.11 to 3.13)."""
    pipe, process.stdin = process.stdin, None
    if pipe is None:
        return

    def write() -> None:
        with contextlib.suppress(OSError), pipe:  # it ended without reading all
            pipe.write(stdin)

    if len(stdin) <= _PIPE_HOLDS:
        write()
    else:
        threading.Thread(target=write, daemon=True, name="feed a git").start()


def _doing(pid: int) -> object:
    """What changes while the process or a child of it does anything; None when one is at work, or the system does not say."""
    found = []
    for one in [pid, *(child.pid for child in procfs.descendants(pid))]:
        for thread in _threads(one):
            fields = procfs.slurp(f"/proc/{one}/task/{thread}/stat").rpartition(b")")[2].split()
            if not fields or fields[0] not in _IDLE:
                return None
            found.append((one, thread, fields[11:13]))
        found.append((one, "io", [procfs.slurp(f"/proc/{one}/io")]))
    return found


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208 - many times a second
    except OSError:
        return []


def _end(process: subprocess.Popen[bytes]) -> None:
    """End git and its children: it leads a process group of its own, and it is not reaped yet, so the id is still its. Asked first, so
    that it removes its own locks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
            os.killpg(process.pid, signal.SIGCONT)  # one that is stopped hears nothing else
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=_TERM_S)
            return


# Failures
# --------
# Turns what git or the system says when it fails into an error of ours.


_FULL = ("No space left on device", "Disk quota exceeded", "Out of diskspace")
_CHECKOUT = "unable to write file"
"""All that git says when it cannot write a file of a commit."""
_FILE_MAX = 100 * 2**20
"""Bytes of a file of a commit, as large hosts take them: on a disk with more room `_CHECKOUT` means something else."""


def failure(verb: str, on: str, code: int, err: str, written: Sequence[Path] = ()) -> NightcrewError:
    """DiskFull when git says so, or when one of the directories that it writes to has hardly any room: for a lock, a log or a directory
    that finds none git often gives no reason. Else ToolFailed. Both have git's last words."""
    why = last_words(err) or f"exit status {code}"
    place = next(filter(files.is_full, written), None)
    if place is None and _says_full(err, written):
        place = min(written, key=_room, default=Path(on))
    if place is not None:
        return files.disk_full(f"git {verb} ran out of space", place, why, hint="free some space, then retry")
    return ToolFailed(f"git {verb} failed", on=on, why=why)


@contextlib.contextmanager
def wrap_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the body into DiskFull or HostError on `path`."""
    try:
        yield
    except OSError as error:
        why, hint = error.strerror or str(error), f"ls -ld {path.parent}"
        if files.is_no_space(error):
            raise files.disk_full("cannot write", path, why) from error
        raise HostError("cannot write", on=str(path), why=why, hint=hint) from error


def _says_full(err: str, written: Sequence[Path]) -> bool:
    return any(words in err for words in _FULL) or (_CHECKOUT in err and any(_room(place) < _FILE_MAX for place in written))


def _room(place: Path) -> float:
    try:
        return files.free_bytes(place)
    except OSError:
        return math.inf


def last_words(err: str) -> str:
    """The line of git's stderr that says why: the last one marked as an error, else the last one; with the paths that it announces."""
    lines = [line for line in err.splitlines() if line.strip()]
    marked = [index for index, line in enumerate(lines) if line.startswith(("fatal:", "error:"))]
    if not marked:
        return lines[-1].strip() if lines else ""
    listed = itertools.takewhile(lambda line: line.startswith("\t"), lines[marked[-1] + 1 :])
    return " ".join([lines[marked[-1]].strip(), ", ".join(line.strip() for line in itertools.islice(listed, 10))]).strip()


# Hardening
# ---------
# The settings that keep git from running what a repository or an agent configured. Pure tables and functions; `git.py` applies
# them.
#
# Three layers, each in git's command scope, which beats every file:
#
# 1. `HARDENED` switches off the keys that always have the same name (hooks, fsmonitor, signing, transports ...).
# 2. `overrides` switches off the keys that carry a name somebody chose (`filter.<name>.clean`): their names come from
#    `git config --list`, which executes nothing.
# 3. `ENVIRONMENT` closes the doors that are variables, and allows no transport at all: no verb here talks to a network.
#
# They travel as `GIT_CONFIG_COUNT`/`KEY_n`/`VALUE_n`, not as `-c`: git cuts `-c filter.a=b.clean=` at the first `=`, so a filter
# called `a=b` would have stayed armed.


MINIMUM = (2, 38)
"""The first git with `merge-tree --write-tree`."""

HARDENED: Mapping[str, str] = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.editor": "false",
    "sequence.editor": "false",
    "core.sshCommand": "false",
    "core.gitProxy": "false",
    "core.askPass": "",
    "core.alternateRefsCommand": "",
    "uploadpack.packObjectsHook": "",
    "credential.helper": "",
    "protocol.allow": "never",
    "protocol.ext.allow": "never",
    "protocol.file.allow": "never",
    "gpg.program": "false",
    "commit.gpgSign": "false",
    "tag.gpgSign": "false",
    "log.showSignature": "false",
    "merge.verifySignatures": "false",
    "merge.autoStash": "false",
    "merge.default": "text",  # else it names a driver for every file, which counts as a conflict
    "merge.renames": "true",  # the same two commits merge to the same tree, whatever is configured
    "merge.directoryRenames": "conflict",
    "merge.renameLimit": "7000",
    "submodule.recurse": "false",
    "status.submoduleSummary": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "rerere.enabled": "false",
    "core.untrackedCache": "false",  # a cache an agent wrote could hide its files from a rescue
    "core.trustctime": "true",  # else a file of the same size and time as before is not read
    "core.checkStat": "default",
    "core.splitIndex": "false",  # our temporary index must be one whole file
    "core.bigFileThreshold": "16m",  # larger files are binary to a diff: nobody reads them as text, and it would be held in memory
    "core.fsync": "committed,reference",  # a result that the ledger calls safe must survive a power cut, as the ledger does
    "core.safecrlf": "false",  # `true` would make a rescue fail on mixed line ends
    "core.quotePath": "true",
    "color.ui": "false",
    "i18n.commitEncoding": "UTF-8",
    "branch.autoSetupMerge": "false",
    "worktree.guessRemote": "false",
    "worktree.useRelativePaths": "false",  # `open_env` compares the links with the absolute form
}

IDENTITY: Mapping[str, str] = {
    "GIT_AUTHOR_NAME": "nightcrew",
    "GIT_AUTHOR_EMAIL": "nightcrew@localhost",
    "GIT_COMMITTER_NAME": "nightcrew",
    "GIT_COMMITTER_EMAIL": "nightcrew@localhost",
}
"""Of commits that we make."""

ENVIRONMENT: Mapping[str, str] = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "",  # set but empty: no transport is allowed, a partial clone's lazy fetch included
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",  # a replaced object could make lost commits look merged
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_PAGER": "cat",
    "PAGER": "cat",
    "EDITOR": "false",
    "VISUAL": "false",
}

SAFE_PERSONAL = frozenset({"core.autocrlf", "core.eol", "core.excludesfile", "core.attributesfile"})
"""The only keys of the person's own git configuration that our verbs see: data that says how files are stored or ignored."""

_NAMED: Mapping[tuple[str, str], str] = {
    ("filter", "clean"): "",
    ("filter", "smudge"): "",
    ("filter", "process"): "",
    ("filter", "required"): "false",
    ("branch", "mergeoptions"): "",  # options of `git merge`, such as a strategy that keeps one side
    ("merge", "driver"): "false",  # a file with a driver of its own then counts as a conflict
    ("diff", "command"): "false",
    ("diff", "textconv"): "false",
    ("gpg", "program"): "false",
    ("gpg", "defaultkeycommand"): "false",
    ("hook", "command"): "true",
    ("hook", "enabled"): "false",
    ("credential", "helper"): "",
    ("remote", "vcs"): "",  # `uploadpack` and `receivepack` need a transport, and a second value for them is an error
    ("submodule", "update"): "none",
    ("tar", "command"): "false",
    ("trailer", "command"): "false",
    ("trailer", "cmd"): "false",
    ("browser", "cmd"): "false",
    ("man", "cmd"): "false",
    ("difftool", "cmd"): "false",
    ("mergetool", "cmd"): "false",
}
_WHOLE_SECTIONS: Mapping[str, str] = {"alias": "", "pager": "false"}


def overrides(names: Iterable[str]) -> dict[str, str]:
    """For each key in `names` whose value git might run: the same key with a value that runs nothing."""
    return {name: value for name in names if (value := _harmless(name)) is not None}


def _harmless(name: str) -> str | None:
    section, _, rest = name.partition(".")
    section = section.lower()
    if section in _WHOLE_SECTIONS:
        return _WHOLE_SECTIONS[section]
    if "." not in rest:
        return None
    return _NAMED.get((section, rest.rpartition(".")[2].lower()))


def has_includes(names: Iterable[str]) -> bool:
    """Whether a configuration pulls in other files, which may appear or change without any sign in the file itself."""
    return any(name.partition(".")[0].lower() in {"include", "includeif"} for name in names)


def as_environment(pairs: Mapping[str, str]) -> dict[str, str]:
    """`pairs` in the form that puts them into git's command scope."""
    shape = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for index, (key, value) in enumerate(pairs.items()):
        shape[f"GIT_CONFIG_KEY_{index}"] = key
        shape[f"GIT_CONFIG_VALUE_{index}"] = value
    return shape


def personal_entries(listing: str) -> list[str]:
    """Return the entries of `git config --list -z` output whose key is in `SAFE_PERSONAL`."""
    return [entry for entry in listing.split("\0") if entry.partition("\n")[0] in SAFE_PERSONAL]


def config_text(entries: Iterable[str]) -> str:
    """A git configuration file of entries as `git config --list -z` gives them: a key, a line break, its value; a key alone is true."""
    lines = []
    for entry in entries:
        key, has_value, value = entry.partition("\n")
        section, _, rest = key.partition(".")
        within, _, name = rest.rpartition(".")
        head = f'[{section} "{_escaped(within)}"]' if within else f"[{section}]"
        lines.append(f'{head}\n\t{name} = "{_escaped(value)}"\n' if has_value else f"{head}\n\t{name}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# Git
# ---
# The only door to git: every verb runs through one `Git`, hardened, with a deadline, by GitPython's `Git.execute`.
#
# GitPython's repository objects are never used: its `is_dirty`, `untracked_files` and `index.commit` were measured to run an
# agent's fsmonitor and hooks. What is used is the part that starts git and owns its process.
#
# Nothing a repository or an agent configured is executed by any verb, see `hardening`. Paths are absolute and text from people
# follows `--end-of-options`. Names of files are bytes on the wire; in arguments they are `os.fsdecode` text.


QUICK_S = 30.0
"""Deadline of a verb that reads or moves refs."""
BULK_S = 120.0
"""Deadline of a verb that reads every file of a tree: 50,000 new files take a tenth of it."""
CHECKOUT_S = 1800.0
"""Deadline of a verb that writes every file of a commit where nobody but us has written yet. Any verb that does nothing ends sooner, see
`stall_detection`."""
_SAID_MAX = 2**16
_FALSE = frozenset({"false", "no", "off", "0", ""})
_AT_ONCE = frozenset({"config", "rev-parse", "symbolic-ref"})
"""Verbs that read a few small files: `setpriv` would take as long as they do."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a verb works. All paths are absolute; git never searches for a repository itself."""

    git_dir: Path
    common_dir: Path
    work_tree: Path | None = None
    inside: MountNamespace | None = None
    """The namespace that shows the work tree, when this process does not see it."""
    is_ours: bool = False
    """nightcrew checked the work tree out, so its files have the modes and links that its file system can hold."""

    @property
    def top(self) -> Path:
        """The path by which this process reaches the work tree, or the common directory where there is none."""
        if self.work_tree is None or self.inside is None:
            return self.work_tree or self.common_dir
        return self.inside.reach(self.work_tree)


@dataclass(frozen=True, slots=True)
class Answer:
    """What git said. `out` is exactly its bytes; `err` is text for people."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """`out` without its last line break, as text that `os.fsencode` turns back into the same bytes."""
        return os.fsdecode(self.out.removesuffix(b"\n"))


class RunOptions(TypedDict, total=False):
    """The options of `Git.run`, for those who pass them on."""

    stdin: bytes | int
    env: Mapping[str, str] | None
    accept: tuple[int, ...]
    deadline_s: float
    bounds: Bounds | None
    survives: bool


Opened = tuple[subprocess.Popen[bytes], object]  # a process, and what must be kept until it has ended


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a git may use that reads what a stranger wrote, in bytes. The kernel holds it; a lower limit that is set already stays.
    Of what it says on stderr, the last 64 KiB are kept."""

    memory: int
    """Of each process: what it allocates. Files that it maps to read them do not count."""
    file: int
    """Of each file that it writes."""

    @property
    def command(self) -> tuple[str, ...]:
        """What to put before git. The shell's own `ulimit`, since every system has a shell."""
        script = '{ ulimit -c 0; ulimit -s 8192; ulimit -d "$0"; ulimit -f "$1"; } 2>/dev/null; shift; exec "$@"'
        return ("sh", "-c", script, str(self.memory // 1024), str(self.file // 512))


@dataclass(frozen=True, slots=True)
class _Settings:
    """The configuration of a repository, by names with section and key in lower case, and the settings that make it harmless."""

    values: Mapping[str, str]
    harmless: Mapping[str, str]

    def is_on(self, name: str, *, default: bool = False) -> bool:
        """Return what a boolean setting says; any value that is not false for git counts as true."""
        value = self.values.get(name)
        return default if value is None else value.lower() not in _FALSE


class Git:
    """The door. One object per process; every method may be called from several threads at once.

    Creating it removes every `GIT_*` variable from this process's `os.environ`, for good: GitPython starts git from a copy of it.
    `state` is a directory of ours (0700); locks and the filtered personal configuration are kept there.
    `held` are handles that every git process keeps open: a lock among them is not free before the last git of a killed supervisor
    has ended, so that its successor never meets one at work. Each is asked to end when the thread that started it is gone (with `setpriv`,
    package util-linux), but for what ends at once; what hangs all the same, the successor ends by that lock.
    Raises ToolMissing when git is absent or older than 2.38, ToolFailed when the person's own git configuration is broken.
    """

    def __init__(self, state: Path, held: tuple[int, ...] = ()) -> None:
        self._state = state.absolute()
        self._held = held
        for folder in (self._state, self._state / "locks"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in [name for name in os.environ if name.startswith("GIT_")]:
            del os.environ[name]
        os.environ["GIT_PYTHON_REFRESH"] = "quiet"  # importing must not fail without git: that is ours to say, below
        from git.cmd import Git as Starter  # imported late: importing it starts git, with the environment just cleaned

        self._starter: Starter = Starter()
        self._leash: tuple[str, ...] = ()
        self._prepare({})
        self.version = self._read_version_on_leash() or self._read_version()
        self._personal_entries = self._read_personal()
        self.personal = config_text(self._personal_entries)
        self._personal = self._write_personal()

    def _prepare(self, settings: Mapping[str, str]) -> None:
        self.moving: Callable[[Path, list[tuple[str, str]]], AbstractContextManager[None]] = lambda _, __: contextlib.nullcontext()
        """Entered while refs of ours move in a repository (its common directory): each ref's name, and where to ("" removes it)."""
        self.say: Callable[[str], None] = lambda _: None
        """Told what a person should know; called from any thread."""
        self._runs: dict[int, str] = {}
        self._settings_more = settings
        self._known: dict[Path, tuple[object, _Settings]] = {}
        self._locks = RepositoryLocks(self._state / "locks", self._runs)
        self._capabilities = _capabilities(self._state)

    def run(
        self,
        place: Place,
        *argv: str,
        stdin: bytes | int = b"",
        env: Mapping[str, str] | None = None,
        accept: tuple[int, ...] = (0,),
        deadline_s: float = QUICK_S,
        bounds: Bounds | None = None,
        survives: bool = False,
    ) -> Answer:
        """Run one verb at `place`. `stdin` may be the descriptor of an open file, not 0; git reads on from its offset, and moves that.
        One that `survives` goes on to its end when this process is killed.
        Raises ToolFailed (exit status not in `accept`), ToolHung (`deadline_s` passed, or it did nothing for some seconds) or DiskFull."""
        full = {**self.environment(place), **(env or {})}
        directory = place.work_tree or place.common_dir
        answer = self._start(directory, argv, full, stdin, deadline_s, place.inside, bounds, () if survives else None)
        if answer.code not in accept:
            raise failure(argv[0], str(directory), answer.code, answer.err, _written(place, full))
        return answer

    def environment(self, place: Place) -> dict[str, str]:
        """What a verb at `place` finds in its environment, beside `hardening.ENVIRONMENT`."""
        where = {"GIT_DIR": str(place.git_dir)}
        if place.work_tree is not None:
            where["GIT_WORK_TREE"] = str(place.work_tree)
        settings = {**HARDENED, **self._settings_more, **self.disk_settings(place), **self._settings(place).harmless}
        return {**self._personal, **as_environment(settings), **where}

    def disk_settings(self, place: Place) -> dict[str, str]:
        """Settings that describe the file system at `place`, as `git init` there would write them. A repository copied from another
        system describes that one: with `core.ignoreCase`, git on Linux takes `readme` for `README` and reports no new file."""
        known = ".git" if place.work_tree is not None else "HEAD"
        case = {"core.ignoreCase": "true" if _folds_case(place.top, known) else "false"}
        return {**case, **self._capabilities} if place.is_ours else case

    def corrections(self, place: Place) -> dict[str, str]:
        """Settings for the git of an agent that reads the repository's own configuration, empty where that agrees: `disk_settings`, and
        logs of its branches, by which commits that it amends away are found. Keys in lower case. Raises ToolFailed, ToolHung."""
        settings = self._settings(place)
        described = {"core.ignorecase", "core.symlinks"} & settings.values.keys()
        found = {key.lower(): value for key, value in self.disk_settings(place).items()} if described else {}
        return found if settings.is_on("core.logallrefupdates", default=True) else {**found, "core.logallrefupdates": "true"}

    def is_sparse(self, place: Place) -> bool:
        """Return whether the repository's configuration has git check out a part of the tree only. Cached as `configured`."""
        return self._settings(place).is_on("core.sparsecheckout")

    def configured(self, place: Place) -> frozenset[str]:
        """Names of the keys that are set for a repository, section and key in lower case. Cached as `run`'s."""
        return frozenset(self._settings(place).values)

    def personal_files(self) -> dict[str, Path]:
        """Files of the person's that say what git ignores, and how it treats files, in every repository: setting (lower case) -> real path,
        of those that are there. Where `personal` names none, git looks in its default place."""
        named = dict(entry.split("\n", 1) for entry in self._personal_entries if "\n" in entry)
        default = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "git")
        found = {}
        for key, name in (("core.excludesfile", "ignore"), ("core.attributesfile", "attributes")):
            path = os.path.expanduser(named.get(key, str(default / name)))  # noqa: PTH111 - "" names no file, and Path would make it "."
            if path.startswith("/") and os.path.isfile(path):  # noqa: PTH113 - as above
                found[key] = Path(os.path.realpath(path))
        return found

    def ask(self, directory: Path, *argv: str) -> Answer:
        """Run a verb that executes nothing (`rev-parse`, `config`, `var`) where git searches for the repository itself.

        The person's own configuration applies, so git's answer on ownership (`safe.directory`) and identity is theirs.
        Never raises for git's exit status; raises ToolHung past the deadline.
        """
        env = {**as_environment(HARDENED), "GIT_CONFIG_NOSYSTEM": "0"}
        return self._start(directory, argv, env, b"", QUICK_S)

    def lock(self, common_dir: Path) -> AbstractContextManager[None]:
        """Hold the one lock of a repository, see `RepositoryLocks.hold`."""
        return self._locks.hold(common_dir, self.say)

    def scratch(self) -> Path:
        """A directory of ours for temporary files."""
        return self._state

    def _start(
        self,
        directory: Path,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        stdin: bytes | int,
        deadline_s: float,
        inside: MountNamespace | None = None,
        bounds: Bounds | None = None,
        leash: tuple[str, ...] | None = None,
    ) -> Answer:
        # `-C`, not GitPython's working directory: that one falls back to our own when the directory is gone.
        door, handles = (inside.command, inside.handles) if inside is not None else ((), ())
        bounded = bounds.command if bounds is not None else ()
        command = [
            *door,
            *(self._leash_of(argv[0]) if leash is None else leash),
            *bounded,
            "git",
            "--no-pager",
            "--no-optional-locks",
            "-C",
            str(directory),
            *argv,
        ]
        pipe = stdin if isinstance(stdin, int) else subprocess.PIPE if stdin else None
        process, _alive = self._open(command, {**ENVIRONMENT, **env}, pipe, (*self._held, *handles))
        tail = Tail(process, _SAID_MAX) if bounds is not None else None
        self._runs[threading.get_ident()] = f"git {argv[0]} on {directory} (pid {process.pid})"
        try:
            out, err = communicate(process, b"" if isinstance(stdin, int) else stdin, deadline_s)
        except Stopped as late:
            raise ToolHung(
                f"git {argv[0]} was stopped", on=str(directory), why=str(late), hint="look for pipes there, and at the disk; then retry"
            ) from late
        finally:
            del self._runs[threading.get_ident()]
        return Answer(process.returncode, out, (err if tail is None else tail.end()).decode("utf-8", "replace"))

    def _leash_of(self, verb: str) -> tuple[str, ...]:
        return () if self._held and verb in _AT_ONCE else self._leash

    def _open(self, command: list[str], env: dict[str, str], stdin: int | None, handles: tuple[int, ...]) -> Opened:
        """Start it, as the leader of a session. `securing_helper` does so without GitPython, whose import takes longer than its work."""
        handle = self._starter.execute(command, istream=stdin, as_process=True, env=env, start_new_session=True, pass_fds=handles)
        if handle.proc is None:  # GitPython types it optional; it is set until the handle is collected
            raise ToolFailed("git did not start", on=" ".join(command))
        return handle.proc, handle

    def _settings(self, place: Place) -> _Settings:
        """Return what is set. Cached by the stat of the configuration files; a configuration with includes is read every time."""
        signature = (_signature(place.common_dir / "config"), _signature(place.git_dir / "config.worktree"))
        known = self._known.get(place.common_dir)
        if known is not None and known[0] == signature:
            return known[1]
        env = {**self._personal, **as_environment(HARDENED), "GIT_DIR": str(place.git_dir)}
        answer = self._start(place.common_dir, ("config", "--list", "--show-scope", "-z"), env, b"", QUICK_S)
        if answer.code != 0:
            raise failure("config", str(place.git_dir), answer.code, answer.err)
        fields = answer.text.split("\0")
        entries = (entry.partition("\n") for scope, entry in zip(fields[::2], fields[1::2], strict=False) if scope != "command")
        values = {name: value if has_value else "true" for name, has_value, value in entries}
        found = _Settings(values, overrides(sorted(values)))
        if not has_includes(values):
            self._known[place.common_dir] = (signature, found)
        return found

    def _read_version(self) -> tuple[int, ...]:
        needs = ".".join(map(str, MINIMUM))
        hint = f"install git {needs} or newer"
        try:
            answer = self._start(self._state, ("version",), {}, b"", QUICK_S)
        except ToolFailed:
            raise
        except Exception as error:
            if type(error).__name__ not in {"GitCommandNotFound", "PermissionError"}:  # its class comes with the late import
                raise
            raise ToolMissing("git is not installed", why=f"nightcrew needs git {needs} or newer on PATH", hint=hint) from error
        version = parse_version(answer.text)
        if version < MINIMUM:
            raise ToolMissing("git is too old", on=answer.text, why=f"nightcrew needs {needs} or newer", hint=hint)
        return version

    def _read_version_on_leash(self) -> tuple[int, ...]:
        """Put before git what has the kernel ask it to end when this process has ended; nothing, and no version, where none here can."""
        self._leash = (shutil.which("setpriv") or "setpriv", "--pdeathsig", "TERM", "--")
        try:
            answer = self._start(self._state, ("version",), {}, b"", QUICK_S)
        except Exception as error:
            if type(error).__name__ not in {"GitCommandNotFound", "PermissionError"}:  # as in `_read_version`
                raise
            version: tuple[int, ...] = ()
        else:
            version = parse_version(answer.text) if answer.code == 0 else ()
        if version < MINIMUM:
            self._leash, version = (), ()
        return version

    def _read_personal(self) -> list[str]:
        """The filtered personal configuration, as entries of `git config --list -z`."""
        env = {"GIT_CONFIG_NOSYSTEM": "0", "GIT_CEILING_DIRECTORIES": str(self._state.parent)}
        answer = self._start(self._state, ("config", "--list", "-z"), env, b"", QUICK_S)
        if answer.code != 0:
            raise failure("config", "your git configuration", answer.code, answer.err)
        return personal_entries(os.fsdecode(answer.out))

    def _write_personal(self) -> dict[str, str]:
        """The variables that make `personal` the only global configuration."""
        file = self._state / "gitconfig"
        files.atomic_write(file, os.fsencode(self.personal), durable=False)
        return {"GIT_CONFIG_GLOBAL": str(file)}


def _written(place: Place, env: Mapping[str, str]) -> list[Path]:
    """The directories that a verb writes to, of those that are there."""
    named = [place.top, place.git_dir, place.common_dir, place.common_dir / "objects"]
    named += [Path(env[name]) for name in ("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY") if name in env]
    return [path if path.is_dir() else path.parent for path in named if path.parent.is_dir()]


def parse_version(text: str) -> tuple[int, ...]:
    """`git version 2.39.5 (Apple Git-154)` as (2, 39, 5); unknown text as ()."""
    words = text.split()
    numbers = words[2].split(".") if len(words) > 2 else []
    return tuple(int(number) for number in numbers if number.isdigit())


def _folds_case(directory: Path, known: str) -> bool:
    """Return whether another spelling of `known`, a file of `directory`, names the same file there. Only reads."""
    other = known.swapcase()
    return os.path.lexists(directory / other) and other not in os.listdir(directory)  # noqa: PTH208 - names only


def _capabilities(directory: Path) -> dict[str, str]:
    """git's settings for modes and symbolic links, tried in a directory of ours. Worktrees of ours lie on the same file system."""
    keeps_modes = makes_links = True
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(prefix="probe-", dir=directory) as scratch:  # full disk: as Linux has it
        top = Path(scratch)
        top.chmod(0o500)
        keeps_modes = stat.S_IMODE(top.stat().st_mode) == 0o500
        top.chmod(0o700)
        try:
            (top / "link").symlink_to("target")
        except OSError as error:
            makes_links = files.is_no_space(error)
    return {"core.fileMode": str(keeps_modes).lower(), "core.symlinks": str(makes_links).lower()}


def _signature(path: Path) -> tuple[int, ...] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
