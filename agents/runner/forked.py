"""How a forked process shows itself in /proc, and memory that is forked often in huge pages."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence

from supervisor.host.procfs import slurp

# Process title
# -------------
# How a forked process shows itself in /proc: there it has the command line and the environment of the process that it was forked
# from.
#
# The daemon knows a runner by its command line and an agent's processes by the tag in their environment, so a fork has to show its
# own. Linux keeps both in memory of the process, which it may overwrite but not enlarge: whoever is to be forked is started with
# room to spare (`agents.zygote`). Elsewhere there is nothing to write to, and nothing is read either.


class Title:
    """The two areas of this process. A fork has them at the same addresses, so one look serves all forks."""

    __slots__ = ("_environment", "_words")

    def __init__(self) -> None:
        fields = slurp("/proc/self/stat").rpartition(b")")[2].split()
        start, end, env_start, env_end = map(int, fields[45:49]) if len(fields) >= 49 else (0, 0, 0, 0)  # fields 48 to 51 of proc(5)
        self._words = start, end - start
        self._environment = env_start, env_end - env_start

    def holds(self, words: Sequence[bytes]) -> bool:
        """Whether `words` fit whole; always where there is no place to show them."""
        return not self._words[0] or len(_joined(words)) <= self._words[1]

    def show(self, words: Sequence[bytes]) -> None:
        """Be shown with the command line `words`, cut to the room that there is."""
        _fill(*self._words, _joined(words))

    def show_environment(self, entries: Sequence[bytes]) -> None:
        """Be shown with the environment `entries`, `NAME=value`. `os.environ` must have been cleared: until then it lives in that place."""
        _fill(*self._environment, _joined(entries))


def _joined(words: Sequence[bytes]) -> bytes:
    return b"".join(word + b"\0" for word in words)


def _fill(start: int, size: int, data: bytes) -> None:
    """What is left of the area becomes NUL: with any other last byte the kernel shows the first word alone (proc(5), setproctitle)."""
    if start and size > 0:
        ctypes.memmove(start, data[: size - 1].ljust(size, b"\0"), size)


# Huge pages
# ----------
# Puts the memory of a process that is about to be forked often into huge pages.
#
# A fork copies its parent's page tables and gives them back as it ends: an entry for each 4 KiB that was ever written, or one for 2
# MiB. A page that a fork then writes is split from its huge page and copied alone, as without them; nobody has more memory for it.


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
