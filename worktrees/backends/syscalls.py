"""The system calls that Python 3.11 has no door for. Each raises OSError as the kernel answered, ENOSYS where there is no such call."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from pathlib import Path

MS_NOSUID, MS_NODEV = 0x2, 0x4
MNT_DETACH, UMOUNT_NOFOLLOW = 0x2, 0x8
_FICLONE = 0x40049409  # include/uapi/linux/fs.h
_CLONE_NOFOLLOW = 0x1  # <sys/clonefile.h>

_libc = ctypes.CDLL(None, use_errno=True)


def mount_overlay(target: Path, options: str) -> None:
    """mount(2) of an overlay at `target`. Raises OSError."""
    _call("mount", b"overlay", os.fsencode(target), b"overlay", ctypes.c_ulong(MS_NOSUID | MS_NODEV), os.fsencode(options), on=target)


def unmount(target: Path, *, lazy: bool = False) -> None:
    """umount2(2), never through a symbolic link. `lazy`: it disappears now and ends with its last user. Raises OSError (EBUSY: in use)."""
    flags = UMOUNT_NOFOLLOW | (MNT_DETACH if lazy else 0)
    _call("umount2", os.fsencode(target), ctypes.c_int(flags), on=target)


def share_file(source: int, target: int) -> None:
    """Let the open file `target` have the blocks of `source`, copied on write (xfs, btrfs and others). Raises OSError."""
    fcntl.ioctl(target, _FICLONE, source)


def clone_tree(source: Path, target: Path) -> None:
    """clonefile(2) of macOS: a whole directory, copied on write, with its times. Raises OSError."""
    _call("clonefile", os.fsencode(source), os.fsencode(target), ctypes.c_int(_CLONE_NOFOLLOW), on=target)


def _call(name: str, *arguments: object, on: Path) -> None:
    try:
        call = getattr(_libc, name)
    except AttributeError as error:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), str(on)) from error
    if call(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(on))
