"""Changes of a worktree that are in no commit, and files on which git would hang."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import stat
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.host import untrusted_fs
from supervisor.host.untrusted_fs import Folder, folder, open_plain
from supervisor.kernel.errors import ToolFailed, one_line
from supervisor.sandbox.policy import SHARED_OBJECTS
from worktrees import backends, registration, repository
from worktrees.backends import GITLINK, Entry, entries
from worktrees.git import BULK_S, Git, Place, wrap_os_errors

if TYPE_CHECKING:
    from worktrees.environments import Environment
    from worktrees.repository import Repository


# Changes
# -------
# The changes of a worktree that are in no commit: git's own answer, made complete and safe to ask for.
#
# `git status` is told to look at nested repositories from outside only: entering one would obey its configuration, which an agent
# wrote. The index tells what it cannot see: files hidden by assume-unchanged or skip-worktree, and submodules that somebody filled.
# It is read here, a process less; one of an unusual form is left to `git ls-files`.


_INDEX_MAX = 64 * 2**20
"""Bytes: half a million files."""
_UNREAD = "could not open directory"
_FIELDS_BEFORE_PATH = {b"1": 8, b"u": 10}


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths are bytes relative to the top of the worktree, as git gives them."""

    head: str | None
    """Commit that HEAD stands on; None when its branch has no commit."""
    branch: str | None
    """Full name of the ref HEAD is on, or None when it is detached."""
    tracked: tuple[bytes, ...] = ()
    """Changed, staged or unmerged."""
    deleted: tuple[bytes, ...] = ()
    """Tracked, but no longer a file there: gone, or below something that became a link."""
    untracked: tuple[bytes, ...] = ()
    hidden: tuple[bytes, ...] = ()
    """Tracked files whose changes git was told not to notice."""
    nested: tuple[bytes, ...] = ()
    """Directories with a repository of their own, without a slash at the end; a submodule that was filled is one."""
    ignored: tuple[bytes, ...] = ()
    """A whole ignored directory is one entry that ends in a slash; empty unless asked for."""
    warnings: tuple[str, ...] = ()
    """Directories that git could not read; what else it says on stderr hides no file."""

    @property
    def files(self) -> tuple[bytes, ...]:
        """All that differs from what git knows, nested repositories apart."""
        return (*self.tracked, *self.deleted, *self.untracked, *self.hidden)


