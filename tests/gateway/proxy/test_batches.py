"""Message Batches through the gateway: whose they are, what they cost, and that each is charged once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anthropic
import pytest

from supervisor.host.paths import Home
from supervisor.kernel.states import TaskClass
from tests.gateway.kit import KEY, QUICK, Answer, Gate, gateway, messages, rows, settled, until, upstream
from tests.gateway.simulator import Fault, Running, SimSettings, running

MODEL = "claude-haiku-4-5"
PATH = "/v1/messages/batches"
PRICES = f'[prices."{MODEL}"]\ninput = 1.0\noutput = 10.0\n'
SOON = replace(QUICK, batches_s=0.02)
LATER = replace(QUICK, batches_s=3600.0)


def body(*names: str, max_tokens: int = 100, model: str = MODEL, **more: Any) -> bytes:
    params = {"model": model, "max_tokens": max_tokens, "messages": [{"role": "user", "content": "hi"}], **more}
    return json.dumps({"requests": [{"custom_id": name, "params": params} for name in names]}).encode()


@asynccontextmanager
async def gate_at(root: Path, url: str, *, more: str = PRICES, timeouts: Any = LATER) -> AsyncIterator[Gate]:
    async with gateway(root, more + upstream(Home(root / "home"), url), timeouts=timeouts) as gate:
        yield gate


@asynccontextmanager
async def house(tmp_path: Path, *, more: str = PRICES, timeouts: Any = LATER, **sim: Any) -> AsyncIterator[tuple[Running, Gate]]:
    settings = SimSettings(output_mean=50, output_spread=0.0, **sim)
    async with running(settings) as provider, gate_at(tmp_path, provider.url, more=more, timeouts=timeouts) as gate:
        yield provider, gate


async def get(gate: Gate, path: str, token: str) -> Answer:
    return await gate.get(path, {"Authorization": f"Bearer {token}", "anthropic-version": "2023-06-01"})


def rows_id(gate: Gate) -> str:
    """The provider's id of the only batch."""
    (kept,) = gate.gateway._book.all.values()
    return kept.id


async def make(gate: Gate, token: str, *names: str, status: int = 200, **more: Any) -> dict[str, Any]:
    key = {"Idempotency_Key": more.pop("key")} if "key" in more else {}
    answer = await gate.post(PATH, body(*names, **more), token, **key)
    assert answer.status == status, answer.body
    shape: dict[str, Any] = answer.json
    return shape


def test_the_real_sdk_makes_one_and_reads_its_results_for_half_the_price(tmp_path: Path) -> None:
    async def go() -> None:
        async with house(tmp_path) as (_, gate):
            token = gate.crew.agent("run/a", task_class=TaskClass.BATCH)
            async with anthropic.AsyncAnthropic(auth_token=token, base_url=gate.url, max_retries=0) as claude:
                requests: Any = json.loads(body("one", "two", "three"))["requests"]
                batch = await claude.messages.batches.create(requests=requests)
                ended = await claude.messages.batches.retrieve(batch.id)
                assert ended.processing_status == "ended"
                for _ in range(3):
                    found = [line async for line in await claude.messages.batches.results(batch.id)]
                    assert {line.custom_id for line in found} == {"one", "two", "three"}
                took = [line.result.message.usage for line in found if line.result.type == "succeeded"]
                assert [one.id async for one in claude.messages.batches.list()] == [batch.id]
            (row,) = await settled(gate.home, 1)
            assert (row["input"], row["output"]) == (sum(one.input_tokens for one in took), sum(one.output_tokens for one in took))
            assert row["cost_usd"] == pytest.approx((row["input"] * 1.0 + row["output"] * 10.0) / 2e6)
            assert (row["agent"], row["end"], row["flags"], row["estimated"]) == ("run/a", "served", "batch", 0)
            assert row["bound_usd"] >= row["cost_usd"]
            pools = (await gate.status())["pools"]
            assert not any(pool["in_flight"] for pool in pools), "it takes nothing of a minute"

    asyncio.run(go())


