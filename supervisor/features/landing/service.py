"""Trains of merges: do what the rules say, and commit what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, assert_never, cast

from supervisor.client import follow_up
from supervisor.contract import Supervisor
from supervisor.features.landing import rows as landing_rows
from supervisor.features.landing.rows import Trains
from supervisor.features.landing.rules import (
    AskAgent,
    Asked,
    Clashed,
    Command,
    DropGate,
    Elsewhere,
    Entry,
    EntryState,
    Event,
    Gate,
    GateBegun,
    GateDropped,
    GateEnded,
    GateState,
    Halted,
    Make,
    Mended,
    Move,
    Moved,
    NothingNew,
    Put,
    Resumed,
    RunGate,
    Stage,
    ToMake,
    Train,
    TrainState,
    Tried,
    after,
    is_making,
    is_open,
    todo,
)
from supervisor.host.failpoint import failpoint
from supervisor.host.paths import Home
from supervisor.kernel import codec, gate_files, names, train_orders
from supervisor.kernel.errors import DiskFull, LedgerError, NightcrewError, NotFound, Refused, one_line
from supervisor.kernel.events import CancelAsked
from supervisor.kernel.names import gate_key
from supervisor.kernel.result import NOT_SECURED
from supervisor.kernel.spec import RunSpec, Submission
from supervisor.kernel.states import FINAL, TaskState
from supervisor.kernel.train_orders import Orders
from supervisor.server import requests
from supervisor.server.loop import Loop
from supervisor.server.wakeups import was_set
from supervisor.store import queries, sqlite
from supervisor.store.queries import TaskView
from worktrees import landing, pack_import, repository, tree_merge
from worktrees.git import Git
from worktrees.landing import Contained, LeftOut, Result
from worktrees.landing import Moved as BranchMoved
from worktrees.repository import Repository, discover

# Train git
# ---------
# What a train of merges does with git: a result is put on, the branch is moved. In a thread; whatever is done here may be done
# again.


_REFS = "refs/nightcrew/train"


@dataclass(frozen=True, slots=True)
class TrainGit:
    """One train's door to its repository."""

    repo: Repository
    orders: Orders

    @classmethod
    def of(cls, git: Git, orders: Orders) -> TrainGit:
        """Raises NotFound, Refused as `discover`."""
        return cls(discover(git, Path(orders.root)), orders)

    def stage(self, train: Train, asked: Stage) -> Event:
        """Put a result on top of a commit, and say on which trees its gates have to pass. Raises as `Git.run`."""
        return self._kept(train, self.tried(train, asked))

    def _kept(self, train: Train, event: Event) -> Event:
        if isinstance(event, Put | ToMake):
            more = [one.commit for one in event.tried] if isinstance(event, Put) else []
            commits = dict.fromkeys([event.commit, *more])
            keep(self.repo, train.id, commits)
            pack_import.check_kept(self.repo, list(commits), event.onto)
            failpoint("train.staged")
        return event

    def make(self, train: Train, asked: Make, made: str) -> Event:
        """Take the generated files of the commit `made` into the commit of a result. Raises NotFound, and as `Git.run`."""
        entry = train.entries[asked.position - 1]
        done = landing.finish(self.repo, asked.commit, made, self.orders.terms)
        if isinstance(done, LeftOut):
            return Clashed(asked.position, asked.onto, done.why, tuple(map(_text, done.files)))
        if unseen := _unseen(self.repo, entry, asked.onto, done.commit, train.commands):
            return Clashed(asked.position, asked.onto, unseen, for_person=True)
        if self.repo.tree(done.commit) == self.repo.tree(asked.onto):
            return NothingNew(asked.position, asked.onto, "it changes nothing on the branch")
        tried = tuple(tried_on(self.repo, train.commands, entry, asked.onto, done.commit))
        return self._kept(train, Put(asked.position, asked.onto, done.commit, tried))

    def tried(self, train: Train, asked: Stage) -> Put | ToMake | Clashed | NothingNew:
        """The same, with nothing kept: the objects alone are written."""
        entry = train.entries[asked.position - 1]
        try:
            done = landing.stage(self.repo, asked.onto, Result(entry.task, entry.tip, entry.title), self.orders.terms)
        except NotFound as error:
            return Clashed(asked.position, asked.onto, f"{error.what}: {error.why}")
        match done:
            case LeftOut(why, files):
                return Clashed(asked.position, asked.onto, why, tuple(map(_text, files)))
            case Contained(why):
                return NothingNew(asked.position, asked.onto, why)
        if unseen := _unseen(self.repo, entry, asked.onto, done.commit, train.commands):
            return Clashed(asked.position, asked.onto, unseen, for_person=True)
        if done.regenerate:
            command = " && ".join(f"(\n{one}\n)" for one in done.regenerate) if len(done.regenerate) > 1 else done.regenerate[0]
            return ToMake(asked.position, asked.onto, done.commit, command)
        return Put(asked.position, asked.onto, done.commit, tuple(tried_on(self.repo, train.commands, entry, asked.onto, done.commit)))

    def move(self, train: Train, asked: Move) -> Event:
        """Move the branch from where it was to where it is to be, or say why not. Raises Refused where the checkout is not fit for it now,
        NotFound for a branch that is gone, and as `Git.run`."""
        stands = landing.tip(self.repo, train.branch)
        if self.repo.has(stands, asked.new):
            return Moved()
        if stands != asked.old:
            return Elsewhere(stands)
        done = landing.move(self.repo, train.branch, asked.old, asked.new)
        failpoint("train.moved")
        if isinstance(done, BranchMoved):
            return Moved()
        return Halted(done.why, done.commands[0])

    def by_hand(self, train: Train, asked: Move) -> str:
        """The command with which a person moves the branch."""
        return landing.by_hand(self.repo, train.branch, asked.old, asked.new)


