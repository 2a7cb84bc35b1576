"""Files that make git wait or read without end: pipes, devices and huge files where git opens a file by its name.

git opens `.gitignore` and its like in every directory of a worktree, whatever lies in a repository inside it, and its own files for the
worktree. open(2) of a pipe that nobody writes to does not return. So before git walks what an agent wrote, such things are looked for, by
their kind alone: nothing is opened but directories. What is found is set aside, and each is a line for the result. Other pipes and sockets
stay: git passes over them.

A look costs as long as there are directories and names, and is bounded; what it misses, for example behind a link to a directory, git's
deadline ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Container, Iterator
from pathlib import Path

from supervisor.core.errors import ToolFailed, one_line
from supervisor.core.sandbox import SHARED_OBJECTS
from supervisor.host import foreign
from supervisor.host.foreign import Folder, folder
from worktrees import backends, refs
from worktrees.environment import Environment
from worktrees.failures import wrap_os_errors
from worktrees.repository import Repository

OPENED = frozenset({".gitignore", ".gitattributes", ".gitmodules", ".mailmap"})
"""What git opens in any directory. In lower case: some file systems do not tell the two apart."""
_LARGE = 100 * 2**20
"""git itself ignores attributes in a larger file, and would hold all of a larger `.gitignore` in memory."""
_HUGE = 2**30
_LOOKED_MAX = 5_000_000
_CLOSED = (FileNotFoundError, NotADirectoryError, PermissionError)
"""What these keep from us they keep from git."""
_LINK_MAX = 8192
OF_THE_PERSON = frozenset({SHARED_OBJECTS, "hooks", "info"})
"""What stands read-only in an attempt's own repository."""
_LOOSE = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
SHOWN = 20
"""Lines for each place."""


def disarm(env: Environment, *, objects: bool = True) -> list[str]:
    """Set aside what would make git wait in the worktree, in git's directory for it, among the task's refs and among the objects. A line
    for each. `objects=False` for who has called `disarm_objects` himself.

    Call it when the attempt's processes have ended and, where its files are layers, before they are brought in sight. Absent directories
    are fine. Raises ToolFailed when there is too much to look through, HostError, DiskFull.
    """
    look, act = _own_files(env)
    with wrap_os_errors(env.path):
        found = refs.clear(env.repo, env.branch_ref)
        if env.alone is None:
            found += _search(env.admin_dir, _set_aside(env.admin_dir), _any, f"{env.admin_dir.name}/")
            found += disarm_objects(env.repo) if objects else []
        return found + _search(look, _set_aside(act), _opened_by_git, "")


def disarm_objects(repo: Repository) -> list[str]:
    """The part of `disarm` that is the same for every worktree of a repository, and as large as that. Raises as `disarm`."""
    objects = repo.common_dir / "objects"
    with wrap_os_errors(objects):
        return _search(objects, _remove(objects), _any, "objects/")


def disarm_repository(env: Environment) -> list[str]:
    """As `disarm`, of all that an attempt's own repository holds but what stands there of the person's. Call it in the attempt's sandbox
    before git is run there for the first time."""
    top = env.repo.common_dir
    with wrap_os_errors(top):
        return _search(top, _set_aside(top), _in_a_repository, ".git/", leave_out=OF_THE_PERSON)


def _own_files(env: Environment) -> tuple[Path, Path]:
    """Where to look, and where to rename: an agent's files are in the upper layer, and what is mounted is changed through the mount."""
    if env.layers is None or not env.layers.upper:
        return env.path, env.path
    upper = Path(env.layers.upper)
    return upper, env.path if backends.named(env.layers.backend).is_open(env) else upper


_Judge = Callable[[Folder, os.DirEntry[str], bool], str]
"""Why the entry must be set aside, or nothing; the last is whether it lies at the top."""


_Hand = Callable[[str, str], str]
"""Take a name out of a directory, given below the top; says what became of it."""


def _set_aside(top: Path) -> _Hand:
    def act(below: str, name: str) -> str:
        with folder(top, below) as here:
            return f"it is now {here.set_aside(name)}"

    return act


