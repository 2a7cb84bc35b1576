"""What makes a real limit hard to learn: late headers, small buckets, somebody else with the same key, another limit from now on."""

from __future__ import annotations

import asyncio
import random
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightcrew.plugins.sim.account import PATIENCE_S, Bucket, Meter, OutsideUse, label
from nightcrew.plugins.sim.server import running
from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import Limits
from tests.gateway import kit
from tests.gateway.kit import StandingClock
from tests.gateway.sim.raw import MESSAGES, anthropic_body, ask
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


@given(part=st.floats(0.05, 1), seed=st.integers(0, 1000), per_minute=st.integers(600, 600_000))
def test_an_idle_bucket_loses_the_part_that_was_asked_for_in_irregular_bites(part: float, seed: int, per_minute: int) -> None:
    meter = Meter(Limits(itpm=per_minute), 60.0, now=0.0, outside=OutsideUse(part, 100.0, random.Random(seed)))
    meter.catch_up(100.0)
    assert meter.buckets["input"].outside == 0
    meter.catch_up(3700.0)
    assert meter.buckets["input"].outside == pytest.approx(part * per_minute * 60, rel=0.15)
    moments = [moment for moment, _ in OutsideUse(part, 0.0, random.Random(seed)).bites(600.0)]
    assert len({round(later - moment, 3) for moment, later in pairwise(moments)}) > 100


@given(part=st.floats(0.05, 1), seed=st.integers(0, 1000), steps=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 4000)), max_size=50))
def test_the_other_client_takes_only_what_is_there_and_the_account_adds_up(part: float, seed: int, steps: list[tuple[float, int]]) -> None:
    meter, now = Meter(Limits(itpm=6000), 12.0, now=0.0, oversize=False, outside=OutsideUse(part, 0.0, random.Random(seed))), 0.0
    for pause, amount in steps:
        now += pause
        meter.ask({"input": amount}, now)
        bucket = meter.buckets["input"]
        assert bucket.level(now) >= -1e-6
        assert bucket.offered == pytest.approx(now * 100)
        assert bucket.drawn + bucket.outside + bucket.level(now) <= 1200 + bucket.offered + 1e-6
        assert bucket.outside <= part * 100 * (now + PATIENCE_S) * 1.5 + 1


def test_what_it_could_not_get_is_wanted_later_but_not_for_ever() -> None:
    bucket = Bucket(60, 60, 0.0)
    bucket.draw(60, 0.0)
    bucket.draw_outside(100, 30, 0.0)
    assert bucket.outside == 0
    bucket.draw_outside(0, 30, 60.0)
    assert bucket.outside == 30 and bucket.level(60.0) == 30


def test_outside_use_begins_when_it_is_told_to_and_stats_say_what_was_taken() -> None:
    async def main() -> None:
        clock = StandingClock()
        settings = SimSettings(limits=Limits(itpm=60_000), steal=0.5, steal_from_s=60, output_mean=1)
        async with running(settings, clock=clock) as sim, aiohttp.ClientSession(sim.url) as session:
            sim.faults(Fault(input_tokens=10_000))
            await post(session, MESSAGES, anthropic_body())
            clock.now += 60
            told = account(sim.stats())
            assert (told["outside"], told["drawn"], told["level"], told["offered"]) == (0, 10_000, 60_000, 60_000)
            clock.now += 60
            told = account(sim.stats())
            assert told["outside"] == pytest.approx(30_000, rel=0.4) and told["capacity"] == told["per_minute"] == 60_000
            _, headers, _ = await post(session, MESSAGES, anthropic_body())
            assert int(headers[REMAINING]) == pytest.approx(told["level"] - 10_000, abs=1000)
            assert sim.stats()["accounts"][0]["key"] == label("k")

    asyncio.run(main())


def test_the_same_seed_is_the_same_outside_use_whatever_else_is_asked() -> None:
    async def main(seed: int, requests: int) -> float:
        clock = StandingClock()
        async with running(SimSettings(steal=0.3, seed=seed), clock=clock) as sim, aiohttp.ClientSession(sim.url) as session:
            for _ in range(requests):
                await post(session, MESSAGES, anthropic_body())
            clock.now += 30
            return account(sim.stats())["outside"]

    assert asyncio.run(main(1, 1)) == asyncio.run(main(1, 3)) != asyncio.run(main(2, 1))


def test_the_limit_is_halved_and_doubled_while_it_runs() -> None:
    with Simulator(limits=Limits(rpm=100, itpm=80_000), classes={"haiku-4": Limits(rpm=10)}) as sim:

        def told(model: str = "claude-opus-4-8") -> str:
            return ask(sim.url, MESSAGES, anthropic_body(model=model), "k").headers["anthropic-ratelimit-requests-limit"]

        assert told() == "100"
        sim.limits(times=0.5)
        assert told() == "50" and account(sim.stats())["per_minute"] == 40_000
        sim.limits("haiku-4", times=4)
        assert (told("claude-haiku-4-5"), told()) == ("20", "50")
        sim.limits(times=2)
        assert (told("claude-haiku-4-5"), told()) == ("40", "100")
        for wrong in (0, -1):
            with pytest.raises(ValueError, match="positive"):
                sim.limits(times=wrong)
        with pytest.raises(ValueError, match="go together"):
            sim.limits(times=2, rpm=5)


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
