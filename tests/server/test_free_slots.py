"""A slot that became free is given on at once: no start waits for a look at other agents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from nightcrew.plugins.bench import fake_doors
from nightcrew.plugins.bench.fake_doors import Agents, FakeEnding, FakeObserver, TimedLedger
from supervisor.host.paths import Home
from supervisor.kernel.decision import Command, Start
from supervisor.kernel.events import Submitted
from supervisor.server.attempts.observe import Key, Seen
from supervisor.server.loop import Loop
from supervisor.store.rows import AttemptRow
from tests.store.kit import RUN, spec, submission

HANGS_S = 10.0


class Moments:
    """What happens before what."""

    def __init__(self) -> None:
        self.second_look, self.next_start = threading.Event(), threading.Event()
        self.looks_that_ended: list[bool] = []
        """Whether the next start was committed by then."""


class SlowEnding(FakeEnding):
    """Secures the work that `ends` left only while a look is under way."""

    moments: Moments

    def collect(self, row: AttemptRow, *rest: Any) -> dict[str, Any]:
        self.moments.second_look.wait(HANGS_S)
        return super().collect(row, *rest)


class SlowObserver(FakeObserver):
    """Once `ends` has ended a look takes until the next start is committed, or very long."""

    moments: Moments

    def look(self, keys: Iterable[Key]) -> dict[Key, Seen]:
        seen = super().look(keys)
        if list(seen.values()) == [Seen.LIVE] and (f"{RUN}/stays", 1) in seen and not self.moments.looks_that_ended:
            self.moments.second_look.set()
            self.moments.looks_that_ended.append(self.moments.next_start.wait(HANGS_S))
        return seen


class WatchedLedger(TimedLedger):
    moments: Moments

    def commit(self, commands: Iterable[Command]) -> None:
        batch = list(commands)
        super().commit(batch)
        if any(isinstance(command, Start) and command.task == f"{RUN}/next" for command in batch):
            self.moments.next_start.set()


def test_a_start_does_not_wait_for_a_look(tmp_path: Path) -> None:
    moments, agents, home = Moments(), Agents(), Home(tmp_path / "home")
    for place in (home.root, home.run_dir):  # a long path has the sockets elsewhere
        place.mkdir(parents=True, exist_ok=True)
    for one in (SlowEnding, SlowObserver, WatchedLedger):
        one.moments = moments
    with closing(WatchedLedger(home.ledger, lambda: 1.7e9)) as ledger:
        loop = fake_doors.make(home, ledger, agents, 2, SlowEnding(agents), SlowObserver)
        names = (("ends", "0"), ("stays", "3600"), ("next", "3600"))
        ledger.submit(submission(*(spec(name, argv=(seconds,)) for name, seconds in names)), RUN)
        asyncio.run(until_looked(loop, ledger, moments))
    assert moments.looks_that_ended == [True]


async def until_looked(loop: Loop, ledger: TimedLedger, moments: Moments) -> None:
    running = asyncio.create_task(loop.run())
    loop.events([Submitted(ledger.tasks_of_run(RUN, 0.0))])
    while not moments.looks_that_ended:
        loop.hint()
        await asyncio.sleep(0.01)
    loop.stop(now=False)
    await running
