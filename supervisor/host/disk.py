"""How much of the disk an agent's files take: counted, because quotas need a file system and an administrator that have them.

Counting is a walk, so `Watch` does it only when the answer can have changed enough: a directory can have grown by no more than its file
system lost in free space, which one `statvfs` says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_BLOCK = 512  # of st_blocks, whatever the file system's own is
MAX_ENTRIES = 1_000_000
"""Of one count. About two seconds of a quiet machine; an agent that makes more files than this has them counted up to here."""


@dataclass(frozen=True, slots=True)
class DiskUsed:
    """One count."""

    bytes: int
    """Blocks on the disk: holes count nothing, a file of many names counts once."""
    entries: int
    complete: bool
    """False: there is more, and `bytes` is the least that it is."""


def used(paths: Sequence[Path], max_entries: int = MAX_ENTRIES) -> DiskUsed:
    """What lies at and below `paths`, on the file systems that they are on: what is mounted below is somebody else's. Symbolic links are
    not followed, and what vanishes meanwhile counts nothing. Never raises."""
    total = 0
    entries = 0
    seen: set[tuple[int, int]] = set()
    for found in _below(paths):
        if entries == max_entries:
            return DiskUsed(total, entries, False)
        entries += 1
        if found.st_nlink > 1:
            if (found.st_dev, found.st_ino) in seen:
                continue
            seen.add((found.st_dev, found.st_ino))
        total += found.st_blocks * _BLOCK
    return DiskUsed(total, entries, True)


def _below(paths: Sequence[Path]) -> Iterator[os.stat_result]:
    for top in paths:
        try:
            found = os.lstat(top)
        except OSError:
            continue
        yield found
        todo = [str(top)]
        while todo:
            for entry, seen in _entries(todo.pop(), found.st_dev):
                yield seen
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)


def _entries(directory: str, device: int) -> list[tuple[os.DirEntry[str], os.stat_result]]:
    try:
        with os.scandir(directory) as entries:
            every = list(entries)
    except OSError:  # it is gone, it is a file, or the agent closed it to us
        return []
    return [(entry, seen) for entry in every if (seen := _stat(entry)) is not None and seen.st_dev == device]


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


class Watch:
    """Whether some directories are past a limit, looked at again and again. Not thread safe."""

    def __init__(self, paths: Sequence[Path], limit: int, every_s: float = 60.0) -> None:
        """`limit` bytes. At least every `every_s` seconds it counts, in case others freed as much as the agent wrote."""
        self._paths = tuple(paths)
        self._limit = limit
        self._every_s = every_s
        self._free: dict[int, int] = {}
        self._last: DiskUsed | None = None
        self._counted = 0.0

    def look(self, now: float) -> DiskUsed:
        """The last count, or a new one when that could be past the limit by now. `now` is monotonic seconds."""
        free = self._free_bytes()
        last = self._last
        if last is None or now - self._counted >= self._every_s or last.bytes + self._lost(free) > self._limit:
            self._last = last = used(self._paths)
            self._counted, self._free = now, free
        return last

    def _lost(self, free: dict[int, int]) -> int:
        return sum(max(0, self._free.get(device, 0) - left) for device, left in free.items())

    def _free_bytes(self) -> dict[int, int]:
        """By device: two directories of one file system share its space."""
        found: dict[int, int] = {}
        for path in self._paths:
            try:
                space = os.statvfs(path)
                found[path.lstat().st_dev] = space.f_bfree * space.f_frsize
            except OSError:  # it is gone, and takes nothing
                continue
        return found
