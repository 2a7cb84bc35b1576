"""Directories for a while, which no kill leaves behind: the next one who makes one in the same place takes away what its makers left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from supervisor.host.foreign import remove_tree


@contextlib.contextmanager
def locked_directory(parent: Path, prefix: str) -> Iterator[Path]:
    """A new directory of ours in `parent`, gone afterwards. Its lock says that its maker lives: those of killed makers go first. Raises
    OSError when it cannot be made."""
    for left in parent.glob(f"{prefix}*"):
        _sweep(left)
    place, handle = _locked(parent, prefix)
    try:
        yield place
    finally:
        with contextlib.suppress(OSError, TimeoutError):  # the next one tries again
            remove_tree(place)
        os.close(handle)


def is_left(place: Path) -> bool:
    """Return whether the maker of a `locked_directory` is gone; False if it cannot be looked at."""
    with contextlib.suppress(OSError):
        handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
        return True
    return False


def _locked(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:  # another's sweep may come before the lock
        place = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(handle, fcntl.LOCK_EX)
            if place.exists():
                return place, handle
            os.close(handle)


def _sweep(left: Path) -> None:
    with contextlib.suppress(OSError, TimeoutError):  # gone, at work, or not ours to remove
        handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(handle).st_uid == os.geteuid():
                remove_tree(left)
        finally:
            os.close(handle)


def sweep(parent: Path, prefix: str, kept: Collection[Path] = ()) -> None:
    """Remove our directories in `parent` that a crash left: their names begin with `prefix`, and they are not in `kept`."""
    for place in parent.glob(f"{prefix}*"):
        if place not in kept:
            remove_own(place)


def remove_own(place: Path) -> None:
    """Remove the directory `place` if it is ours; absent is fine. What cannot be removed stays."""
    with contextlib.suppress(OSError):
        seen = place.lstat()
        if seen.st_uid == os.geteuid() and stat.S_ISDIR(seen.st_mode):
            remove_tree(place)
