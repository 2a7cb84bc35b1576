"""Which files of the memories changed on the disk: hints of the kernel, debounced, and a walk through everything every 30 s, which is the
truth. Where no events come the walk is every 2 s, and a person is told why.

Everything slow is done on the thread of the memory, a piece at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from memory.debounce import Debounce
from memory.layout import Layout
from memory.rescan import Rescan
from memory.watching import Hints, Watching
from supervisor.core.errors import NightcrewError
from supervisor.daemon.wakeups import was_set
from supervisor.host import mounts
from supervisor.host.clock import Clock

SHARE = 0.01
"""Of a core that walks of one directory take at most: with more than about 60,000 files they are rarer than every 30 s."""
POLLING = 0.1
"""The same where no events come."""
HASTE = 0.25
"""The same while events are lost or too many."""
BATCH = 200
"""Files that are read, and recorded in one transaction, at a time."""

Look = Callable[[], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often it looks, seconds."""

    rescan: float = 30.0
    poll: float = 2.0
    """Where no events come."""
    roots: float = 1.0
    """Whether a directory is still the one that is watched."""


class Desk(Protocol):
    """What the watch asks of its desk."""

    def layout(self, project: str) -> Layout: ...

    async def found(self, project: str, name: str, look: Look) -> None:
        """Run `look` on the thread of the memory, and record what its paths below the directory `name` hold now."""


PACE = Pace()


@dataclass(slots=True)
class Root:
    """A directory that is watched."""

    project: str
    name: str
    """`memory` or `mail`."""
    path: Path
    files: Rescan
    polls: str = ""
    """Why it is looked at every 2 s; empty: events come."""
    identity: tuple[int, int] | None = None
    """Of the directory that is watched."""
    scan_at: float = 0.0
    walk: Iterator[list[str]] | None = None
    took_s: float = 0.0
    """Of the walk under way, or the last one."""
    retry_at: float = math.inf
    """When it is tried again to watch a directory for which no watch was left."""
    again: bool = False
    """Something may have changed behind the walk under way."""


