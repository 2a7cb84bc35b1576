"""The one door to files and directories that an agent can write while we use them.

An agent can put a link, a pipe or a device in the place of anything there, and swap a directory between two looks of ours. So nothing is
used by its path: a directory is opened once, with no link on the way below what we trust, and what is done in it is done by its handle. A
file counts only when it is a regular one with a single name. No call here waits: a pipe is opened without blocking, and then refused.

    folder, Folder            one directory by its handle, and the files in it
    Descent, entries          a whole tree by handles, however deep
    remove_tree               deletes such a tree
    open_plain, read_plain, read_on, last_line, sha256
                              a file in a directory of ours alone, when only the file itself is in doubt: there a path will do

What lies in the way is not deleted but renamed where it lies (`Folder.set_aside`): a link's text may be all that tells what was tried.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import signal
import stat
import time
from collections.abc import Callable, Collection, Container, Generator, Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from supervisor.kernel import errors
from supervisor.kernel.errors import ToolFailed

# Folders
# -------
# One directory by its handle, and the files in it.


ASIDE = "aside"
"""In the names of what was set aside: `.NAME.aside-` and 8 hex digits. Neither git nor a shell's `*` shows them."""
SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
"""How anything is opened that an agent could have put there."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | SAFE
_MADE, _MADE_FOLDER = 0o644, 0o755


@dataclass(frozen=True, slots=True)
class Folder:
    """A directory by its handle: what is done in it stays in it, wherever somebody moves it meanwhile. Names are plain, without a slash."""

    handle: int

    def names(self) -> list[str]:
        """All that is in it."""
        return os.listdir(self.handle)  # noqa: PTH208 - it has no path

    def look(self, name: str) -> os.stat_result | None:
        """What `name` itself is; None when there is nothing. A name that is too long is none."""
        try:
            return os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
                return None
            raise

    def leads_to(self, name: str) -> os.stat_result | None:
        """What `name` is or leads to; None when it leads nowhere."""
        try:
            return os.stat(name, dir_fd=self.handle)
        except OSError:
            return None

    def read(self, name: str, limit: int, *, linked: bool = False, tail: bool = False) -> bytes | None:
        """The first (or with `tail` the last) `limit` bytes; None when no regular file with a single name is there. `linked`: one with
        several names will do, for what is only compared, as after `cp -al` of a whole repository."""
        handle = self._opened(name, os.O_RDONLY, linked=linked)
        if handle is None:
            return None
        with os.fdopen(handle, "rb") as file:
            return _part(file, limit, tail=tail)

    def is_being_written(self, name: str) -> bool | None:
        """Return whether a process has this file open for writing. Return None where the kernel cannot tell: it is no plain file, another
        user owns it, or its file system has no leases. Raises OSError."""
        handle = self._opened(name, os.O_RDONLY)
        if handle is None:
            return None
        try:
            fcntl.fcntl(handle, fcntl.F_SETSIG, signal.SIGURG)  # which is ignored: who opens it now waits until the lease is gone
            fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError as error:
            return True if error.errno == errno.EAGAIN else None
        else:
            return False
        finally:
            os.close(handle)

    def append(self, name: str, data: bytes) -> bool:
        """Add to a file, which is made when it is missing. False, with nothing done, when something else is there. Raises OSError."""
        handle = self._opened(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        if handle is None:
            return False
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return True

    def create(self, name: str, data: bytes, *, sync: bool = False, mode: int = _MADE) -> bool:
        """Make a new file of that `mode`, with `sync` on the disk; False when anything has that name. Raises OSError, with no file left."""
        try:
            handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE, mode, dir_fd=self.handle)
        except FileExistsError:
            return False
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(handle)
        except OSError:
            self.remove(name)
            raise
        return True

    def draft(self, name: str, data: bytes, *, sync: bool = False, mode: int = _MADE) -> str:
        """As `create`, by a name that nobody can foresee, to be linked or renamed to `name`; returns that name."""
        while not self.create(fresh := f".{name}.{os.urandom(8).hex()}", data, sync=sync, mode=mode):
            pass
        return fresh

    def replace(self, name: str, data: bytes, *, mode: int = _MADE) -> None:
        """Put a file of that `mode` in place of whatever has that name, which is neither followed nor opened. Raises OSError, also for a
        directory."""
        fresh = self.draft(name, data, mode=mode)
        try:
            os.rename(fresh, name, src_dir_fd=self.handle, dst_dir_fd=self.handle)
        except OSError:
            self.remove(fresh)
            raise

    def link(self, name: str, to: str) -> bool:
        """Give the file `name` the second name `to`; False when anything has that, or the file system has no links. Raises OSError."""
        try:
            os.link(name, to, src_dir_fd=self.handle, dst_dir_fd=self.handle, follow_symlinks=False)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
                return False
            raise
        return True

    def move(self, name: str, to: Folder) -> bool:
        """Rename `name` into another directory of the same file system, where it replaces what has that name; False when there is nothing:
        of several that move the same file one alone does. Raises OSError."""
        try:
            os.rename(name, name, src_dir_fd=self.handle, dst_dir_fd=to.handle)
        except FileNotFoundError:
            return False
        return True

    def sync(self) -> None:
        """What was made, renamed or removed in it is on the disk."""
        os.fsync(self.handle)

    def remove(self, name: str) -> None:
        """Unlink; absent is fine. Raises OSError, also for a directory."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.handle)

    def remove_empty(self, name: str) -> None:
        """Remove an empty directory. Raises OSError, also when it is not empty."""
        os.rmdir(name, dir_fd=self.handle)

    def set_aside(self, name: str) -> str:
        """Rename it within the directory, which is made writable for its owner where it is not; returns the new name. Raises OSError."""
        short = os.fsdecode(os.fsencode(name)[:200])
        aside = f".{short.lstrip('.')}.{ASIDE}-{os.urandom(4).hex()}"
        try:
            os.rename(name, aside, src_dir_fd=self.handle, dst_dir_fd=self.handle)
        except PermissionError:
            os.fchmod(self.handle, stat.S_IMODE(os.fstat(self.handle).st_mode) | stat.S_IWUSR | stat.S_IXUSR)
            os.rename(name, aside, src_dir_fd=self.handle, dst_dir_fd=self.handle)
        return aside

    def _opened(self, name: str, flags: int, *, linked: bool = False) -> int | None:
        try:
            handle = os.open(name, flags | SAFE, _MADE, dir_fd=self.handle)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENODEV):
                return None
            raise
        seen = os.fstat(handle)
        if stat.S_ISREG(seen.st_mode) and (linked or seen.st_nlink == 1):
            return handle
        os.close(handle)
        return None