def _unseen(repo: Repository, entry: Entry, onto: str, commit: str, commands: Sequence[str]) -> str:
    """Return why the result may not land before a person accepted it; empty if it may."""
    if entry.trusted:
        return ""
    why = gate_files.what_runs(gate_files.flags(tree_merge.read_gate_changes(repo, onto, commit), "\n".join(commands)))
    return f"{_text(why)}; next: nightcrew review {entry.task}, then --accept" if why else ""


def tried_on(repo: Repository, commands: tuple[str, ...], entry: Entry, onto: str, commit: str) -> Iterator[Tried]:
    """Each gate on the merged tree; where the result may have weakened it, also on that tree with what it changed there as it was."""
    if not commands:
        return
    tree = repo.tree(commit)
    changes = [] if entry.trusted else tree_merge.read_gate_changes(repo, onto, commit)
    for command in commands:
        yield Tried(tree, commit, command)
        before = tree_merge.hardened(repo, commit, onto, gate_files.flags(changes, command))
        if before is not None:
            yield Tried(repo.tree(before), before, command, restored=True)


def superfluous(repo: Repository, rows: Sequence[Train]) -> None:
    """Of these trains into one branch, the newest first, forget what nobody can go on with: those that have ended, and those that stopped
    before another one ended."""
    ended = False
    for train in rows:
        ended = ended or train.state in (TrainState.LANDED, TrainState.EMPTY)
        if ended and not is_open(train.state):
            forget(repo, train.id)


def keep(repo: Repository, train: str, commits: dict[str, None]) -> None:
    """Refs on commits that nothing else names yet, so that a gate finds them."""
    with repo.git.lock(repo.common_dir):
        there = kept(repo, train)
        new = [repository.Update(f"{_REFS}/{train}/{commit}", commit, "") for commit in commits if commit not in there]
        if new:
            repository.move_all(repo, new, "nightcrew land")


def kept(repo: Repository, train: str) -> list[str]:
    """The commits that `keep` holds."""
    return repository.over_all(repo, "for-each-ref", "--format=%(objectname)", f"{_REFS}/{train}/").text.split()


def forget(repo: Repository, train: str) -> None:
    """Take those refs away: the train has landed, or another one has begun."""
    with repo.git.lock(repo.common_dir):
        gone = [repository.Update(f"{_REFS}/{train}/{commit}", "", commit) for commit in kept(repo, train)]
        if gone:
            repository.move_all(repo, gone, "nightcrew land")


