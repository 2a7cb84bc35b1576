"""How much of the disk an agent's files take: counted, because quotas need a file system and an administrator that have them.

Counting is a walk, so `Watch` does it only when the answer can have changed enough: a directory can have grown by no more than its file
system lost in free space, which one `statvfs` says.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from supervisor.host.foreign import Descent
from supervisor.host.foreign.folders import DIRECTORY

_BLOCK = 512  # of st_blocks, whatever the file system's own is
MAX_ENTRIES = 1_000_000
"""Of one count. About two seconds of a quiet machine; an agent that makes more files than this has them counted up to here."""
MAX_S = 5.0


@dataclass(frozen=True, slots=True)
class DiskUsed:
    """One count."""

    bytes: int
    """Blocks on the disk: holes count nothing, a file of many names counts once."""
    entries: int
    complete: bool
    """False: there is more, and `bytes` is the least that it is."""


def used(
    paths: Sequence[Path], max_entries: int = MAX_ENTRIES, max_seconds: float = MAX_S, clock: Callable[[], float] = time.monotonic
) -> DiskUsed:
    """What lies at and below `paths`, on the file systems that they are on: what is mounted below is somebody else's. Symbolic links are
    not followed, also not when an agent puts one in place of a directory meanwhile, and what vanishes counts nothing. Never raises.

    It ends at `max_entries`, after `max_seconds`, and where a directory is closed to us: then it is not complete.
    """
    count = _Count(max_entries, clock, clock() + max_seconds)
    for path in paths:
        count.add_tree(path)
    return DiskUsed(count.bytes, count.entries, count.complete)


class _Count:
    def __init__(self, max_entries: int, clock: Callable[[], float], ends_at: float) -> None:
        self.bytes = self.entries = 0
        self.complete = True
        self._max_entries = max_entries
        self._clock, self._ends_at = clock, ends_at
        self._seen: set[tuple[int, int]] = set()

    def add_tree(self, top: Path) -> None:
        with _opened(top) as handle:
            if handle is None:
                with contextlib.suppress(OSError):
                    self._add(top.lstat())
                return
            self._add(os.fstat(handle))
            way = Descent(handle)
            try:
                self._add_below(way)
            finally:
                way.close()
        self.complete = self.complete and way.is_whole

    def _add_below(self, way: Descent) -> None:
        self._add_directory(way)
        while way.todo or way.depth:
            if not way.todo:
                way.leave()
            elif not self._may_go_on():
                return
            elif self._entered(way, way.todo.pop()):
                self._add_directory(way)

    def _entered(self, way: Descent, name: str) -> bool:
        try:
            way.enter(name)
        except PermissionError:
            self.complete = False
            return False
        except OSError:  # it is gone, or something else is there now
            return False
        return True

    def _add_directory(self, way: Descent) -> None:
        with contextlib.suppress(FileNotFoundError), os.scandir(way.here) as entries:
            for entry in entries:
                if not self._may_go_on():
                    return
                with contextlib.suppress(OSError):
                    seen = entry.stat(follow_symlinks=False)
                    if seen.st_dev == way.device:
                        self._add(seen)
                        if stat.S_ISDIR(seen.st_mode):
                            way.todo.append(entry.name)

    def _add(self, seen: os.stat_result) -> None:
        self.entries += 1
        if seen.st_nlink > 1 and not stat.S_ISDIR(seen.st_mode):
            if (seen.st_dev, seen.st_ino) in self._seen:
                return
            self._seen.add((seen.st_dev, seen.st_ino))
        self.bytes += seen.st_blocks * _BLOCK

    def _may_go_on(self) -> bool:
        if self.entries < self._max_entries and self._clock() <= self._ends_at:
            return True
        self.complete = False
        return False


@contextlib.contextmanager
def _opened(top: Path) -> Iterator[int | None]:
    """A handle of the directory; None when it is none, or closed to us."""
    try:
        handle = os.open(top, DIRECTORY)
    except OSError:
        yield None
        return
    try:
        yield handle
    finally:
        os.close(handle)


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
            with _opened(path) as handle:
                if handle is not None:  # else it is gone, and takes nothing
                    space = os.fstatvfs(handle)
                    found[os.fstat(handle).st_dev] = space.f_bfree * space.f_frsize
        return found
