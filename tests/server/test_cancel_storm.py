"""A storm of tasks that are created and cancelled at random moments leaves nothing behind (R09): the real loop, ledger and jobs, behind
whose doors nothing happens; and a smaller storm on the real path."""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from pathlib import Path

import pytest

from nightcrew.plugins.bench import fake_doors
from nightcrew.plugins.bench.fake_doors import Agents, FakeEnding, TimedLedger
from supervisor.host.paths import Home
from supervisor.kernel.events import CancelAsked, Submitted
from supervisor.kernel.states import FINAL
from supervisor.server.loop import Loop
from tests.store.kit import spec, submission
from tests.support import House, plan_of, shell_task, wait_until

SLOTS = 16


@pytest.mark.parametrize("runs", [10, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_nothing_is_left_in_the_supervisor(tmp_path: Path, runs: int, seed: int) -> None:
    agents, home = Agents(), Home(tmp_path / "home")
    for place in (home.root, home.run_dir):  # a long path has the sockets elsewhere
        place.mkdir(parents=True, exist_ok=True)
    with closing(TimedLedger(home.ledger, lambda: 1.7e9)) as ledger:
        loop = fake_doors.make(home, ledger, agents, SLOTS, FakeEnding(agents))
        asyncio.run(stormed(loop, ledger, runs, random.Random(seed)))
        states = dict(ledger.db.execute("SELECT state, count(*) FROM task GROUP BY state").fetchall())
        assert states.keys() <= {*FINAL} and sum(states.values()) == 10 * runs and states["cancelled"] > 0
        assert ledger.unreleased() == []
    assert (agents.until, loop.crew.tasks, len(loop._under_way), loop.jobs._ports._held) == ({}, {}, 0, {})


async def stormed(loop: Loop, ledger: TimedLedger, runs: int, luck: random.Random) -> None:
    """Ten tasks a run that would work for ever or not at all; all of them are cancelled, each at a moment of its own."""
    running = asyncio.create_task(loop.run())
    while not loop.ready:
        await asyncio.sleep(0.001)
    known: list[str] = []
    for number in range(runs):
        run = f"0101-{number:04}"
        ledger.submit(submission(*(spec(f"t{each}", argv=(luck.choice(["0", "3600"]),)) for each in range(10)), key=run), run)
        made = ledger.tasks_of_run(run, 0.0)
        known += [task.id for task in made]
        loop.events([Submitted(made)])
        for _ in range(luck.randrange(12)):
            loop.ask(CancelAsked(luck.choice(known)))
            await asyncio.sleep(luck.choice([0.0, 0.0, 0.002]))
    luck.shuffle(known)
    loop.ask(*map(CancelAsked, known))
    while loop.crew.living or loop._under_way:
        loop.hint()
        await asyncio.sleep(0.01)
    loop.stop()
    await running


@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_nothing_is_left_on_the_machine(house: House, count: int) -> None:
    house.start_daemon()
    house.ok("run", "-d", house.plan(plan_of([shell_task(f"t{number}", "sleep 600") for number in range(count)])))
    wait_until(lambda: any(view.state == "running" for view in house.tasks()), "the first to start")
    house.ok("kill", "--all")
    house.wait_final()
    assert {view.state for view in house.tasks()} == {"cancelled"}
    wait_until(lambda: not house.tagged() and not house.sessions(), "sessions and processes to be gone")
    said = house.ok("clean", "--yes")
    assert list(house.home.worktrees.rglob(".git")) == [], said