def _text(path: str) -> str:
    """A name of a file as text that the ledger can hold."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# Train tasks
# -----------
# The tasks of a train: its gates, each a run of its own at the commit that it is about, and the agents that mend their own results.


REPAIR_S = 3600.0
"""What an agent has to mend its result, at most."""

Submit = Callable[[Submission], Awaitable[dict[str, Any]]]
"""Takes a run into the ledger, once for each key; as the handler of that verb answers."""


class TrainTasks:
    """The trains' door to the crew; it belongs to the event loop."""

    def __init__(self, loop: Loop, home: Home, submit: Submit) -> None:
        self._loop, self._home, self._submit = loop, home, submit

    def watched(self, train: Train) -> bool:
        """Whether a task of it is under way, whose end decides something."""
        return any(_gates(train)) or any(_repairs(train))

    def look(self, train: Train) -> list[Event]:
        """What ended of its tasks."""
        found: list[Event] = []
        for gate in _gates(train):
            if (view := self._ended(gate.task)) is not None:
                found.append(_verdict(gate, view))
        for entry in _repairs(train):
            if (view := self._ended(entry.repair)) is not None:
                found.append(_mended(entry, view))
        return found

    def _ended(self, task: str) -> TaskView | None:
        known = self._loop.crew.tasks.get(task)
        if known is not None and known.state not in FINAL:
            return None
        view = queries.one(self._loop.ledger.db, task)
        return view if view.final else None

    async def run_gate(self, train: Train, orders: Orders, number: int) -> list[Event]:
        """Have a gate run, once."""
        gate = train.gates[number - 1]
        making = is_making(gate)
        where = (
            "its generated files"
            if making
            else "as the branch is"
            if gate.tree == train.base
            else "with its own gate as it was"
            if gate.restored
            else "merged"
        )
        title = f"{gate.command} ({where}, for {train.branch})"
        task = replace(orders.gate, name="generate" if making else "gate", title=title, argv=("/bin/sh", "-c", gate.command))
        answer = await self._submit(_submission(train, orders, gate_key(train.id, gate.number), RunSpec(title, (task,), gate.commit)))
        failpoint("train.gate-submitted")
        return [GateBegun(number, str(answer["tasks"][0]))]

    def left_behind(self, train: Train, before: Sequence[Train]) -> list[tuple[str, int]]:
        """The attempts of gates whose worktrees nobody will look at: they passed or were not needed any more, or are of a train `before`
        this one."""
        tasks = [gate.task for gate in train.gates if gate.task and gate.state in (GateState.PASSED, GateState.DROPPED)]
        tasks += [gate.task for one in before for gate in one.gates if gate.task]
        return [(view.id, view.epoch) for view in queries.several(self._loop.ledger.db, tasks) if view.final]

    def left_by(self, task: str) -> str:
        """The commit that a task left."""
        return str((queries.one(self._loop.ledger.db, task).result or {}).get("tip") or "")

    def drop_gate(self, train: Train, number: int) -> Event:
        """End the task of a gate, if it has begun and not ended."""
        gate = train.gates[number - 1]
        task = gate.task or landing_rows.task_of_key(self._loop.ledger.db, gate_key(train.id, gate.number))
        known = self._loop.crew.tasks.get(task)
        if known is not None and known.state not in FINAL:
            self._loop.ask(CancelAsked(task))
        return GateDropped(number)

    async def ask_agent(self, asked: AskAgent, made: Submission | str) -> list[Event]:
        """Hand over what `repair` made. A reason in its place is why nobody was asked."""
        if isinstance(made, str):
            return [Mended(asked.position, why=made)]
        answer = await self._submit(made)
        failpoint("train.repair-submitted")
        return [Asked(asked.position, str(answer["tasks"][0]))]


def repair(home: Home, train: Train, orders: Orders, asked: AskAgent) -> Submission | str:
    """The task that mends a result: its agent goes on, with what was wrong. In a thread. A sentence when that cannot be."""
    entry = train.entries[asked.position - 1]
    text = train_orders.repair_words(train.branch, asked.onto, entry.reason, entry.files)
    try:
        with contextlib.closing(sqlite.connect_readonly(home.ledger)) as db:
            made = follow_up.submission(db, queries.one(db, entry.task), text, f"train/{train.id}/repair/{entry.position}", orders.env)
    except NightcrewError as error:
        return error.line()
    tasks = tuple(replace(task, timeout_s=min(task.timeout_s or REPAIR_S, REPAIR_S)) for task in made.spec.tasks)
    return replace(made, spec=replace(made.spec, tasks=tasks))


def _gates(train: Train) -> list[Gate]:
    return [gate for gate in train.gates if gate.state is GateState.RUNNING]


def _repairs(train: Train) -> list[Entry]:
    return [entry for entry in train.entries if entry.state is EntryState.REPAIRING and entry.repair]


def _submission(train: Train, orders: Orders, key: str, spec: RunSpec) -> Submission:
    return Submission(key, train.project, orders.root, orders.common_dir, spec.base, spec, orders.env)


def _verdict(gate: Gate, view: TaskView) -> GateEnded:
    """What the end of its task says of a tree. Only a command that ran and ended by itself, or took too long, says anything. One that left
    its repository so that nothing can be collected of it did not pass: else it would stop the train for all others."""
    if view.state is TaskState.DONE:
        return GateEnded(gate.number, passed=True)
    why = view.end_cause or view.reason or str(view.state)
    said = (view.result or {}).get("exit") or {}
    ended = any(value is not None for value in said.values()) or NOT_SECURED in why
    ran = view.state is TaskState.FAILED and ended
    return GateEnded(gate.number, passed=False if ran else None, why=why)


def _mended(entry: Entry, view: TaskView) -> Mended:
    tip = str((view.result or {}).get("tip") or "") if view.state is TaskState.DONE else ""
    return Mended(entry.position, tip, view.epoch, "" if tip else f"it is {view.state}")


