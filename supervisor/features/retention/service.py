"""Do what `[keep]` says, beside the loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable, Container, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.client import start
from supervisor.contract import Proof, Supervisor
from supervisor.features.retention import archiving as retention_archiving
from supervisor.features.retention.archiving import Archive
from supervisor.gateway.account.schema import ACCOUNT
from supervisor.host import files, untrusted_fs, usage
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel import retention as retention_rules
from supervisor.kernel.errors import NightcrewError, NotRunning, Refused
from supervisor.kernel.retention import Going, Keep, Limit, RunFacts, Thing
from supervisor.server.wakeups import was_set
from supervisor.store import archive, backups, queries, sqlite
from supervisor.store.sqlite import LEDGER, Book

if TYPE_CHECKING:
    from supervisor.server.loop import Loop


# Past
# ----
# What there is of the past beside the ledger: the records of runs, their logs, and the gateway's recordings, each with its age, its
# size and what still needs it. Looking only, without the supervisor.


RESULTS, LOGS, RECORDINGS, HISTORY = "results", "logs", "recordings", "history"
LOG_FILES = ("stdout.log", "stderr.log", "gate.log")
"""Of an attempt."""
_LEFT = "left"
_ALL_PROVEN = 1 << 62


@dataclass(frozen=True, slots=True)
class Found:
    """Everything of one sort, and what of it goes now."""

    what: str
    limit: Limit
    things: int
    size: int
    going: list[Going]

    def to_json(self) -> dict[str, Any]:
        """For `--json` and the command line; sizes are bytes, ages seconds, 0 where nothing is set."""
        shape = {"what": self.what, "age_s": self.limit.age_s, "size_max": self.limit.size, "things": self.things, "bytes": self.size}
        return {**shape, "going": [{"name": one.thing.name, "bytes": one.thing.size, "why": one.why} for one in self.going]}


class Past:
    """One look: connections that are open until it is closed."""

    def __init__(self, home: Home, now: float) -> None:
        """Raises LedgerError, and Refused for a ledger that no supervisor of this version has opened yet. `now`: wall-clock seconds."""
        self._home, self._now = home, now
        self._db = sqlite.connect_readonly(home.ledger)
        if self._db.execute("PRAGMA user_version").fetchone()[0] != sqlite.SCHEMA:
            self._db.close()
            raise Refused("cannot look at the past yet", on=str(home.ledger), why="an older nightcrew wrote it", hint="nightcrew up -d")
        self._kept: sqlite3.Connection | None = None
        try:
            self._kept = archive.connect(home.archive) if home.archive.exists() else None
            self._continued = retention_archiving.continued(self._db)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Idempotent."""
        for db in (self._db, self._kept):
            if db is not None:
                db.close()

    def look(self, terms: Keep) -> list[Found]:
        """All four, whether or not anything is set: sizes are counted."""
        return [
            self._found(RESULTS, terms.results, list(self.results())),
            self._found(LOGS, terms.logs, [thing for thing in self.logs() if thing.size]),
            self._found(RECORDINGS, terms.recordings, list(self.recordings())),
            self._found(HISTORY, terms.history, self.history(), retention_archiving.used(self._db)),
        ]

    def _found(self, what: str, limit: Limit, things: Sequence[Thing], total: int | None = None) -> Found:
        size = sum(thing.size for thing in things) if total is None else total
        return Found(what, limit, len(things), size, retention_rules.going(things, limit, self._now, size))

    def results(self, *, sized: bool = True) -> Iterator[Thing]:
        """The directory of each run among the records. Not `sized`, their sizes are 0: counting walks them."""
        for run in _names(self._home.runs):
            facts, why = self._facts(run)
            if facts is not None and not why and self._has_left(run):
                why = "it holds files that git does not take (left/), and no other copy is known"
            thing = Thing(run, facts.ended if facts is not None else self._now, 0, why)
            yield self.measured(thing) if sized else thing

    def measured(self, thing: Thing) -> Thing:
        """One of `results` with its size."""
        return replace(thing, size=usage.used([self._home.runs / thing.name]).bytes)

    def logs(self, known: Container[str] = ()) -> Iterator[Thing]:
        """The logs of each run that has any, but of those that are `known` to have none."""
        for run in _names(self._home.runs):
            if run in known:
                continue
            facts, why = self._facts(run)
            size = sum(seen.st_blocks * 512 for _, _, seen in log_files(self._home, run))
            yield Thing(run, facts.ended if facts is not None else self._now, size, why)

    def recordings(self) -> Iterator[Thing]:
        """Each file below the recordings, by its path there."""
        for folder in _names(self._home.recordings):
            facts, _ = self._facts(folder)
            held = "its run has not ended" if facts is not None and facts.unfinished else ""
            for name in _names(self._home.recordings / folder):
                with contextlib.suppress(OSError):
                    seen = (self._home.recordings / folder / name).lstat()
                    yield Thing(f"{folder}/{name}", seen.st_mtime, seen.st_blocks * 512, held)

    def history(self) -> list[Thing]:
        """Each run of the ledger, with its share of the file."""
        weighing = retention_archiving.sized(
            self._db, [one for run in queries.runs(self._db, 1 << 40) if (one := self._of(self._db, run.id))]
        )
        try:
            while True:
                next(weighing)
        except StopIteration as whole:
            return list(whole.value)

    def why_held(self, run: str) -> str:
        """Why nothing of the run's records may go now; empty: it may."""
        return self._facts(run)[1]

    def _facts(self, run: str) -> tuple[RunFacts | None, str]:
        facts = self._of(self._db, run)
        if facts is None and self._kept is not None:
            facts = self._of(self._kept, run)
            return facts, "" if facts is not None else _UNKNOWN
        return facts, retention_rules.held(facts) if facts is not None else _UNKNOWN

    def _of(self, db: sqlite3.Connection, run: str) -> RunFacts | None:
        return retention_archiving.facts_of(db, run, _ALL_PROVEN, self._continued)

    def _has_left(self, run: str) -> bool:
        return any(attempt.joinpath(_LEFT).is_dir() for attempt in attempts(self._home, run))


