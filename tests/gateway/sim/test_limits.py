"""Over real HTTP: what is refused, what the headers say of it, and that it is true."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime

import aiohttp
import anthropic
import openai
import pytest

from nightcrew.plugins.sim.server import MOST_BYTES, running
from nightcrew.plugins.sim.settings import WindowLimit
from supervisor.kernel.gateway_settings import Limits
from tests.gateway.kit import StandingClock
from tests.gateway.sim.raw import CHAT, GEMINI, MESSAGES, anthropic_body, ask, chat_body, gemini_body
from tests.gateway.simulator import Fault, SimSettings, Simulator


async def post(session: aiohttp.ClientSession, url: str, body: object, key: str = "k") -> tuple[int, dict[str, str], dict[str, object]]:
    async with session.post(url, json=body, headers={"x-api-key": key}) as answer:
        return answer.status, {name.lower(): text for name, text in answer.headers.items()}, await answer.json()


def test_input_is_refused_until_the_time_that_it_says() -> None:
    async def main() -> None:
        clock = StandingClock()
        settings = SimSettings(limits=Limits(itpm=6000), output_mean=1)
        async with running(settings, clock=clock) as sim, aiohttp.ClientSession(sim.url) as session:
            sim.faults(Fault(input_tokens=4000))
            assert (await post(session, MESSAGES, anthropic_body()))[0] == 200
            status, headers, body = await post(session, MESSAGES, anthropic_body())
            assert status == 429 and headers["retry-after"] == "20"
            assert "6,000 input tokens per minute" in str(body) and "rate_limit_error" in str(body)
            clock.now += 19.9
            assert (await post(session, MESSAGES, anthropic_body()))[0] == 429
            clock.now += 0.1
            assert (await post(session, MESSAGES, anthropic_body()))[0] == 200
            assert sim.stats()["tallies"][0]["refused"] == {"limit:input": 2}

    asyncio.run(main())


def test_the_twelve_headers_of_anthropic() -> None:
    async def main() -> None:
        clock = StandingClock()
        settings = SimSettings(limits=Limits(rpm=60, itpm=80_000, otpm=16_000))
        async with running(settings, clock=clock) as sim, aiohttp.ClientSession(sim.url) as session:
            sim.faults(Fault(input_tokens=20_600, output_tokens=10))
            _, headers, _ = await post(session, MESSAGES, anthropic_body())
        told = {name.removeprefix("anthropic-ratelimit-"): text for name, text in headers.items() if "ratelimit" in name}
        assert {name: text for name, text in told.items() if not name.endswith("reset")} == {
            "requests-limit": "60",
            "requests-remaining": "59",
            "input-tokens-limit": "80000",
            "input-tokens-remaining": "59000",
            "output-tokens-limit": "16000",
            "output-tokens-remaining": "16000",
            "tokens-limit": "96000",
            "tokens-remaining": "75000",
        }
        # 20,600 tokens at 80,000 a minute come back in 15.45 s.
        assert datetime.fromisoformat(told["input-tokens-reset"]).timestamp() == int(clock.wall() + 15.45)
        assert len(told) == 12

    asyncio.run(main())


def test_output_is_charged_as_it_is_produced() -> None:
    async def main() -> None:
        clock = StandingClock()
        settings = SimSettings(limits=Limits(itpm=1000, otpm=100))
        async with running(settings, clock=clock) as sim, aiohttp.ClientSession(sim.url) as session:
            sim.faults(Fault(input_tokens=500, output_tokens=40))
            statuses = [(await post(session, MESSAGES, anthropic_body()))[0] for _ in range(3)]
            # Two times 500 tokens fit; so would the output of one more.
            assert statuses == [200, 200, 429]
            clock.now += 30
            assert (await post(session, MESSAGES, anthropic_body()))[0] == 200
            # 100 + 50 refilled (20 of them lost at the brim) - 120: the bucket is in debt after one more.
            assert sim.stats()["accounts"][0]["buckets"]["output"]["level"] == pytest.approx(30)

    asyncio.run(main())


def test_what_was_refused_is_not_in_the_cache() -> None:
    async def main() -> None:
        settings = SimSettings(limits=Limits(itpm=5000), output_mean=1, cache_min_tokens=100)
        async with running(settings, clock=StandingClock()) as sim, aiohttp.ClientSession(sim.url) as session:
            marked = [{"type": "text", "text": text * 10_000, "cache_control": {"type": "ephemeral"}} for text in "ab"]
            bodies = [{**anthropic_body(), "system": [block]} for block in marked]
            statuses = [(await post(session, MESSAGES, body))[0] for body in (bodies[0], bodies[1], bodies[1], bodies[0])]
            assert statuses == [200, 429, 429, 200], "only the first one's text was written to it"

    asyncio.run(main())


def test_keys_and_model_classes_have_buckets_of_their_own() -> None:
    async def main() -> None:
        settings = SimSettings(limits=Limits(rpm=1), classes={"haiku-4": Limits(rpm=2)})
        async with running(settings, clock=StandingClock()) as sim, aiohttp.ClientSession(sim.url) as session:

            async def status(key: str, model: str) -> int:
                return (await post(session, MESSAGES, anthropic_body(model=model), key))[0]

            assert [await status("a", "claude-opus-4-8"), await status("a", "claude-opus-4-1")] == [200, 429]
            assert [await status("b", "claude-opus-4-8"), await status("a", "claude-sonnet-4-5")] == [200, 200]
            assert [await status("a", "claude-haiku-4-5") for _ in range(3)] == [200, 200, 429]

    asyncio.run(main())


def test_a_subscriptions_window_is_told_and_spent() -> None:
    async def main() -> None:
        clock = StandingClock()
        settings = SimSettings(windows=(WindowLimit("5h", 1000, 18_000), WindowLimit("7d", 10_000, 604_800)))
        async with running(settings, clock=clock) as sim, aiohttp.ClientSession(sim.url) as session:
            sim.faults(Fault(input_tokens=800, output_tokens=100))
            login = "sk-ant-oat-1"
            _, headers, _ = await post(session, MESSAGES, anthropic_body(), login)
            prefix = "anthropic-ratelimit-unified"
            assert (headers[f"{prefix}-5h-utilization"], headers[f"{prefix}-5h-status"]) == ("0.9", "allowed_warning")
            assert headers[f"{prefix}-5h-reset"] == str(int(clock.wall()) + 18_000)
            assert headers[f"{prefix}-7d-utilization"] == "0.09"
            assert not any("input-tokens" in name for name in headers)
            await post(session, MESSAGES, anthropic_body(), login)
            status, headers, _ = await post(session, MESSAGES, anthropic_body(), login)
            assert (status, headers["retry-after"], headers[f"{prefix}-status"]) == (429, "18000", "rejected")
            assert (await post(session, MESSAGES, anthropic_body(), "sk-ant-api"))[0] == 200, "a plain key has no window"
            clock.now += 18_000
            assert (await post(session, MESSAGES, anthropic_body(), login))[0] == 200

    asyncio.run(main())


def test_gemini_says_it_in_the_body_and_never_in_headers() -> None:
    with Simulator(limits=Limits(rpm=1)) as sim:
        assert ask(sim.url, GEMINI, gemini_body(), "k").status == 200
        refused = ask(sim.url, GEMINI, gemini_body(), "k")
    assert refused.status == 429 and not any("ratelimit" in name or name == "retry-after" for name in refused.headers)
    details = refused.json["error"]["details"]
    assert refused.json["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert [entry["@type"].rpartition(".")[2] for entry in details] == ["QuotaFailure", "RetryInfo"]
    assert 50 < float(details[1]["retryDelay"].removesuffix("s")) <= 60


def test_the_limit_can_be_cut_while_it_runs() -> None:
    with Simulator(limits=Limits(rpm=100)) as sim:
        assert ask(sim.url, MESSAGES, anthropic_body(), "k").headers["anthropic-ratelimit-requests-limit"] == "100"
        sim.limits(rpm=1)
        assert ask(sim.url, MESSAGES, anthropic_body(), "k").status == 200
        assert ask(sim.url, MESSAGES, anthropic_body(), "k").status == 429
        sim.limits("haiku-4", rpm=50)
        other = ask(sim.url, MESSAGES, anthropic_body(model="claude-haiku-4-5"), "k")
        assert other.headers["anthropic-ratelimit-requests-limit"] == "50"


def test_the_sdks_wait_as_long_as_they_are_told() -> None:
    with Simulator(limits=Limits(rpm=60), burst_s=1) as sim:
        began = time.monotonic()
        with (
            anthropic.Anthropic(api_key="a", base_url=sim.url, max_retries=3) as claude,
            openai.OpenAI(api_key="b", base_url=f"{sim.url}/v1", max_retries=3) as gpt,
        ):
            for _ in range(2):
                claude.messages.create(model="claude-opus-4-8", max_tokens=5, messages=[{"role": "user", "content": "hi"}])
                gpt.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
        assert time.monotonic() - began >= 0.9, "a bucket of one a second gave two at once"
        told = sim.tally()
        assert told.answered == 4 and told.refused["limit:requests"] >= 1
        assert told.asked == 4 + told.refused["limit:requests"]


def test_only_its_own_keys_when_it_has_some() -> None:
    with Simulator(keys=("right",)) as sim:
        assert [ask(sim.url, MESSAGES, anthropic_body(), key).status for key in ("right", "wrong", "")] == [200, 401, 401]
        assert ask(sim.url, CHAT, chat_body(), "wrong").json["error"]["code"] == "invalid_api_key"
        assert ask(sim.url, MESSAGES, b"x" * (MOST_BYTES + 1), "right").status == 413


def test_output_takes_the_time_that_it_is_given() -> None:
    with Simulator(tokens_per_s=100, latency_s=0.1) as sim:
        sim.faults(output_tokens=40)
        for stream in (True, False):
            began = time.monotonic()
            assert ask(sim.url, MESSAGES, anthropic_body(stream=stream), "k").status == 200
            assert time.monotonic() - began >= 0.5, "40 tokens at 100 a second, after a tenth of one"