# Trains
# ------
# Trains of merges: what `rules.todo` says is to be done, done, and what came of it committed.
#
# One task beside the loop for each train that is under way. Each of its steps is committed before the next one acts, and may be
# done again: a gate is submitted with a key of its own, the same results on the same commit are the same commit, a branch is moved
# as compare and swap. So a supervisor that is killed leaves a train that the next one goes on with.


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
        self._loop.refuse_early()
        self._loop.ledger.know_project(train.project, orders.root, orders.common_dir)
        self._loop.ledger.of(Trains).begin(train, orders.to_json())
        failpoint("train.begun")
        self._wake.set()
        return {"train": train.id}

    def wall(self) -> float:
        """Seconds since 1970."""
        return self._loop.clock.wall()

    async def stop(self, *, train: str, why: str = "a person stopped it") -> dict[str, Any]:
        """Go on no further: gates are ended, nothing moves. Raises NotFound, Refused for one that is not under way."""
        self._loop.refuse_early()
        known = self._read(train)
        if known.state not in (TrainState.RUNNING, TrainState.MOVING):
            raise Refused("cannot stop", on=f"train {train}", why=f"it is {known.state}", hint="nightcrew land --status")
        return {"train": train, "state": self._take(train, Halted(why), quiet=True).state}

    async def resume(self, *, train: str) -> dict[str, Any]:
        """Go on where it was stopped. Raises NotFound, Refused for one that is not stopped or whose branch another one holds."""
        self._loop.refuse_early()
        known = self._read(train)
        if known.state is not TrainState.STOPPED:
            raise Refused("cannot go on with", on=f"train {train}", why=f"it is {known.state}", hint="nightcrew land --status")
        state = self._take(train, Resumed()).state
        self._wake.set()
        return {"train": train, "state": state}

    # What is known ---------------------------------------------------------------------------------------------------------------------

    def _read(self, name: str) -> Train:
        """As it is committed; what runs beside us sees the same."""
        if name not in self._trains:
            row = landing_rows.one(self._loop.ledger.db, name)
            self._trains[name], self._orders[name] = row.train, Orders.from_json(row.orders)
        return self._trains[name]

    def _take(self, name: str, event: Event, *, quiet: bool = False) -> Train:
        """Commit what follows from an event, and say when the train stops for it. Raises as `Trains.save`, with nothing changed."""
        old = self._read(name)
        new = after(old, event)
        self._loop.ledger.of(Trains).save(old, new)
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
        rows = [row.train for row in landing_rows.newest(self._loop.ledger.db, train.project, train.branch, KEPT)]
        with contextlib.suppress(NightcrewError):
            before = [one for one in rows if one.id != name and one.state in (TrainState.LANDED, TrainState.EMPTY)]
            attempts = self._tasks.left_behind(train, before)
            await self._on_thread(lambda: superfluous(TrainGit.of(self._git, self._orders[name]).repo, rows))
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
                ask = functools.partial(repair, self._home, train, orders, command)
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
        for name in landing_rows.under_way(self._loop.ledger.db):
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


# Land
# ----
# A train of merges: begin one, stop it, let it go on.


@contextlib.asynccontextmanager
async def serve(supervisor: Supervisor) -> AsyncIterator[None]:
    """Go on with trains inside."""
    loop = supervisor.loop
    clean = functools.partial(cast("codec.Handler", loop.hooks.requests["clean"]), loop)
    desk = TrainDesk(loop, supervisor.home, supervisor.git, functools.partial(requests.submit, loop), clean)
    loop.services.put(desk)
    async with desk.kept():
        yield


async def begin(loop: Loop, *, train: Train, orders: str) -> dict[str, Any]:
    """Begin a train, whose id is given here, as the JSON of its `Orders` says; returns `train`."""
    desk = loop.services.get(TrainDesk)
    made, wall = Orders.from_json(orders), desk.wall()
    name = _name(wall)
    made = replace(made, terms=replace(made.terms, train=name, began=float(int(wall))))
    return await desk.begin(replace(train, id=name), made)


async def stop(loop: Loop, *, train: str, why: str = "a person stopped it") -> dict[str, Any]:
    """See `TrainDesk.stop`."""
    return await loop.services.get(TrainDesk).stop(train=train, why=why)


async def resume(loop: Loop, *, train: str) -> dict[str, Any]:
    """See `TrainDesk.resume`."""
    return await loop.services.get(TrainDesk).resume(train=train)


OPS: Mapping[str, codec.Handler] = {"begin": begin, "stop": stop, "resume": resume}
"""The verb `land`."""


def _name(wall: float) -> str:
    today = datetime.fromtimestamp(wall).astimezone()
    return f"train-{names.run_id(today.month, today.day, secrets.randbelow(len(names.RUN_ALPHABET) ** 4))}"
