"""What the account says of windows, attempts and runs, held against a plain reckoning."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.account.charges import CRASHED, NEVER_SENT, REFUSED, OpenRow, SettledRow, TurnedAwayRow
from supervisor.gateway.account.queries import Answered, Figures, Percentiles, Totals
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import LaneKey, Usage
from supervisor.kernel.errors import LedgerError
from supervisor.kernel.gateway_settings import Api
from tests.gateway.account.kit import AGENT, LANE, NOW, Wall, away, opened, served, unpriced

OTHER = "1121-k3f9/other"


def written(path: Path, sendings: Iterable[tuple[OpenRow, SettledRow | None]], aways: Iterable[TurnedAwayRow] = ()) -> sqlite3.Connection:
    """The account of these requests, for reading."""

    async def write() -> None:
        book = Account(path, Wall())
        book.start(unpriced)
        for row, ended in sendings:
            row_id = await book.open(row)
            if ended is not None:
                book.settle(row_id, ended)
        for one in aways:
            book.turned_away(one)
        await book.close()

    asyncio.run(write())
    return schema.connect_readonly(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.db"


def window(
    path: Path, *sendings: tuple[OpenRow, SettledRow | None], aways: Iterable[TurnedAwayRow] = (), s: float = 60.0
) -> reading.Window:
    with contextlib.closing(written(path, sendings, aways)) as db:
        return reading.window(db, NOW, s)


def test_nothing_has_no_figures(path: Path) -> None:
    empty = window(path)
    assert (empty.agents, empty.pools, empty.total) == ({}, {}, Figures())
    total = empty.total
    assert (total.error_rate, total.cache_hits, total.tokens_per_usd, total.wait) == (None, None, None, Percentiles())


def test_a_window_by_agent_by_pool_and_in_all(path: Path) -> None:
    sonnet = LaneKey(Api.ANTHROPIC, "sonnet-4", long_context=True)
    found = window(
        path,
        (opened(queued_ms=100.0), served(first_byte_ms=600.0, total_ms=1100.0)),
        (
            opened(agent=OTHER, lane=sonnet, queued_ms=300.0),
            served(first_byte_ms=900.0, total_ms=3300.0, usage=Usage(10, 2), cost_usd=0.01),
        ),
        (opened(at=NOW - 61), served()),
        (opened(), None),
        s=60.0,
    )
    assert set(found.agents) == {AGENT, OTHER} and set(found.pools) == {"work/anthropic/opus-4", "work/anthropic/sonnet-4/long"}
    mine = found.agents[AGENT]
    assert mine == found.pools["work/anthropic/opus-4"]
    assert (mine.requests, mine.tokens, mine.cost_usd, mine.failed) == (1, Usage(1000, 50, 4000, 300), 0.02, 0)
    assert (mine.wait.p50, mine.first_byte.p50, mine.total.p99) == (0.1, 0.6, 1.1)
    assert mine.cache_hits == 4000 / 5300 and mine.tokens_per_usd == 5350 / 0.02 and mine.error_rate == 0.0
    assert (found.total.requests, found.total.requests_per_s, found.total.tokens_per_s) == (2, 2 / 60, 5362 / 60)
    assert (found.total.wait.p50, found.total.wait.p95) == (0.1, 0.3)


def test_a_request_that_was_sent_again_is_one_and_its_429_is_the_upstreams(path: Path) -> None:
    nothing = served(end=REFUSED, usage=Usage(), status=429, cost_usd=0.0, first_byte_ms=None)
    found = window(
        path,
        (opened(queued_ms=0.0), nothing),
        (opened(queued_ms=5000.0, attempt_no=2), served()),
        (opened(), served(end=NEVER_SENT, usage=Usage(), status=None, cost_usd=0.0)),
        aways=[away(), away(status=402, waited_ms=0.0)],
    ).total
    assert (found.requests, found.upstream_429, found.our_429, found.failed) == (3, 1, 1, 2)
    assert (found.wait.p50, found.wait.p99) == (5.0, 240.0)
    assert found.error_rate == pytest.approx(2 / 3)


@pytest.mark.parametrize(("end", "failed"), [("served", 0), ("cut", 1), ("rejected", 1), ("client gone", 0)])
def test_which_ends_are_failures(path: Path, end: str, failed: int) -> None:
    assert window(path, (opened(), served(end=end))).total.failed == failed


@pytest.mark.parametrize(
    ("end", "flags", "why"),
    [
        ("served", (), ""),
        ("rejected", (), ""),
        ("client gone", (), ""),
        ("cut", ("x",), "its answer was cut off"),
        (CRASHED, (), "the gateway died"),
        (REFUSED, ("unreachable", "x"), "unreachable"),
        (REFUSED, ("overloaded",), "overloaded"),
        (REFUSED, ("rate limited",), ""),
        (REFUSED, ("subscription window spent",), ""),
    ],
)
def test_whether_a_provider_served_the_last_request_of_an_attempt(path: Path, end: str, flags: tuple[str, ...], why: str) -> None:
    first, last = (opened(at=NOW - 9), served()), (opened(at=NOW - 5), served(end=end, flags=flags))
    with contextlib.closing(written(path, [last, first])) as db:
        assert reading.unserved(db, AGENT, 1) == why
        assert reading.unserved(db, AGENT, 2) == "" == reading.unserved(db, "nobody", 1)


def test_an_unknown_price_makes_the_whole_unknown(path: Path) -> None:
    found = window(path, (opened(), served()), (opened(bound_usd=None), served(cost_usd=None, estimated=True, end="cut"))).total
    assert (found.cost_usd, found.known_usd, found.unpriced, found.estimated, found.tokens_per_usd) == (None, 0.02, 1, 1, None)
    free = window(path.with_name("free.db"), (opened(), served(cost_usd=None, usage=Usage(), end="rejected"))).total
    assert free.unpriced == 0, "what took no tokens needs no price"


def test_percentiles_are_the_nearest_rank(path: Path, seed: int) -> None:
    waits = [random.Random(seed + at).uniform(0, 9000) for at in range(173)]
    found = window(path, *((opened(queued_ms=wait), served()) for wait in waits)).total.wait
    ranked = sorted(waits)
    for part, value in ((50, found.p50), (95, found.p95), (99, found.p99)):
        assert value is not None
        below = sum(wait / 1000 <= value for wait in waits)
        assert below >= len(waits) * part / 100 and value * 1000 in [pytest.approx(one) for one in ranked]
        assert sum(wait / 1000 < value for wait in waits) < len(waits) * part / 100


def test_a_window_with_too_much_in_it_is_shorter_and_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "NEWEST", 10)
    rows = [(opened(at=NOW - 50 + number), served()) for number in range(50)]
    found = window(path, *rows, aways=[away(at=NOW - 49), away(at=NOW - 1)])
    assert found.seconds == 10.0 and found.total.requests == 11 and found.total.requests_per_s == 1.1


# Totals -----------------------------------------------------------------------------------------------------------------------------


def test_what_an_attempt_a_task_and_a_run_took(path: Path) -> None:
    rows = [
        (opened(queued_ms=1500.0), served()),
        (opened(queued_ms=9.0), served(end=REFUSED, usage=Usage(), cost_usd=0.0, status=529)),
        (opened(epoch=2, queued_ms=500.0), served(cost_usd=0.03, estimated=True)),
        (opened(epoch=2), None),
        (opened(agent=OTHER), served(cost_usd=None)),
        (opened(agent="1121-k3f90/x"), served()),
        (opened(agent="1121-k3f9"), served()),
    ]
    with contextlib.closing(written(path, rows, [away(epoch=2, waited_ms=1000.0), away(agent="1121-k3f9/third")])) as db:
        first, second = reading.usage_of_attempt(db, AGENT, 1), reading.usage_of_attempt(db, AGENT, 2)
        one = (Answered("claude-opus-4-8", "claude-opus-4-8", 1),)
        assert first == Totals(1, Usage(1000, 50, 4000, 300), 0.02, wait_s=1.5, models=one)
        assert second == Totals(2, Usage(1000, 50, 4000, 300), 0.03, estimated=1, wait_s=1.5, models=one, under_way=1)
        both = reading.of_task(db, AGENT)
        assert (both.requests, both.tokens.total, both.under_way) == (3, 2 * 5350, 1)
        assert both.cost_usd == pytest.approx(0.05)
        assert reading.under_way_usd(db, AGENT) == pytest.approx(1.7), "the most that the open one can cost"
        assert reading.under_way_usd(db, OTHER) == 0.0
        other = reading.of_task(db, OTHER)
        assert other.cost_usd is None and other.unpriced == 1 and reading.of_task(db, "1121-k3f9/third").wait_s == 240.0
        assert reading.usage_of_attempt(db, "1121-k3f9/nobody", 1) == Totals()
        assert reading.of_task(db, "nobody").cost_usd == 0.0


def test_which_model_answered_for_which(path: Path) -> None:
    fell_back = opened(model="claude-haiku-4-5", asked="claude-opus-4-8")
    rows = [(opened(asked="claude-opus-4-8"), served()), (fell_back, served()), (fell_back, served()), (fell_back, served(end=REFUSED))]
    with contextlib.closing(written(path, rows)) as db:
        expected = (Answered("claude-opus-4-8", "claude-haiku-4-5", 2), Answered("claude-opus-4-8", "claude-opus-4-8", 1))
        assert reading.of_task(db, AGENT).models == expected
        assert reading.window(db, NOW, 60.0).agents[AGENT].models == expected


def test_the_sums_are_what_the_provider_reported(path: Path, seed: int) -> None:
    """Invariant 5, over rows whose final usage was seen."""
    draw = random.Random(seed)
    reported = {agent: [Usage(*(draw.randrange(10**6) for _ in range(4))) for _ in range(100)] for agent in (AGENT, OTHER)}
    rows = [(opened(agent=agent), served(usage=usage)) for agent, usages in reported.items() for usage in usages]
    draw.shuffle(rows)
    with contextlib.closing(written(path, rows)) as db:
        for agent, usages in reported.items():
            kinds = ("input", "output", "cache_read", "cache_write")
            assert reading.of_task(db, agent).tokens == Usage(*(sum(getattr(usage, kind) for usage in usages) for kind in kinds))


def test_totals_and_windows_use_an_index(path: Path) -> None:
    with contextlib.closing(written(path, [(opened(), served())])) as db:
        asked: list[str] = []
        db.set_trace_callback(asked.append)
        reading.usage_of_attempt(db, AGENT, 1)
        reading.window(db, NOW, 60.0)
        reading.spent_since(db, NOW - 60)
        reading.recent(db, NOW, 60.0)
        db.set_trace_callback(None)
        asked = [sql for sql in asked if not sql.startswith("PRAGMA")]
        assert len(asked) == 7
        for sql in asked:
            plan = " ".join(row["detail"] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}"))
            assert "USING INDEX" in plan and "SCAN" not in plan, sql


def test_looking_makes_no_account(path: Path) -> None:
    with pytest.raises(LedgerError, match="no account"):
        schema.connect_readonly(path)
    assert not path.exists()


def test_the_lane_of_a_pool_is_read_back(path: Path) -> None:
    with contextlib.closing(written(path, [(opened(), served())])) as db:
        ((pool, *_), *_) = reading.recent(db, NOW, 60.0)
    assert pool.lane == LANE and pool.account == "work"
