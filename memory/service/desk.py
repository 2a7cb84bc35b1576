"""The memory of all projects, on one thread."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import stat
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agents.kinds import kinds
from memory import files as layout
from memory.files import Layout
from memory.lease_rows import Waits
from memory.rescan import Debounce, Rescan
from memory.search import SearchDesk
from memory.service import leases, mail_requests, notes
from memory.service import mail as handoff
from memory.service.mail import Handoff, Letter, MailDesk
from memory.service.mail_requests import Asker
from memory.service.notes import Request
from memory.service.waits import AwaitedNotes, WaitDesk
from memory.versions import Action, Change
from memory.watching import Hints, Watching
from memory.writing import QUARANTINE, Store, Terms
from supervisor.contract import Verb
from supervisor.host import files, scratch, untrusted_fs
from supervisor.kernel import codec
from supervisor.kernel.codec import Project
from supervisor.kernel.errors import NightcrewError, Refused
from supervisor.kernel.format import duration
from supervisor.kernel.path_globs import kind_of
from supervisor.kernel.spec import Submission
from supervisor.server import requests
from supervisor.server.wakeups import was_set

if TYPE_CHECKING:
    from memory.files import Layout
    from memory.rescan import Rescan
    from memory.versions import Author, Change
    from supervisor.host.clock import Clock
    from supervisor.host.paths import Home
    from supervisor.kernel.decision import LookForNote
    from supervisor.server.loop import Loop


# Conflicts
# ---------
# Who is told when two texts of one note did not fit, and when an agent's text waits for a person.


PERSON = "person"
CONFLICTS_UNTOLD_MAX = 1000


class ConflictNotices:
    """Of all projects. It belongs to one event loop."""

    def __init__(self, desk: MemoryDesk, alert: Callable[[str], None]) -> None:
        self._desk, self._alert = desk, alert
        self._untold: deque[tuple[str, Change]] = deque(maxlen=CONFLICTS_UNTOLD_MAX)
        self._wake = asyncio.Event()

    def changed(self, project: str, change: Change) -> None:
        """See `MemoryDesk.on_change`."""
        if change.action in (Action.CONFLICT, Action.QUARANTINE):
            self._untold.append((project, change))
            self._wake.set()

    async def run(self) -> None:
        """Send mail, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._untold:
                project, change = self._untold.popleft()
                try:
                    await (self._conflict(project, change) if change.action is Action.CONFLICT else self._proposal(project, change))
                except NightcrewError as error:  # the log of the memory says it too
                    self._alert(f"nobody is told of {change.path}: {error.line()}")

    async def _conflict(self, project: str, change: Change) -> None:
        path = layout.meant(change.path)
        other = await self._desk.of(project, lambda store: _writer(store, path, change.number))
        text = (
            f"{change.author} wrote {path} without knowing what {other} had written there. Both are kept: {path} as {other} left it, "
            f"and the other text as {change.path}. Merge them into {path}, then remove {change.path}."
        )
        for to in dict.fromkeys(PERSON if who == "unknown" else who for who in (change.author, other)):
            await self._desk.mail.tell(project, to, f"conflict about {path}", text, key=f"conflict {change.number} {to}")

    async def _proposal(self, project: str, change: Change) -> None:
        path = change.path.removeprefix(QUARANTINE)
        text = (
            f"{change.author} wrote {path}. No agent reads it until you approve it: nightcrew mem show quarantine/{path}, "
            f"nightcrew mem approve {path}."
        )
        await self._desk.mail.tell(project, PERSON, f"{path} waits for you", text, key=f"quarantine {change.path}")


def _writer(store: Store, path: str, before: int) -> str:
    """Who wrote what is there."""
    return next((change.author for change in store.changes(path, 20) if change.number < before and change.version), "unknown")


# Journal
# -------
# The changes of the memories as lines of the ledger's journal: one line for all of a second, however many there are.


EVERY_S = 1.0
NAMED = 20
"""Changes of a project that one line names; it counts the others."""
EVENT = "memory changed"


class ChangeJournal:
    """Of all projects. It belongs to one event loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._counts: Counter[str] = Counter()
        self._named: dict[str, list[dict[str, object]]] = {}
        self._wake = asyncio.Event()

    def add(self, project: str, change: Change) -> None:
        """Write it down soon."""
        self._counts[project] += 1
        named = self._named.setdefault(project, [])
        if len(named) < NAMED:
            named.append({key: getattr(change, key) for key in ("number", "path", "action", "author", "version")})
        self._wake.set()

    async def run(self) -> None:
        """Write, until cancelled; what is left then is written too."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                self._write()
                await asyncio.sleep(EVERY_S)
        finally:
            self._write()

    def _write(self) -> None:
        for project, count in list(self._counts.items()):
            named = self._named[project]
            data = {"project": project, "changes": named, **({"more": count - len(named)} if count > len(named) else {})}
            try:
                self._loop.ledger.journal(None, None, EVENT, data)
            except NightcrewError as error:  # the versions say it too; the line is written with the next change
                self._loop.alert(error)
                return
            del self._counts[project], self._named[project]


