"""A route's fallback at the real gateway: the bytes, the account, the prices, and who sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from supervisor.host.paths import Home
from supervisor.kernel.states import TaskClass
from tests.gateway import kit
from tests.gateway.simulator import Fault, Running, SimSettings, running

pytestmark = pytest.mark.asyncio

OPUS, HAIKU = "claude-opus-4-8", "claude-haiku-4-5"
ROUTE = f'[[route]]\nmodel = "claude-opus-*"\nfallback = "{HAIKU}"\n'
PRICES = f'[prices."{OPUS}"]\ninput = 5.0\noutput = 25.0\n[prices."{HAIKU}"]\ninput = 1.0\noutput = 5.0\n'


@asynccontextmanager
async def spent_up(tmp_path: Path, more: str = "") -> AsyncIterator[tuple[kit.Gate, Running]]:
    """A gateway whose provider refuses Opus for five minutes."""
    settings = f"{more}{ROUTE}{PRICES}"
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings + kit.upstream(Home(tmp_path / "home"), sim.url)) as gate:
        sim.faults(Fault(model=OPUS, status=429, retry_after="300"))
        yield gate, sim


async def test_batch_is_answered_by_the_fallback_at_its_price_with_its_bytes(tmp_path: Path) -> None:
    body = kit.messages(f"say {OPUS}")
    async with spent_up(tmp_path) as (gate, sim):
        answer = await gate.post("/v1/messages", body, gate.crew.agent("run/night", task_class=TaskClass.BATCH))
        assert answer.status == 200
        assert f'"model":"{HAIKU}"'.encode() in answer.body.replace(b'": "', b'":"'), "what the model says of itself passes unchanged"
        renamed = body.replace(f'"model": "{OPUS}"'.encode(), f'"model": "{HAIKU}"'.encode())
        assert sim.provider.stats.last[-1].body_sha256 == sha256(renamed).hexdigest()
        refused, served = await kit.settled(gate.home, 2)
    assert (refused["asked"], refused["model"], refused["end"]) == (OPUS, OPUS, "refused")
    assert (served["asked"], served["model"], served["model_class"], served["attempt_no"]) == (OPUS, HAIKU, "haiku-4", 2)
    assert served["cost_usd"] == pytest.approx((served["input"] * 1.0 + served["output"] * 5.0) / 1e6)
    assert served["bound_usd"] == pytest.approx((served["bound_input"] * 1.25 + served["bound_output"] * 5.0) / 1e6, rel=0.7)


async def test_nobody_but_batch_is_answered_by_it(tmp_path: Path) -> None:
    async with spent_up(tmp_path, "[gateway]\nhold = 1\npatient_hold = 1\n") as (gate, sim):
        tokens = [gate.crew.agent(f"run/{one}", task_class=one) for one in (TaskClass.NORMAL, TaskClass.INTERACTIVE)]
        answers = await asyncio.gather(*(gate.post("/v1/messages", kit.messages(), token) for token in tokens))
        assert [answer.status for answer in answers] == [429, 429]
        assert {row["model"] for row in await kit.settled(gate.home, 1)} == {OPUS}
        assert sim.provider.stats.number() <= 2


async def test_when_the_night_has_spent_its_part_batch_is_answered_by_it(tmp_path: Path) -> None:
    settings = f"[gateway]\ncost_per_night = 1000.0\nfallback_at = 1e-9\n{ROUTE}{PRICES}"
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings + kit.upstream(Home(tmp_path / "home"), sim.url)) as gate:
        token = gate.crew.agent("run/night", task_class=TaskClass.BATCH)
        for _ in range(2):
            assert (await gate.post("/v1/messages", kit.messages(), token)).status == 200
        first, second = await kit.settled(gate.home, 2)
    assert (first["model"], second["model"]) == (OPUS, HAIKU)
