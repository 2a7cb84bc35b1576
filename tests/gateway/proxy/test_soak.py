"""Many requests at once; clients leave, streams are cut, the provider is overloaded: in the end nothing is left over."""

from __future__ import annotations

import asyncio
import hashlib
import random
from pathlib import Path

import aiohttp
import pytest

from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import Limits
from tests.gateway import kit
from tests.gateway.simulator import Fault, SimSettings, running

pytestmark = pytest.mark.asyncio

IN_FULL = pytest.param(10_000, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])
CLIENTS = 50


async def one(gate: kit.Gate, token: str, body: bytes, rng: random.Random) -> str:
    """One request; one in five leaves, while it waits, before the first byte or amid the stream."""
    leaves = rng.random() < 0.2
    patience = rng.random() * 0.1
    asking = asyncio.create_task(gate.post("/v1/messages", body, token))
    if not leaves:
        answer = await asking
        return "cut" if answer.cut else str(answer.status)
    done, _ = await asyncio.wait([asking], timeout=patience)
    if done:
        return "cut" if asking.result().cut else str(asking.result().status)
    asking.cancel()
    await asyncio.wait([asking])
    return "left"


@pytest.mark.parametrize("number", [150, IN_FULL])
async def test_nothing_is_left_over(tmp_path: Path, number: int, seed: int) -> None:
    rng = random.Random(seed)
    limits = "learn = false\nrpm = 60000\nitpm = 10000000\notpm = 10000000\n"
    sim_settings = SimSettings(limits=Limits(), latency_s=0.01, output_mean=50, keep_last=20_000, seed=seed)
    settings = kit.upstream(Home(tmp_path / "home"), "URL", more=limits)
    async with running(sim_settings) as sim, kit.gateway(tmp_path, settings.replace("URL", sim.url)) as gate:
        sim.faults(Fault(then="cut", after=3, probability=0.05), Fault(status=529, probability=0.05))
        tokens = [gate.crew.agent(f"run/{agent}") for agent in range(10)]
        left = list(range(number))
        sent: dict[str, str] = {}
        ends: list[str] = []

        async def client() -> None:
            while left:
                session = str(left.pop())
                body = kit.messages("x" * rng.randrange(1, 20_000), prompt_cache_key=session)
                sent[session] = hashlib.sha256(body).hexdigest()
                try:
                    ends.append(await one(gate, rng.choice(tokens), body, rng))
                except aiohttp.ClientError as error:
                    ends.append(type(error).__name__)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        assert set(ends) <= {"200", "cut", "left"}, "nobody was turned away, and no turn failed"
        rows = await kit.settled(gate.home, 1)
        traffic = gate.gateway.context.admission.traffic
        await kit.until(lambda: not traffic.tickets, "every ticket to end")
        assert traffic.waiting == 0
        for pool in (await gate.status())["pools"]:
            assert pool["in_flight"] == 0
            assert [dimension["reserved"] for dimension in pool["dimensions"]] == [0.0] * len(pool["dimensions"])
        await kit.until(lambda: sim.provider.stats.streams == 0, "every stream at the provider to end")
        said = {entry.body_sha256: entry.usage for entry in sim.provider.stats.last if entry.usage is not None}
        served = [row for row in rows if row["end"] == "served"]
        assert len(served) >= ends.count("200") > 0
        for row in served:
            usage = said[sent[row["session"]]]
            assert usage is not None
            assert (row["input"], row["output"], row["estimated"]) == (usage.input, usage.output, 0)
        met = {row["end"] for row in rows} - {"never sent"}
        assert met - {"client gone"} == {"served", "cut", "refused"} and "left" in ends, "each kind was met"
        assert sim.stats()["connections"] <= CLIENTS, "and no connection is left over but those that are kept alive"
