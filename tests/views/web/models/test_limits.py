"""Tokens against the limits over time, held against a plain reckoning."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.account.charges import REFUSED, OpenRow, SettledRow, TurnedAwayRow
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission import types
from supervisor.gateway.admission.types import BreakerState, Usage
from supervisor.host.paths import Home
from supervisor.views.web import limits
from supervisor.views.web.limits import STEP_S, STEPS, Looks
from tests.gateway.account.kit import NOW, Wall, away, change, opened, price, served
from tests.views.web.elements import every, rows, text

END = NOW // STEP_S * STEP_S
"""Of the last whole step."""


def write(
    path: Path,
    sendings: Iterable[tuple[OpenRow, SettledRow | None]] = (),
    aways: Iterable[TurnedAwayRow] = (),
    changes: Iterable[tuple[float, types.Journal]] = (),
) -> None:
    async def all_of_it() -> None:
        wall = Wall()
        book = Account(path, wall)
        book.start(price)
        for row, ended in sendings:
            number = await book.open(row)
            if ended is not None:
                book.settle(number, ended)
        for one in aways:
            book.turned_away(one)
        for wall.now, changed in changes:
            book.journal(changed)
        await book.close()

    asyncio.run(all_of_it())


USED = Usage(100, 20, 900, 10)


def sent(at: float, usage: Usage = USED, **facts: Any) -> tuple[OpenRow, SettledRow]:
    return opened(at=at, **facts), served(usage=usage)


def shown(home: Home, asked: Mapping[str, str] | None = None) -> dict[str, Any]:
    return limits.page(home, Looks(), asked or {}, NOW)


ADMISSIONS, TURNS = "Admissions and the queue: the newest 20 steps", "Waiting for its turn: seconds: the newest 20 steps"


def test_without_a_gateway_or_an_account_it_says_so(home: Home) -> None:
    found = shown(home)
    assert "no gateway has run here" in text(found["nodes"][0]) and [one for one in every(found) if one[0] in ("svg", "table")] == []


def test_each_agents_minute_ends_with_each_step(home: Home) -> None:
    long_ago = sent(END - STEP_S * STEPS + 1, agent="1121-k3f9/c")
    now = [sent(END - 1), sent(END - 50), sent(END - 70), sent(END - 1, agent="1121-k3f9/b"), sent(END + 1)]
    write(home.gateway_account, [long_ago, *now])
    steps, _ = limits.account(home, NOW)
    assert (len(steps), steps[-1].at) == (STEPS, END)
    by = {one.dimension: dict(one.agents) for one in limits.used(steps, None)}
    assert by["input"]["1121-k3f9/lint"][-1] == 220, "two in the last minute, without what the cache had"
    assert by["output"]["1121-k3f9/lint"][-1] == 40 and by["output"]["1121-k3f9/b"][-1] == 20
    assert by["output"]["1121-k3f9/lint"][-2] == 40, "those of 50 and 70 seconds ago"
    found = shown(home)
    assert rows(found, ADMISSIONS)[0]["A admitted a minute"] == "8"
    assert rows(found, "Input read from the provider's cache: the newest 20 steps")[0]["C read from the cache"] == "89%"
    assert [row["50 P50"] for row in rows(found, TURNS)[:2]] == ["1.5s", ""]


@pytest.mark.parametrize(("ago", "steps"), [(1, limits.LEAST), (600, 41), (STEP_S * STEPS - 1, STEPS)])
def test_time_begins_with_the_first_request(home: Home, ago: float, steps: int) -> None:
    write(home.gateway_account, [sent(END - ago)])
    assert len(limits.account(home, NOW)[0]) == steps


def test_the_foremost_agents_have_a_line_of_their_own_and_the_others_one(home: Home) -> None:
    write(home.gateway_account, [sent(END - 1, Usage(100 * n, n), agent=f"r/a{n}") for n in range(1, limits.LIMITS_AGENTS + 4)])
    [chart] = [one for one in limits.used(limits.account(home, NOW)[0], None) if one.dimension == "output"]
    assert [name for name, _ in chart.agents] == [f"r/a{n}" for n in range(limits.LIMITS_AGENTS + 3, 3, -1)] + [limits.OTHERS]
    assert chart.agents[-1][1][-1] == 1 + 2 + 3


def test_more_requests_than_are_read_make_the_time_shorter_and_say_nothing_wrong(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "NEWEST", 6)
    write(home.gateway_account, [sent(END - 5 * n) for n in range(1, 20)])
    steps, _ = limits.account(home, NOW)
    assert len(steps) < STEPS and all(step.figures.requests == 3 for step in steps), "only steps of which all was read"


def test_what_we_and_they_turned_away(home: Home) -> None:
    refused = (opened(at=END - 2), served(end=REFUSED, usage=Usage(), status=429, cost_usd=0.0, first_byte_ms=None))
    write(home.gateway_account, [refused, sent(END - 1)], [away(at=END - 3), away(at=END - 3, status=402)])
    newest = rows(shown(home), ADMISSIONS)[0]
    assert [newest[head] for head in ("N 429 of ours", "P 429 of the provider's", "A admitted a minute")] == ["1", "1", "4"]


def test_what_the_gateway_alone_knows_is_kept_from_each_look() -> None:
    one = {"name": "input", "limit_per_minute": 80_000.0, "reserved": 1200.0, "outside_per_minute": 300.0}
    pool = {"key": "work/anthropic/opus-4", "dimensions": [one], "in_flight": 1}
    seen = {"running": True, "pools": [pool], "lanes": [{"queued": 2, "delay_s": 3.0}, {"queued": 1, "delay_s": None}]}
    looks = Looks()
    looks.add({**seen, "pools": [{**pool, "dimensions": [{**one, "reserved": 7.0}]}]}, END - STEP_S + 0.5)
    looks.add(seen, END - 1)
    looks.add(None, END + 1)
    ends = [END - 2 * STEP_S, END - STEP_S, END]
    assert looks.of("work/anthropic/opus-4", "input", ends) == {
        "limit_per_minute": [None, 80_000.0, None],
        "reserved": [None, 7.0, None],
        "outside_per_minute": [None, 300.0, None],
    }
    assert looks.queued(ends) == [None, 3, None]
    for second in range(10 * STEPS):
        looks.add(seen, END + 5 * second)
    assert len(looks.kept) <= STEPS + 1


def test_a_breaker_is_a_band_from_its_opening_to_its_closing(home: Home) -> None:
    opening, closing = change(why="429: slow down <b>"), change(before=BreakerState.OPEN, after=BreakerState.CLOSED, why="")
    long_ago = NOW - 2 * STEP_S * STEPS
    told = [(long_ago, opening), (long_ago + 1, closing), (NOW - 60, opening), (NOW - 30, closing), (NOW - 5, opening)]
    write(home.gateway_account, [sent(END - 1)], changes=told)
    bands = [(one.at, end, one.state, one.why) for one, end in limits.bands(limits.account(home, NOW)[1], NOW)]
    assert bands == [(NOW - 5, None, "open", "429: slow down <b>"), (NOW - 60, NOW - 30, "open", "429: slow down <b>")]


def test_one_that_opened_before_the_window_is_still_a_band(home: Home) -> None:
    write(home.gateway_account, changes=[(NOW - 9999, change())])
    [(band, end)] = limits.bands(limits.account(home, NOW)[1], NOW)
    assert (band.at, end) == (NOW - 9999, None)


def test_it_takes_the_same_beside_a_long_history(home: Home) -> None:
    write(home.gateway_account, [sent(END - 1)])
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        plan = " ".join(str(row["detail"]) for row in db.execute("EXPLAIN QUERY PLAN SELECT * FROM request WHERE at >= 1 ORDER BY at DESC"))
        assert "request_at" in plan
        assert len(reading.steps(db, NOW, STEP_S, STEPS)) == STEPS


def test_a_damaged_account_costs_only_what_it_had(home: Home) -> None:
    home.gateway_account.write_bytes(b"not a database" * 100)
    found = shown(home)
    assert found["nodes"][0][1]["class"] == "trouble" and text(found["nodes"][0])
