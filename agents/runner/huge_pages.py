"""Puts the memory of a process that is about to be forked often into huge pages.

A fork copies its parent's page tables and gives them back as it ends: an entry for each 4 KiB that was ever written, or one for 2 MiB.
A page that a fork then writes is split from its huge page and copied alone, as without them; nobody has more memory for it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from supervisor.host.procfs import slurp

SIZE = 2**21
"""Bytes of a huge page on x86-64, and on ARM with pages of 4 KiB; where it is another, the kernel refuses, and nothing changes."""
_MADV_COLLAPSE = 25
"""At once, and whatever the machine's setting for huge pages (Linux 6.1 and later, madvise(2)); nothing where there is none."""


def collapse() -> int:
    """Put what this process has written into huge pages, as far as the kernel has some free; how many it gave. Each costs about 3 ms."""
    try:
        madvise = ctypes.CDLL(None).madvise
    except (AttributeError, OSError):
        return 0
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return sum(madvise(start, SIZE, _MADV_COLLAPSE) == 0 for start in written(slurp("/proc/self/maps")))


def written(maps: bytes) -> Iterator[int]:
    """Where a huge page fits into memory of its own that a process may write, by its `/proc/PID/maps` (proc(5)); not into a stack."""
    for line in maps.splitlines():
        area, mode, _, _, _, *name = line.split()
        if mode == b"rw-p" and name in ([], [b"[heap]"]):
            start, end = (int(address, 16) for address in area.split(b"-"))
            yield from range(-(-start // SIZE) * SIZE, end // SIZE * SIZE, SIZE)
