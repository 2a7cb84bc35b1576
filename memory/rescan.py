"""Look at directories again and again for changes, and wait until a file is quiet."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Container, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from supervisor.host import untrusted_fs

# Rescan
# ------
# What lies below one directory, looked at again and again: every file by inode, size and times, through the door for what agents
# write.
#
# A walk is cut into pieces, so that neither its thread nor a processor belongs to it for long. What it finds different may have
# changed; who reads the file says whether it did.


PIECE = 500
"""Entries of one piece: about 5 ms."""
ENTRIES_MAX = 200_000
"""Of one walk; what lies beyond is not looked at."""
FRESH_NS = 50 * 10**6
"""A file that changed this short before it was looked at may change again without a change of its times, which move by a kernel's tick."""
STILL_NS = 2 * 10**9
"""A file that a process has open for writing counts as complete after this long without a change."""
DEPTH_MAX = 3
"""Directories above a file: `agents/RUN/TASK/notes.md`."""
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EACCES)

Identity = tuple[int, int, int, int]
"""Inode, size in bytes, and when content and inode changed, ns."""
_ABSENT: Final = (-1, -1, -1, -1)


class Rescan:
    """One directory, `name` below `top`, which is ours. It belongs to one thread."""

    def __init__(
        self, top: Path, name: str, wanted: Callable[[str], bool], wall_ns: Callable[[], int], before: Callable[[], Iterable[str]] = tuple
    ) -> None:
        """Of the files below, those whose path is `wanted` count. `wall_ns` gives ns since 1970; `before`, asked at the first walk, the
        paths of those that were there when somebody looked last."""
        self._top, self._name, self._wanted = top, name, wanted
        self._wall_ns = wall_ns
        self._known: dict[str, Identity | None] = {}
        self._before: Callable[[], Iterable[str]] | None = before
        self.is_whole = True
        """False: the last walk ended at ENTRIES_MAX."""

    def __len__(self) -> int:
        return len(self._known)

    def look(self, paths: Iterable[str]) -> list[str]:
        """Those of the paths at which something may have changed since they were looked at last. Raises OSError."""
        return [path for path in paths if self._wanted(path) and self._is_news(path, seen(self._top, f"{self._name}/{path}"))]

    def forget(self) -> None:
        """Let the next look take every file for one that may have changed."""
        self._known = dict.fromkeys(self._known)

    def walk(self) -> Iterator[list[str]]:
        """Look at everything, PIECE entries a step; each step gives paths that may have changed. Raises OSError."""
        if self._before is not None:
            before, self._before = self._before(), None
            self._known = {**dict.fromkeys(before), **self._known}
        gone, number, found = set(self._known), 0, list[str]()
        self.is_whole = True
        with contextlib.closing(self._entries()) as entries:
            for number, (path, file) in enumerate(entries, 1):
                if file is not None and (path in gone or self._wanted(path)):  # what is known is wanted, and asking costs more
                    gone.discard(path)
                    if self._is_news(path, file):
                        found.append(path)
                if number % PIECE == 0:
                    yield found
                    found = []
                if number >= ENTRIES_MAX:
                    self.is_whole = False
                    break
        yield found
        vanished = sorted(gone) if self.is_whole else []
        for begin in range(0, len(vanished), PIECE):
            yield self.look(vanished[begin : begin + PIECE])

    def _entries(self) -> Generator[tuple[str, os.stat_result | None], None, None]:
        """Every entry, and of regular files what they are. None when there is no such directory."""
        deep, above = Deep.below(self._name), len(self._name) + 1
        try:
            for folder, _, entry in untrusted_fs.entries(self._top, self._name, leave_out=deep):
                try:
                    is_file = entry.is_file(follow_symlinks=False)
                    yield f"{folder}/{entry.name}"[above:], entry.stat(follow_symlinks=False) if is_file else None
                except FileNotFoundError:
                    continue
        except OSError as error:
            if error.errno not in _NO_FOLDER:
                raise

    def _is_news(self, path: str, found: os.stat_result | None) -> bool:
        """Return whether a file changed and is complete. A file that a process has open and wrote a moment ago is checked again when the
        process closes it, and at the next walk."""
        if not self._differs(path, found):
            return False
        if found is not None and 0 <= self._wall_ns() - found.st_mtime_ns < STILL_NS and self._is_being_written(path):
            self._known[path] = None
            return False
        return True

    def _is_being_written(self, path: str) -> bool:
        folder, _, name = f"{self._name}/{path}".rpartition("/")
        try:
            with untrusted_fs.folder(self._top, folder) as here:
                return here.is_being_written(name) is True
        except OSError:
            return False  # it is gone, or in the way: who reads it says so

    def _differs(self, path: str, found: os.stat_result | None) -> bool:
        before = self._known.get(path, _ABSENT)
        if found is None:
            return self._known.pop(path, _ABSENT) != _ABSENT
        changed = found.st_ctime_ns
        now = (found.st_ino, found.st_size, found.st_mtime_ns, changed)
        if now == before:  # it was not fresh then, and is not now
            return False
        self._known[path] = None if self._wall_ns() - changed < FRESH_NS else now
        return True


def seen(top: Path, path: str) -> os.stat_result | None:
    """The regular file at `path` below `top`, which no link leads to; None when there is none. Raises OSError."""
    folder, _, name = path.rpartition("/")
    try:
        with untrusted_fs.folder(top, folder) as here:
            found = here.look(name)
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return None
        raise
    return found if found is not None and stat.S_ISREG(found.st_mode) else None


def is_file(top: Path, path: str, most: int) -> bool:
    """Whether a regular file of 1 to `most` bytes is there. Raises OSError."""
    found = seen(top, path)
    return found is not None and 0 < found.st_size <= most


@dataclass(frozen=True, slots=True)
class Deep(Container[str]):
    """The directories that are not entered: nothing of ours lies so deep, or in one that is hidden."""

    levels: int

    @classmethod
    def below(cls, name: str) -> Deep:
        """Of the tree of notes that is called so."""
        return cls(name.count("/") + 1 + DEPTH_MAX)

    def __contains__(self, path: object) -> bool:
        return str(path).count("/") >= self.levels or "/." in str(path)


# Debounce
# --------
# When a path whose file changes again and again is looked at: once it is quiet, and not much later than its first event.


K = TypeVar("K", bound=Hashable)
QUIET_S = 0.05
"""An editor that writes a file in several steps is done within this."""
LATEST_S = 0.1
"""After the first event of a path that never becomes quiet."""


@dataclass(slots=True)
class Debounce(Generic[K]):
    """What waits to be looked at. Moments are monotonic seconds."""

    quiet_s: float = QUIET_S
    latest_s: float = LATEST_S
    _waiting: dict[K, tuple[float, float]] = field(default_factory=dict)
    """When it is looked at, and when at the latest."""

    def add(self, keys: Iterable[K], now: float) -> None:
        """Something happened to these."""
        for key in keys:
            latest = self._waiting[key][1] if key in self._waiting else now + self.latest_s
            self._waiting[key] = (min(now + self.quiet_s, latest), latest)

    def due(self, now: float) -> list[K]:
        """Those whose moment has come; they wait no more."""
        found = [key for key, (at, _) in self._waiting.items() if at <= now]
        for key in found:
            del self._waiting[key]
        return found

    def next_at(self) -> float | None:
        """When the next one is due."""
        return min((at for at, _ in self._waiting.values()), default=None)
