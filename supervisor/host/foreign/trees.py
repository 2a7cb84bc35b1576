"""A whole tree by handles, however deep it is and whoever moves its directories meanwhile. See the package."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Container, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.host.foreign.folders import DIRECTORY, SAFE, Folder, folder

PATH_MAX = 4096
"""What lies deeper no program can name from the top."""
_KEPT = 32
"""Levels, from the top, whose handles stay open. Below them only one is: the way back is `..`, believed when it is where we came from."""
REMOVE_S = 1800.0


@dataclass(slots=True)
class _Level:
    handle: int
    """-1: closed, because something deeper is open."""
    identity: tuple[int, int]
    name: str
    todo: list[str] = field(default_factory=list)


class Descent:
    """A walk through the directories of one tree, depth first; its caller reads each one by `here`, and says in `todo` where to go."""

    def __init__(self, top: int) -> None:
        """`top` is the handle of a directory, which stays the caller's."""
        seen = os.fstat(top)
        self.device = seen.st_dev
        self.is_whole = True
        """False: a directory was moved while we were in it, so that what was left to do around it was passed over."""
        self._levels = [_Level(os.dup(top), (seen.st_dev, seen.st_ino), "")]

    @property
    def here(self) -> int:
        """The handle of the directory that we are in."""
        return self._levels[-1].handle

    @property
    def depth(self) -> int:
        """0 at the top."""
        return len(self._levels) - 1

    @property
    def todo(self) -> list[str]:
        """Names in `here` that are still to be entered, the last one first; for the caller to fill and empty."""
        return self._levels[-1].todo

    def enter(self, name: str, *, across: bool = False) -> os.stat_result:
        """Go down. Raises OSError: ELOOP or ENOTDIR for a link, EXDEV where another file system is mounted, unless `across`."""
        handle = os.open(name, DIRECTORY, dir_fd=self.here)
        seen = os.fstat(handle)
        if seen.st_dev != self.device and not across:
            os.close(handle)
            raise OSError(errno.EXDEV, "another file system is mounted there", name)
        if self.depth >= _KEPT:
            os.close(self.here)
            self._levels[-1].handle = -1
        self._levels.append(_Level(handle, (seen.st_dev, seen.st_ino), name))
        return seen

    def leave(self) -> str:
        """Go up; the name of what was left, "" when somebody moved it: then we are in the nearest directory whose handle was kept."""
        left = self._levels.pop()
        try:
            if self.here < 0 and not self._returned(left.handle):
                self.is_whole = False
                while self.here < 0:
                    self._levels.pop()
                return ""
        finally:
            os.close(left.handle)
        return left.name

    def _returned(self, below: int) -> bool:
        above = self._levels[-1]
        try:
            handle = os.open("..", DIRECTORY, dir_fd=below)
        except OSError:
            return False
        seen = os.fstat(handle)
        if (seen.st_dev, seen.st_ino) != above.identity:
            os.close(handle)
            return False
        above.handle = handle
        return True

    def close(self) -> None:
        """Close every handle of ours."""
        while self._levels:
            if (handle := self._levels.pop().handle) >= 0:
                os.close(handle)


def entries(
    top: Path, below: str = "", *, leave_out: Container[str] = (), open_up: bool = False
) -> Generator[tuple[str, Folder, os.DirEntry[str]], None, None]:
    """Every entry of the tree at `below` of `top`, as in `folder`: the directory's path below `top`, the directory, which is open until the
    next entry is asked for, and the entry. Links are not followed.

    Directories of `leave_out` (paths below `top`) are named and not entered, and so are those that are closed to us, vanish, or lie deeper
    than any path can name. `open_up` lets their owner enter and change them first. Raises OSError when there is no such directory.
    """
    with folder(top, below) as start:
        way, paths = Descent(start.handle), [below]
        try:
            yield from _listed(way, below, leave_out)
            while way.todo or way.depth:
                if not way.todo:
                    way.leave()
                    continue
                name = way.todo.pop()
                paths[way.depth + 1 :] = [f"{paths[way.depth]}/{name}".lstrip("/")]
                try:
                    _enter(way, name, across=True, open_up=open_up)
                except OSError:
                    continue
                yield from _listed(way, paths[way.depth], leave_out)
        finally:
            way.close()


