"""Keep what is known of conflicts up to date while agents work."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import click

from memory.service.desk import MemoryDesk
from supervisor.client import common, reading
from supervisor.client.resolving import any_name
from supervisor.contract import Supervisor
from supervisor.host.paths import Home, home
from supervisor.kernel.errors import DiskFull, NightcrewError, one_line
from supervisor.results import conflicts, trial_merges
from supervisor.results.conflicts import SIDES_MAX, Book, Conflict, Matrix
from supervisor.results.trial_merges import Standing
from supervisor.server.loop import Loop
from supervisor.server.wakeups import beside
from supervisor.store import journal, queries, sqlite
from worktrees.git import Git
from worktrees.repository import Repository, discover

# Conflict watch
# --------------
# Keep what is known of conflicts up to date while agents work, and tell a person of new ones by a line; the agents too, by a notice
# that begins no turn of theirs, where the settings say `memory.tell_conflicts`.
#
# One thread beside the loop, at a low priority, that works a tenth of the time at most. What is compared is decided in
# `supervisor/results/conflicts.py`.


EVERY_S = 3.0
"""Between two looks."""
REST = 9.0
"""A rest is at least so many times as long as the look before it."""
LOOK_S = 20.0
"""What one look at a project may take; the next goes on."""
PAUSE_S = 60.0
"""Before another look at a project that could not be looked at."""
NICE = 10
SAID = 3
"""New conflicts of one look that are named to a person."""

T = TypeVar("T")
Tell = Callable[..., Awaitable[object]]


class ConflictWatch:
    """One supervisor's; it belongs to its event loop. `tell`: see `MailDesk.tell`."""

    def __init__(self, loop: Loop, home: Home, git: Git, tell: Tell) -> None:
        self._loop, self._home, self._git, self._tell = loop, home, git, tell
        self._thread = ThreadPoolExecutor(1, "conflicts", _give_way)
        self._repositories: dict[str, Repository] = {}
        self._stands: dict[str, Standing] = {}
        self._books: dict[str, Book] = {}
        self._saved: dict[str, Book] = {}
        self._working: set[str] = set()
        self._seen = sys.maxsize
        """Line of the journal up to which it is known where tasks began; at first none is read."""
        self._not_before: dict[str, float] = {}
        self._complaints: dict[str, str] = {}

    async def run(self) -> None:
        """Look, until cancelled."""
        clock, rest = self._loop.clock, EVERY_S
        with contextlib.suppress(NightcrewError):
            self._working = await self._on_thread(self._at_work)
        while True:
            await asyncio.sleep(rest)
            began = clock.monotonic()
            with contextlib.suppress(NightcrewError):  # the ledger cannot be read: the loop says so
                await self._round()
            rest = max(EVERY_S, REST * (clock.monotonic() - began))

    async def _round(self) -> None:
        """Every project in which somebody works, and once more when nobody does any longer."""
        if self._loop.crew.stopped:
            return
        working = await self._on_thread(self._at_work)
        projects, self._working = working | self._working, working
        for project in sorted(projects):
            if self._loop.clock.monotonic() < self._not_before.get(project, 0.0):
                self._working.add(project)
                continue
            try:
                await self._looked(project)
                self._complaints.pop(project, None)
            except DiskFull:  # whoever waits for the disk says so; here nothing is lost
                self._pause(project)
                self._working.add(project)
            except (NightcrewError, OSError) as error:
                self._complain(project, error)

    async def _looked(self, project: str) -> None:
        before, matrix, epochs = await self._on_thread(lambda: self._look(project))
        found = conflicts.news(matrix.conflicts(), matrix.concerned(before.matrix), before.told)
        for one in found:
            await self._told(project, matrix, one, epochs)
        self._say(matrix, found)
        stand = {side.task for side in matrix.sides}
        book = Book(matrix, conflicts.after(before.told, found, stand))
        self._books[project] = book
        if matrix.missing():
            self._working.add(project)
        if book != self._saved.setdefault(project, before):
            await self._on_thread(lambda: conflicts.save(self._home.conflicts(project), book))
            self._saved[project] = book

    async def _told(self, project: str, matrix: Matrix, one: Conflict, epochs: dict[str, int]) -> None:
        for task in one.tasks:
            other = next((each for each in one.tasks if each != task), "") or matrix.on
            data = {"with": other, "in": one.files(), "commit": matrix.base[:12] if not one.two else ""}
            self._loop.ledger.journal(task, epochs.get(task), "conflict", data)
            tells = self._loop.settings.memory.tell_conflicts
            if tells and any(side.task == task and side.living for side in matrix.sides):
                await self._tell(project, task, f"conflict with {one_line(other)}", _words(one, other, matrix), key=_key(one, task))

    def _say(self, matrix: Matrix, found: list[Conflict]) -> None:
        for one in found[:SAID]:
            self._loop.alert(f"{one.one} conflicts with {one.two or one_line(matrix.on)} in {one.files()}; next: nightcrew conflicts")
        if found[SAID:]:
            self._loop.alert(f"{len(found) - SAID} more new conflicts; next: nightcrew conflicts")

    def _complain(self, project: str, error: NightcrewError | OSError) -> None:
        why = error.line() if isinstance(error, NightcrewError) else one_line(str(error))
        self._pause(project)
        self._repositories.pop(project, None)
        if self._complaints.get(project) != why:
            self._loop.alert(f"results could not be compared: {why}")
        self._complaints[project] = why

    def _pause(self, project: str) -> None:
        self._not_before[project] = self._loop.clock.monotonic() + PAUSE_S

    async def end(self) -> None:
        """Wait for what is under way."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

    # On the thread ------------------------------------------------------------------------------------------------------------------------

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _at_work(self) -> set[str]:
        with contextlib.closing(sqlite.connect_readonly(self._home.ledger)) as db:
            found, self._seen = journal.at_work(db, self._seen)
            return found

    def _look(self, project: str) -> tuple[Book, Matrix, dict[str, int]]:
        """What was known before, what is known now, and the epoch of each task."""
        with contextlib.closing(sqlite.connect_readonly(self._home.ledger)) as db:
            root, found = queries.project_root(db, project), journal.of_project(db, project, 2 * SIDES_MAX)
        repo = self._repositories.get(project) or discover(self._git, Path(root or ""))
        self._repositories[project] = repo
        before = self._books.get(project) or conflicts.load(self._home.conflicts(project))
        now = self._stands[project] = trial_merges.standing(repo, [each.name for each in found[0]], before=self._stands.get(project))
        matrix = trial_merges.look(repo, found, before.matrix.known, time.monotonic() + LOOK_S, now=now)
        return before, matrix, {branch.task: branch.epoch for branch in found[0]}


def _give_way() -> None:
    """The thread, and every git that it starts, lets others go first."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


