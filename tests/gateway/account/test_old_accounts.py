"""An account that any released version wrote is read by this one."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

import pytest

from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import LaneKey, Usage
from supervisor.kernel.gateway_settings import Api
from tests.data import make_account_sample
from tests.gateway.account.kit import AGENT, NOW, Wall, opened, price, rows, served, usd

DATA = Path(make_account_sample.__file__).parent


@pytest.fixture(params=range(1, schema.SCHEMA + 1))
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return load(tmp_path / "gateway.db", request.param)


def load(path: Path, number: int) -> Path:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / f"gateway-{number}.sql").read_text(encoding="utf-8"))
    return path


def test_an_old_account_goes_on(old: Path) -> None:
    async def go_on() -> None:
        book = Account(old, Wall(NOW + 60))
        number = sqlite3.connect(old).execute("PRAGMA user_version").fetchone()[0]
        (left,) = book.start(price)
        assert (left.at, left.bound, left.lane) == (NOW + 5, Usage(20_000, 64_000), LaneKey(Api.ANTHROPIC, "opus-4"))
        assert book.recall() == {"pools": {"work": {"margin": 0.97}}}
        crashed = usd(Usage(1000, 420, 9000)) if number > 1 else 1.7  # what schema 1 has is the bound
        assert book.ask(reading.spent, AGENT)[0] == pytest.approx(0.02 + 1.7 + crashed)
        assert len(book.ask(reading.recent, NOW + 60, 120.0)) >= 6
        row_id = await book.open(opened(at=NOW + 60))
        assert row_id == 7
        book.settle(row_id, served())
        await book.close()

    asyncio.run(go_on())
    with contextlib.closing(schema.connect_readonly(old)) as db:
        assert reading.of_task(db, AGENT).under_way == 0


def test_an_old_account_can_be_looked_at(old: Path) -> None:
    with contextlib.closing(schema.connect_readonly(old)) as db:
        found = reading.window(db, NOW + 60, 120.0)
        night = reading.usage_of_attempt(db, "1121-k3f9/night", 2)
        assert reading.spent_since(db, 0.0) == pytest.approx(1.74)
        journal = [(row["event"], row["about"]) for row in db.execute("SELECT * FROM journal ORDER BY seq")]
        assert [row["file"] for row in db.execute("SELECT file FROM recording")] == ["1121-k3f9/1.tape"]
    assert set(found.pools) == {"work/anthropic/opus-4", "work/gemini/gemini-3-pro/long"}
    assert (found.total.requests, found.total.upstream_429, found.total.our_429, found.total.estimated) == (5, 1, 1, 2)
    assert (night.tokens, night.cost_usd) == (Usage(1000, 50, 4000, 300), None)
    assert journal == [("breaker", "work/anthropic/opus-4"), ("alert", "key of work")]


def test_the_newest_schema_has_its_sample() -> None:
    assert (DATA / f"gateway-{schema.SCHEMA}.sql").exists(), "write it: tests/data/make_account_sample.py"


def test_the_script_that_wrote_the_newest_sample_still_writes_such_an_account(tmp_path: Path) -> None:
    make_account_sample.write(tmp_path / "new.db")
    kept = load(tmp_path / "kept.db", schema.SCHEMA)
    for table in sorted(schema.ACCOUNT.tables):
        sql = f"SELECT * FROM {table}"  # noqa: S608 - our own tables
        new, old = rows(tmp_path / "new.db", sql), rows(kept, sql)
        assert [{**row, "trace": 0} for row in new] == [{**row, "trace": 0} for row in old], table  # the id was one a task once
        assert old, f"the sample has something in {table}"
