"""The independent provider counts and says what its conditions say."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.gateway import kit
from tests.gateway.independent import provider as written
from tests.gateway.independent.provider import Conditions, Provider, serving

LIMITS = {"rpm": 50, "itpm": 20_000, "otpm": 8_000}
OPENAI = {"rpm": 60, "tpm": 30_000}
TEXT = "BPT=4.000 " + "x" * 4790
"""1,200 tokens, and 4 for the block."""
BLOCK = 1204


@asynccontextmanager
async def asked(conditions: Conditions) -> AsyncIterator[tuple[Provider, aiohttp.ClientSession]]:
    """It answers at once, and shortly."""
    provider = Provider(replace(conditions, output_mean=20.0, tokens_per_s=1e6), random.Random(1))
    async with serving(provider) as url, aiohttp.ClientSession(url) as session:
        yield provider, session


async def ask(session: aiohttp.ClientSession, path: str = "/v1/messages", **more: Any) -> kit.Answer:
    body = {"model": "m", "max_tokens": 1000, "messages": [{"role": "user", "content": TEXT}], **more}
    async with session.post(path, json=body) as response:
        return await kit.collected(response)


def usage(answer: kit.Answer) -> dict[str, int]:
    """The last one that the stream says."""
    events = [json.loads(line[6:]) for line in answer.body.splitlines() if line.startswith(b"data: {")]
    said: dict[str, int] = [event["usage"] for event in events if event.get("usage")][-1]
    return said


def test_it_shares_no_code_with_us() -> None:
    nodes = list(ast.walk(ast.parse(Path(written.__file__).read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    assert "aiohttp" in names
    assert not [name for name in names if name.split(".")[0] in ("supervisor", "agents", "worktrees", "tests")]


@pytest.mark.asyncio
@pytest.mark.parametrize("output", ["produced", "end"])
@pytest.mark.parametrize("estimates", [False, True])
async def test_what_an_answer_used_is_on_the_account(output: Any, estimates: bool) -> None:
    async with asked(Conditions(LIMITS, output=output, estimates=estimates)) as (provider, session):
        answer = await ask(session)
        account = provider.account()
    assert (account["rpm"].used, account["itpm"].used) == (1, BLOCK), "an estimate is corrected"
    assert account["otpm"].used == usage(answer)["output_tokens"] >= 8


@pytest.mark.asyncio
@pytest.mark.parametrize(("rounding", "left"), [("near", 19_000), ("down", 18_000), ("exact", 18_796)])
async def test_what_is_left_is_rounded(rounding: Any, left: int) -> None:
    async with asked(Conditions(LIMITS, rounding=rounding)) as (_, session):
        answer = await ask(session)
    said = int(answer.headers["anthropic-ratelimit-input-tokens-remaining"])
    assert said == left or (rounding == "exact" and said >= left), "what refills meanwhile counts"


@pytest.mark.asyncio
@pytest.mark.parametrize(("moment", "left"), [("arrival", 19_000), ("sent", 20_000)])
async def test_an_estimate_is_in_the_headers_of_the_arrival_and_not_in_those_of_the_head(moment: Any, left: int) -> None:
    async with asked(Conditions({"rpm": 50, "itpm": 20_000}, remaining_at=moment, estimates=True)) as (_, session):
        answer = await ask(session, messages=[{"role": "user", "content": TEXT.replace("4.000", "40.00")}])
    assert int(answer.headers["anthropic-ratelimit-input-tokens-remaining"]) == left


@pytest.mark.asyncio
@pytest.mark.parametrize("reset", ["ceil", "floor", "exact"])
async def test_the_reset_is_a_whole_second_or_exact(reset: Any) -> None:
    async with asked(Conditions(LIMITS, reset=reset)) as (_, session):
        said = (await ask(session)).headers["anthropic-ratelimit-input-tokens-reset"]
    assert datetime.fromisoformat(said).tzinfo is not None
    assert ("." in said) == (reset == "exact")


@pytest.mark.asyncio
async def test_no_reset_is_said() -> None:
    async with asked(Conditions(LIMITS, reset="missing")) as (_, session):
        headers = (await ask(session)).headers
    assert "anthropic-ratelimit-input-tokens-limit" in headers
    assert not [name for name in headers if name.endswith("-reset")]


@pytest.mark.asyncio
async def test_what_does_not_fit_is_refused_and_written_down() -> None:
    async with asked(Conditions({**LIMITS, "rpm": 5}, burst_rpm_s=12)) as (provider, session):
        assert (await ask(session)).status == 200
        answer = await ask(session)
        assert (answer.status, int(answer.headers["Retry-After"]) <= 12) == (429, True)
        assert [(one.full, one.need) for one in provider.refused] == [(("rpm",), {"rpm": 1})]
        assert provider.account()["itpm"].used == BLOCK, "it is charged nothing"


@pytest.mark.asyncio
async def test_openais_side() -> None:
    async with asked(Conditions(OPENAI, api="openai")) as (provider, session):
        answer = await ask(session, "/v1/chat/completions", stream_options={"include_usage": True})
        assert answer.headers["x-ratelimit-limit-tokens"] == "30000"
        assert answer.headers["x-ratelimit-reset-tokens"].endswith("s")
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert provider.account()["tpm"].used == usage(answer)["total_tokens"] > BLOCK


@pytest.mark.asyncio
async def test_limits_change_and_somebody_else_takes_a_part() -> None:
    async with asked(Conditions(LIMITS, changes=((0, 0.5),), outside=0.9)) as (provider, session):
        await ask(session)
        await kit.until(lambda: provider.buckets["itpm"].limit == 10_000, "half the limit")
        bucket, account = provider.buckets["itpm"], provider.account
        await kit.until(lambda: account()["itpm"].offered < bucket.limit / 60 * provider.second * 0.6, "somebody else's bite")
        assert account()["itpm"].used == BLOCK, "it is not charged to us"