def _listed(way: Descent, path: str, leave_out: Container[str]) -> Iterator[tuple[str, Folder, os.DirEntry[str]]]:
    here = Folder(way.here)
    with os.scandir(way.here) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                deeper = f"{path}/{entry.name}".lstrip("/")
                if len(os.fsencode(deeper)) < PATH_MAX and deeper not in leave_out:
                    way.todo.append(entry.name)
            yield path, here, entry


def remove_tree(
    top: Path, *, keep: Collection[str] = (), max_seconds: float = REMOVE_S, clock: Callable[[], float] = time.monotonic
) -> None:
    """Delete the tree at `top`, in a directory that we trust, whatever modes its directories have. A link is deleted, never followed; what
    is absent, or vanishes meanwhile, is fine. What `top` has by a name of `keep` stays, and `top` with it.

    Nothing is deleted on another file system: OSError when one is mounted at `top` or inside. TimeoutError after `max_seconds`; OSError
    too when somebody moves its directories or fills them again. What was not reached stays then, and it may be called once more.
    """
    try:
        parent = os.open(top.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    way = Descent(parent)
    try:
        with contextlib.suppress(FileNotFoundError):
            _remove(way, top.name, frozenset(keep), _Deadline(clock, clock() + max_seconds))
    finally:
        way.close()
        os.close(parent)
    if not way.is_whole:
        raise OSError(errno.ESTALE, "somebody moves its directories", str(top))


@dataclass(frozen=True, slots=True)
class _Deadline:
    clock: Callable[[], float]
    at: float

    def check(self) -> None:
        if self.clock() > self.at:
            raise TimeoutError(errno.ETIMEDOUT, "it takes too long")


def _remove(way: Descent, top: str, keep: frozenset[str], until: _Deadline) -> None:
    if not stat.S_ISDIR(os.stat(top, dir_fd=way.here, follow_symlinks=False).st_mode):
        os.unlink(top, dir_fd=way.here)
        return
    way.todo.append(top)
    while way.todo or way.depth:
        until.check()
        if not way.todo:
            _leave(way, stays=way.depth == 1 and bool(keep))
            continue
        with contextlib.suppress(FileNotFoundError):
            _enter(way, way.todo.pop(), open_up=True)
            _unlink_files(way, keep if way.depth == 1 else frozenset(), until)


def _leave(way: Descent, *, stays: bool) -> None:
    """A `top` that was given something to keep goes only when it is empty all the same."""
    if name := way.leave():
        try:
            os.rmdir(name, dir_fd=way.here)
        except FileNotFoundError:
            return
        except OSError as error:
            if not stays or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def _enter(way: Descent, name: str, *, open_up: bool, across: bool = False) -> None:
    """Go down, and with `open_up` make the directory its owner's to change: overlayfs keeps its work directory at mode 0."""
    try:
        seen = way.enter(name, across=across)
    except PermissionError:
        if not open_up:
            raise
        _open_up(way.here, name)
        seen = way.enter(name, across=across)
    mode = stat.S_IMODE(seen.st_mode)
    if open_up and mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(way.here, mode | stat.S_IRWXU)


def _open_up(parent: int, name: str) -> None:
    """What cannot be opened has no handle that fchmod(2) takes, only one that names it."""
    handle = os.open(name, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | SAFE, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)  # noqa: PTH101 - by the handle
    finally:
        os.close(handle)


def _unlink_files(way: Descent, keep: frozenset[str], until: _Deadline) -> None:
    with os.scandir(way.here) as entries:
        for entry in entries:
            until.check()
            if entry.name in keep:
                continue
            if entry.is_dir(follow_symlinks=False):
                way.todo.append(entry.name)
                continue
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=way.here)
