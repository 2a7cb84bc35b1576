"""git's index, read without git, and made to fit files that were copied: else the first `git status` reads every file again.

An entry of the index begins with the file's stat: 10 big-endian words (ctime, mtime, dev, ino, mode, uid, gid, size), then the object's id,
16 bits of flags, and the name (Documentation/gitformat-index.txt). Only words are replaced, so everything else, extensions
included, stays where it is; the checksum at the end is made anew.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.core.errors import HostError

_HEADER = struct.Struct(">4sLL")
_STAT = struct.Struct(">10L")
_EXTENDED, _NAME_LENGTH, _LONG_NAME = 0x4000, 0x0FFF, 0x0FFF
_WORD = 0xFFFFFFFF
GITLINK = 0o160000
"""The mode of a repository inside."""
_VALID, _STAGE, _SKIP = 0x8000, 0x3000, 0x4000
_PLAIN_EXTENSION = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""First letters of those that do not change what the entries mean: git refuses any other that it does not know."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of an index."""

    at: int
    """Where its stat begins."""
    mode: int
    is_valid: bool
    """git was told to take the file for unchanged."""
    is_skipped: bool
    """git was told not to look for the file; never so of an unmerged one."""
    path: bytes


def entries(index: bytes, oid_size: int) -> Iterator[Entry]:
    """Every entry. Raises ValueError when that takes git: a form other than 2 or 3, one that is split or sparse, or not whole."""
    try:
        magic, version, count = _HEADER.unpack_from(index)
        if magic != b"DIRC" or version not in (2, 3):
            raise ValueError(f"version {version}")
        fixed, at = struct.Struct(f">24xL12x{oid_size}xH"), _HEADER.size
        for _ in range(count):
            mode, flags = fixed.unpack_from(index, at)
            name_at = at + fixed.size
            more = 0
            if flags & _EXTENDED:
                (more,) = struct.unpack_from(">H", index, name_at)
                name_at += 2
            length = flags & _NAME_LENGTH
            if length == _LONG_NAME:
                length = index.index(0, name_at) - name_at
            yield Entry(at, mode, bool(flags & _VALID), bool(more & _SKIP and not flags & _STAGE), index[name_at : name_at + length])
            used = name_at + length - at
            at += used + 8 - used % 8  # 1 to 8 NULs: the name's end, and up to a multiple of eight
        _check_extensions(index, at, len(index) - oid_size)
    except struct.error as error:
        raise ValueError(str(error)) from None


def noted(index: bytes, entry: Entry) -> tuple[int, ...]:
    """What git noted of its file: ctime and mtime in nanoseconds, then inode, kind, owner, group and size as 32 bits each."""
    words = _STAT.unpack_from(index, entry.at)
    return (words[0] * 10**9 + words[1], words[2] * 10**9 + words[3], words[5], stat.S_IFMT(words[6]), *words[7:])


def now(seen: os.stat_result) -> tuple[int, ...]:
    """The same of a file as it is."""
    words = (seen.st_ino, stat.S_IFMT(seen.st_mode), seen.st_uid, seen.st_gid, seen.st_size)
    return (seen.st_ctime_ns, seen.st_mtime_ns, *(word & _WORD for word in words))


def _check_extensions(index: bytes, at: int, end: int) -> None:
    while at < end:
        name, size = struct.unpack_from(">4sL", index, at)
        if name[:1] not in _PLAIN_EXTENSION:
            raise ValueError(f"extension {name!r}")
        at += 8 + size
    if at != end:
        raise ValueError("it is cut short")


def fitted(index: bytes, top: Path, oid_size: int) -> bytes:
    """`index` with the stat of each entry taken from its file below `top`, for entries whose file has the size and the time (seconds) it
    had; others stay, and git looks at them itself. `oid_size` is 20 or 32 bytes. Raises HostError for a form that `entries` cannot read."""
    data = bytearray(index[:-oid_size])
    try:
        for entry in entries(index, oid_size):
            _fit(data, entry.at, top / os.fsdecode(entry.path))
    except ValueError as error:
        raise HostError("the index has an unknown form", on=str(top), why=str(error)) from error
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
