"""What a night costs, over real HTTP: many agents at once, and over a kill of the gateway. The provider's own count is the judge."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import Limits
from tests.gateway import kit
from tests.gateway.simulator import SimSettings, Simulator, running

PRICES = '[prices."claude-opus-4-8"]\ninput = 5.0\noutput = 25.0\n'
WIDE = Limits(rpm=100_000, itpm=50e6, otpm=5e6)
CAP = 0.5
AGENTS, EACH = 6, 8


def of_provider(used: Mapping[str, int]) -> float:
    """Dollars, by what the provider counted."""
    return (5 * used["input"] + 25 * used["output"]) / 1e6


@pytest.mark.asyncio
async def test_many_agents_of_a_night_never_cost_more_than_it_may(tmp_path: Path) -> None:
    """Each request takes up to $0.025 and a part of it; 48 come at once, for a cap of 20 such bounds."""
    settings = PRICES + kit.upstream(Home(tmp_path / "home"), "URL")
    async with running(SimSettings(limits=WIDE)) as sim, kit.gateway(tmp_path, settings.replace("URL", sim.url)) as gate:
        tokens = [gate.crew.agent(f"night/{number}", night_max=CAP) for number in range(AGENTS)]
        bodies = [kit.messages(f"{number}", max_tokens=1000) for number in range(EACH)]
        for _ in range(3):
            answers = await asyncio.gather(*(gate.post("/v1/messages", body, token) for token in tokens for body in bodies))
            rows = await kit.settled(gate.home, 1)
            caps = (await gate.status())["caps"]["nights"]["night"]
            assert sum(row["cost_usd"] for row in rows) <= CAP and caps["usd"] + caps["reserved"] <= CAP
        assert {answer.status for answer in answers} == {402}, "nothing fits any more"
        assert caps["refused"] and b"cost_max of the night night is $0.50" in answers[0].body
        assert sum(of_provider(tally.used) for tally in sim.provider.stats.tallies.values()) <= CAP
        assert (await gate.post("/v1/messages", bodies[0], gate.crew.agent("day/a"))).status == 200
        assert sum(row["cost_usd"] for row in rows) > 0.9 * CAP, "what there was is used"


def test_killed_with_answers_under_way_the_next_gateway_keeps_their_bounds(tmp_path: Path) -> None:
    """Whoever cut them off, the provider may serve them to their ends: $0.25 at most for the ten."""
    with Simulator(limits=WIDE) as sim:
        settings = PRICES + kit.upstream(Home(tmp_path / "home"), sim.url)
        with kit.gateway_process(tmp_path, settings) as gate:
            gate.start()
            tokens = [gate.crew.agent(f"night/{number}", night_max=0.6) for number in range(10)]
            assert asyncio.run(_asked(gate, tokens[:3], "to learn what answers are like")) == [200] * 3
            asyncio.run(_cut_off(gate, sim, tokens))
            sim.clear()
            gate.start()
            assert asyncio.run(_asked(gate, tokens[:1], "another", 13_500)) == [402], "it can cost $0.34"
            assert set(asyncio.run(_asked(gate, tokens, "the same"))) == {200}, "the answers to retries tell what theirs took, ..."
            assert asyncio.run(_asked(gate, tokens[:1], "another", 13_500)) == [200], "... and give back the rest"
            gate.stop()
            charged = sum(row["cost_usd"] for row in kit.rows(gate.home))
            told = of_provider(sim.tally().used)
    print(f"charged ${charged:.3f}, by the provider ${told:.3f}")
    assert told <= 0.6 and charged <= 0.6


async def _cut_off(gate: kit.GatewayProcess, sim: Simulator, tokens: list[str]) -> None:
    async with kit.client(gate.port) as client:
        sim.faults(then="silence", after=3)
        streams = [asyncio.create_task(client.post("/v1/messages", kit.messages("the same"), token)) for token in tokens]
        await kit.until(lambda: sim.stats()["streams"] == len(tokens), "all streams to run")
        gate.kill()
        await asyncio.gather(*streams, return_exceptions=True)


async def _asked(gate: kit.GatewayProcess, tokens: list[str], text: str, max_tokens: int = 1000) -> list[int]:
    body = kit.messages(text, max_tokens=max_tokens)
    async with kit.client(gate.port) as client:
        return [answer.status for answer in await asyncio.gather(*(client.post("/v1/messages", body, one) for one in tokens))]


@pytest.mark.asyncio
async def test_when_its_night_has_ended_a_task_has_no_cap_of_it(tmp_path: Path) -> None:
    settings = PRICES + kit.upstream(Home(tmp_path / "home"), "URL")
    async with running(SimSettings(limits=WIDE)) as sim, kit.gateway(tmp_path, settings.replace("URL", sim.url)) as gate:
        token = gate.crew.agent("night/a", night_max=0.001)
        assert (await gate.post("/v1/messages", kit.messages(), token)).status == 402
        gate.crew.end_night("night")
        again = gate.crew.agent("night/a", epoch=2)
        assert (await gate.post("/v1/messages", kit.messages(), again)).status == 200
