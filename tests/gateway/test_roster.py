"""Whose token it is, by a ledger that another takes the place of."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from supervisor.gateway.proxy.front import FRESH_S, Roster
from supervisor.host import attempt_tokens
from supervisor.kernel.decision import MarkRunning, Start
from supervisor.store.ledger import Ledger
from tests.store.kit import Wall, submit

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
