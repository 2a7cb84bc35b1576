"""Directories for a while, where files lie on the disk, and files that patterns name."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import struct
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from supervisor.host.untrusted_fs import remove_tree
from supervisor.kernel.path_globs import is_below, normalised

# Scratch
# -------
# Directories for a while, which no kill leaves behind: the next one who makes one in the same place takes away what its makers
# left.


@contextlib.contextmanager
def locked_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """A new directory of ours in `parent`, gone afterwards. Its lock says that its maker lives: those of killed makers go first. Raises
    OSError when it cannot be made."""
    for left in parent.glob(f"{prefix}*"):
        _sweep(left)
    place, handle = _locked(parent, prefix)
    try:
        yield place
    finally:
        with contextlib.suppress(OSError, TimeoutError):  # the next one tries again
            remove_tree(place)
        os.close(handle)


def is_left(place: Path) -> bool:
    """Return whether the maker of a `locked_directory` is gone; False if it cannot be looked at."""
    with contextlib.suppress(OSError):
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
        return True
    return False


def _locked(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:  # another's sweep may come before the lock
        place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if place.exists():
                return place, handle
            os.close(handle)


def _sweep(left: Path) -> None:
    with contextlib.suppress(OSError, TimeoutError):  # gone, at work, or not ours to remove
        handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_uid == os.geteuid():
                remove_tree(left)
        finally:
            os.close(handle)


def sweep(parent: Path, prefix: str, kept: Collection[Path] = ()) -> None:
    """Remove our directories in `parent` that a crash left: their names begin with `prefix`, and they are not in `kept`."""
    for place in parent.glob(f"{prefix}*"):
        if place not in kept:
            remove_own(place)


def remove_own(place: Path) -> None:
    """Remove the directory `place` if it is ours; absent is fine. What cannot be removed stays."""
    with contextlib.suppress(OSError):
        seen = place.lstat()
        if seen.st_uid == os.geteuid() and stat.S_ISDIR(seen.st_mode):
            remove_tree(place)


# Placement
# ---------
# Where on the disk a directory's files go, as far as a file system lets us say.
#
# ext4 puts a new directory near its parent, and it does not hand out an inode that was freed within the last minute, or within five
# while the change is not written yet: it looks at every such inode again for each new file (`recently_deleted` in
# fs/ext4/ialloc.c). So after somebody removed a few worktrees, 500 new files beside them took 1,000 ms and more of processor time
# instead of 25 (kernel 6.18). In a directory that carries the flag of `spread` each new directory gets the emptiest part of the
# disk: 25 ms, whatever was removed elsewhere.


_LONG = struct.Struct("l")
_GET_FLAGS = 0x80006601 | _LONG.size << 16  # FS_IOC_GETFLAGS, include/uapi/linux/fs.h
_SET_FLAGS = 0x40006602 | _LONG.size << 16
TOPDIR = 0x00020000
"""`chattr +T`: what lies in this directory is not related."""


def spread(directory: Path) -> None:
    """Have the file system place each directory that is made in `directory` on its own. Does nothing where it cannot be said."""
    with contextlib.suppress(OSError), _opened(directory) as handle:  # ENOTTY, EOPNOTSUPP: not ext4
        before = _flags(handle)
        if not before & TOPDIR:
            fcntl.ioctl(handle, _SET_FLAGS, _LONG.pack(before | TOPDIR))


def _flags(handle: int) -> int:
    return int(_LONG.unpack(fcntl.ioctl(handle, _GET_FLAGS, _LONG.pack(0)))[0])


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield handle
    finally:
        os.close(handle)


# Mounts
# ------
# Which file system a path is on, where that decides what the kernel tells of it.


_MOUNTINFO = Path("/proc/self/mountinfo")
_REMOTE = re.compile(
    r"nfs4?|cifs|smb\w*|9p|virtiofs|ceph|glusterfs|lustre|afs|ncpfs|vboxsf|prl_fs|fuse|fuse\.(?!fuse-overlayfs|ext\d|ntfs).*"
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


def file_system(path: Path, mounts: Iterable[str] | None = None) -> str:
    """The type of the file system that `path` lies on, as the kernel names it; "" where it does not say. `mounts` are the lines of
    mountinfo, proc(5)."""
    if mounts is None:
        try:
            mounts = _MOUNTINFO.read_text(errors="surrogateescape").split("\n")
        except OSError:
            return ""
    found = (-1, "")
    for line in mounts:
        before, _, after = line.partition(" - ")
        words = before.split(" ")
        if len(words) < 5 or not after:
            continue
        point = Path(_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), words[4]))
        if path.is_relative_to(point) and len(point.parts) >= found[0]:  # of two at one place the later one covers the other
            found = (len(point.parts), after.split(" ")[0])
    return found[1]


def changes_elsewhere(kind: str) -> bool:
    """Whether files of such a file system may change without this kernel knowing: no event says so then."""
    return _REMOTE.fullmatch(kind) is not None


# Path patterns
# -------------
# Files of a repository that patterns name. The patterns come with a clone, so whatever they match must lie in it: no link leads
# out.
#
# They are those of `core.path_globs`, see `names_files` there.


MAX_FILES = 10_000
"""Of one list of patterns: `**` in a tree of dependencies is a mistake."""


def files(root: Path, patterns: Iterable[str]) -> tuple[str, ...]:
    """Paths, relative to `root` and sorted, of the plain files that any of `patterns` (globs) matches: nothing of git's own, and nothing
    that is reached by a symbolic link. Raises ValueError for what is no pattern, and when
    there are more than 10,000."""
    found: set[str] = set()
    for pattern in patterns:
        for path in _plain(root, pattern):
            found.add(path)
            if len(found) > MAX_FILES:
                raise ValueError(f"{pattern!r} matches more than {MAX_FILES} files")
    return tuple(sorted(found))


def _plain(root: Path, pattern: str) -> Iterator[str]:
    form = normalised(pattern)
    for path in [root] if form == "**" else root.glob(form):
        inside = path.relative_to(root)
        if any(map(_is_git, inside.parts)):
            continue
        steps = [root.joinpath(*inside.parts[:number]) for number in range(1, len(inside.parts) + 1)]
        if any(step.is_symlink() for step in steps):
            continue
        if path.is_file():
            yield str(inside)
        elif is_below(pattern):
            yield from _below(root, path)


def _below(root: Path, directory: Path) -> Iterator[str]:
    for place, directories, names in os.walk(directory):
        directories[:] = (name for name in directories if not _is_git(name))
        for path in (Path(place, name) for name in names if not _is_git(name)):
            if not path.is_symlink() and path.is_file():
                yield str(path.relative_to(root))


def _is_git(name: str) -> bool:
    return name.casefold() == ".git"
