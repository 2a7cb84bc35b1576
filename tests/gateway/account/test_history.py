"""What the account keeps over a restart, who hears of it, and what it forgets."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from supervisor.gateway.account import queries as reading
from supervisor.gateway.account.charges import REFUSED, RecordingRow
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission import types
from supervisor.gateway.admission.types import PoolKey, Usage
from supervisor.kernel.errors import LedgerError
from tests.gateway.account.kit import AGENT, LANE, NOW, Wall, account, away, change, opened, price, rows, served, until_saved, usd

# Memory and history -----------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_what_was_learned_is_remembered_over_a_restart(path: Path) -> None:
    async with account(path) as book:
        assert book.recall() == {}
        book.remember({"limits": [1]})
        book.remember({"limits": [1, 2]})
    async with account(path) as book:
        assert book.recall() == {"limits": [1, 2]}


@pytest.mark.asyncio
async def test_breakers_and_alerts_are_kept_with_their_numbers(path: Path) -> None:
    async with account(path) as book:
        book.journal(change())
        book.alert(types.Alert("key of work", "the key of work was refused"))
    breaker, alert = rows(path, "SELECT * FROM journal ORDER BY seq")
    assert (breaker["about"], breaker["event"], breaker["at"]) == ("work/anthropic/opus-4", "breaker", NOW)
    assert breaker["data"] == '{"breaker": "limit", "before": "closed", "after": "open", "why": "429", "numbers": {"level": -5.0}}'
    assert (alert["about"], alert["event"], alert["data"]) == ("key of work", "alert", '{"text": "the key of work was refused"}')


# A restart, and retention --------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_restart_knows_what_was_charged_lately(path: Path) -> None:
    wall = Wall()
    async with account(path, wall) as book:
        for at, facts in ((NOW - 300, {}), (NOW - 30, {}), (NOW - 90, {"total_ms": 86_500.0})):
            book.settle(await book.open(opened(at=at)), served(**facts))
        book.settle(await book.open(opened(at=NOW - 1)), served(end=REFUSED, usage=Usage(), status=429, cost_usd=0.0))
        await book.open(opened(at=NOW - 10))
    async with account(path, wall) as book:
        pool = PoolKey("work", LANE)
        assert book.ask(reading.recent, wall.now, 60.0) == [
            (pool, 30.0, Usage(input=1000, cache_read=4000, cache_write=300), AGENT),
            (pool, 25.0, Usage(output=50), AGENT),
            (pool, 10.0, Usage(input=6000, cache_read=4000), AGENT),
            (pool, 5.0, Usage(output=50), AGENT),
            (pool, 0.0, Usage(output=300), AGENT),
        ]
        assert book.ask(reading.spent, AGENT)[0] == pytest.approx(3 * 0.02 + usd(Usage(6000, 300, 4000)))
        assert book.ask(reading.spent, "1121-k3f9/nobody") == (0.0, 0, 0.0)
        assert book.ask(reading.spent_since, NOW - 60) == pytest.approx(0.02 + usd(Usage(6000, 300, 4000)))
        wall.now -= 3600
        assert {age for _, age, *_ in book.ask(reading.recent, wall.now, 60.0)} == {0.0}, (
            "a clock that was set back makes nothing forgotten"
        )


@pytest.mark.asyncio
async def test_pruning_forgets_what_is_old_and_nothing_that_is_open(path: Path) -> None:
    wall = Wall()
    async with account(path, wall) as book:
        day = 86_400.0
        ids = await asyncio.gather(*(book.open(opened(at=NOW - 40 * day)) for _ in range(1200)))
        for row_id in ids[1:]:
            book.settle(row_id, served())
            book.recorded(RecordingRow(row_id, "1121-k3f9", "POST /v1/messages", "ab", 200, "f", NOW - 40 * day))
        kept = await book.open(opened(at=NOW - day))
        book.settle(kept, served())
        book.turned_away(away(at=NOW - 40 * day))
        book.turned_away(away(at=NOW - day))
        wall.now -= 40 * day
        book.journal(change())
        wall.now = NOW
        assert await book.prune(30 * day) == 1199 + 1199 + 1 + 1
        assert [row["id"] for row in rows(path)] == [ids[0], kept]
        assert rows(path, "SELECT at FROM turned_away") == [{"at": NOW - day}]
        assert rows(path, "SELECT * FROM recording") == []
        assert await book.prune(30 * day) == 0


@pytest.mark.asyncio
async def test_the_window_is_read_beside_the_writing(path: Path) -> None:
    async with account(path) as book:
        book.settle(await book.open(opened()), served())
        await until_saved(path, "SELECT count(end) AS n FROM request", 1)
        window = book.ask(reading.window, NOW, 60.0)
        assert window.agents[AGENT].requests == 1


def test_nothing_is_left_of_a_start_that_failed(path: Path) -> None:
    path.mkdir()
    before = set(threading.enumerate())
    with pytest.raises(LedgerError):
        Account(path, Wall()).start(price)
    assert set(threading.enumerate()) == before