def kind(seen: os.stat_result) -> str:
    """What it is, for people."""
    kinds = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a directory", stat.S_IFSOCK: "a socket", stat.S_IFREG: "a file"}
    return kinds.get(stat.S_IFMT(seen.st_mode), "a device")


def may_wait(seen: os.stat_result | None) -> bool:
    """Whether open(2) or reading it may not return. A device without a number is how overlayfs writes down that a file was removed."""
    if seen is None:
        return False
    is_device = stat.S_ISCHR(seen.st_mode) or stat.S_ISBLK(seen.st_mode)
    return stat.S_ISFIFO(seen.st_mode) or (is_device and seen.st_rdev != 0)


@contextlib.contextmanager
def folder(top: Path, below: str = "", *, make: bool = False) -> Iterator[Folder]:
    """The directory `below` (a relative path without dots) of `top`. Links on the way to `top` are followed, since we trust it; below it
    there must be none. With `make`, what is missing is made. Raises OSError: for a link ELOOP or ENOTDIR."""
    start = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        handle = _beneath(start, below, make=make)
    finally:
        os.close(start)
    try:
        yield Folder(handle)
    finally:
        os.close(handle)


def _beneath(top: int, below: str, *, make: bool) -> int:
    """Open a directory below the one that is open as `top`, component by component."""
    parts = below.split("/") if below else []
    if {"", ".", ".."} & set(parts):
        raise OSError(errno.EINVAL, "not a plain relative path", below)
    handle = os.dup(top)
    try:
        for name in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, _MADE_FOLDER, dir_fd=handle)
            deeper = os.open(name, DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = deeper
    except OSError:
        os.close(handle)
        raise
    return handle


# Reading
# -------
# A file in a directory that is ours alone, when only the file itself is in doubt.


_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENXIO, errno.ENODEV, errno.EINVAL)