# Turns
# -----
# Whose request comes to the memory's thread next: that thread takes what is first, so one author may have only few requests there.


AT_ONCE = 2
"""Requests of one author on the thread and in its line."""


class Turns:
    """Belongs to one event loop."""

    def __init__(self) -> None:
        self._lines: dict[str, asyncio.Semaphore] = {}
        self._asking: dict[str, int] = {}

    @contextlib.asynccontextmanager
    async def of(self, author: str) -> AsyncIterator[None]:
        """Inside, it is the author's turn; its requests are let in as they came, and those of others do not wait for them."""
        line = self._lines.setdefault(author, asyncio.Semaphore(AT_ONCE))
        self._asking[author] = self._asking.get(author, 0) + 1
        try:
            async with line:
                yield
        finally:
            self._asking[author] -= 1
            if not self._asking[author]:
                del self._asking[author], self._lines[author]


# Watch
# -----
# Which files of the memories changed on the disk: hints of the kernel, debounced, and a walk through everything every 30 s, which
# is the truth. Where no events come the walk is every 2 s, and a person is told why.
#
# Everything slow is done on the thread of the memory, a piece at a time.


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


PACE = Pace()


@dataclass(slots=True)
class Root:
    """A directory that is watched."""

    project: str
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

    def __init__(self, desk: MemoryDesk, clock: Clock, alert: Callable[[str], None], pace: Pace = PACE) -> None:
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

    def follow(self, project: str, files: Rescan) -> None:
        """Watch the notes of a project, which are looked at by `files`, from now on."""
        path = self._desk.layout(project).memory
        self._roots[path] = Root(project, path, files)
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
        self._take()
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

    def _take(self) -> None:
        taken, now = self._hints.take(), self._clock.monotonic()
        if taken.lost:
            self.overflows += 1
            self._alert("the kernel dropped events of files (fs.inotify.max_queued_events): all files of the memories are looked at")
        for path, root in self._roots.items():
            if path in taken.gone:
                root.identity, self._roots_at = None, 0.0  # a new one can have the same inode
            if taken.lost or path in taken.all_of:
                self._hurry(root)
            else:
                self._debounce.add(((path, below) for below in taken.paths.get(path, ())), now)

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
            await self._desk.found(root.project, look)
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
        if found == root.identity and now < root.retry_at and (found is None or root.polls or self._watching.follows(root.path)):
            return
        if found != root.identity or not root.polls:
            root.identity, root.scan_at, root.again = found, 0.0, root.walk is not None
        root.retry_at = math.inf
        if found is None:
            self._watching.drop(root.path)
        elif scratch.changes_elsewhere(kind := scratch.file_system(root.path)):
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
        self._alert(f"{root.path} is looked at every {duration(self._pace.poll)}, and not at each change: {why}")


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


# Write budget
# ------------
# How much each agent may write into the memory through nightcrew: every version is kept for ever.


BYTES = 16 * 2**20
"""At once."""
REFILL_S = 3600.0
"""Seconds until all of them may be written again."""
EACH = 256
"""Bytes that a write costs beside its text."""
FORGET = 10_000
"""Tasks that are remembered."""


@dataclass(slots=True)
class _Left:
    bytes: float
    at: float


