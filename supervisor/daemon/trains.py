"""Trains of merges: what `core.train_rules` says is to be done, done, and what came of it committed.

One task beside the loop for each train that is under way. Each of its steps is committed before the next one acts, and may be done again:
a gate is submitted with a key of its own, the same results on the same commit are the same commit, a branch is moved as compare and swap.
So a supervisor that is killed leaves a train that the next one goes on with.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, assert_never

from supervisor.core.errors import DiskFull, LedgerError, NightcrewError, NotRunning, Refused, one_line
from supervisor.core.landing import (
    AskAgent,
    Command,
    DropGate,
    Event,
    Halted,
    Make,
    Move,
    Resumed,
    RunGate,
    Stage,
    Train,
    TrainState,
)
from supervisor.core.train_orders import Orders
from supervisor.core.train_rules import after, todo
from supervisor.daemon import train_git, train_tasks
from supervisor.daemon.loop import Loop
from supervisor.daemon.train_git import TrainGit
from supervisor.daemon.train_tasks import Submit, TrainTasks
from supervisor.daemon.wakeups import was_set
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.ledger import trains
from worktrees.git import Git

LOOK_S = 0.25
"""Between two looks at the tasks of a train: a handful of rows."""
FIND_S = 1.0
TRIES = 5
"""Of a step that fails; between two a pause of PAUSE_S, doubled each time."""
PAUSE_S = 0.5
FULL_S = 5.0
"""Between two tries while the disk is full, which are not counted."""
KEPT = 20
"""Trains into a branch, the newest, whose refs are looked at when one rests."""
GITS = 4
"""Trains that do something with git at one moment."""

T = TypeVar("T")
Clean = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class TrainDesk:
    """One supervisor's; it belongs to its event loop."""

    def __init__(self, loop: Loop, home: Home, git: Git, submit: Submit, clean: Clean) -> None:
        """`clean` is the handler of that verb."""
        self._loop, self._home, self._git = loop, home, git
        self._tasks, self._clean = TrainTasks(loop, home, submit), clean
        self._threads = ThreadPoolExecutor(GITS, "trains")
        self._trains: dict[str, Train] = {}
        self._orders: dict[str, Orders] = {}
        self._doors: dict[str, TrainGit] = {}
        self._driven: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    # For commands ----------------------------------------------------------------------------------------------------------------------

    async def begin(self, train: Train, orders: Orders) -> dict[str, Any]:
        """Commit a train and go on with it. Raises Refused while another one is under way into its branch."""
        self._refuse_early()
        self._loop.ledger.know_project(train.project, orders.root, orders.common_dir)
        self._loop.ledger.trains.begin(train, orders.to_json())
        failpoint("train.begun")
        self._wake.set()
        return {"train": train.id}

    def wall(self) -> float:
        """Seconds since 1970."""
        return self._loop.clock.wall()

    async def stop(self, name: str, why: str) -> dict[str, Any]:
        """Go on no further: gates are ended, nothing moves. Raises NotFound, Refused for one that is not under way."""
        self._refuse_early()
        train = self._read(name)
        if train.state not in (TrainState.RUNNING, TrainState.MOVING):
            raise Refused("cannot stop", on=f"train {name}", why=f"it is {train.state}", hint="nightcrew land --status")
        return {"train": name, "state": self._take(name, Halted(why), quiet=True).state}

    async def resume(self, name: str) -> dict[str, Any]:
        """Go on where it was stopped. Raises NotFound, Refused for one that is not stopped or whose branch another one holds."""
        self._refuse_early()
        train = self._read(name)
        if train.state is not TrainState.STOPPED:
            raise Refused("cannot go on with", on=f"train {name}", why=f"it is {train.state}", hint="nightcrew land --status")
        state = self._take(name, Resumed()).state
        self._wake.set()
        return {"train": name, "state": state}

    def _refuse_early(self) -> None:
        if not self._loop.ready:
            raise NotRunning("the supervisor is still recovering", kept="everything", hint="try again")

    # What is known ---------------------------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> Train:
        """As it is committed; what runs beside us sees the same."""
        if name not in self._trains:
            row = trains.one(self._loop.ledger.db, name)
            self._trains[name], self._orders[name] = row.train, Orders.from_json(row.orders)
        return self._trains[name]

    def _take(self, name: str, event: Event, *, quiet: bool = False) -> Train:
        """Commit what follows from an event, and say when the train stops for it. Raises as `Trains.save`, with nothing changed."""
        old = self._read(name)
        new = after(old, event)
        self._loop.ledger.trains.save(old, new)
        self._trains[name] = new
        failpoint("train.saved")
        if new.state is TrainState.STOPPED is not old.state and not quiet:
            self._loop.alert(f"train {name} into {one_line(new.branch)} stopped: {one_line(new.reason)}; next: nightcrew land --status")
        return new

    # Doing -----------------------------------------------------------------------------------------------------------------------------

    async def _drive(self, name: str) -> None:
        """Do what is to be done until the train rests."""
        tries = 0
        while todo(self._read(name)) or self._tasks.watched(self._read(name)):
            try:
                moved = await self._step(name)
                tries = 0
            except (DiskFull, LedgerError) as error:
                self._loop.alert(f"train {name} waits: {error.line()}")
                await asyncio.sleep(FULL_S)
                continue
            except NightcrewError as error:
                tries += 1
                self._doors.pop(name, None)
                if tries >= TRIES:
                    self._halt(name, error.line())
                    continue
                await asyncio.sleep(PAUSE_S * 2 ** (tries - 1))
                continue
            if not moved:
                await asyncio.sleep(LOOK_S)
        await self._tidied(name)

    async def _tidied(self, name: str) -> None:
        """Take away what nobody needs once a train has ended: refs, worktrees of gates that passed. What cannot be stays for `clean`."""
        train = self._read(name)
        if train.state is TrainState.STOPPED:
            return
        rows = [row.train for row in trains.newest(self._loop.ledger.db, train.project, train.branch, KEPT)]
        with contextlib.suppress(NightcrewError):
            before = [one for one in rows if one.id != name and one.state in (TrainState.LANDED, TrainState.EMPTY)]
            attempts = self._tasks.left_behind(train, before)
            await self._on_thread(lambda: train_git.superfluous(TrainGit.of(self._git, self._orders[name]).repo, rows))
            await self._clean({"attempts": attempts, "remove": True, "ignored": True, "discard": True, "forget": True})

    async def _step(self, name: str) -> bool:
        """Whether anything happened."""
        train = self._read(name)
        happened = self._tasks.look(train)
        for event in happened:
            self._take(name, event)
        if happened:
            return True
        for command in todo(train):
            for event in await self._do(name, train, command):
                self._take(name, event)
        return bool(todo(train))

    async def _do(self, name: str, train: Train, command: Command) -> list[Event]:
        orders = self._orders[name]
        match command:
            case Stage():
                return [await self._with_git(name, lambda door: door.stage(train, command))]
            case Make(task=task):
                made = self._tasks.left_by(task)
                return [await self._with_git(name, lambda door: door.make(train, command, made))]
            case Move():
                return [await self._moved(name, train, command)] if self._read(name).state is TrainState.MOVING else []
            case RunGate(number):
                return await self._tasks.run_gate(train, orders, number)
            case DropGate(number):
                return [self._tasks.drop_gate(train, number)]
            case AskAgent():
                ask = functools.partial(train_tasks.repair, self._home, train, orders, command)
                return await self._tasks.ask_agent(command, await self._on_thread(ask))
            case _:
                assert_never(command)

    async def _moved(self, name: str, train: Train, command: Move) -> Event:
        """A git that an earlier supervisor had begun may still be writing the checkout: what is refused then is asked again."""
        for number in range(TRIES):
            await asyncio.sleep(PAUSE_S if number else 0.0)
            try:
                return await self._with_git(name, lambda door: door.move(train, command))
            except Refused as error:
                why = error.why or error.what
        return await self._with_git(name, lambda door: Halted(why, door.by_hand(train, command)))

    def _halt(self, name: str, why: str) -> None:
        with contextlib.suppress(DiskFull, LedgerError):
            self._take(name, Halted(why))

    async def _with_git(self, name: str, work: Callable[[TrainGit], Event]) -> Event:
        def done() -> Event:
            door = self._doors.get(name) or TrainGit.of(self._git, self._orders[name])
            self._doors[name] = door
            return work(door)

        return await self._on_thread(done)

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # Beside the loop -------------------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while not self._loop.ready:
            await asyncio.sleep(FIND_S / 10)
        while True:
            with contextlib.suppress(LedgerError):  # the loop says so
                self._find()
            await was_set(self._wake, FIND_S)
            self._wake.clear()

    def _find(self) -> None:
        """Begin to drive what nobody drives, and forget what rests."""
        for name in [name for name, task in self._driven.items() if task.done()]:
            self._ended(name, self._driven.pop(name))
        for name in trains.under_way(self._loop.ledger.db):
            if name not in self._driven:
                self._driven[name] = asyncio.get_running_loop().create_task(self._drive(name))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        for known in (self._trains, self._orders, self._doors):
            known.pop(name, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.alert(f"train {name}: {''.join(traceback.format_exception(error))}")
            self._halt(name, f"nightcrew itself failed: {type(error).__name__}: {error}")

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Goes on with every train while inside."""
        task = asyncio.get_running_loop().create_task(self._keep())
        try:
            yield
        finally:
            running = [task, *self._driven.values()]
            for one in running:
                one.cancel()
            await asyncio.wait(running)
            await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