def _remove(top: Path) -> _Hand:
    """For the objects, where it is nobody's work, and where `git fsck` would complain of any other name."""

    def act(below: str, name: str) -> str:
        with folder(top, below) as here:
            here.remove(name)
        return "it was removed"

    return act


def _search(look: Path, act: _Hand, judge: _Judge, where: str, leave_out: Container[str] = ()) -> list[str]:
    found: list[str] = []
    more = 0
    for below, name, why in _unfit(look, judge, leave_out):
        done = act(below, name)
        if len(found) < SHOWN:
            found.append(one_line(f"{where}{_joined(below, name)} was {why}: {done}"))
        else:
            more += 1
    return [*found, f"{where or 'in the worktree '}and {more} more like these"] if more else found


def _unfit(top: Path, judge: _Judge, leave_out: Container[str]) -> Iterator[tuple[str, str, str]]:
    """Each entry that must be set aside: its directory below `top`, its name, and why."""
    with contextlib.suppress(*_CLOSED):
        for looked, (below, here, entry) in enumerate(foreign.entries(top, leave_out=leave_out)):
            if looked > _LOOKED_MAX:
                raise ToolFailed("there is too much to look through", on=str(top), why=f"more than {looked} files", kept="all of it")
            why = ""
            with contextlib.suppress(*_CLOSED):
                if not entry.is_dir(follow_symlinks=False):
                    why = (_any if "/.git/" in f"{below}/" else judge)(here, entry, not below)  # not the one at the top
            if why:
                yield below, entry.name, why


def _joined(below: str, name: str) -> str:
    return f"{below}/{name}" if below else name


def _any(here: Folder, entry: os.DirEntry[str], _at_top: bool = False) -> str:
    """Inside a repository git opens whatever has the right name."""
    if entry.is_file(follow_symlinks=False):
        return ""
    seen = here.leads_to(entry.name)
    return _leading(here, entry.name, seen) if foreign.may_wait(seen) else ""


def _in_a_repository(here: Folder, entry: os.DirEntry[str], at_top: bool) -> str:
    """git maps its files into memory as a whole, and reads some to their end. Packs it reads in parts. An object that a power cut left
    empty it would take for one that it has."""
    if (why := _any(here, entry, at_top)) or entry.name.endswith(".pack"):
        return why
    seen = here.leads_to(entry.name)
    if seen is not None and stat.S_ISREG(seen.st_mode) and not seen.st_size and _LOOSE.fullmatch(entry.name):
        return "empty"
    return f"of {seen.st_size} bytes" if seen is not None and stat.S_ISREG(seen.st_mode) and seen.st_size > _HUGE else ""


def _opened_by_git(here: Folder, entry: os.DirEntry[str], at_top: bool) -> str:
    if entry.name == ".git" and not at_top:
        return _gitfile(here, entry.name)
    if entry.name.lower() not in OPENED:
        return ""
    seen = here.leads_to(entry.name)
    if foreign.may_wait(seen):
        return _leading(here, entry.name, seen)
    return f"of {seen.st_size} bytes" if seen is not None and seen.st_size > _LARGE and not stat.S_ISDIR(seen.st_mode) else ""


def _gitfile(here: Folder, name: str) -> str:
    """A `.git` that is a file names the directory of a repository: git would open what lies in there."""
    text = os.fsdecode(here.read(name, _LINK_MAX) or b"").removeprefix("gitdir: ").rstrip("\n")
    if not text or "\0" in text:
        return ""
    try:
        handle = os.open(text, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=here.handle)
    except OSError:
        return ""
    try:
        there = Folder(handle)
        with os.scandir(handle) as entries:
            why = next(filter(None, (_any(there, entry) for entry in itertools.islice(entries, _LOOKED_MAX))), "")
        return why and f"a link to a repository with {why} in it"
    finally:
        os.close(handle)


def _leading(here: Folder, name: str, seen: os.stat_result | None) -> str:
    own = here.look(name)
    what = foreign.kind(seen) if seen is not None else "nothing"
    return what if own is None or not stat.S_ISLNK(own.st_mode) else f"a link to {what}"