def open_plain(file: Path, below: Path | None = None) -> BufferedReader:
    """Open for reading, never through a symbolic link at `file` and never waiting on a pipe. With `below`, a directory that holds `file`,
    no directory between the two is a symbolic link either.

    Raises OSError, also when it is not a regular file.
    """
    inner = str(file.parent.relative_to(below or file.parent))
    with folder(below or file.parent, "" if inner == "." else inner) as here:
        handle = os.open(file.name, os.O_RDONLY | SAFE, dir_fd=here.handle)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    return os.fdopen(handle, "rb")


def open_there(path: Path, below: Path | None = None) -> BufferedReader | None:
    """As `open_plain`; None when no regular file is there. Raises ToolFailed."""
    try:
        return open_plain(path, below)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise ToolFailed("cannot read", on=str(path), why=error.strerror or str(error)) from error


@contextlib.contextmanager
def _opened(path: Path, below: Path | None = None) -> Iterator[BufferedReader | None]:
    """As `open_there`. Raises ToolFailed also when the body cannot read."""
    file = open_there(path, below)
    try:
        yield file
    except OSError as error:
        raise ToolFailed("cannot read", on=str(path), why=error.strerror or str(error)) from error
    finally:
        if file is not None:
            file.close()


def _part(file: IO[bytes], limit: int, *, tail: bool) -> bytes:
    if tail:
        file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
    return file.read(limit)


def read_plain(path: Path, limit: int, *, tail: bool = False) -> bytes | None:
    """The first (or with `tail` the last) `limit` bytes, however the file grows meanwhile; None when no regular file is there.

    Raises ToolFailed when the machine could not look: that is no evidence.
    """
    with _opened(path) as file:
        return None if file is None else _part(file, limit, tail=tail)


def read_on(path: Path, begin: int, limit: int) -> tuple[bytes, float] | None:
    """At most `limit` bytes from `begin` on, and when the file was last written (wall-clock seconds); None when no regular file is there,
    or it has no more than that. Raises ToolFailed."""
    with _opened(path) as file:
        if file is None or (found := os.fstat(file.fileno())).st_size <= begin:
            return None
        file.seek(begin)
        return file.read(limit), found.st_mtime


def sha256(path: Path) -> str | None:
    """Return the digest of a whole file, as 64 hex digits; None when no regular file is there. Raises ToolFailed."""
    with _opened(path) as file:
        return None if file is None else hashlib.file_digest(file, "sha256").hexdigest()


def last_line(log: Path, limit: int = 4096) -> str:
    """The last line within the last `limit` bytes that is not empty, without spaces around it; "" when there is none. Raises ToolFailed."""
    return errors.last_line((read_plain(log, limit, tail=True) or b"").decode("utf-8", "replace"))


# Trees
# -----
# A whole tree by handles, however deep it is and whoever moves its directories meanwhile.


PATH_MAX = 4096
"""What lies deeper no program can name from the top."""
_KEPT = 32
"""Levels, from the top, whose handles stay open. Below them only one is: the way back is `..`, believed when it is where we came from."""
REMOVE_S = 1800.0


@dataclass(slots=True)
class _Level:
    handle: int
    """-1: closed, because something deeper is open."""
    identity: tuple[int, int]
    name: str
    todo: list[str] = field(default_factory=list)