_UNKNOWN = "neither the ledger nor the archive knows it"


def attempts(home: Home, run: str) -> Iterator[Path]:
    """The directories of a run's attempts."""
    for task in _names(home.runs / run, folders=True):
        for epoch in _names(home.runs / run / task, folders=True):
            yield home.runs / run / task / epoch


def log_files(home: Home, run: str) -> Iterator[tuple[Path, str, os.stat_result]]:
    """The logs of a run: directory, name and what it is."""
    for attempt in attempts(home, run):
        with contextlib.suppress(OSError), untrusted_fs.folder(attempt) as here:
            for name in LOG_FILES:
                if (seen := here.look(name)) is not None and stat.S_ISREG(seen.st_mode):
                    yield attempt, name, seen


def _names(place: Path, *, folders: bool = False) -> list[str]:
    """What lies there, sorted; nothing when it is no directory. `folders`: directories only, no links to any."""
    try:
        with os.scandir(place) as found:
            return sorted(entry.name for entry in found if not folders or entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


# Keeping
# -------
# Does what `[keep]` says, beside the loop: once an hour, in small pieces with rests between them, in a thread of its own.
#
# Each piece may be done again. What is removed is said in the journal first, so that the audit log proves it.


FIRST_S, EVERY_S = 300.0, 3600.0
"""Seconds from the supervisor's start to the first round, and between two."""
REST = 9.0
"""A rest is so many times as long as the piece before it: all this takes a tenth of a processor at most."""
REST_MIN_S = 0.005
RUNS = 200
"""Runs of the ledger that are looked at in one piece."""
ASKED_S = 5.0
"""Seconds of work for one question of `clean --old --yes`, which asks again."""

Done = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Doors:
    """What a keeper needs of the supervisor; called in its thread."""

    proven: Callable[[], int]
    """How far the audit log proves the journal."""
    note: Callable[[str, Mapping[str, object]], None]
    """Adds a line to the journal; it is committed when this returns."""
    room: int = 0
    """Bytes that stay free on the disk: nothing is copied beyond."""


class Keeper:
    """One supervisor's. `round` belongs to one thread."""

    def __init__(self, home: Home, terms: Keep, clock: Clock, doors: Doors) -> None:
        self._home, self._terms, self._clock, self._doors = home, terms, clock, doors
        self._bare: set[str] = set()
        """Runs without logs: what has ended gets no new ones."""

    def round(self) -> Iterator[Done | None]:
        """Do all that is to be done now, a piece before each yield; what was archived or removed, None for a piece that is a part of that.
        Raises NightcrewError; the next round makes up."""
        start.rotate_log(self._home)
        if not self._home.ledger.exists():
            return
        yield from self._history()
        with contextlib.closing(Past(self._home, self._clock.wall())) as seen:
            yield from self._results(seen)
            yield from self._logs(seen)
            yield from self._recordings(seen)
        yield None
        for path, book in self._copied():
            backups.copy(path, book, self._doors.room)
            yield None

    def begin(self) -> None:
        """See to it that the ledger and the account can be restored. Raises NightcrewError."""
        for path, book in self._copied():
            backups.begin(path, book)

    def _copied(self) -> list[tuple[Path, Book]]:
        return [(path, book) for path, book in ((self._home.ledger, LEDGER), (self._home.gateway_account, ACCOUNT)) if path.exists()]

    # The ledger ------------------------------------------------------------------------------------------------------------------------

    def _history(self) -> Iterator[Done | None]:
        limit = self._terms.history
        with contextlib.closing(Archive(self._home.ledger, self._home.archive, self._clock.wall)) as moving:
            while (run := moving.leaving()) is not None:  # a kill interrupted it
                yield from self._move(moving, Going(Thing(run, self._clock.wall()), "it was on its way"))
            if not limit:
                return
            yield from self._oldest(moving, limit)
            before = self._clock.wall() - (limit.age_s or self._clock.wall())
            while moving.move_rest(before, self._doors.proven()):
                yield None
            while moving.shrink():
                yield None

    def _oldest(self, moving: Archive, limit: Limit) -> Iterator[Done | None]:
        for going in (yield from self._planned(moving, limit)):
            if files.free_bytes(self._home.root) < self._doors.room + 2 * going.thing.size:
                return
            if moving.mark(going.thing.name, self._doors.proven()):
                yield from self._move(moving, going)

    def _planned(self, moving: Archive, limit: Limit) -> Generator[None, None, list[Going]]:
        """What goes, by one look at all there is, as `Past.look` tells it: sizes that are measured again while rows leave say something
        else. What the audit log does not prove yet, or something needs meanwhile, stays when its turn comes."""
        facts, after = moving.oldest(0, self._doors.proven(), RUNS)
        while after:
            yield None
            more, after = moving.oldest(after, self._doors.proven(), RUNS)
            facts += more
        used, now = moving.used(), self._clock.wall()
        unsized = [Thing(one.run, one.ended, 0, retention_rules.held(one)) for one in facts]
        if not (limit.size and used > limit.size) and not retention_rules.going(unsized, limit, now, 0):
            return []
        return retention_rules.going((yield from moving.sized(facts)), limit, now, used)

    def _move(self, moving: Archive, going: Going) -> Iterator[Done | None]:
        while moving.move(going.thing.name):
            yield None
        yield _done(HISTORY, going)

    # Files -----------------------------------------------------------------------------------------------------------------------------

    def _results(self, seen: Past) -> Iterator[Done | None]:
        limit = self._terms.results
        for going in retention_rules.going(seen.results(sized=bool(limit.size)), limit, self._clock.wall()) if limit else ():
            run = going.thing.name
            if seen.why_held(run):
                continue
            if not limit.size:
                going = replace(going, thing=seen.measured(going.thing))
            self._say(RESULTS, going)
            for attempt in attempts(self._home, run):
                untrusted_fs.remove_tree(attempt)
                yield None
            untrusted_fs.remove_tree(self._home.runs / run)
            yield _done(RESULTS, going)

    def _logs(self, seen: Past) -> Iterator[Done | None]:
        limit = self._terms.logs
        things = list(seen.logs(self._bare)) if limit else []
        self._bare |= {thing.name for thing in things if not thing.size and not thing.held}
        for going in retention_rules.going((thing for thing in things if thing.size), limit, self._clock.wall()):
            run = going.thing.name
            if seen.why_held(run):
                continue
            self._say(LOGS, going)
            for attempt, name, _ in log_files(self._home, run):
                untrusted_fs.remove_tree(attempt / name)
            yield _done(LOGS, going)

    def _recordings(self, seen: Past) -> Iterator[Done | None]:
        limit, root = self._terms.recordings, self._home.recordings
        for going in retention_rules.going(seen.recordings(), limit, self._clock.wall()) if limit else ():
            _unlink(root / going.thing.name)
            yield _done(RECORDINGS, going)

    def _say(self, what: str, going: Going) -> None:
        self._doors.note("kept no longer", {"what": what, "run": going.thing.name, "bytes": going.thing.size, "why": going.why})


def _done(what: str, going: Going) -> Done:
    return {"what": what, "name": going.thing.name, "bytes": going.thing.size, "why": going.why}


def _unlink(file: Path) -> None:
    with contextlib.suppress(OSError):
        file.unlink()
        file.parent.rmdir()  # the last of its run


class Keeping:
    """The keeper's thread and its turns. Belongs to one event loop."""

    def __init__(self, keeper: Keeper, say: Callable[[str], None]) -> None:
        self._keeper, self._say = keeper, say
        self._thread = ThreadPoolExecutor(1, "keeping")
        self._turn = asyncio.Lock()
        self._over = asyncio.Event()
        self._left: Iterator[Done | None] | None = None
        """A round that is not through: what was to go then is what goes."""

    async def once(self, *, goes_on: bool = False, for_s: float = ASKED_S) -> tuple[list[Done], bool]:
        """Do what is to be done, without rests, for so long; what was done, and whether more is left. `goes_on`: with what the last one
        left, else with a new look. Raises NightcrewError."""
        events = asyncio.get_running_loop()
        async with self._turn:
            work, done, until = await self._taken(goes_on), list[Done](), events.time() + for_s
            try:
                while not self._over.is_set() and events.time() < until:
                    piece, is_last = await events.run_in_executor(self._thread, _next, work)
                    done += [piece] if piece is not None else []
                    if is_last:
                        return done, False
                self._left = work
            finally:
                if self._left is None:
                    await events.run_in_executor(self._thread, _close, work)
            return done, True

    async def _taken(self, goes_on: bool) -> Iterator[Done | None]:
        work, self._left = self._left, None
        if work is not None and not goes_on:
            await asyncio.get_running_loop().run_in_executor(self._thread, _close, work)
        return work if work is not None and goes_on else self._keeper.round()

    async def run(self) -> None:
        """Rounds until `close`. What fails is said, and tried again in the next one."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._keeper.begin)
        except NightcrewError as error:
            self._say(f"the ledger could not be restored if it were damaged now: {error}")
        await self._rest(FIRST_S)
        while not self._over.is_set():
            try:
                async with self._turn:
                    await self._round()
            except (NightcrewError, OSError) as error:  # a directory that cannot be removed, or read
                self._say(f"not everything that [keep] says was done: {error}")
            await self._rest(EVERY_S)

    async def _round(self) -> None:
        events, work = asyncio.get_running_loop(), await self._taken(False)
        try:
            is_last = False
            while not is_last and not self._over.is_set():
                began = events.time()
                _, is_last = await events.run_in_executor(self._thread, _next, work)
                await self._rest(max(REST_MIN_S, REST * (events.time() - began)))
        finally:
            await events.run_in_executor(self._thread, _close, work)

    async def _rest(self, seconds: float) -> None:
        await was_set(self._over, seconds)

    def close(self) -> None:
        """End after the piece that is under way."""
        self._over.set()

    async def end(self) -> None:
        """`close`, and give back what a round that is not through holds."""
        self.close()
        async with self._turn:
            await self._taken(False)


def _next(work: Iterator[Done | None]) -> tuple[Done | None, bool]:
    """The next piece, and whether there was none left."""
    for piece in work:
        return piece, False
    return None, True


def _close(work: Iterator[Done | None]) -> None:
    """Give back what it holds, in the thread that opened it."""
    if (close := getattr(work, "close", None)) is not None:
        close()


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Archive and remove in rounds inside."""
    loop, events = supervisor.loop, asyncio.get_running_loop()

    async def write(event: str, data: Mapping[str, object]) -> None:
        loop.ledger.journal(None, None, event, data)

    def note(event: str, data: Mapping[str, object]) -> None:
        asyncio.run_coroutine_threadsafe(write(event, data), events).result()

    proof = loop.services.get(Proof)
    doors = Doors(lambda: proof.proven, note, loop.settings.disk_free_min)
    loop.services.put(keeping := Keeping(Keeper(supervisor.home, loop.settings.keep, loop.clock, doors), loop.alert))
    task = events.create_task(keeping.run())
    try:
        yield
    finally:
        keeping.close()
        await asyncio.wait([task])
        await keeping.end()


# Keep
# ----
# Archive and remove what `[keep]` lets go, now.


async def handle(loop: Loop, *, goes_on: bool = False) -> dict[str, Any]:
    """Work for some seconds; with `goes_on`, at what the last question left. Returns `done`, each with `what`, `name`, `bytes` and `why`,
    and `more`: whether to ask again."""
    if not loop.ready:
        raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")
    done, more = await loop.services.get(Keeping).once(goes_on=goes_on)
    return {"done": done, "more": more}
