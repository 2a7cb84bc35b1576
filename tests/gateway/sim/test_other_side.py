"""What makes a real limit hard to learn: late headers, small buckets, somebody else with the same key, another limit from now on."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from nightcrew.plugins.sim.server import running
from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import Limits
from tests.gateway import kit
from tests.gateway.kit import StandingClock
from tests.gateway.sim.raw import MESSAGES, anthropic_body
from tests.gateway.sim.test_limits import post
from tests.gateway.simulator import Fault, SimSettings, Simulator

REMAINING, RESET = "anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"


def account(stats: dict[str, Any], name: str = "input") -> dict[str, float]:
    """The only account's bucket."""
    (account,) = stats["accounts"]
    told: dict[str, float] = account["buckets"][name]
    return told


def test_a_late_head_says_what_was_so_when_the_request_was_counted() -> None:
    async def main(head_s: float) -> tuple[int, float]:
        clock = StandingClock()
        async with (
            running(SimSettings(limits=Limits(itpm=60_000), head_s=head_s), clock=clock) as sim,
            aiohttp.ClientSession(sim.url) as session,
        ):
            sim.faults(Fault(hold="gate", times=1, input_tokens=20_000, output_tokens=1), Fault(input_tokens=30_000, output_tokens=1))
            first = asyncio.create_task(post(session, MESSAGES, anthropic_body()))
            while not sim.stats()["held"]:
                await asyncio.sleep(0)
            await post(session, MESSAGES, anthropic_body())
            clock.now += 5
            sim.release("gate")
            _, headers, _ = await first
            return int(headers[REMAINING]), datetime.fromisoformat(headers[RESET]).timestamp() - clock.wall()

    (left, full_in_s), (left_now, full_in_now_s) = asyncio.run(main(0.001)), asyncio.run(main(0))
    assert left == 40_000 and full_in_s == pytest.approx(20 - 5, abs=1), "full 20 s after it was counted, which was 5 s ago"
    assert left_now == 15_000 and full_in_now_s == pytest.approx(45, abs=1)


def test_a_refusal_does_not_wait_for_a_late_head() -> None:
    async def main() -> None:
        async with (
            running(SimSettings(limits=Limits(rpm=1), head_s=3600), clock=StandingClock()) as sim,
            aiohttp.ClientSession(sim.url) as session,
        ):
            first = asyncio.create_task(post(session, MESSAGES, anthropic_body()))
            while not sim.stats()["accounts"]:
                await asyncio.sleep(0)
            assert (await post(session, MESSAGES, anthropic_body()))[0] == 429
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    asyncio.run(main())


def test_the_sdks_list_the_models(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> None:
    assert "claude-opus-4-8" in [model.id for model in claude.models.list()]
    assert "gpt-5" in [model.id for model in gpt.models.list()]


def test_models_are_for_those_with_a_key() -> None:
    with Simulator(keys=("right",)) as sim:
        with pytest.raises(anthropic.AuthenticationError):
            anthropic.Anthropic(api_key="wrong", base_url=sim.url, max_retries=0).models.list()
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(api_key="wrong", base_url=f"{sim.url}/v1", max_retries=0).models.list()


def test_an_agent_lists_the_models_through_the_gateway(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(SimSettings()) as sim, kit.gateway(tmp_path, kit.upstream(Home(tmp_path / "home"), sim.url)) as gate:
            headers = {"authorization": f"Bearer {gate.crew.agent()}", "anthropic-version": "2023-06-01"}
            answer = await gate.get("/v1/models", headers)
            assert answer.status == 200 and [model["type"] for model in answer.json["data"]] == ["model"] * 3
            assert (await gate.get("/v1/models", headers | {"authorization": "Bearer nobody"})).status == 401

    asyncio.run(main())
