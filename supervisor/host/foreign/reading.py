"""A file in a directory that is ours alone, when only the file itself is in doubt. See the package."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path
from typing import IO

from supervisor.core import errors
from supervisor.core.errors import ToolFailed
from supervisor.host.foreign.folders import SAFE, folder

_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.ENXIO, errno.ENODEV, errno.EINVAL)
_PIECE = 2**20


def open_plain(file: Path, below: Path | None = None) -> IO[bytes]:
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


def read_plain(path: Path, limit: int, *, tail: bool = False) -> bytes | None:
    """The first (or with `tail` the last) `limit` bytes, however the file grows meanwhile; None when no regular file is there.

    Raises ToolFailed when the machine could not look: that is no evidence.
    """
    try:
        with open_plain(path) as file:
            if tail:
                file.seek(max(0, os.fstat(file.fileno()).st_size - limit))
            return file.read(limit)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise ToolFailed("cannot read", on=str(path), why=error.strerror or str(error)) from error


def read_on(path: Path, begin: int, limit: int, below: Path | None = None) -> tuple[bytes, float] | None:
    """At most `limit` bytes from `begin` on, and when the file was last written (wall-clock seconds); None when no regular file is there,
    or it has no more than that. `below`: as for `open_plain`. Raises ToolFailed."""
    try:
        with open_plain(path, below) as file:
            found = os.fstat(file.fileno())
            if found.st_size <= begin:
                return None
            file.seek(begin)
            return file.read(limit), found.st_mtime
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise ToolFailed("cannot read", on=str(path), why=error.strerror or str(error)) from error


def sha256(path: Path) -> str | None:
    """Of a whole file, as 64 hex digits; None when no regular file is there. Raises ToolFailed."""
    digest, begin = hashlib.sha256(), 0
    while (piece := read_on(path, begin, _PIECE)) is not None:
        digest.update(piece[0])
        begin += len(piece[0])
    return digest.hexdigest() if begin or read_plain(path, 1) is not None else None


def last_line(log: Path, limit: int = 4096) -> str:
    """The last line within the last `limit` bytes that is not empty, without spaces around it; "" when there is none. Raises ToolFailed."""
    return errors.last_line((read_plain(log, limit, tail=True) or b"").decode("utf-8", "replace"))