class Descent:
    """A walk through the directories of one tree, depth first; its caller reads each one by `here`, and says in `todo` where to go."""

    def __init__(self, top: int) -> None:
        """`top` is the handle of a directory, which stays the caller's."""
        seen = os.fstat(top)
        self.device = seen.st_dev
        self.is_whole = True
        """False: a directory was moved while we were in it, so that what was left to do around it was passed over."""
        self._levels = [_Level(os.dup(top), (seen.st_dev, seen.st_ino), "")]

    @property
    def here(self) -> int:
        """The handle of the directory that we are in."""
        return self._levels[-1].handle

    @property
    def depth(self) -> int:
        """0 at the top."""
        return len(self._levels) - 1

    @property
    def todo(self) -> list[str]:
        """Names in `here` that are still to be entered, the last one first; for the caller to fill and empty."""
        return self._levels[-1].todo

    def enter(self, name: str, *, across: bool = False) -> os.stat_result:
        """Go down. Raises OSError: ELOOP or ENOTDIR for a link, EXDEV where another file system is mounted, unless `across`."""
        handle = os.open(name, DIRECTORY, dir_fd=self.here)
        seen = os.fstat(handle)
        if seen.st_dev != self.device and not across:
            os.close(handle)
            raise OSError(errno.EXDEV, "another file system is mounted there", name)
        if self.depth >= _KEPT:
            os.close(self.here)
            self._levels[-1].handle = -1
        self._levels.append(_Level(handle, (seen.st_dev, seen.st_ino), name))
        return seen

    def leave(self) -> str:
        """Go up; the name of what was left, "" when somebody moved it: then we are in the nearest directory whose handle was kept."""
        left = self._levels.pop()
        try:
            if self.here < 0 and not self._returned(left.handle):
                self.is_whole = False
                while self.here < 0:
                    self._levels.pop()
                return ""
        finally:
            os.close(left.handle)
        return left.name

    def _returned(self, below: int) -> bool:
        above = self._levels[-1]
        try:
            handle = os.open("..", DIRECTORY, dir_fd=below)
        except OSError:
            return False
        seen = os.fstat(handle)
        if (seen.st_dev, seen.st_ino) != above.identity:
            os.close(handle)
            return False
        above.handle = handle
        return True

    def close(self) -> None:
        """Close every handle of ours."""
        while self._levels:
            if (handle := self._levels.pop().handle) >= 0:
                os.close(handle)


def entries(
    top: Path, below: str = "", *, leave_out: Container[str] = (), open_up: bool = False
) -> Generator[tuple[str, Folder, os.DirEntry[str]], None, None]:
    """Every entry of the tree at `below` of `top`, as in `folder`: the directory's path below `top`, the directory, which is open until the
    next entry is asked for, and the entry. Links are not followed.

    Directories of `leave_out` (paths below `top`) are named and not entered, and so are those that are closed to us, vanish, or lie deeper
    than any path can name. `open_up` lets their owner enter and change them first. Raises OSError when there is no such directory.
    """
    with folder(top, below) as start:
        way, paths = Descent(start.handle), [below]
        try:
            yield from _listed(way, below, leave_out)
            while way.todo or way.depth:
                if not way.todo:
                    way.leave()
                    continue
                name = way.todo.pop()
                paths[way.depth + 1 :] = [f"{paths[way.depth]}/{name}".lstrip("/")]
                try:
                    _enter(way, name, across=True, open_up=open_up)
                except OSError:
                    continue
                yield from _listed(way, paths[way.depth], leave_out)
        finally:
            way.close()


def _listed(way: Descent, path: str, leave_out: Container[str]) -> Iterator[tuple[str, Folder, os.DirEntry[str]]]:
    here = Folder(way.here)
    with os.scandir(way.here) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                deeper = f"{path}/{entry.name}".lstrip("/")
                if len(os.fsencode(deeper)) < PATH_MAX and deeper not in leave_out:
                    way.todo.append(entry.name)
            yield path, here, entry


