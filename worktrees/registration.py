"""Registers a worktree with git: writes git's own files in git's order, finds them after a crash, and compares them with what we wrote.

git writes the `locked` file before anything else of a worktree, so a reason of ours in that file says whose half-made worktree this is.
A `git worktree prune` of the person removes a directory that it finds without that file, also between git's own two steps; here the
directory gets its name with the file in it.

In an ordinary repository the files are written here instead of by `git worktree add`: a process less, which is most of the time that a
warm environment takes. A repository with an unusual layout (another store of refs, per-worktree configuration, sparse checkout,
shared modes) is left to git. A test holds both forms equal.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from supervisor.host import scratch
from supervisor.host.untrusted_fs import folder, open_plain, remove_tree
from supervisor.kernel.errors import ToolFailed
from worktrees import repository
from worktrees.git import wrap_os_errors
from worktrees.repository import Repository

COMMONDIR = b"../..\n"
_LINK_MAX = 8192
_PRUNES_MAX = 1000
_BEING_MADE = ".making"
_HEAD = re.compile(rb"ref: refs/\S+|[0-9a-f]{40}|[0-9a-f]{64}")
_RACY_NS = 2 * 10**9
"""A file that changed so short ago may change again without another stamp."""
_PLAIN_EXTENSIONS = frozenset({"extensions.objectformat", "extensions.partialclone", "extensions.noop", "extensions.preciousobjects"})


@dataclass(frozen=True, slots=True)
class _Head:
    stamp: tuple[int, ...]
    text: bytes


_heads: dict[Path, dict[str, _Head]] = {}
"""By common directory and worktree."""


@dataclass(frozen=True, slots=True)
class _Link:
    """Place of a worktree, as git's directory for it names it."""

    inode: int
    """Of git's directory."""
    stamp: tuple[int, ...]
    place: str
    root: str
    """Two directories above: that of all environments, where it is an attempt's."""


_links: dict[Path, dict[str, _Link]] = {}
"""By common directory, and name of git's directory for the worktree."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What to register: a worktree at `path` whose HEAD is `branch` (a short name; "" is detached), which stands on commit `oid`."""

    path: Path
    reason: bytes
    """Why it is locked from the first moment on."""
    oid: str
    branch: str = ""


def add(repo: Repository, wanted: Registration) -> Path:
    """Register a worktree without files; hold the repository's lock. Returns git's directory for it.

    Raises ToolFailed, HostError or DiskFull.
    """
    if is_unusual(repo):
        _by_git(repo, wanted)
        link = read_link(wanted.path / ".git")
        return Path(os.fsdecode(link.removeprefix(b"gitdir: ").removesuffix(b"\n")))
    with wrap_os_errors(wanted.path):
        return _by_hand(repo, wanted)


def find(repo: Repository, path: Path, making: bytes) -> Path | None:
    """git's directory for the worktree at `path`: the one that names it, or that we were making for it (reason `making`) when we died."""
    link = os.fsencode(path) + b"/.git\n"
    place = repo.common_dir / "worktrees"
    try:
        names = [name for name in os.listdir(place) if name.startswith(path.name)]  # noqa: PTH208 - there may be thousands
    except FileNotFoundError:
        return None
    for admin in (place / name for name in sorted(names)):
        if read_link(admin / "gitdir") == link:
            return admin
        if is_being_made(admin, path, making) and link.startswith(read_link(admin / "gitdir")):
            return admin  # it names no worktree yet: whoever wrote the link died before, or while, he did
    return None


def is_being_made(admin: Path, path: Path, making: bytes) -> bool:
    """Whether git's directory `admin`, of the worktree at `path`, is one that was not finished: its lock says so with the reason `making`.

    A file is there, empty, a moment before its text: then the name of the directory says it.
    """
    reason = lock_reason(admin)
    return reason == making or (
        making.startswith(reason) and re.fullmatch(rf"{re.escape(path.name + _BEING_MADE)}\d*", admin.name) is not None
    )


def has_checkout(repo: Repository, ref: str) -> bool:
    """Whether any checkout of the repository is on the branch `ref` (full name) now. Hold the repository's lock.

    git would read the HEAD of every worktree, and what that names, for each such question. Here only those are read that changed since
    the last one. Raises ToolFailed, HostError.
    """
    heads = None if is_unusual(repo) else _all_heads(repo.common_dir)
    if heads is None:
        return bool(repository.over_all(repo, "for-each-ref", "--format=%(worktreepath)", ref).text)
    return b"ref: " + os.fsencode(ref) in heads


def inside(common: Path, top: Path) -> dict[str, Path]:
    """Return the worktrees that are registered below `top`, such as an agent's own: path below `top` -> git's directory for it.

    `top` is an attempt's worktree; those of other attempts, of which there may be thousands, are read once. Of others, only links that
    changed since the last call are read. Raises nothing.
    """
    known, now, old = _links.get(common, {}), dict[str, _Link](), time.time_ns() - _RACY_NS
    root, below = str(top.parent.parent), f"{top}/"
    try:
        with folder(common / "worktrees") as here, os.scandir(here.handle) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # half made, or going
                    link = known.get(entry.name)
                    if link is None or link.inode != entry.inode() or link.root != root:
                        link = _read_link(common / "worktrees", entry, here.handle, link, old)
                    now[entry.name] = link
    except OSError:
        return {}
    _links[common] = now
    found = {name: link.place.removeprefix(below) for name, link in now.items() if link.place.startswith(below)}
    return {path: common / "worktrees" / name for name, path in found.items()}