def test_an_agent_sees_its_own_and_a_worker_of_a_map_those_of_its_repositorys_maps(tmp_path: Path) -> None:
    async def go() -> None:
        async with house(tmp_path) as (_, gate):
            mine, other = gate.crew.agent("run/a"), gate.crew.agent("run/b")
            first, second = gate.crew.agent("run/w1", kind="map-prompt"), gate.crew.agent("later/w2", kind="map-prompt")
            batch, map_batch = await make(gate, mine, "x"), await make(gate, first, "y")
            for path in ("", "/results"):
                assert (await get(gate, f"{PATH}/{batch['id']}{path}", other)).status == 404
                assert (await get(gate, f"{PATH}/{batch['id']}{path}", mine)).status == 200
                assert (await get(gate, f"{PATH}/{map_batch['id']}{path}", second)).status == 200
            assert (await gate.post(f"{PATH}/{batch['id']}/cancel", b"", other)).status == 404
            assert (await get(gate, PATH, other)).json["data"] == []
            (listed,) = (await get(gate, f"/a/{mine}{PATH}?limit=5", mine)).json["data"]
            assert listed["results_url"] == f"{gate.url}/a/{mine}{PATH}/{batch['id']}/results"
            assert (await gate.get(f"{PATH}/{batch['id']}", method="DELETE")).status == 405

    asyncio.run(go())


def test_the_most_that_it_can_cost_is_reserved_until_it_has_ended(tmp_path: Path) -> None:
    """Two requests of 1,000 tokens of output cost at most a cent; the cap is a cent and a half."""

    async def go() -> None:
        async with house(tmp_path) as (sim, gate):
            sim.faults(Fault(api="batches", hold="all", times=1))
            token = gate.crew.agent("run/a", cost_max=0.0155)
            batch = await make(gate, token, "a", "b", max_tokens=1000)
            refused = await make(gate, token, "c", "d", max_tokens=1000, status=429)
            assert "leave no room" in refused["error"]["message"]
            assert "can cost at most" in (await make(gate, token, "e", max_tokens=5000, status=402))["error"]["message"]
            alone = asyncio.create_task(gate.post("/v1/messages", messages(model=MODEL, stream=False, max_tokens=1400), token))
            await until(lambda: gate.gateway.context.admission.traffic.waiting, "it to wait")
            sim.release("all")
            assert (await get(gate, f"{PATH}/{batch['id']}", token)).json["processing_status"] == "ended"
            assert (await alone).status == 200, "it waited for the room, and has it now"
            budget = gate.gateway.context.admission.traffic.crew.budgets["run/a"]
            assert (budget.batches, budget.money.bounds) == (0, 0.0)
            found = await settled(gate.home, 2)
            assert budget.money.spent == pytest.approx(sum(row["cost_usd"] for row in found))

    asyncio.run(go())


def test_one_that_nobody_asks_for_any_more_is_charged_and_one_that_is_cancelled_costs_what_was_done(tmp_path: Path) -> None:
    async def go() -> None:
        async with house(tmp_path, timeouts=SOON) as (sim, gate):
            token = gate.crew.agent("run/a")
            await make(gate, token, "a", "b")
            (row,) = await settled(gate.home, 1)
            assert row["cost_usd"] > 0
            sim.faults(Fault(api="batches", hold="all", times=1))
            held = await make(gate, token, "c")
            assert (await gate.post(f"{PATH}/{held['id']}/cancel", b"", token)).json["processing_status"] == "canceling"
            _, second = await settled(gate.home, 2)
            assert (second["end"], second["cost_usd"], second["output"]) == ("served", 0.0, 0)

    asyncio.run(go())


def test_a_gateway_that_comes_after_goes_on_with_what_lives_and_reserves_it_again(tmp_path: Path) -> None:
    async def go() -> None:
        async with running(SimSettings()) as sim:
            sim.faults(Fault(api="batches", hold="all", times=1))
            async with gate_at(tmp_path, sim.url) as gate:
                token = gate.crew.agent("run/a", cost_max=0.0155)
                batch = await make(gate, token, "a", "b", max_tokens=1000)
            (row,) = rows(Home(tmp_path / "home"))
            assert row["end"] is None
            async with gate_at(tmp_path, sim.url) as gate:
                again = gate.crew.agent("run/a", epoch=2, cost_max=0.0155)
                await make(gate, again, "c", "d", max_tokens=1000, status=429)
                sim.release("all")
                assert (await get(gate, f"{PATH}/{batch['id']}", again)).json["processing_status"] == "ended"
                (row,) = await settled(gate.home, 1)
                assert row["end"] == "served" and row["output"] > 0

    asyncio.run(go())


