"""Renaming that loses nothing: two names exchanged, or a name given only when nobody has it. See the package."""

from __future__ import annotations

import errno
import functools
import os
from typing import Any

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