class WriteBudget:
    """Of one supervisor."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._left: dict[str, _Left] = {}

    def take(self, author: Author, size: int) -> None:
        """Raises Refused, with nothing taken, when an agent has written too much."""
        if not author.is_agent:
            return
        now = self._monotonic()
        left = self._left.pop(author.name, None) or _Left(BYTES, now)
        left.bytes, left.at = min(BYTES, left.bytes + (now - left.at) * BYTES / REFILL_S), now
        self._left[author.name] = left  # the newest are last
        if len(self._left) > FORGET:
            del self._left[next(iter(self._left))]
        if left.bytes < size + EACH:
            wait = (size + EACH - left.bytes) * REFILL_S / BYTES
            raise Refused(
                "it has written too much into the memory",
                on=author.name,
                why=f"at most {BYTES >> 20} MiB an hour",
                hint=f"wait {duration(wait)}",
            )
        left.bytes -= size + EACH


# Desk
# ----
# The memory of all projects. Files are read and written on one thread, so that neither the loop nor its screens wait for them.


T = TypeVar("T")
Told = Callable[[str, Change], None]
UNTOLD_MAX = 10_000
FOLLOW_S = 2.0


class MemoryDesk:
    """One supervisor's. It belongs to one event loop; `kept` runs it."""

    def __init__(self, loop: Loop, home: Home, search: SearchDesk | None = None, pace: Pace = PACE) -> None:
        self.loop = loop
        self._home = home
        self._thread = ThreadPoolExecutor(1, "memory")
        self.search = search or SearchDesk(loop.settings.memory)
        self.search.begin(self, loop)
        self._terms = Terms(loop.settings.memory.approval, loop.settings.memory.trust.value)
        self.waits = WaitDesk(loop.ledger.of(Waits), loop.crew, loop.clock, loop.alert)
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
        self.on_change(self.journal.add)
        self.on_change(self.awaited.changed)
        self.leases = leases.desk(loop, self.waits)
        self.mail = MailDesk(loop, self.waits, self.on_thread, self.layout)
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
            self.mail.keep(),
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
            store = self._stores[project] = Store(self.layout(project), self.loop.clock.wall, lambda: self._terms)
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
        self.watch.follow(project, notes)

    async def _follow_all(self) -> None:
        """Follow every project of which something exists, and from their start on those at which somebody works."""
        for project in await self.on_thread(lambda: _with_files(self._home)):
            self.follow(project)
        while True:
            for task in list(self.loop.crew.living):
                self.follow(self.loop.ledger.launch_row(task).project)
            await asyncio.sleep(FOLLOW_S)

    async def found(self, project: str, look: Look) -> None:
        """Run `look` on the thread of the memory, and record what its paths hold now."""
        if await self.on_thread(lambda: self._has_book(project)):
            await self.of(project, lambda store: store.found_all(look()))
        elif paths := await self.on_thread(look):
            await self.of(project, lambda store: store.found_all(paths))

    def _has_book(self, project: str) -> bool:
        """Whether anything was ever written. A memory that nobody uses costs no file: not on a full disk either."""
        return project in self._stores or Layout(self._home.project(project)).book.exists()

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
    with contextlib.suppress(OSError), contextlib.closing(untrusted_fs.entries(place, name)) as found:
        return next(found, None) is not None
    return False  # somebody's own file, or one that is gone


def look_for_note(loop: Loop, command: LookForNote) -> None:
    """Offer `NoteAppeared` once the note is there."""
    loop.services.get(MemoryDesk).awaited.look_for(command.note)


# Requests
# --------
# What people ask at their socket of the memory of a project: notes, mail, leases and waits. Each verb takes the desk and its words.


async def handle_mem(desk: MemoryDesk, *, project: Project, **args: Any) -> Any:
    """Do what a person asks of the memory of a `project`, also of one in which nothing was run yet; see `notes.OPS`."""
    return await notes.mem(Request(desk, project, PERSON, None), args)


async def handle_mail(desk: MemoryDesk, *, project: Project, **args: Any) -> dict[str, Any]:
    """Do what a person asks of the mail of a `project`, also of one in which nothing was run yet; see `mail_requests.OPS`."""
    return await mail_requests.ask(desk.mail, Asker(PERSON, project, None, functools.partial(_hand_over, desk)), args)


async def _hand_over(desk: MemoryDesk, letter: Letter, said: Handoff) -> Letter:
    letter = handoff.described(letter, said, said.branch, said.commit)
    if said.start is None:
        return letter
    submission = codec.load(Submission, said.start)
    task = submission.spec.tasks[0]
    in_prompt = kinds()[task.kind].is_agent
    if in_prompt:
        task = replace(task, prompt=handoff.prompt(letter, task.prompt or ""))
    made = await requests.submit(desk.loop, replace(submission, spec=replace(submission.spec, tasks=(task,))))
    return handoff.to(letter, made["tasks"][0], in_prompt=in_prompt)


async def watch(desk: MemoryDesk) -> dict[str, Any]:
    """How changes on the disk are seen: `overflows`, how often the kernel dropped events since the supervisor started."""
    return {"overflows": desk.watch.overflows}


VERBS: Mapping[str, Verb] = {
    "mem": handle_mem,
    "lease": leases.OF_PERSON,
    "mail": handle_mail,
    "watch": watch,
}
"""They stop when whoever asked is gone."""
