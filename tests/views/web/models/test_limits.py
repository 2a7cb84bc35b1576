"""Tokens against the limits over time, held against a plain reckoning."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway.account import reading, schema
from supervisor.gateway.account.charges import REFUSED, OpenRow, SettledRow, TurnedAwayRow
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission import types
from supervisor.gateway.admission.types import BreakerState, Usage
from supervisor.host.paths import Home
from supervisor.views.web import models
from supervisor.views.web.models import STEP_S, STEPS, Looks
from tests.gateway.account.kit import NOW, Wall, away, change, opened, price, served

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


def shape(home: Home, looks: Looks | None = None) -> dict[str, Any]:
    return models.limits(home, looks or Looks(), NOW)


def test_without_a_gateway_or_an_account_it_says_so(home: Home) -> None:
    found = shape(home)
    assert (found["now"], found["ends"], found["charts"], found["breakers"]) == (None, [], [], [])
    assert "no gateway has run here" in found["trouble"]


def test_each_agents_minute_ends_with_each_step(home: Home) -> None:
    long_ago = sent(END - STEP_S * STEPS + 1, agent="1121-k3f9/c")
    now = [sent(END - 1), sent(END - 50), sent(END - 70), sent(END - 1, agent="1121-k3f9/b"), sent(END + 1)]
    write(home.gateway_account, [long_ago, *now])
    found = shape(home)
    assert (len(found["ends"]), found["ends"][-1]) == (STEPS, END)
    by = {one["dimension"]: {agent["name"]: agent["used"] for agent in one["agents"]} for one in found["charts"]}
    assert by["input"]["1121-k3f9/lint"][-1] == 220, "two in the last minute, without what the cache had"
    assert by["output"]["1121-k3f9/lint"][-1] == 40 and by["output"]["1121-k3f9/b"][-1] == 20
    assert by["output"]["1121-k3f9/lint"][-2] == 40, "those of 50 and 70 seconds ago"
    assert found["rates"]["admitted"][-1] == 2 * 60 / STEP_S
    assert found["rates"]["cache_hits"][-1] == pytest.approx(900 / 1010)
    assert found["waits"]["wait"]["p50"][-1] == 1.5 and found["waits"]["wait"]["p50"][-2] is None


@pytest.mark.parametrize(("ago", "shown"), [(1, models.LEAST), (600, 41), (STEP_S * STEPS - 1, STEPS)])
def test_time_begins_with_the_first_request(home: Home, ago: float, shown: int) -> None:
    write(home.gateway_account, [sent(END - ago)])
    assert len(shape(home)["ends"]) == shown


def test_the_foremost_agents_have_a_line_of_their_own_and_the_others_one(home: Home) -> None:
    write(home.gateway_account, [sent(END - 1, Usage(100 * n, n), agent=f"r/a{n}") for n in range(1, models.LIMITS_AGENTS + 4)])
    [chart] = [one for one in shape(home)["charts"] if one["dimension"] == "output"]
    names = [one["name"] for one in chart["agents"]]
    assert names == [f"r/a{n}" for n in range(models.LIMITS_AGENTS + 3, 3, -1)] + [models.OTHERS]
    assert chart["agents"][-1]["used"][-1] == 1 + 2 + 3


def test_more_requests_than_are_read_make_the_time_shorter_and_say_nothing_wrong(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "NEWEST", 6)
    write(home.gateway_account, [sent(END - 5 * n) for n in range(1, 20)])
    found = shape(home)
    assert len(found["ends"]) < STEPS and found["rates"]["admitted"] == [12.0] * len(found["ends"]), "only steps of which all was read"


def test_what_we_and_they_turned_away(home: Home) -> None:
    refused = (opened(at=END - 2), served(end=REFUSED, usage=Usage(), status=429, cost_usd=0.0, first_byte_ms=None))
    write(home.gateway_account, [refused, sent(END - 1)], [away(at=END - 3), away(at=END - 3, status=402)])
    rates = shape(home)["rates"]
    assert (rates["our_429"][-1], rates["upstream_429"][-1], rates["admitted"][-1]) == (1, 1, 4.0)


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
        "limit": [None, 80_000.0, None],
        "reserved": [None, 7.0, None],
        "outside": [None, 300.0, None],
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
    bands = [(one["begin"], one["end"], one["state"], one["why"]) for one in shape(home)["breakers"]]
    assert bands == [(NOW - 5, None, "open", "429: slow down <b>"), (NOW - 60, NOW - 30, "open", "429: slow down <b>")]


def test_one_that_opened_before_the_window_is_still_a_band(home: Home) -> None:
    write(home.gateway_account, changes=[(NOW - 9999, change())])
    [band] = shape(home)["breakers"]
    assert (band["begin"], band["end"]) == (NOW - 9999, None)


def test_it_takes_the_same_beside_a_long_history(home: Home) -> None:
    write(home.gateway_account, [sent(END - 1)])
    with contextlib.closing(schema.connect_readonly(home.gateway_account)) as db:
        plan = " ".join(str(row["detail"]) for row in db.execute("EXPLAIN QUERY PLAN SELECT * FROM request WHERE at >= 1 ORDER BY at DESC"))
        assert "request_at" in plan
        assert len(reading.steps(db, NOW, STEP_S, STEPS)) == STEPS


def test_a_damaged_account_costs_only_what_it_had(home: Home) -> None:
    home.gateway_account.write_bytes(b"not a database" * 100)
    found = shape(home)
    assert found["charts"] == [] and found["trouble"] != ""
