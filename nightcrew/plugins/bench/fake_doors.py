"""A supervisor whose agents are entries in a table: the real loop, ledger, jobs and socket, and doors behind which nothing happens.

No worktree, no session and no process is made. So what it is measured by is the queue itself: deciding, committing, and the threads in
between. An agent works for as many seconds as its task's command says (`("0.2",)`), and dies with the supervisor.

Run as a program (`serve`), since that is what is killed and what is asked over a socket:
python -I -m nightcrew.plugins.bench.fake_doors DIRECTORY SLOTS
"""

# ruff: noqa: ARG002 - doors have the shape of the real ones, and look at less

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from agents.tmux import Tmux
from memory.service.desk import MemoryDesk
from supervisor.contract import Briefing
from supervisor.host import files
from supervisor.host.clock import SystemClock
from supervisor.host.paths import Home
from supervisor.host.processes import StopReport
from supervisor.host.usage import Memory, PressureReader
from supervisor.kernel import result
from supervisor.kernel.decision import Command, Finish, Start
from supervisor.kernel.leases import Beside
from supervisor.kernel.pressure import Pressure
from supervisor.kernel.settings import Settings
from supervisor.kernel.snapshots import Snapshot, SnapshotSpec
from supervisor.kernel.states import End
from supervisor.server.attempts.collect import Ending
from supervisor.server.attempts.jobs import Doors
from supervisor.server.attempts.launch import Launching, Ordered, Source, Spawned
from supervisor.server.attempts.limits import LimitDesk
from supervisor.server.attempts.observe import Key, Observer, Seen
from supervisor.server.attempts.sessions import Session
from supervisor.server.attempts.worktree_records import Environments
from supervisor.server.attempts.zygotes import Zygotes
from supervisor.server.capacity import CapacityWatch
from supervisor.server.hooks import Hooks
from supervisor.server.loop import Loop
from supervisor.server.sockets import Server
from supervisor.snapshots.service import SnapshotDesk
from supervisor.store.conversations import Held
from supervisor.store.ledger import Ledger
from supervisor.store.rows import AttemptRow, LaunchRow
from worktrees.environments import Environment
from worktrees.git import Git
from worktrees.repository import Repository

STARTS = "starts.json"
"""In the state directory, once the supervisor has left: seconds from each free slot to the commit of the start that took it."""


NOTHING = result.Work(branch=None, tip=None, commits=0, files=0, plus=0, minus=0, rescue=None)


class Agents:
    """When each agent's work is over, on the monotonic clock. Safe to use from several threads."""

    def __init__(self) -> None:
        self.until: dict[Key, float] = {}
        self.over: Callable[[float], object] = lambda _: None
        """Told of a new agent: in how many seconds it ends."""

    def begin(self, key: Key, seconds: float) -> None:
        self.until[key] = time.monotonic() + seconds
        self.over(seconds)


class FakeObserver(Observer):
    def __init__(self, home: Home, tmux: Tmux, agents: Agents) -> None:
        super().__init__(home, tmux)
        self._agents = agents

    def look(self, keys: Iterable[Key]) -> dict[Key, Seen]:
        now = time.monotonic()
        return {key: Seen.ENDED if self._agents.until.get(key, 0.0) <= now else Seen.LIVE for key in keys}

    def recover(self, rows: Iterable[AttemptRow]) -> dict[Key, Seen | None]:
        return {(row.task, row.epoch): None if row.worktree is None else Seen.GONE for row in rows}

    def place(self, key: Key) -> tuple[str, str] | None:
        return None

    def server_of(self, task: str, epoch: int) -> int | None:
        return None


class FakeLaunching(Launching):
    def __init__(self, home: Home, git: Git, agents: Agents) -> None:  # it has none of the doors that the other one has
        self._home, self._git, self._agents = home, git, agents

    def prepare(self, task: str, epoch: int, launch: LaunchRow, lent: Snapshot | None, start: str = "") -> Environment:
        root = Path(launch.root)
        repo = Repository(self._git, root, root / ".git", root / ".git", launch.project, launch.base_oid, None)
        place = self._home.worktrees / f"{task}.{epoch}"
        return Environment(repo, task, epoch, place, place / ".git", f"nightcrew/{task}/work", launch.base_oid)

    def order(self, task: str, epoch: int, launch: LaunchRow, source: Source, needs: list[dict[str, Any]]) -> Ordered:
        return Ordered(list(launch.spec.argv), 0, "")

    def spawn(self, task: str, epoch: int, made: Environment, ordered: Ordered) -> Spawned | None:
        self._agents.begin((task, epoch), float(ordered.argv[0]))
        return Spawned("$0", "%0", 0)

    def begin(self, task: str, epoch: int) -> None:
        pass