def remove_tree(
    top: Path, *, keep: Collection[str] = (), max_seconds: float = REMOVE_S, clock: Callable[[], float] = time.monotonic
) -> None:
    """Delete the tree at `top`, in a directory that we trust, whatever modes its directories have. A link is deleted, never followed; what
    is absent, or vanishes meanwhile, is fine. What `top` has by a name of `keep` stays, and `top` with it.

    Nothing is deleted on another file system: OSError when one is mounted at `top` or inside. TimeoutError after `max_seconds`; OSError
    too when somebody moves its directories or fills them again. What was not reached stays then, and it may be called once more.
    """
    try:
        parent = os.open(top.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    way = Descent(parent)
    try:
        with contextlib.suppress(FileNotFoundError):
            _remove(way, top.name, frozenset(keep), _Deadline(clock, clock() + max_seconds))
    finally:
        way.close()
        os.close(parent)
    if not way.is_whole:
        raise OSError(errno.ESTALE, "somebody moves its directories", str(top))


@dataclass(frozen=True, slots=True)
class _Deadline:
    clock: Callable[[], float]
    at: float

    def check(self) -> None:
        if self.clock() > self.at:
            raise TimeoutError(errno.ETIMEDOUT, "it takes too long")


def _remove(way: Descent, top: str, keep: frozenset[str], until: _Deadline) -> None:
    if not stat.S_ISDIR(os.stat(top, dir_fd=way.here, follow_symlinks=False).st_mode):
        os.unlink(top, dir_fd=way.here)
        return
    way.todo.append(top)
    while way.todo or way.depth:
        until.check()
        if not way.todo:
            _leave(way, stays=way.depth == 1 and bool(keep))
            continue
        with contextlib.suppress(FileNotFoundError):
            _enter(way, way.todo.pop(), open_up=True)
            _unlink_files(way, keep if way.depth == 1 else frozenset(), until)


def _leave(way: Descent, *, stays: bool) -> None:
    """A `top` that was given something to keep goes only when it is empty all the same."""
    if name := way.leave():
        try:
            os.rmdir(name, dir_fd=way.here)
        except FileNotFoundError:
            return
        except OSError as error:
            if not stays or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _enter(way: Descent, name: str, *, open_up: bool, across: bool = False) -> None:
    """Go down, and with `open_up` make the directory its owner's to change: overlayfs keeps its work directory at mode 0."""
    try:
        seen = way.enter(name, across=across)
    except PermissionError:
        if not open_up:
            raise
        _open_up(way.here, name)
        seen = way.enter(name, across=across)
    mode = stat.S_IMODE(seen.st_mode)
    if open_up and mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(way.here, mode | stat.S_IRWXU)


def _open_up(parent: int, name: str) -> None:
    """What cannot be opened has no handle that fchmod(2) takes, only one that names it."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | SAFE, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)  # noqa: PTH101 - by the handle
    finally:
        os.close(handle)


def _unlink_files(way: Descent, keep: frozenset[str], until: _Deadline) -> None:
    with os.scandir(way.here) as entries:
        for entry in entries:
            until.check()
            if entry.name in keep:
                continue
            if entry.is_dir(follow_symlinks=False):
                way.todo.append(entry.name)
                continue
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=way.here)


# Renaming
# --------
# Renaming that loses nothing: two names exchanged, or a name given only when nobody has it.


_NOREPLACE, _EXCHANGE = 1, 2  # RENAME_*, include/uapi/linux/fs.h
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.EPERM, errno.EOPNOTSUPP)


def exchange(handle: int, one: str, other: str) -> bool:
    """Give each of two names in the directory what the other has, at one moment. False, with nothing done, where the kernel or the file
    system cannot. Raises OSError, also when one of them is not there."""
    return _renamed(handle, one, handle, other, _EXCHANGE)


def move_new(handle: int, name: str, to_handle: int, to: str) -> bool:
    """Rename within one file system; False, with nothing done, when anything has the new name. Raises OSError.

    Where the kernel cannot, it looks first: what is put there between the look and the renaming is then replaced.
    """
    try:
        if _renamed(handle, name, to_handle, to, _NOREPLACE):
            return True
        os.stat(to, dir_fd=to_handle, follow_symlinks=False)
    except FileExistsError:
        return False
    except FileNotFoundError:
        os.rename(name, to, src_dir_fd=handle, dst_dir_fd=to_handle)
        return True
    return False


def _renamed(handle: int, name: str, to_handle: int, to: str, flags: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    import ctypes

    if call(handle, os.fsencode(name), to_handle, os.fsencode(to), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), name)


@functools.cache
def _renameat2() -> Any:
    import ctypes  # only here: it costs short commands several ms

    try:
        found = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # a C library without it
        return None
    found.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return found