def _read_link(place: Path, entry: os.DirEntry[str], handle: int, before: _Link | None, old: int) -> _Link:
    seen = os.stat(f"{entry.name}/gitdir", dir_fd=handle, follow_symlinks=False)
    stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    if before is not None and before.stamp == stamp and seen.st_ctime_ns < old:
        return before
    text = os.fsdecode(read_link(place / entry.name / "gitdir").removesuffix(b"\n"))
    lies = Path(os.path.normpath(place / entry.name / text)).parent
    return _Link(entry.inode(), stamp, str(lies), str(lies.parent.parent))


def _all_heads(common: Path) -> set[bytes] | None:
    """What each checkout stands on, as git writes it; None when one of them is not as git writes it."""
    known, now, old = _heads.get(common, {}), dict[str, _Head](), time.time_ns() - _RACY_NS
    try:
        with folder(common / "worktrees") as here:
            for below in ("..", *here.names()):
                with contextlib.suppress(FileNotFoundError):  # half made: git does not know it
                    seen = os.stat(f"{below}/HEAD", dir_fd=here.handle, follow_symlinks=False)
                    stamp = (seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
                    before = known.get(below)
                    same = before is not None and before.stamp == stamp and seen.st_ctime_ns < old
                    now[below] = before if before is not None and same else _Head(stamp, _head(common, below))
    except OSError:
        return None
    _heads[common] = now
    found = {head.text for head in now.values()}
    return found if all(map(_HEAD.fullmatch, found)) else None


def _head(common: Path, below: str) -> bytes:
    with folder(common, "" if below == ".." else f"worktrees/{below}") as here:
        return (here.read("HEAD", _LINK_MAX, linked=True) or b"").removesuffix(b"\n")


def clear(path: Path, admin: Path) -> None:
    """Remove a half-made worktree, its administration last. Only for one that was never handed out: nobody but us ever wrote in it."""
    if read_link(admin / "gitdir") and path.is_dir() and not path.is_symlink():
        remove_tree(path)
    with contextlib.suppress(OSError):
        path.rmdir()  # git makes the directory a moment before it records it
    (admin / "gitdir").unlink(missing_ok=True)  # from now on the reason alone says whose it is
    drop(admin)


def drop(admin: Path) -> None:
    """Remove git's directory for a worktree, the reason of its lock last: whoever is killed here leaves what `find` finds."""
    remove_tree(admin, keep=("locked",))
    remove_tree(admin)


def lock_reason(admin: Path) -> bytes:
    """Why the worktree is locked; b"" when it is not."""
    return read_link(admin / "locked").removesuffix(b"\n")


def read_link(file: Path) -> bytes:
    """A small regular file; b"" when it is anything else."""
    try:
        with open_plain(file) as data:
            return data.read(_LINK_MAX)
    except OSError:
        return b""


def is_unusual(repo: Repository) -> bool:
    """Whether its files are kept in a way that only git itself should write."""
    names = repo.git.configured(repo.store)
    extensions = {name for name in names if name.startswith("extensions.")}
    return bool(extensions - _PLAIN_EXTENSIONS or "core.sharedrepository" in names or repo.git.is_sparse(repo.store))


def _by_git(repo: Repository, wanted: Registration) -> None:
    head = (wanted.branch,) if wanted.branch else ("--detach", wanted.oid)
    *flags, commit = head
    lock = ("--lock", "--reason", os.fsdecode(wanted.reason))
    repo.run("worktree", "add", "--no-checkout", *lock, *flags, str(wanted.path), commit)


def _by_hand(repo: Repository, wanted: Registration) -> Path:
    admin = _locked_directory(repo.common_dir / "worktrees", wanted.path.name, wanted.reason)
    wanted.path.mkdir()
    (admin / "gitdir").write_bytes(os.fsencode(wanted.path) + b"/.git\n")
    (wanted.path / ".git").write_bytes(b"gitdir: " + os.fsencode(admin) + b"\n")
    (admin / "HEAD").write_text(f"ref: refs/heads/{wanted.branch}\n" if wanted.branch else f"{wanted.oid}\n")
    (admin / "commondir").write_bytes(COMMONDIR)
    (admin / "logs").mkdir()
    nobody = "0" * len(wanted.oid)
    (admin / "logs" / "HEAD").write_text(f"{nobody} {wanted.oid} nightcrew <nightcrew@localhost> {int(time.time())} +0000\n")
    return admin


def _locked_directory(parent: Path, name: str, reason: bytes) -> Path:
    """git's directory for a worktree called `name`, with nothing in it but its lock: made by another name, since a prune takes what has no
    lock yet. Whoever is killed here leaves what `find` finds."""
    for _ in range(_PRUNES_MAX):
        parent.mkdir(exist_ok=True)
        scratch.spread(parent)  # worktrees come and go
        with contextlib.suppress(FileNotFoundError):
            made = _first_free(parent, name + _BEING_MADE, _make_anew)
            (made / "locked").write_bytes(reason + b"\n")
            admin = _first_free(parent, name, made.rename)
            if (admin / "locked").exists():  # a prune knows it by the other name only, so from here on it stays
                return admin
    raise ToolFailed(
        "a worktree cannot be registered", on=str(parent / name), why="somebody removes it again and again", hint="git worktree list"
    )


def _make_anew(place: Path) -> None:
    with contextlib.suppress(OSError):
        place.rmdir()  # empty, it is what a kill left at this very place; or another process's, which notices
    place.mkdir()


def _first_free(parent: Path, name: str, take: Callable[[Path], object]) -> Path:
    """The first of `name`, `name1`, `name2` … that `take` gets, as git chooses. It gets an empty one, which a kill left, by a rename."""
    for number in range(1000):
        place = parent / (f"{name}{number}" if number else name)
        try:
            take(place)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
        else:
            return place
    raise ToolFailed("no name is free for a worktree", on=str(parent / name), hint="git worktree prune")
