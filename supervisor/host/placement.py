"""Where on the disk a directory's files go, as far as a file system lets us say.

ext4 puts a new directory near its parent, and it does not hand out an inode that was freed within the last minute, or within five while
the change is not written yet: it looks at every such inode again for each new file (`recently_deleted` in fs/ext4/ialloc.c). So after
somebody removed a few worktrees, 500 new files beside them took 1,000 ms and more of processor time instead of 25 (kernel 6.18). In a
directory that carries the flag of `spread` each new directory gets the emptiest part of the disk: 25 ms, whatever was removed elsewhere.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

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
