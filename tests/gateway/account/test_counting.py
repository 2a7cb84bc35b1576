"""Counters from the account: every row once, when it has ended, whatever ends in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.features.metrics import catalog
from supervisor.features.metrics.catalog import Counts
from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.account.charges import CRASHED, NEVER_SENT, REFUSED
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import BreakerState, Usage
from tests.gateway.account.kit import Wall, account, away, change, opened, price, served, until_saved

pytestmark = pytest.mark.asyncio
OF = ("lint", "claude-opus-4-8")
ENDED = "SELECT count(*) AS n FROM request WHERE end IS NOT NULL"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.db"


def count(path: Path, counts: Counts, rows: int = reading.ROWS) -> Counts:
    db = schema.connect_readonly(path)
    while reading.count_ended(db, counts, rows):
        pass
    db.close()
    return Counts.from_json(counts.to_json())


async def test_what_was_served_is_counted(path: Path) -> None:
    async with account(path) as book:
        rows = [
            (opened(queued_ms=3000.0), served(usage=Usage(1000, 50, 4000, 0), cost_usd=0.25, first_byte_ms=4000.0, total_ms=9000.0)),
            (opened(), served(cost_usd=None, first_byte_ms=None, total_ms=None)),
        ]
        for row, end in rows:
            book.settle(await book.open(row), end)
    found = count(path, Counts())
    assert found.values[catalog.LLM_REQUESTS.name] == {(*OF, "200"): 2}
    assert found.values[catalog.LLM_TOKENS.name] == {
        (*OF, "input"): 2000, (*OF, "output"): 100, (*OF, "cache_read"): 8000, (*OF, "cache_write"): 300,
    }  # fmt: skip
    assert found.values[catalog.COST.name] == {OF: 0.25} and found.values[catalog.UNPRICED.name] == {OF: 1}
    assert found.values[catalog.THROTTLED.name] == {("lint",): 4.5}
    wait = found.spreads[catalog.QUEUE_WAIT.name][()]
    assert (sum(wait.buckets), wait.total, sum(wait.buckets[:5])) == (2, 4.5, 1)
    assert found.spreads[catalog.FIRST_TOKEN.name][()].total == 4.0 and found.spreads[catalog.DURATION.name][()].total == 9.0


async def test_what_was_refused_is_no_turn_and_what_was_never_sent_is_nothing(path: Path) -> None:
    async with account(path) as book:
        book.settle(await book.open(opened()), served(end=REFUSED, status=429, usage=Usage(), cost_usd=0.0))
        book.settle(await book.open(opened()), served(end=REFUSED, status=None, usage=Usage(), cost_usd=None))
        book.settle(await book.open(opened()), served(end=NEVER_SENT, status=None, usage=Usage(), cost_usd=0.0))
        book.turned_away(away(waited_ms=2000.0))
        for after in (BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.OPEN):
            book.journal(change(after=after))
    found = count(path, Counts())
    assert found.values[catalog.LLM_REQUESTS.name] == {(*OF, "429"): 1, (*OF, "none"): 1, ("lint", "opus-4", "own_429"): 1}
    assert sum(found.spreads[catalog.QUEUE_WAIT.name][()].buckets) == 1 and catalog.DURATION.name not in found.spreads
    assert catalog.UNPRICED.name not in found.values
    assert found.values[catalog.BREAKER_TRANSITIONS.name] == {
        ("work/anthropic/opus-4/limit", "open"): 2, ("work/anthropic/opus-4/limit", "half-open"): 1,
    }  # fmt: skip


async def test_every_row_is_counted_once_when_it_has_ended(path: Path) -> None:
    counts = Counts()
    async with account(path) as book:
        ids = [await book.open(opened()) for _ in range(7)]
        counts = count(path, counts, rows=2)
        assert counts.read.requests.open == set(ids) and catalog.LLM_REQUESTS.name not in counts.values
        for row_id in ids[::2]:
            book.settle(row_id, served())
        await until_saved(path, ENDED, 4)
        counts = count(path, count(path, counts, rows=3))
        assert counts.values[catalog.LLM_REQUESTS.name] == {(*OF, "200"): 4}
    dead = Account(path, Wall())  # what was open is charged by the next gateway, and counts then
    dead.start(price)
    await dead.close()
    counts = count(path, counts)
    assert counts.values[catalog.LLM_REQUESTS.name] == {(*OF, "200"): 4, (*OF, "none"): 3} and not counts.read.requests.open
    assert {row["end"] for row in schema.connect_readonly(path).execute("SELECT end FROM request")} == {"served", CRASHED}


async def test_after_all_old_rows_went_the_next_ones_count(path: Path) -> None:
    wall = Wall()
    async with account(path, wall) as book:
        for _ in range(3):
            book.turned_away(away())
            book.journal(change())
        book.settle(await book.open(opened()), served())
        await until_saved(path, "SELECT count(*) AS n FROM journal", 3)
        counts = count(path, Counts())
        wall.now += 1000.0
        await book.prune(10.0)
        counts = count(path, counts)
        book.turned_away(away())
        book.journal(change())
        book.settle(await book.open(opened()), served())
        await until_saved(path, "SELECT count(*) AS n FROM journal", 1)
        await until_saved(path, ENDED, 2)
    counts = count(path, counts)
    assert counts.values[catalog.LLM_REQUESTS.name] == {(*OF, "200"): 2, ("lint", "opus-4", "own_429"): 4}
    assert sum(counts.values[catalog.BREAKER_TRANSITIONS.name].values()) == 4