class FakeEnding(Ending):
    def __init__(self, agents: Agents) -> None:  # as above
        self._agents = agents
        self.secured: dict[str, float] = {}
        """When each task's work was secured, on the monotonic clock."""

    def stop(self, task: str, epoch: int) -> StopReport:
        self._agents.until.pop((task, epoch), None)
        return StopReport(0, ())

    def close_strays(self, known: Collection[Key]) -> None:
        pass

    def pin_again(self, keys: Collection[Key]) -> None:
        pass

    def judged(self, row: AttemptRow, launch: LaunchRow, lent: SnapshotSpec | None, held: Held | None = None) -> tuple[End, str]:
        return (
            (End.DONE, "") if self._agents.until.pop((row.task, row.epoch), None) is not None else (End.LOST, "it died with the supervisor")
        )

    def collect(self, row: AttemptRow, launch: LaunchRow, how: tuple[End, str], ready: float, held: Beside) -> dict[str, Any]:
        self.secured[row.task] = time.monotonic()
        times = result.Times(launch.created, row.created, ended=time.time())
        shape = result.build(task=row.task, epoch=row.epoch, end=how[0], cause=how[1], record=None, times=times, work=NOTHING, output=None)
        return {"result": json.dumps({**shape, "tools": None})}

    def count_session(self, row: AttemptRow, launch: LaunchRow, held: Held | None, session: Session) -> str:
        return ""

    def release(self, task: str, epoch: int) -> None:
        pass

    def sweep(self, row: AttemptRow, launch: LaunchRow) -> bool:
        return False


class _Calm(PressureReader):
    """A machine with nothing else to do, so that what is measured is the queue and not the verdicts."""

    def look(self) -> tuple[Pressure, Memory | None]:
        return Pressure(load=0.0, memory=0.0, memory_stall=0.0, io_stall=0.0, processes=0.0), Memory(2**40, 2**40)

    def cpu_stall(self) -> float | None:
        return 0.0


class TimedLedger(Ledger):
    """Takes the time from each slot that became free to the commit of the start that took it."""

    secured: dict[str, float]
    starts: list[float]

    def commit(self, commands: Iterable[Command]) -> None:
        batch = list(commands)
        super().commit(batch)
        free = sorted(self.secured.pop(command.task, time.monotonic()) for command in batch if isinstance(command, Finish))
        taken = sum(isinstance(command, Start) for command in batch)
        self.starts += [time.monotonic() - since for since in free[:taken]]


def serve(directory: Path, slots: int) -> None:
    """Be such a supervisor until told to leave by `down`. Blocks. Writes STARTS then."""
    home = Home(directory)
    for place in (home.root, home.run_dir):
        files.private_dir(place)
    agents = Agents()
    with contextlib.closing(TimedLedger(home.ledger, time.time)) as ledger:
        asyncio.run(_serve(make(home, ledger, agents, slots, FakeEnding(agents)), home, agents))
        (home.root / STARTS).write_text(json.dumps(ledger.starts))
    os._exit(0)  # threads that wait for nothing any more


def make(
    home: Home, ledger: TimedLedger, agents: Agents, slots: int, ending: FakeEnding, observer: type[FakeObserver] = FakeObserver
) -> Loop:
    """The loop of such a supervisor."""
    clock, settings, tmux, git = SystemClock(), Settings(slots=slots, disk_free_min=0), Tmux(home.tmux_socket), Git(home.root / "git")
    ledger.secured, ledger.starts = ending.secured, []
    snapshots, launching = SnapshotDesk(home, ledger, git, clock, Zygotes(home, clock)), FakeLaunching(home, git, agents)
    seen, limits = observer(home, tmux, agents), LimitDesk(home, settings)
    doors = Doors(ledger, seen, Environments(git), launching, ending, snapshots, limits, home, tmux, Briefing())
    loop = Loop(doors, settings, Hooks(()), clock)
    loop.machine.capacity = CapacityWatch(ledger.needs, settings, clock, _Calm(1))
    return loop


async def _serve(loop: Loop, home: Home, agents: Agents) -> None:
    events = asyncio.get_running_loop()
    agents.over = lambda seconds: events.call_soon_threadsafe(events.call_later, seconds, loop.hint)
    async with Server(loop, home, MemoryDesk(loop, home)):
        await loop.run()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
