"""Making git's index fit files that were copied: without it the first `git status` reads every file again.

An entry of the index begins with the file's stat: 10 big-endian words (ctime, mtime, dev, ino, mode, uid, gid, size), then the object's id,
16 bits of flags, and the name (Documentation/gitformat-index.txt). Only words are replaced, so everything else, extensions
included, stays where it is; the checksum at the end is made anew.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from pathlib import Path

from supervisor.core.errors import HostError

_HEADER = struct.Struct(">4sLL")
_STAT = struct.Struct(">10L")
_EXTENDED, _NAME_LENGTH, _LONG_NAME = 0x4000, 0x0FFF, 0x0FFF
_WORD = 0xFFFFFFFF


def fitted(index: bytes, top: Path, oid_size: int) -> bytes:
    """`index` with the stat of each entry taken from its file below `top`, for entries whose file has the size and the time (seconds) it
    had; others stay, and git looks at them itself. `oid_size` is 20 or 32 bytes. Raises HostError for a form other than 2 or 3."""
    magic, version, count = _HEADER.unpack_from(index)
    if magic != b"DIRC" or version not in (2, 3):
        raise HostError("the index has an unknown form", on=str(top), why=f"version {version}")
    data = bytearray(index[:-oid_size])
    at = _HEADER.size
    for _ in range(count):
        flags_at = at + _STAT.size + oid_size
        (flags,) = struct.unpack_from(">H", data, flags_at)
        name_at = flags_at + (4 if flags & _EXTENDED else 2)
        length = flags & _NAME_LENGTH
        if length == _LONG_NAME:
            length = data.index(0, name_at) - name_at
        _fit(data, at, top / os.fsdecode(bytes(data[name_at : name_at + length])))
        used = name_at + length - at
        at += used + 8 - used % 8  # 1 to 8 NULs: the name's end, and up to a multiple of eight
    return bytes(data) + (hashlib.sha1(data, usedforsecurity=False) if oid_size == 20 else hashlib.sha256(data)).digest()


def _fit(data: bytearray, at: int, file: Path) -> None:
    words = list(_STAT.unpack_from(data, at))
    try:
        seen = file.lstat()
    except OSError:
        return
    if stat.S_ISDIR(seen.st_mode) or words[2] != int(seen.st_mtime) & _WORD or words[9] != seen.st_size & _WORD:
        return
    ctime, mtime = divmod(seen.st_ctime_ns, 10**9), divmod(seen.st_mtime_ns, 10**9)
    fresh = (*ctime, *mtime, seen.st_dev, seen.st_ino, words[6], seen.st_uid, seen.st_gid, seen.st_size)
    _STAT.pack_into(data, at, *(word & _WORD for word in fresh))
