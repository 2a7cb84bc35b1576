"""The door to files that must be whole, private, or that an agent may have put a trap in."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from supervisor.core.errors import DiskFull, HostError, NotFound, Refused, ToolFailed


def atomic_write(path: Path, data: bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Replace `path` by `data`: after a crash or on a full disk it holds either all of the old or all of the new.

    Not `durable`, it may be missing or empty after a power cut: for what is then written anew, 1.6 ms sooner here. A symbolic link at
    `path` is replaced, not followed. Raises DiskFull or ToolFailed; the old content is then still there.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(handle, "wb") as file:
                os.fchmod(file.fileno(), mode)  # whatever the umask is
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            draft.rename(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        if durable:
            _sync_directory(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_error(path: Path, error: OSError) -> HostError:
    """What the system's refusal to write `path` is in our words: DiskFull or ToolFailed."""
    why = error.strerror or str(error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull("cannot write", on=str(path), why=why, kept="the old content", hint="free space and try again")
    return ToolFailed("cannot write", on=str(path), why=why, kept="the old content", hint=f"ls -ld {path.parent}")


def private_dir(path: Path) -> Path:
    """Make sure that `path` is a directory only its owner can enter, and that we are the owner; returns it.

    Missing parents are made as private. A wrong mode is repaired. Raises Refused when somebody else made it first (a symbolic link,
    a file, another owner), and DiskFull or ToolFailed when it cannot be made.
    """
    if not path.parent.exists():
        private_dir(path.parent)
    try:
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _not_private(path, "it is not a directory but a link or a file") from error
        raise write_error(path, error) from error
    try:  # by its handle: nobody can swap the directory between the check and the repair
        state = os.fstat(handle)
        if state.st_uid != os.geteuid():
            raise _not_private(path, f"it belongs to uid {state.st_uid}, not to us")
        if stat.S_IMODE(state.st_mode) != 0o700:
            os.fchmod(handle, 0o700)
    finally:
        os.close(handle)
    return path


def _not_private(path: Path, why: str) -> Refused:
    return Refused("will not use the directory", on=str(path), why=why, kept="it was not touched", hint=f"ls -ld {path}")


def read_bounded(path: Path, limit: int, *, beneath: Path | None = None) -> bytes:
    """Read a file that an agent can write, at most `limit` bytes, without ever hanging, following a link or leaving the tree.

    Only a regular file of ours with a single name counts. With `beneath` (a directory we trust) every component of `path` below it
    must be a real directory, so a symbolic link in the middle leads nowhere either. Raises NotFound or Refused.
    """
    try:
        with _opened(path, beneath) as handle:
            _check_plain(path, os.fstat(handle), limit)
            data = _read_upto(handle, limit + 1)
    except FileNotFoundError as error:
        raise NotFound("no such file", on=str(path)) from error
    except OSError as error:
        link = error.errno in (errno.ELOOP, errno.ENOTDIR)
        raise _unread(path, "it or a directory on the way is a link" if link else error.strerror or str(error)) from error
    if len(data) > limit:
        raise _unread(path, f"it is larger than {limit} bytes")
    return data


@contextlib.contextmanager
def _opened(path: Path, beneath: Path | None) -> Iterator[int]:
    """O_NONBLOCK: opening a FIFO that nobody writes to would hang for ever."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:

        def keep(handle: int) -> int:
            stack.callback(os.close, handle)
            return handle

        if beneath is None:
            yield keep(os.open(path, flags))
            return
        *directories, name = _steps(path, beneath)
        here = keep(os.open(beneath, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for step in directories:
            here = keep(os.open(step, flags | os.O_DIRECTORY, dir_fd=here))
        yield keep(os.open(name, flags, dir_fd=here))


def _steps(path: Path, beneath: Path) -> tuple[str, ...]:
    steps = path.relative_to(beneath).parts if path.is_relative_to(beneath) else ()
    if not steps or ".." in steps:
        raise _unread(path, f"it does not lie in {beneath}")
    return steps


def _check_plain(path: Path, state: os.stat_result, limit: int) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise _unread(path, "it is not a regular file")
    if state.st_nlink != 1:
        raise _unread(path, f"it has {state.st_nlink} names, so it may be a file from elsewhere")
    if state.st_uid != os.geteuid():
        raise _unread(path, f"it belongs to uid {state.st_uid}")
    if state.st_size > limit:
        raise _unread(path, f"it is larger than {limit} bytes")


def _read_upto(handle: int, limit: int) -> bytes:
    parts: list[bytes] = []
    while limit > 0 and (part := os.read(handle, min(limit, 1 << 20))):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _unread(path: Path, why: str) -> Refused:
    return Refused("will not read", on=str(path), why=why, kept="nothing was read", hint=f"ls -l {path}")


_NO_RECORD = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENXIO)


def read_plain(path: Path, limit: int, *, tail: bool = False) -> bytes | None:
    """The first (or with `tail` the last) `limit` bytes of a file that an agent can replace; None when no regular file is there.

    Never waits on a pipe and never follows a link. Raises ToolFailed when the machine could not look: that is no evidence.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_RECORD:
            return None
        raise ToolFailed("cannot read", on=str(path), why=error.strerror or str(error)) from error
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            return None
        if tail:
            os.lseek(handle, max(0, state.st_size - limit), os.SEEK_SET)
        return _read_upto(handle, limit)
    except OSError as error:
        raise ToolFailed("cannot read", on=str(path), why=error.strerror or str(error)) from error
    finally:
        os.close(handle)


def free_bytes(path: Path) -> int:
    """Bytes that an ordinary user can still write on the file system of `path`."""
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize
