"""The most that a request can cost is the most that it can cost: by the shape of a request nobody gets past a cap."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway.account.charges import OpenRow
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import Usage
from supervisor.gateway.proxy.forward import key_of
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.states import TaskClass
from tests.gateway import kit
from tests.gateway.account.kit import LANE, unpriced
from tests.gateway.proxy import raw
from tests.gateway.simulator import Fault, SimSettings, running

pytestmark = pytest.mark.asyncio

PRICES = "".join(f'[prices."{model}"]\ninput = 5.0\noutput = 25.0\n' for model in ("gpt-5", "gemini-2.5-pro", "claude-opus-4-8"))
CHAT, RESPONSES, GENERATE = "/v1/chat/completions", "/v1/responses", "/v1beta/models/gemini-2.5-pro:generateContent"
TALK = [{"role": "user", "content": "hi"}]
PARTS = [{"role": "user", "parts": [{"text": "hi"}]}]


def settings(tmp_path: Path, url: str, more: str = "") -> str:
    return more + kit.all_apis(Home(tmp_path / "home"), url) + PRICES


@pytest.mark.parametrize(
    ("path", "cap", "members"),
    [
        (CHAT, 1.0, {"max_output_tokens": 1, "messages": TALK}),
        (CHAT, 100.0, {"n": 128, "messages": TALK}),
        (CHAT, 2.0, {"messages": TALK}),
        (RESPONSES, 1.0, {"max_tokens": 1, "input": "hi"}),
        (GENERATE, 1.0, {"max_tokens": 1, "generation_config": {"max_output_tokens": 8000, "candidate_count": 8}, "contents": PARTS}),
        ("/v1/messages", 0.15, {"max_tokens": 16, "messages": [{"role": "user", "content": "1" * 30_000}]}),
    ],
    ids=["another endpoint's limit", "choices without a limit", "no limit", "another limit", "snake case", "digits"],
)
async def test_a_request_that_can_cost_more_than_the_cap_is_not_sent(
    tmp_path: Path, path: str, cap: float, members: dict[str, Any]
) -> None:
    model = "claude-opus-4-8" if path == "/v1/messages" else "gpt-5"
    body = json.dumps(members if path == GENERATE else {"model": model, **members}).encode()
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings(tmp_path, sim.url)) as gate:
        answer = await gate.post(path, body, gate.crew.agent(cost_max=cap))
        assert answer.status == 402, answer.body
        assert sim.provider.stats.number() == 1
        assert (await gate.post(path, body, gate.crew.agent("run/free"))).status == 200, "nothing is wrong with it where there is no cap"


@pytest.mark.parametrize("night", [False, True])
async def test_input_that_the_provider_stores_needs_a_task_without_a_cap(tmp_path: Path, night: bool) -> None:
    more = "[gateway]\ncost_per_night = 1000.0\n" if night else ""
    body = json.dumps({"model": "gpt-5", "input": "hi", "previous_response_id": "resp_1", "max_output_tokens": 16}).encode()
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings(tmp_path, sim.url, more)) as gate:
        answer = await gate.post(RESPONSES, body, gate.crew.agent(cost_max=0.0 if night else 1000.0))
        assert answer.status == 402
        assert "refers to input by name" in answer.json["error"]["message"]
        assert sim.provider.stats.number() == 1
        assert gate.gateway.context.admission.traffic.tickets == {}
        if not night:
            assert (await gate.post(RESPONSES, body, gate.crew.agent("run/free"))).status == 200
            (row,) = await kit.settled(gate.home, 1)
            assert row["bound_usd"] is None


async def test_input_that_a_body_only_names_needs_a_task_without_a_cap(tmp_path: Path) -> None:
    file = {"role": "user", "content": [{"type": "input_file", "file_url": "https://example.org/a.pdf"}]}
    body = json.dumps({"model": "gpt-5", "input": [file], "max_output_tokens": 16}).encode()
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings(tmp_path, sim.url)) as gate:
        assert (await gate.post(RESPONSES, body, gate.crew.agent(tokens_max=10**6))).status == 402
        assert (await gate.post(RESPONSES, body, gate.crew.agent("run/free"))).status == 200


@pytest.mark.parametrize(
    ("path", "members"),
    [
        ("/v1/messages", {"model": "claude-opus-4-8", "speed": "fast", "messages": TALK}),
        ("/v1/messages", {"model": "claude-opus-4-8", "service_tier": "gold", "messages": TALK}),
        (CHAT, {"model": "gpt-5", "service_tier": "priority", "messages": TALK}),
        (RESPONSES, {"model": "gpt-5", "service_tier": "fast", "input": "hi"}),
        (GENERATE, {"serviceTier": "priority", "contents": PARTS}),
    ],
)
async def test_a_word_whose_price_is_not_known_needs_a_task_without_a_cap(tmp_path: Path, path: str, members: dict[str, Any]) -> None:
    body = json.dumps({**members, **({} if path == GENERATE else {"max_tokens": 16, "max_output_tokens": 16})}).encode()
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings(tmp_path, sim.url)) as gate:
        answer = await gate.post(path, body, gate.crew.agent(cost_max=1000.0))
        assert (answer.status, "whose price is not known" in answer.json["error"]["message"]) == (402, True), answer.body
        assert sim.provider.stats.number() == 1
        assert (await gate.post(path, body, gate.crew.agent("run/free"))).status == 200
        (row,) = await kit.settled(gate.home, 1)
        assert row["bound_usd"] is None and row["output"] > 0
        assert (row["cost_usd"] is None) is (path not in (CHAT, RESPONSES)), "OpenAI's answer says that it was the default tier"


async def test_a_dearer_place_is_priced_in_the_bound_and_in_the_account(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings(tmp_path, sim.url)) as gate:
        token = gate.crew.agent(cost_max=1000.0)
        for geo in ("global", "us"):
            sim.faults(Fault(output_tokens=100))
            body = kit.messages("hello" + "x" * (geo == "us") * 4, max_tokens=1000, inference_geo=geo)
            assert (await gate.post("/v1/messages", body, token)).status == 200
        plain, dear = await kit.settled(gate.home, 2)
        assert plain["input"] == dear["input"] and plain["output"] == dear["output"] == 100
        assert dear["cost_usd"] == pytest.approx(1.1 * plain["cost_usd"])
        assert dear["bound_usd"] == pytest.approx(1.1 * plain["bound_usd"])


async def test_a_tier_that_only_the_answer_names_counts_with_the_most_below_a_cap(tmp_path: Path) -> None:
    """A project's own default may be dearer: what it costs is not known, and a cap must not be passed."""
    said = {"type": "message", "usage": {"input_tokens": 9, "output_tokens": 3, "speed": "fast"}}

    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.whole(200, json.dumps(said).encode()))

    async with raw.upstream(script) as up, kit.gateway(tmp_path, settings(tmp_path, up.url)) as gate:
        assert (await gate.post("/v1/messages", kit.messages(), gate.crew.agent(cost_max=1000.0))).status == 200
        (row,) = await kit.settled(gate.home, 1)
        assert row["cost_usd"] is None and row["counted_usd"] == row["bound_usd"] > 0


EMBEDDED = {"object": "list", "data": [{"embedding": [0.1] * 50}], "model": "m", "usage": {"prompt_tokens": 8, "total_tokens": 8}}
COMPACTED = {
    "object": "response.compaction",
    "output": [{"encrypted_content": "x" * 90}],
    "usage": {"input_tokens": 70, "output_tokens": 9},
}


@pytest.mark.parametrize(
    ("path", "said", "took"),
    [
        ("/v1/embeddings", EMBEDDED, (8, 0)),
        ("/embeddings", EMBEDDED, (8, 0)),
        ("/v1/responses/compact", COMPACTED, (70, 9)),
        ("/responses/compact", COMPACTED, (70, 9)),
    ],
)
async def test_embeddings_and_compaction_are_passed_on_and_charged(
    tmp_path: Path, path: str, said: dict[str, Any], took: tuple[int, int]
) -> None:
    seen: list[raw.Received] = []

    async def script(request: raw.Received, to: raw.Connection) -> None:
        seen.append(request)
        await to.send(raw.whole(200, json.dumps(said).encode()))

    async with raw.upstream(script) as up, kit.gateway(tmp_path, settings(tmp_path, up.url)) as gate:
        body = b'{"model": "gpt-5", "input": "hi", "padding": "%s"}' % (b"x" * 100)
        answer = await gate.post(path, body, gate.crew.agent(cost_max=1000.0))
        assert (answer.status, answer.json) == (200, said)
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["input"], row["output"], row["estimated"], row["flags"]) == ("served", *took, 0, "")
        assert row["cost_usd"] == pytest.approx(5e-6 * took[0] + 25e-6 * took[1])
        assert (row["bound_output"] == 0) is ("embeddings" in path)
        assert seen[0].body == body and seen[0].lines[0] == f"post /v1/{path.removeprefix('/v1').lstrip('/')} http/1.1"


async def test_embeddings_that_are_cut_or_left_cost_no_output(tmp_path: Path) -> None:
    async def script(_request: raw.Received, to: raw.Connection) -> None:
        await to.send(raw.whole(200, json.dumps(EMBEDDED).encode())[:-60])
        to.writer.close()

    async with raw.upstream(script) as up, kit.gateway(tmp_path, settings(tmp_path, up.url)) as gate:
        assert (await gate.post("/v1/embeddings", b'{"model": "gpt-5", "input": "hi"}', gate.crew.agent())).cut
        (row,) = await kit.settled(gate.home, 1)
        assert (row["end"], row["output"], row["estimated"]) == ("cut", 0, 1) and row["input"] > 0


@pytest.mark.parametrize("path", ["/v1/models/gpt-5", "/models/openai/gpt-5:free", "/v1beta/models", "/v1beta/models/gemini-2.5-pro"])
async def test_one_model_can_be_looked_up_and_costs_nothing(tmp_path: Path, path: str) -> None:
    seen: list[raw.Received] = []

    async def script(request: raw.Received, to: raw.Connection) -> None:
        seen.append(request)
        await to.send(raw.whole(200, b'{"id": "it"}'))

    async with raw.upstream(script) as up, kit.gateway(tmp_path, settings(tmp_path, up.url)) as gate:
        token = gate.crew.agent(cost_max=0.01)
        answer = await gate.get(path, {"Authorization": f"Bearer {token}"})
        assert (answer.status, answer.json) == (200, {"id": "it"})
        assert seen[0].lines[0].split()[1] == (path if path.startswith("/v1") else f"/v1{path}")
        assert kit.rows(gate.home) == []


async def test_a_request_in_the_background_is_refused(tmp_path: Path) -> None:
    body = json.dumps({"model": "gpt-5", "input": "hi", "background": True}).encode()
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings(tmp_path, sim.url)) as gate:
        answer = await gate.post(RESPONSES, body, gate.crew.agent())
        assert answer.status == 400
        assert "background" in answer.json["error"]["message"]
        assert sim.provider.stats.number() == 1


@pytest.mark.parametrize(("seconds", "output"), [(10.0, 3001), (1000.0, 8000)])
@pytest.mark.parametrize("streams", [True, False])
async def test_who_leaves_early_pays_for_the_time(tmp_path: Path, seconds: float, output: int, streams: bool) -> None:
    clock = kit.StandingClock()
    async with running(SimSettings()) as sim:
        sim.faults(Fault(then="pings", after=1) if streams else Fault(hold="gate"))
        async with kit.gateway(tmp_path, settings(tmp_path, sim.url), clock=clock) as gate:
            asking = asyncio.create_task(gate.post("/v1/messages", kit.messages(max_tokens=8000, stream=streams), gate.crew.agent()))
            if streams:
                await kit.until(lambda: sim.provider.stats.streams == 1, "the stream to run")
            else:
                await kit.until(lambda: sim.provider.stats.held["gate"], "the answer to be held")
            clock.now += seconds
            asking.cancel()
            (row,) = await kit.settled(gate.home, 1)
            assert (row["end"], row["estimated"], row["output"]) == ("client gone", 1, output)
            assert row["cost_usd"] >= 25e-6 * output
            sim.release("gate")


async def test_the_answer_to_a_retry_gives_back_what_a_killed_gateways_request_was_charged_too_much(tmp_path: Path) -> None:
    body, made = kit.messages("hello"), Home(tmp_path / "home")
    files.private_dir(made.root)
    left = OpenRow(
        agent="run/a", epoch=1, model="claude-opus-4-8", lane=LANE, upstream="anthropic", account="anthropic", task_class=TaskClass.NORMAL,
        at=time.time(), queued_ms=0.0, attempt_no=1, bound=Usage(200_000, 1000), expected=Usage(180_000, 1000), bound_usd=1.0,
        body_key=key_of(body),
    )  # fmt: skip
    before = Account(made.gateway_account, time.time)
    before.start(unpriced)
    await before.open(left)
    await before.close()
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, settings(tmp_path, sim.url)) as gate:
        token = gate.crew.agent("run/a", cost_max=0.96)
        assert (await gate.post("/v1/messages", body, token)).status == 200
        lost, answered = await kit.settled(gate.home, 2)
        assert (lost["end"], lost["flags"], lost["input"]) == ("crashed", "told_by_retry", answered["input"])
        (agent,) = (await gate.status())["agents"]
        assert agent["cost_usd"] == pytest.approx(lost["cost_usd"] + answered["cost_usd"])
        assert agent["cost_usd"] < 0.02
        dear = kit.messages("x" * 150_000)
        assert (await gate.post("/v1/messages", dear, token)).status == 200, "it can cost $0.75, and $0.93 had been charged"