def _words(one: Conflict, other: str, matrix: Matrix) -> str:
    names = one.files(conflicts.FILES_MAX)
    if not one.two:
        stands = f"{one_line(other)}, which stands at {matrix.base[:12]}"
        return f"What you have committed conflicts with {stands}, in {names}. It cannot be merged as it is."
    return (
        f"What you have committed conflicts with the work of {other} in {names}. Whichever of the two is merged second cannot be merged as "
        f"it is. Settle with {other} who changes what."
    )


def _key(one: Conflict, to: str) -> str:
    names = "\0".join((one.one, one.two, *one.verdict.files)).encode("utf-8", "surrogateescape")
    return f"conflict {hashlib.sha256(names).hexdigest()[:32]} {to}"


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Look inside."""
    loop = supervisor.loop
    watch = ConflictWatch(loop, supervisor.home, supervisor.git, loop.services.get(MemoryDesk).mail.tell)
    try:
        async with beside(watch.run()):
            yield
    finally:
        await watch.end()


# Commands
# --------
# `nightcrew conflicts`.


_LOOK_S = 60.0


@click.command()
@click.argument("names", nargs=-1, shell_complete=any_name)
@common.json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """Show which results would conflict with each other and with the branch that is checked out. Nothing is merged.

    \b
    nightcrew conflicts
    nightcrew conflicts lint --json
    """
    where = home()
    only = common.tasks_named(where, names)
    with contextlib.closing(common.ledger(where)) as db:
        project = queries.one(db, only[0]).project if only else queries.project_at(db, str(Path.cwd()))
        matrix = reading.conflict_matrix(where, db, project or "", _LOOK_S)
    if as_json:
        common.print_json(project=project, **conflicts.shape(matrix, only))
        return
    for line in conflicts.lines(matrix, only):
        common.show(line)
    common.say(conflicts.summary(matrix))