class MemoryWatch:
    """Of all projects. It belongs to one event loop; `run` is its work."""

    def __init__(self, desk: Desk, clock: Clock, alert: Callable[[str], None], pace: Pace = PACE) -> None:
        self._desk, self._clock, self._alert, self._pace = desk, clock, alert, pace
        self.overflows = 0
        """Times that the kernel dropped events."""
        self.walks = 0
        """Walks through a directory that came to their end."""
        self._roots: dict[Path, Root] = {}
        self._debounce: Debounce[tuple[Path, str]] = Debounce()
        self._wake = asyncio.Event()
        self._roots_at = 0.0
        events = asyncio.get_running_loop()
        self._hints = Hints(lambda: _wake(events, self._wake))
        self._watching = Watching(self._hints)

    def follow(self, project: str, name: str, files: Rescan) -> None:
        """Watch the directory `name` of a project, whose files are looked at by `files`, from now on."""
        path = self._desk.layout(project).root / name
        self._roots[path] = Root(project, name, path, files)
        self._roots_at = 0.0
        self._wake.set()

    def why_polled(self, project: str) -> str:
        """Why changes of a project on the disk are seen every 2 s only; empty: they are seen at once."""
        return next((root.polls for root in self._roots.values() if root.project == project and root.polls), "")

    async def run(self) -> None:
        """Look, until cancelled."""
        try:
            while True:
                await self._step()
                await self._rest()
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self._watching.close)

    async def _step(self) -> None:
        await self._take()
        if self._clock.monotonic() >= self._roots_at:
            self._roots_at = self._clock.monotonic() + self._pace.roots
            for root in list(self._roots.values()):
                self._look_at_root(root)
        await self._look_at_due()
        for root in list(self._roots.values()):
            if root.walk is not None or root.scan_at <= self._clock.monotonic():
                await self._walk_on(root)

    async def _rest(self) -> None:
        now = self._clock.monotonic()
        if any(root.walk is not None for root in self._roots.values()):
            await asyncio.sleep(0)
            return
        moments = [self._roots_at, *(root.scan_at for root in self._roots.values())]
        if (due := self._debounce.next_at()) is not None:
            moments.append(due)
        if self._roots and (left := min(moments) - now) <= 0:
            return
        await was_set(self._wake, left if self._roots else None)
        self._wake.clear()

    # Hints -----------------------------------------------------------------------------------------------------------------------------

    async def _take(self) -> None:
        taken = self._hints.take()
        if taken.ended:
            await asyncio.get_running_loop().run_in_executor(None, self._watching.close)
        now = self._clock.monotonic()
        if taken.lost:
            self.overflows += 1
            self._alert("the kernel dropped events of files (fs.inotify.max_queued_events): all files of the memories are looked at")
        for path, root in self._roots.items():
            if path in taken.gone:
                root.identity, self._roots_at = None, 0.0  # a new one can have the same inode
            if taken.ended:
                root.retry_at = now + self._pace.rescan
                self._poll(root, taken.ended)
            if taken.lost or path in taken.all_of:
                self._hurry(root)
            else:
                self._debounce.add(((path, below) for below in taken.paths.get(path, ())), now)
            if taken.exhausted and not root.polls:
                root.retry_at = now + self._pace.rescan
                self._poll(root, "some of its directories cannot be watched: fs.inotify.max_user_watches is reached")

    def _hurry(self, root: Root) -> None:
        """Walk soon, and again as long as that is needed, by a bounded share of a core."""
        root.again = root.walk is not None
        root.scan_at = min(root.scan_at, self._clock.monotonic() + max(self._debounce.latest_s, root.took_s / HASTE))

    async def _look_at_due(self) -> None:
        due: dict[Path, list[str]] = {}
        for path, below in self._debounce.due(self._clock.monotonic()):
            due.setdefault(path, []).append(below)
        for path, paths in due.items():
            root = self._roots[path]
            for begin in range(0, len(paths), BATCH):
                await self._found(root, functools.partial(root.files.look, paths[begin : begin + BATCH]))

    async def _found(self, root: Root, look: Look) -> bool:
        """Have what changed recorded. Whether that was done; else the next walk is soon and finds all of it."""
        try:
            await self._desk.found(root.project, root.name, look)
        except (NightcrewError, OSError) as error:  # a full disk, most often
            self._alert(f"memory of {root.project}: {error.line() if isinstance(error, NightcrewError) else error}")
            root.files.forget()
            root.walk, root.scan_at = None, self._clock.monotonic() + self._pace.poll
            return False
        return True

    # Walks -----------------------------------------------------------------------------------------------------------------------------

    async def _walk_on(self, root: Root) -> None:
        """One piece of a walk, the first one when none is under way."""
        if root.walk is None:
            root.walk, root.took_s, root.again = root.files.walk(), 0.0, False
        walk, ended = root.walk, True

        def piece() -> Sequence[str]:
            nonlocal ended
            began = time.thread_time()
            found = next(walk, None)
            root.took_s += time.thread_time() - began
            ended = found is None
            return found or ()

        if await self._found(root, piece) and ended:
            root.walk = None
            self.walks += 1
            root.scan_at = self._clock.monotonic() + self._next_in(root)

    def _next_in(self, root: Root) -> float:
        if root.again:
            return root.took_s / HASTE
        often, share = (self._pace.poll, POLLING) if root.polls else (self._pace.rescan, SHARE)
        return max(often, root.took_s / share)

    # Roots -----------------------------------------------------------------------------------------------------------------------------

    def _look_at_root(self, root: Root) -> None:
        """Watch a directory that is there and is not yet, or no longer, the one that is watched."""
        found, now = _directory(root.path), self._clock.monotonic()
        if found == root.identity and now < root.retry_at:
            return
        if found != root.identity:
            root.identity, root.scan_at, root.again = found, 0.0, root.walk is not None
        root.retry_at = math.inf
        if found is None:
            self._watching.drop(root.path)
        elif mounts.changes_elsewhere(kind := mounts.file_system(root.path)):
            self._poll(root, f"{kind} tells nobody what others change")
        elif why := self._watching.follow(root.path):
            root.retry_at = now + self._pace.rescan
            self._poll(root, why)
        elif root.polls:
            root.polls = ""
            self._alert(f"{root.path} is watched again")

    def _poll(self, root: Root, why: str) -> None:
        root.polls = why
        root.scan_at = min(root.scan_at, self._clock.monotonic() + self._pace.poll)
        self._alert(f"{root.path} is looked at every {self._pace.poll:.0f} s, and not at each change: {why}")


def _wake(events: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is left to be woken
        events.call_soon_threadsafe(event.set)


def _directory(path: Path) -> tuple[int, int] | None:
    """Which directory is there, itself and no link to one."""
    try:
        seen = path.lstat()
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino) if stat.S_ISDIR(seen.st_mode) else None
