"""Crews behind a gateway that knows no limits, judged by the account of a provider that shares no code with it (`provider.py`).

The first two are crews at which an earlier gateway failed; the others are kinds of crews that it mostly served well.
What is asked of each: the provider refuses
nothing, no turn fails, and of the limit that binds at least a stated part is used once the full bucket of the start is gone.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from supervisor.host.paths import Home
from supervisor.kernel.states import TaskClass
from tests.gateway import kit
from tests.gateway.independent.agent import Agent, Ends, Load
from tests.gateway.independent.provider import Conditions, Provider, serving

TIER_1 = {"rpm": 50, "itpm": 20_000, "otpm": 8_000}
TIER_4 = {"rpm": 1000, "itpm": 450_000, "otpm": 90_000}


@dataclass(frozen=True, slots=True)
class Crew:
    """A provider, agents, and what is asked of the gateway between them. Times are seconds after the provider's first request."""

    conditions: Conditions
    load: Load
    binding: str
    used: float
    """At least this part of the binding limit, from `judged_from` to `until`."""
    judged_from: float = 60.0
    until: float = 100.0
    kills: tuple[float, ...] = ()
    """When the gateway is killed (SIGKILL) and started again."""
    refused: int = 0
    """429s of the provider, at most."""


CREWS = {
    # The headers say no reset and the bucket holds 6 s: a gateway that takes it for one of a minute sees a thief who is not there (0.02).
    "b6-noreset": Crew(
        Conditions(TIER_4, burst_s=6, head_s=1.5, reset="missing", output_mean=200),
        Load(24, tokens=(6000, 16_000), think_s=(0, 0.5)),
        binding="itpm",
        used=0.7,
    ),
    # A bucket of one request is empty in every answer's headers (0.74).
    "r5-b12": Crew(
        Conditions({**TIER_1, "rpm": 5}, burst_rpm_s=12, head_s=1.5, reset="floor", output_mean=120),
        Load(16, interactive=2, tokens=(200, 800)),
        binding="rpm",
        used=0.82,
        judged_from=25.0,
    ),
    # Two kills, the first while the first answers are written. In a longer crew an earlier gateway sent nothing afterwards; not always.
    "kill9-o8": Crew(
        Conditions(TIER_1, head_s=4, output_mean=600),
        Load(20, tokens=(100, 600), system=100),
        binding="otpm",
        used=0.6,
        judged_from=35.0,
        until=75.0,
        kills=(11.0, 30.0),
    ),
    "late8": Crew(
        Conditions(TIER_1, head_s=8, rounding="down", reset="floor", output_mean=150),
        Load(24, interactive=2, tokens=(300, 1200), system=300),
        binding="itpm",
        used=0.7,
    ),
    "steal30-450": Crew(
        Conditions(TIER_4, head_s=1.5, output_mean=150, outside=0.3, outside_from_s=25),
        Load(24, tokens=(4000, 12_000), think_s=(0, 0.5)),
        binding="itpm",
        used=0.75,
        refused=1,
    ),
}


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", CREWS)
async def test_the_limit_is_used_and_nothing_is_refused(name: str, tmp_path: Path, seed: int) -> None:
    crew = CREWS[name]
    rng, ends = random.Random(seed), Ends()
    provider = Provider(crew.conditions, random.Random(rng.random()))
    async with serving(provider) as url:
        with kit.gateway_process(tmp_path, kit.upstream(Home(tmp_path / "home"), url)) as gate:
            await asyncio.to_thread(gate.start)
            agents = [asyncio.create_task(one.work()) for one in agents_of(crew.load, gate, rng, ends)]
            share = await watched(crew, provider, gate)
            early = [task for task in agents if task.done()]
            for task in agents:
                task.cancel()
            await asyncio.wait(agents)
    print(f"{name}: used {share[crew.binding]:.2f} of {crew.binding} of {share}, {len(provider.refused)} refused, {ends}")
    assert not early, "an agent ended by itself"
    assert len(provider.refused) <= crew.refused, provider.refused
    assert ends.failed == []
    assert share[crew.binding] >= crew.used


def agents_of(load: Load, gate: kit.GatewayProcess, rng: random.Random, ends: Ends) -> list[Agent]:
    """The interactive ones first."""
    classes = [TaskClass.INTERACTIVE] * load.interactive + [TaskClass.NORMAL] * (load.agents - load.interactive)
    tokens = [gate.crew.agent(f"run/a{number}", task_class=one) for number, one in enumerate(classes)]
    return [Agent(load, lambda: f"http://127.0.0.1:{gate.port}", token, random.Random(rng.random()), ends) for token in tokens]


async def watched(crew: Crew, provider: Provider, gate: kit.GatewayProcess) -> dict[str, float]:
    """Let the load run, with its kills: the part of each limit that was used in the time that is judged."""
    await provider.first.wait()
    for second in crew.kills:
        await asyncio.sleep(second - provider.second)
        gate.kill()
        await asyncio.to_thread(gate.start)
    await asyncio.sleep(crew.judged_from - provider.second)
    before = provider.account()
    await asyncio.sleep(crew.until - provider.second)
    return {name: round(now.share(before[name]), 3) for name, now in provider.account().items()}
