"""Repairs an attempt's own repository, in its sandbox, after its agent has ended and before its work is collected.

What would make git wait is set aside (`blocking_files`). What git needs before it takes a directory for a repository is written anew where
it cannot be used: the agent could write anything there. Each is a line for the result.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from supervisor.host.untrusted_fs import Folder, entries, folder
from supervisor.kernel.errors import ToolFailed
from worktrees import changes, rescue
from worktrees.environments import Environment
from worktrees.git import wrap_os_errors
from worktrees.private_repository import alternates

_SMALL_MAX = 4096
_INCLUDES = ("include.", "includeif.")
_HEAD = re.compile(rb"(ref: refs/[^\n]+|[0-9a-f]{40}|[0-9a-f]{64})\n?")


def repair(env: Environment) -> list[str]:
    """Raises ToolFailed, ToolHung, HostError, DiskFull."""
    top = env.repo.common_dir
    with wrap_os_errors(top):
        _open_up(top)
        rescue.unlock(top)
        notes = changes.disarm_repository(env)
        with folder(top) as here:
            notes += [*_directory(here, "objects"), *_directory(here, "refs")]
            notes += _aside(here, "commondir", "it led to another repository") if here.look("commondir") else []
            notes += _file(here, "HEAD", f"ref: {env.branch_ref}\n".encode(), _HEAD)
        with folder(top, "objects") as objects:
            notes += _directory(objects, "info")
        with folder(top, "objects/info") as info:
            wanted = alternates(top)
            notes += _file(info, "alternates", wanted, re.compile(re.escape(wanted)))
    return notes + _configuration(env)


def _open_up(top: Path) -> None:
    """Let the owner enter and change every directory of the repository: the person's stand read-only and are not touched."""
    top.chmod(stat.S_IMODE(top.stat().st_mode) | stat.S_IRWXU)
    for _ in entries(top, leave_out=changes.OF_THE_PERSON, open_up=True):
        pass


def _directory(here: Folder, name: str) -> list[str]:
    seen = here.look(name)
    if seen is not None and stat.S_ISDIR(seen.st_mode):
        return []
    notes = _aside(here, name, "it was no directory") if seen is not None else []
    os.mkdir(name, dir_fd=here.handle)
    return notes


def _file(here: Folder, name: str, text: bytes, usable: re.Pattern[bytes]) -> list[str]:
    if usable.fullmatch(here.read(name, _SMALL_MAX, linked=True) or b""):
        return []
    notes = _aside(here, name, "it could not be used") if here.look(name) is not None else [f".git/{name} was gone"]
    here.replace(name, text)
    return notes


def _aside(here: Folder, name: str, why: str) -> list[str]:
    return [f".git/{name}: {why}: it is now {here.set_aside(name)}"]


def _configuration(env: Environment) -> list[str]:
    """The agent's, or one that says only what kind of repository it is. One that pulls in files counts as unusable: what git reads then
    depends on who reads."""
    try:
        env.repo.run("rev-parse", "--git-dir")
        fit = not any(name.startswith(_INCLUDES) for name in env.repo.git.configured(env.place))
    except ToolFailed:
        fit = False
    if fit:
        return []
    return [*_anew(env.admin_dir, "config.worktree", None), *_anew(env.repo.common_dir, "config", plain_configuration(len(env.base)))]


def _anew(top: Path, name: str, text: bytes | None) -> list[str]:
    notes = list[str]()
    with wrap_os_errors(top), contextlib.suppress(FileNotFoundError, NotADirectoryError), folder(top) as here:
        notes += _aside(here, name, "git could not use it") if here.look(name) is not None else []
        if text is not None:
            here.replace(name, text)
    return notes


def plain_configuration(oid_size: int) -> bytes:
    """Of a repository whose objects have names of so many hex digits."""
    if oid_size == 40:
        return b"[core]\n\trepositoryformatversion = 0\n\tbare = false\n"
    return b"[core]\n\trepositoryformatversion = 1\n\tbare = false\n[extensions]\n\tobjectformat = sha256\n"
