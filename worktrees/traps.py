"""What would make git wait, or read without end: pipes, devices and huge files where git opens a file by its name.

git opens `.gitignore` and its like in every directory of a worktree, whatever lies in a repository inside it, and its own files for the
worktree. open(2) of a pipe that nobody writes to does not return. So before git walks what an agent wrote, such things are looked for, by
their kind alone: nothing is opened but directories. What is found is set aside, and each is a line for the result. Other pipes and sockets
stay: git passes over them.

A look costs as long as there are directories and names, and is bounded; what it misses, for example behind a link to a directory, git's
deadline ends.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from supervisor.core.errors import ToolFailed
from supervisor.host import foreign
from supervisor.host.foreign import Folder, folder
from worktrees import backends, refs
from worktrees.environments import Environment
from worktrees.git import wrap_os_errors

OPENED = frozenset({".gitignore", ".gitattributes", ".gitmodules", ".mailmap"})
"""What git opens in any directory. In lower case: some file systems do not tell the two apart."""
_LARGE = 100 * 2**20
"""git itself ignores attributes in a larger file, and would hold all of a larger `.gitignore` in memory."""
_LOOKED_MAX = 5_000_000
_PATH_MAX = 4096
"""What lies deeper git cannot open: it names a file from the top of the worktree."""
_LINK_MAX = 8192


def disarm(env: Environment) -> list[str]:
    """Set aside what would make git wait in the worktree, in git's directory for it, among the task's refs and among the objects. A line
    for each.

    Call it when the attempt's processes have ended and, where its files are layers, before they are brought in sight. Absent directories
    are fine. Raises ToolFailed when there is too much to look through, HostError, DiskFull.
    """
    look, act = _own_files(env)
    with wrap_os_errors(env.path):
        found = refs.clear(env.repo, env.branch_ref)
        found += [f"{env.admin_dir.name}/{line}" for line in _search(env.admin_dir, env.admin_dir, _any)]
        found += [f"objects/{line}" for line in _search(env.repo.common_dir / "objects", env.repo.common_dir / "objects", _any)]
        return found + _search(look, act, _opened_by_git)


def _own_files(env: Environment) -> tuple[Path, Path]:
    """Where to look, and where to rename: an agent's files are in the upper layer, and what is mounted is changed through the mount."""
    if env.layers is None or not env.layers.upper:
        return env.path, env.path
    upper = Path(env.layers.upper)
    return upper, env.path if backends.named(env.layers.backend).is_open(env) else upper


_Judge = Callable[[Folder, os.DirEntry[str], bool], str]
"""Why the entry must be set aside, or nothing; the last is whether it lies at the top."""


def _search(look: Path, act: Path, judge: _Judge) -> list[str]:
    found = []
    for below, name, why in _unfit(look, judge):
        with folder(act, below) as here:
            found.append(f"{below}/{name} was {why}: it is now {here.set_aside(name)}".removeprefix("/"))
    return found


def _unfit(top: Path, judge: _Judge) -> Iterator[tuple[str, str, str]]:
    """Each entry that must be set aside: its directory below `top`, its name, and why."""
    todo, looked = [("", judge)], 0
    while todo:
        below, judge = todo.pop()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError), folder(top, below) as here:
            for entry in _entries(here):
                looked += 1
                path = f"{below}/{entry.name}".removeprefix("/")
                if entry.is_dir(follow_symlinks=False):
                    if len(os.fsencode(path)) < _PATH_MAX:
                        todo.append((path, _any if below and entry.name == ".git" else judge))
                elif why := judge(here, entry, not below):
                    yield below, entry.name, why
        if looked > _LOOKED_MAX:
            raise ToolFailed("there is too much to look through", on=str(top), why=f"more than {_LOOKED_MAX} files", kept="all of it")


def _entries(here: Folder) -> list[os.DirEntry[str]]:
    with os.scandir(here.handle) as entries:
        return list(entries)


def _any(here: Folder, entry: os.DirEntry[str], _at_top: bool = False) -> str:
    """Inside a repository git opens whatever has the right name."""
    if entry.is_file(follow_symlinks=False):
        return ""
    seen = here.leads_to(entry.name)
    return _leading(here, entry.name, seen) if foreign.may_wait(seen) else ""


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
        why = next(filter(None, (_any(there, entry) for entry in _entries(there))), "")
        return why and f"a link to a repository with {why} in it"
    finally:
        os.close(handle)


def _leading(here: Folder, name: str, seen: os.stat_result | None) -> str:
    own = here.look(name)
    what = foreign.kind(seen) if seen is not None else "nothing"
    return what if own is None or not stat.S_ISLNK(own.st_mode) else f"a link to {what}"
