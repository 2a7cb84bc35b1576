"""The door to files that must be whole, private, or that an agent may have put a trap in."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from supervisor.kernel.errors import DiskFull, HostError, Refused, ToolFailed

HARDLY_ANY = 2**20
"""Bytes. Below, git fails in ways that it does not explain: it writes an index, a ref or a log in part."""


def atomic_write(path: Path, data: bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Replace `path` by `data`: after a crash or on a full disk it holds either all of the old or all of the new.

    Not `durable`, it may be missing or empty after a power cut: for what is then written anew, 1.6 ms sooner here. A symbolic link at
    `path` is replaced, not followed. Raises DiskFull or ToolFailed; the old content is then still there, but for the error of `unsynced`.
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
    except OSError as error:
        raise write_error(path, error) from error
    if durable:
        try:
            sync_directory(path.parent)
        except OSError as error:
            raise unsynced(path, error) from error


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unsynced(path: Path, error: OSError, kept: str = "the new content") -> ToolFailed:
    """What to say when `path` was changed, and then its directory could not be synced: every reader sees the change, and a power cut may
    undo it. `kept` is what is there now."""
    why = f"its directory could not be synced: {error.strerror or error}"
    return ToolFailed("a power cut may undo the change of", on=str(path), why=why, kept=kept, hint="dmesg")


def write_error(path: Path, error: OSError) -> HostError:
    """What the system's refusal to write `path` is in our words: DiskFull or ToolFailed."""
    why = error.strerror or str(error)
    if is_no_space(error):
        return disk_full("cannot write", path, why, kept="the old content", hint="free space and try again")
    return ToolFailed("cannot write", on=str(path), why=why, kept="the old content", hint=f"ls -ld {path.parent}")


def private_dir(path: Path) -> Path:
    """Make sure that `path` is a directory only its owner can enter, that we are the owner, and that we may write there; returns it.

    Missing parents are made as private. A wrong mode is repaired. Raises Refused when somebody else made it first (a symbolic link,
    a file, another owner), and DiskFull or ToolFailed when it cannot be made or written.
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
        if not os.access(".", os.W_OK, dir_fd=handle):  # here, where the path is known: tmux would say that its address is in use
            raise write_error(path, OSError(errno.EROFS, os.strerror(errno.EROFS)))
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        os.close(handle)
    return path


def _not_private(path: Path, why: str) -> Refused:
    return Refused("will not use the directory", on=str(path), why=why, kept="it was not touched", hint=f"ls -ld {path}")


def is_read_only(path: Path) -> bool:
    """Whether the file system of `path` takes no change."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def try_lock(handle: int) -> bool:
    """Take the exclusive flock of an open file or directory; False when another has it. It lasts until every copy of `handle` is closed."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_bytes(path: Path) -> int:
    """Bytes that an ordinary user can still write on the file system of `path`."""
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def is_no_space(error: OSError) -> bool:
    """Whether the system refused because a disk is full, or the quota of its user is used up."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def is_full(path: Path) -> bool:
    """Whether hardly anything can be written any more where `path` lies: less than HARDLY_ANY, or no new file. What is not there, or
    cannot be written at all, is not full."""
    try:
        space = os.statvfs(path)
    except OSError:
        return False
    no_file = space.f_files > 0 and space.f_favail == 0
    return (space.f_bavail * space.f_frsize < HARDLY_ANY or no_file) and not space.f_flag & os.ST_RDONLY


def disk_full(what: str, path: Path, why: str, *, kept: str = "", hint: str = "free some space") -> DiskFull:
    """The error of a disk that is full. It names `path`, and how many bytes are free there."""
    return DiskFull(what, on=str(path), why=f"{why} ({free_near(path)} bytes free)", kept=kept, hint=hint)


def free_near(path: Path) -> int:
    """`free_bytes` of `path`, or of the directory above that is there; 0 where nobody can look."""
    for place in (path, *path.parents):
        with contextlib.suppress(OSError):
            return free_bytes(place)
    return 0
