"""Whose token it is, by a ledger that another takes the place of."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from supervisor.gateway.proxy.front import FRESH_S, Roster
from supervisor.host import attempt_tokens
from supervisor.kernel.decision import Collect, Finish, MarkRunning, Revive, SetState, Start
from supervisor.kernel.retry import GATE, NEW, Ended, after
from supervisor.kernel.states import End, TaskState
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, spec, submit

SECRET = b"s" * 32


def running(path: Path, *names: str) -> Path:
    """A ledger in which a task of each name runs."""
    with contextlib.closing(Ledger(path, Wall())) as ledger:
        for task in submit(ledger, *names):
            ledger.commit([Start(task, 1, ""), MarkRunning(task, 1)])
    return path


def test_a_ledger_that_was_recovered_is_read_anew(tmp_path: Path) -> None:
    """A gateway outlives the supervisor, and with it the file that it opened."""
    path = running(tmp_path / "ledger.db", "one")
    later = running(tmp_path / "later.db", "one", "two")
    now = [0.0]

    async def asked() -> list[bool]:
        roster = Roster(path, SECRET, lambda: now[0])
        found = []
        for name in ("one", "two"):
            found.append(await roster.agent(attempt_tokens.derive(SECRET, f"0731-aaaa/{name}", 1)) is not None)
        later.rename(path)
        now[0] += 2 * FRESH_S
        found.append(await roster.agent(attempt_tokens.derive(SECRET, "0731-aaaa/two", 1)) is not None)
        await roster.close()
        return found

    assert asyncio.run(asked()) == [True, False, True]


def test_an_agent_is_raised_by_its_first_failed_gate_until_a_person_retries(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    missed = Ended(End.FAILED, f"{GATE}exit code 1", wall=1000.0)

    async def raised(epoch: int) -> bool:
        roster = Roster(path, SECRET, lambda: 0.0)
        agent = await roster.agent(attempt_tokens.derive(SECRET, "0731-aaaa/one", epoch))
        await roster.close()
        assert agent is not None and agent.work == "trivial"
        return agent.raised

    with contextlib.closing(Ledger(path, Wall())) as ledger:
        (task,) = submit(ledger, spec("one", work="trivial"))
        found, tally = list[bool](), NEW
        for epoch in range(1, 5):
            ledger.commit([Start(task, epoch, ""), MarkRunning(task, epoch)])
            found.append(asyncio.run(raised(epoch)))
            tally = after(tally, 5, missed).tally
            state = TaskState.READY if epoch < 3 else TaskState.FAILED
            ledger.commit([Collect(task, epoch, missed.end, ""), Finish(task, epoch, missed.end, missed.cause, state, 0.0, tally)])
            if epoch == 3:
                ledger.commit([Revive(task, "a person"), SetState(task, TaskState.READY, "")])
        assert found == [False, True, True, False]