def test_a_nights_cap_holds_for_batches_also_over_a_restart(tmp_path: Path) -> None:
    async def go() -> None:
        async with running(SimSettings()) as sim:
            sim.faults(Fault(api="batches", hold="all", times=1))
            async with gate_at(tmp_path, sim.url) as gate:
                await make(gate, gate.crew.agent("run/a", night_max=0.0155), "a", "b", max_tokens=1000)
                await make(gate, gate.crew.agent("run/b", night_max=0.0155), "c", "d", max_tokens=1000, status=429)
            async with gate_at(tmp_path, sim.url) as gate:
                await make(gate, gate.crew.agent("run/b", epoch=2, night_max=0.0155), "c", "d", max_tokens=1000, status=429)
                pot = gate.gateway.context.admission.traffic.crew.nights["run"]
                assert pot.bounds == pytest.approx(rows(gate.home)[0]["bound_usd"])
                sim.release("all")
                again = gate.crew.agent("run/a", epoch=2, night_max=0.0155)
                await get(gate, f"{PATH}/{rows_id(gate)}", again)
                (row,) = await settled(gate.home, 1)
                assert pot.bounds == 0.0 and pot.spent.sum(0.0) == pytest.approx(row["cost_usd"])
                await make(gate, gate.crew.agent("run/b", epoch=3, night_max=0.0155), "c", max_tokens=500)

    asyncio.run(go())


def test_a_batch_whose_answer_was_lost_is_found_again_and_not_made_twice(tmp_path: Path) -> None:
    async def go() -> None:
        async with house(tmp_path) as (sim, gate):
            sim.faults(Fault(api="batches", wire="no_answer", times=1))
            token = gate.crew.agent("run/a")
            await make(gate, token, "a", "b", status=503, key="items of the map")
            found = await make(gate, token, "a", "b", key="items of the map")
            same = await make(gate, token, "a", "b", key="items of the map")
            assert found["id"] == same["id"] and found["processing_status"] == "ended"
            assert len(sim.batches.of_key(KEY)) == 1 == len(await settled(gate.home, 1))
            assert (await make(gate, token, "a", "b", key="other items"))["id"] != found["id"]
            assert (await make(gate, gate.crew.agent("run/b"), "a", "b", key="items of the map"))["id"] != found["id"]

    asyncio.run(go())


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"{}", 400),
        (body(), 400),
        (body("a", stream=True), 400),
        (json.dumps({"requests": [{"custom_id": "a", "params": {"model": m, "max_tokens": 1}} for m in ("x", "y")]}).encode(), 400),
        (body("a").replace(b'"max_tokens": 100', b'"max_tokens": 1, "max_tokens": 99999'), 400),
        (body("not an id"), 400),
    ],
)
def test_what_is_no_batch_is_refused_and_costs_nothing(tmp_path: Path, sent: bytes, status: int) -> None:
    async def go() -> None:
        async with house(tmp_path) as (_, gate):
            token = gate.crew.agent("run/a", cost_max=5.0)
            assert (await gate.post(PATH, sent, token)).status == status
            assert all(row["cost_usd"] == 0.0 for row in await settled(gate.home, 0))
            assert gate.gateway.context.admission.traffic.crew.night.in_flight == 0

    asyncio.run(go())


def test_a_result_that_does_not_say_its_usage_counts_as_the_most(tmp_path: Path) -> None:
    async def go() -> None:
        async with house(tmp_path) as (sim, gate):
            sim.faults(
                Fault(api="batch", usage="missing", times=1),
                Fault(api="batch", status=500, times=1),
                Fault(api="batch", batch="expired", times=1),
            )
            token = gate.crew.agent("run/a")
            batch = await make(gate, token, "a", "b", "c", "d")
            await get(gate, f"{PATH}/{batch['id']}", token)
            (row,) = await settled(gate.home, 1)
            assert row["estimated"] == 1 and "usage_missing" in row["flags"]
            assert row["output"] == 100 + 50, "one that nobody told, one that was told, two that cost nothing"

    asyncio.run(go())
