"""Caps on dollars against what a provider bills, over real HTTP: a cache that is kept for an hour, and agents that hang up."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.gateway.account import queries as reading
from supervisor.gateway.account.writer import Account
from supervisor.host import files
from supervisor.host.paths import Home
from tests.gateway import kit
from tests.gateway.proxy import raw

pytestmark = pytest.mark.asyncio
INPUT, OUTPUT, HOUR = 5, 25, 10
"""US dollars for a million tokens of claude-opus-4-8, by the table of prices."""
WRITTEN = 2000
CAP = 0.1
TEXT = "some words " * 800


def priced_home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    files.private_dir(home.root)
    kit.know_prices(home)
    return home


@dataclass(slots=True)
class Bill:
    """Of the provider."""

    usd: float = 0.0


def _usage(split: bool, **more: int) -> dict[str, object]:
    parts = {"cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": WRITTEN}} if split else {}
    return {"input_tokens": 1, "cache_creation_input_tokens": WRITTEN, "cache_read_input_tokens": 0, **parts, **more}


def _streamed(split: bool) -> bytes:
    begin = {"type": "message_start", "message": {"type": "message", "role": "assistant", "usage": _usage(split, output_tokens=1)}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    return b"".join(b"event: %s\ndata: %s\n\n" % (str(one["type"]).encode(), json.dumps(one).encode()) for one in (begin, end))


@asynccontextmanager
async def writing_for_an_hour(tmp_path: Path, *, split: bool) -> AsyncIterator[tuple[kit.Gate, Bill]]:
    """A provider that writes WRITTEN tokens to its cache with every answer, and bills them as kept for an hour."""
    bill = Bill()

    async def script(request: raw.Received, to: raw.Connection) -> None:
        bill.usd += (INPUT + HOUR * WRITTEN + OUTPUT) / 1e6
        if json.loads(request.body)["stream"]:
            await to.send(raw.STREAM, raw.chunk(_streamed(split)), raw.LAST)
        else:
            body = {"type": "message", "role": "assistant", "content": [], "usage": _usage(split, output_tokens=1)}
            await to.send(raw.whole(200, json.dumps(body).encode()))

    home = priced_home(tmp_path)
    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home, up.url)) as gate:
        yield gate, bill


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_what_is_cached_for_an_hour_is_charged_its_own_price(tmp_path: Path, stream: bool, split: bool) -> None:
    block = {"type": "text", "text": TEXT, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    body = json.dumps({"model": "claude-opus-4-8", "max_tokens": 1, "stream": stream, "messages": [{"role": "user", "content": [block]}]})
    async with writing_for_an_hour(tmp_path, split=split) as (gate, bill):
        token = gate.crew.agent("night/a", night_max=4 * CAP)
        served = 0
        while served < 40 and (await gate.post("/v1/messages", body.encode(), token)).status == 200:
            served += 1
        rows = await kit.settled(gate.home, served)
        assert 0 < bill.usd <= 4 * CAP
        assert sum(row["cost_usd"] for row in rows) == pytest.approx(bill.usd)
        assert {(row["cache_write"], row["cache_write_1h"]) for row in rows} == {(WRITTEN, WRITTEN)}


@pytest.mark.parametrize("at", ["before the headers", "in the stream"])
async def test_who_hangs_up_does_not_get_more_than_the_cap(tmp_path: Path, at: str) -> None:
    """The provider makes and bills each answer to its end: 1,000 tokens."""
    bill = Bill()
    asked = asyncio.Queue[None]()

    async def script(request: raw.Received, to: raw.Connection) -> None:
        short = json.loads(request.body)["max_tokens"] == 1
        bill.usd += (INPUT * 25 + OUTPUT * (1 if short else 1000)) / 1e6
        if short:
            await to.send(raw.STREAM, raw.chunk(raw.START), raw.chunk(raw.END.replace(b"15", b"1")), raw.LAST)
            return
        if at == "in the stream":
            await to.send(raw.STREAM, raw.chunk(raw.START), raw.chunk(raw.TEXT))
        asked.put_nowait(None)
        await to.gone()

    async def hang_up(gate: kit.Gate, token: str, number: int) -> bool:
        """False: it was refused."""
        going = asyncio.create_task(gate.post("/v1/messages", kit.messages(f"long {number}", max_tokens=1000), token))
        came = asyncio.create_task(asked.get())
        await asyncio.wait({going, came}, return_when=asyncio.FIRST_COMPLETED)
        refused = going.done()
        for task in (going, came):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await going
        return not refused

    home = priced_home(tmp_path)
    async with raw.upstream(script) as up, kit.gateway(tmp_path, kit.upstream(home, up.url)) as gate:
        token = gate.crew.agent("night/a", night_max=CAP, cost_max=2 * CAP)
        for number in range(3):
            assert (await gate.post("/v1/messages", kit.messages(f"short {number}", max_tokens=1), token)).status == 200
        sent = 0
        while sent < 20 and await hang_up(gate, token, sent):
            sent += 1
            await kit.settled(gate.home, 3 + sent)
        caps = (await gate.status())["caps"]["nights"]["night"]
        rows = kit.rows(gate.home)
        left = [row for row in rows if row["end"] == "client gone"]
        assert 0 < bill.usd <= caps["usd"] <= CAP
        assert len(left) == sent >= 2 and all(row["estimated"] and row["counted_usd"] > row["cost_usd"] for row in left)
        assert all(row["counted_usd"] is None for row in rows if row["end"] == "served")
    account = Account(home.gateway_account, lambda: 0.0)
    for after_a_restart in (
        account.ask(reading.spent, "night/a")[0],
        account.ask(reading.at_most, ["night/a"]),
        account.ask(reading.spent_since, 0.0),
    ):
        assert after_a_restart == pytest.approx(caps["usd"])
