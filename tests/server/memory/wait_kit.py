"""A desk of waits on a ledger and a crew of its own, with clocks that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

from memory.lease_rows import Waits
from memory.service.waits import WaitDesk
from supervisor.kernel.crew import Attempt, Crew, Task
from supervisor.kernel.decision import Start
from supervisor.kernel.leases import WaitKind
from supervisor.kernel.states import AttemptState, TaskState
from supervisor.store.ledger import Ledger
from tests.store.kit import RUN, Wall, rows, submit

PROJECT = "0123456789ab"


class Hands:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now

    def boottime(self) -> float:
        return self.now


class Waiting:
    """Agents `names`, all of them alive in epoch 1, and the desk at which they wait. `restart` is what a new supervisor does."""

    def __init__(self, folder: Path, *names: str, **tasks: Task) -> None:
        self.clock, self.said = Hands(), list[str]()
        self.file = folder / "ledger.db"
        self.ledger = Ledger(self.file, Wall())
        submit(self.ledger, *names, *tasks)
        self.ledger.commit([Start(f"{RUN}/{name}", 1, "") for name in names])
        living = [
            Task(f"{RUN}/{name}", at, state=TaskState.RUNNING, epoch=1, attempt=Attempt(1, AttemptState.RUNNING, 0.0))
            for at, name in enumerate(names)
        ]
        self.crew = Crew([*living, *tasks.values()])
        self.desk = self._desk()

    def _desk(self) -> WaitDesk:
        made = WaitDesk(self.ledger.of(Waits), self.crew, self.clock, lambda said: self.said.append(str(said)))
        made.begin()
        return made

    def restart(self) -> None:
        self.desk.close()
        self.desk = self._desk()

    def wait(self, who: str, kind: WaitKind, what: str, *holders: str, timeout_s: float = 60.0, **more: Any) -> asyncio.Task[str]:
        """Begin to wait; what it comes to: `over` when its event was set."""
        return asyncio.create_task(self._wait(who, kind, what, holders, timeout_s, **more))

    async def _wait(self, who: str, kind: WaitKind, what: str, holders: tuple[str, ...], timeout_s: float, **more: Any) -> str:
        named = [name if name == "person" else f"{RUN}/{name}" for name in holders]
        async with self.desk.waiting(PROJECT, f"{RUN}/{who}", 1, kind, what, named, timeout_s, **more):
            await asyncio.Event().wait()
        return "over"

    def number(self, who: str) -> int:
        return next(number for number, wait in self.desk.graph.waits.items() if wait.task == f"{RUN}/{who}")

    def rows(self) -> list[tuple[str, str | None]]:
        """Who waited, and how that ended; None while it waits."""
        found = rows(self.file, "SELECT task, ended, why FROM wait ORDER BY number")
        return [(row["task"].partition("/")[2], row["why"] if row["ended"] else None) for row in found]

    def journal(self) -> list[tuple[str, str]]:
        return [(row["event"], row["data"]) for row in rows(self.file, "SELECT event, data FROM journal WHERE event LIKE 'wait%'")]


@contextlib.contextmanager
def waiting(folder: Path, *names: str, **tasks: Task) -> Iterator[Waiting]:
    made = Waiting(folder, *names, **tasks)
    try:
        yield made
    finally:
        made.desk.close()
        made.ledger.close()


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own; one that waits for ever fails."""

    @functools.wraps(test)
    def run(*args: Any, **more: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(60):
                await test(*args, **more)

        asyncio.run(bounded())

    return run


async def parked(*waits: asyncio.Task[str]) -> None:
    """Until each of them is registered, or has been refused."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert not any(wait.cancelled() for wait in waits)
