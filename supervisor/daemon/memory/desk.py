"""The memory of all projects. Files are read and written on one thread, so that neither the loop nor its screens wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from memory.layout import Layout, kind_of
from memory.maildir import is_arrival
from memory.rescan import Rescan
from memory.store import Change, Store, Terms
from supervisor.core.errors import NightcrewError
from supervisor.daemon.loop import Loop
from supervisor.daemon.memory import lease_wiring
from supervisor.daemon.memory.awaited_notes import AwaitedNotes
from supervisor.daemon.memory.conflicts import ConflictNotices
from supervisor.daemon.memory.journal import ChangeJournal
from supervisor.daemon.memory.mail import MailDesk
from supervisor.daemon.memory.mail_keeping import MailKeeper
from supervisor.daemon.memory.searching import SearchDesk
from supervisor.daemon.memory.turns import Turns
from supervisor.daemon.memory.waits import WaitDesk
from supervisor.daemon.memory.watch import PACE, Look, MemoryWatch, Pace
from supervisor.daemon.memory.write_budget import WriteBudget
from supervisor.host import files, foreign
from supervisor.host.paths import Home

T = TypeVar("T")
Told = Callable[[str, Change], None]
UNTOLD_MAX = 10_000
FOLLOW_S = 2.0


class MemoryDesk:
    """One supervisor's. It belongs to one event loop; `kept` runs it."""

    def __init__(self, loop: Loop, home: Home, pace: Pace = PACE) -> None:
        self.loop = loop
        self._home = home
        self._thread = ThreadPoolExecutor(1, "memory")
        self.search = SearchDesk(self, loop)
        self._terms = Terms(loop.settings.memory.approval, loop.settings.memory.trust.value)
        self.waits = WaitDesk(loop.ledger.waits, loop.crew, loop.clock, loop.alert)
        self._stores: dict[str, Store] = {}
        self._told: dict[str, int] = {}
        self._followed: set[str] = set()
        self._who_hears: list[Told] = []
        self.watch = MemoryWatch(self, loop.clock, loop.alert, pace)
        self.waiting: Counter[str] = Counter()
        """How many requests of each author wait now."""
        self.turns = Turns()
        self.shown: dict[tuple[str, str], str] = {}
        """Which version a person was last shown of what waits, by project and path."""
        self.journal = ChangeJournal(loop)
        self.awaited = AwaitedNotes(loop, self)
        loop.look_for_note = self.awaited.look_for
        self.on_change(self.journal.add)
        self.on_change(self.awaited.changed)
        self.leases = lease_wiring.desk(loop, self.waits)
        self.mail = MailDesk(loop, self.waits, self.on_thread, self.layout)
        self._mail_keeper = MailKeeper(self.mail)
        self.notices = self._mail_keeper.notices
        self.write_budget = WriteBudget(loop.clock.monotonic)
        self._notices = ConflictNotices(self, loop.alert)
        self.on_change(self._notices.changed)
        self.on_change(lambda project, change: self.search.changed(project, change.path))

    def layout(self, project: str) -> Layout:
        """Where the memory of a project lies; its directories are made."""
        found = Layout(self._home.project(project))
        for folder in (found.root, found.memory, found.mail):
            files.private_dir(folder)
        return found

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Serve until left; what is under way is finished first, and every change that was recorded is in the journal."""
        self.waits.begin()
        works = (
            self.watch.run(),
            self.awaited.run(),
            self._follow_all(),
            self._mail_keeper.keep(),
            self._notices.run(),
        )
        tasks, journal = [asyncio.create_task(work) for work in works], asyncio.create_task(self.journal.run())
        try:
            async with self.leases.kept():
                yield
        finally:
            await _ended(tasks)
            await self._tell_the_rest()
            await _ended([journal])
            self.waits.close()
            await self.on_thread(self._close)
            await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    async def on_thread(self, work: Callable[[], T]) -> T:
        """Do `work` on the thread of the memory, after what was asked before."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # Notes -------------------------------------------------------------------------------------------------------------------------------

    async def of(self, project: str, work: Callable[[Store], T]) -> T:
        """Do `work` with the notes of a project, on the thread; then everybody is told what changed."""
        self.follow(project)
        done, changes = await self.on_thread(lambda: self._with(project, work))
        for change in changes:
            if change.number > self._told.get(project, 0):  # two may have been on their way with the same news
                self._told[project] = change.number
                for hear in tuple(self._who_hears):
                    hear(project, change)
        return done

    def _with(self, project: str, work: Callable[[Store], T]) -> tuple[T, list[Change]]:
        store = self._stores.get(project)
        if store is None:
            store = self._stores[project] = Store(self.layout(project), self.loop.clock.wall, self._terms)
            self._told.setdefault(project, store.newest())
        done = work(store)
        return done, store.changes_after(self._told[project], UNTOLD_MAX)

    async def _tell_the_rest(self) -> None:
        """Tell what the thread has recorded for somebody who was ended before he could tell it."""
        for project in list(self._stores):
            try:
                await self.of(project, lambda _: None)
            except NightcrewError as error:
                self.loop.alert(error.line())

    def _close(self) -> None:
        for store in self._stores.values():
            store.close()
        self._stores.clear()

    def on_change(self, told: Told) -> None:
        """`told` is called with the project and each change from now on, on the thread of the loop."""
        self._who_hears.append(told)

    @contextlib.contextmanager
    def hearing(self, told: Told) -> Iterator[None]:
        """As `on_change`, while inside."""
        self._who_hears.append(told)
        try:
            yield
        finally:
            self._who_hears.remove(told)

    # The disk ----------------------------------------------------------------------------------------------------------------------------

    def follow(self, project: str) -> None:
        """See what changes on the disk from now on."""
        if project in self._followed:
            return
        self._followed.add(project)
        top = self.layout(project).root
        notes = Rescan(top, "memory", lambda path: kind_of(path) is not None, time.time_ns, lambda: self._known(project))
        self.watch.follow(project, "memory", notes)
        self.watch.follow(project, "mail", Rescan(top, "mail", is_arrival, time.time_ns))

    async def _follow_all(self) -> None:
        """Follow every project of which something exists, and from their start on those at which somebody works."""
        for project in await self.on_thread(lambda: _with_files(self._home)):
            self.follow(project)
        while True:
            for task in list(self.loop.crew.living):
                self.follow(self.loop.ledger.launch_row(task).project)
            await asyncio.sleep(FOLLOW_S)

    async def found(self, project: str, name: str, look: Look) -> None:
        """See `watch.Desk`."""
        if name == "memory" and await self.on_thread(lambda: self._has_book(project)):
            await self.of(project, lambda store: store.found_all(look()))
        elif (paths := await self.on_thread(look)) and name == "memory":
            await self.of(project, lambda store: store.found_all(paths))
        elif paths:
            self._mail_keeper.found(paths)

    def _has_book(self, project: str) -> bool:
        """Whether anything was ever written. A memory that nobody uses costs no file: not on a full disk either."""
        return project in self._stores or self.layout(project).book.exists()

    def _known(self, project: str) -> list[str]:
        return self._stores[project].known() if project in self._stores else []


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _with_files(home: Home) -> list[str]:
    """The projects that have a note or a mailbox."""
    return [place.name for place in sorted(home.project("").glob("*")) if any(_has_entry(place, name) for name in ("memory", "mail"))]


def _has_entry(place: Path, name: str) -> bool:
    """Through the door for what agents write: a link in the place of the directory leads nowhere."""
    with contextlib.suppress(OSError), contextlib.closing(foreign.entries(place, name)) as found:
        return next(found, None) is not None
    return False  # somebody's own file, or one that is gone