def observe(git: Git, place: Place, *, ignored: bool = False, index: Path | None = None) -> Changes:
    """The changes at `place`, one git process or two. Raises ToolFailed when git cannot use HEAD or the index there."""
    env = {"GIT_INDEX_FILE": str(index)} if index is not None else {}
    argv = ["--porcelain=v2", "-z", "--branch", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty"]
    argv.append("--ignored=matching" if ignored else "--ignored=no")
    status = git.run(place, "status", *argv, env=env, deadline_s=BULK_S)
    listed = _read(index or place.git_dir / "index", status.out)
    if listed is None:
        listed = list(_listed(git.run(place, "ls-files", "-v", "--stage", "-z", env=env).out))
    found = _combine(place.top, status.out, listed, tuple(line for line in status.err.splitlines() if _UNREAD in line))
    return replace(found, nested=(*found.nested, *_ignored_worktrees(place, found.nested))) if place.is_ours else found


def _ignored_worktrees(place: Place, nested: Iterable[bytes]) -> list[bytes]:
    """Worktrees that an agent added below a directory that git ignores, where `git status` does not look: their files are work."""
    top, seen = place.work_tree or place.common_dir, [os.fsdecode(path) for path in nested]
    return [
        os.fsencode(path)
        for path in sorted(registration.inside(place.common_dir, top))
        if not any(path == other or path.startswith(f"{other}/") for other in seen) and _holds_repository(place.top, os.fsencode(path))
    ]


def _read(index: Path, status: bytes) -> list[Entry] | None:
    """What `_special` must look at; None when git must be asked."""
    oid = status.partition(b"# branch.oid ")[2].partition(b"\0")[0]
    if len(oid) not in (40, 64):
        return None  # a branch without a commit: nobody said how long the names of objects are
    try:
        with open_plain(index) as file:
            data = file.read(_INDEX_MAX + 1)
        return None if len(data) > _INDEX_MAX else [entry for entry in entries(data, len(oid) // 2) if _is_special(entry)]
    except (OSError, ValueError):
        return None


def _listed(rows: bytes) -> Iterator[Entry]:
    """From `ls-files -v --stage -z`: `<tag> <mode> <oid> <stage>\\t<path>`."""
    for row in filter(None, rows.split(b"\0")):
        facts, _, path = row.partition(b"\t")
        yield Entry(0, int(facts[2:8], 8), facts[:1].islower(), facts[:1] in b"Ss", path)


def _is_special(entry: Entry) -> bool:
    return entry.mode == GITLINK or entry.is_valid or entry.is_skipped


def _combine(top: Path, status: bytes, listed: Iterable[Entry], warnings: tuple[str, ...]) -> Changes:
    heads: dict[bytes, str] = {}
    tracked: list[bytes] = []
    deleted: list[bytes] = []
    untracked: list[bytes] = []
    nested: list[bytes] = []
    skipped: list[bytes] = []
    for entry in status.split(b"\0"):
        kind, _, rest = entry.partition(b" ")
        if kind == b"#":
            key, _, value = rest.partition(b" ")
            heads[key] = os.fsdecode(value)
        elif kind in _FIELDS_BEFORE_PATH:
            missing = kind == b"1" and rest[1:2] == b"D"
            (deleted if missing else tracked).append(entry.split(b" ", _FIELDS_BEFORE_PATH[kind])[-1])
        elif kind == b"?":
            (nested if rest.endswith(b"/") else untracked).append(rest.rstrip(b"/"))
        elif kind == b"!":
            skipped.append(rest)
    hidden, gitlinks = _special(top, listed)
    oid, name = heads.get(b"branch.oid", "(initial)"), heads.get(b"branch.head", "(detached)")
    return Changes(
        head=None if oid == "(initial)" else oid,
        branch=None if name == "(detached)" else f"refs/heads/{name}",
        tracked=tuple(path for path in tracked if path not in gitlinks),
        deleted=tuple(deleted),
        untracked=tuple(untracked),
        hidden=hidden,
        nested=(*nested, *sorted(gitlinks)),
        ignored=tuple(skipped),
        warnings=warnings,
    )


def _special(top: Path, listed: Iterable[Entry]) -> tuple[tuple[bytes, ...], frozenset[bytes]]:
    """Hidden files, and gitlinks that hold a repository."""
    hidden, gitlinks = [], set()
    for entry in listed:
        if entry.mode == GITLINK:
            if _holds_repository(top, entry.path):
                gitlinks.add(entry.path)
        elif entry.is_valid or (entry.is_skipped and os.path.lexists(top / os.fsdecode(entry.path))):
            hidden.append(entry.path)
    return tuple(hidden), frozenset(gitlinks)


def _holds_repository(top: Path, path: bytes) -> bool:
    """A `.git` lies there, and no symbolic link on the way leads out of the worktree."""
    full = top
    for part in os.fsdecode(path).split("/"):
        full /= part
        if full.is_symlink():
            return False
    return os.path.lexists(full / ".git")


# Blocking files
# --------------
# Files that make git wait or read without end: pipes, devices and huge files where git opens a file by its name.
#
# git opens `.gitignore` and its like in every directory of a worktree, whatever lies in a repository inside it, and its own files
# for the worktree. open(2) of a pipe that nobody writes to does not return. So before git walks what an agent wrote, such things
# are looked for, by their kind alone: nothing is opened but directories. What is found is set aside, and each is a line for the
# result. Other pipes and sockets stay: git passes over them.
#
# A look costs as long as there are directories and names, and is bounded; what it misses, for example behind a link to a directory,
# git's deadline ends.


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
        found = repository.clear(env.repo, env.branch_ref)
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
        for looked, (below, here, entry) in enumerate(untrusted_fs.entries(top, leave_out=leave_out)):
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
    return _leading(here, entry.name, seen) if untrusted_fs.may_wait(seen) else ""


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
    if untrusted_fs.may_wait(seen):
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
    what = untrusted_fs.kind(seen) if seen is not None else "nothing"
    return what if own is None or not stat.S_ISLNK(own.st_mode) else f"a link to {what}"
