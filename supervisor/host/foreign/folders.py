"""One directory by its handle, and the files in it. See the package."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import signal
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ASIDE = "aside"
"""In the names of what was set aside: `.NAME.aside-` and 8 hex digits. Neither git nor a shell's `*` shows them."""
_OPENAT2 = 437  # the same on every architecture
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08  # RESOLVE_*, include/uapi/linux/openat2.h
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
            if tail:
                file.seek(max(0, os.fstat(handle).st_size - limit))
            return file.read(limit)

    def is_being_written(self, name: str) -> bool | None:
        """Return whether a process has this file open for writing. Return None where the kernel cannot tell: it is no plain file, another
        user owns it, or its file system has no leases. Raises OSError."""
        handle = self._opened(name, os.O_RDONLY) if sys.platform == "linux" else None
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
    with contextlib.ExitStack() as stack:
        handle = _kept(stack, os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        if make:
            for name in filter(None, below.split("/")):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, _MADE_FOLDER, dir_fd=handle)
                handle = _kept(stack, os.open(name, DIRECTORY, dir_fd=handle))
        elif below:
            handle = _kept(stack, _beneath(handle, below))
        yield Folder(handle)


def _kept(stack: contextlib.ExitStack, handle: int) -> int:
    stack.callback(os.close, handle)
    return handle


def _beneath(top: int, below: str) -> int:
    """A directory below the one that is open as `top`, by one call of the kernel, or component by component where it has none."""
    if set(below.split("/")) & {"", ".", ".."}:
        raise OSError(errno.EINVAL, "not a plain relative path", below)
    call = _openat2()
    handle = call(top, below) if call is not None else None
    return _step_by_step(top, below) if handle is None else handle


def _step_by_step(top: int, below: str) -> int:
    handle = os.dup(top)
    try:
        for name in below.split("/"):
            deeper = os.open(name, DIRECTORY, dir_fd=handle)
            os.close(handle)
            handle = deeper
    except OSError:
        os.close(handle)
        raise
    return handle


class _Openat2:
    """openat2(2), Linux 5.6 or newer."""

    def __init__(self) -> None:
        import ctypes  # only here: it costs short commands several ms

        self._types = ctypes
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._how = (ctypes.c_uint64 * 3)(DIRECTORY, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)

    def __call__(self, top: int, below: str) -> int | None:
        """A handle; None where the kernel, or a filter in front of it, does not know the call. Raises OSError."""
        while True:
            types = self._types
            path = types.c_char_p(os.fsencode(below))
            handle = self._syscall(types.c_long(_OPENAT2), types.c_int(top), path, self._how, types.c_size_t(24))
            if handle >= 0:
                return int(handle)
            number = types.get_errno()
            if number in (errno.ENOSYS, errno.EPERM):
                return None
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number), below)


@functools.cache
def _openat2() -> _Openat2 | None:
    try:
        return _Openat2()
    except (OSError, AttributeError):  # no libc that can be opened so
        return None
