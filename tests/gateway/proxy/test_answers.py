"""Answers that are kept, and requests that are the same at one moment: who gets which answer, and what nobody gets."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from supervisor.gateway.proxy.answers import Kept, Shelf, canonical
from supervisor.gateway.wire.requests import read, recognise
from supervisor.host import files
from supervisor.host.paths import Home
from supervisor.kernel.gateway_settings import AnswerCache
from supervisor.kernel.states import TaskClass
from supervisor.server.attempts import model_usage
from tests.gateway import kit
from tests.gateway.proxy import raw
from tests.gateway.simulator import SimSettings, running

MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
CACHE = "[cache]\n"
COLD = kit.messages(temperature=0, stream=False)
COLD_STREAM = kit.messages(temperature=0)
CHAT_TEXT = {
    "choices": [{"index": 0, "delta": {"content": "chat"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3},
}


@dataclass(slots=True)
class Provider:
    """Numbers its answers, so that a kept one is told from a new one. `plan` says how the next ones fail; `gate` holds all of them."""

    url: str = ""
    asked: list[raw.Received] = field(default_factory=list)
    plan: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def script(self, request: raw.Received, connection: raw.Connection) -> None:
        self.asked.append(request)
        number, how = len(self.asked), self.plan.pop(0) if self.plan else ""
        await self.gate.wait()
        shape = json.loads(request.body)
        text = raw.TEXT.replace(b"words", b"number %d" % number)
        if how == "error":
            await connection.send(raw.whole(400, b'{"type":"error","error":{"type":"invalid_request_error","message":"no"}}'))
        elif how == "cut":
            await connection.send(raw.STREAM, raw.chunk(raw.START), raw.chunk(text))
            connection.writer.close()
        elif how == "no end":  # the connection's end is the answer's end: nobody can tell whether it was cut
            events = b'data: {"choices":[{"index":0,"delta":{"content":"half"}}],"usage":{"prompt_tokens":9,"completion_tokens":3}}\n\n'
            events += b"data: " + json.dumps(CHAT_TEXT).encode() + b"\n\n"
            await connection.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", events)
            connection.writer.close()
        elif how == "half":  # cut by an upstream that does not say how long its answers are
            await connection.send(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{"type":"message","n":1,"content":[')
            connection.writer.close()
        elif shape.get("stream"):
            await connection.send(raw.STREAM, raw.chunk(raw.START), raw.chunk(text), raw.chunk(raw.END), raw.LAST)
        else:
            said = {"type": "message", "n": number, "content": [], "usage": {"input_tokens": 25, "output_tokens": 15}}
            await connection.send(raw.whole(200, json.dumps(said).encode()))


@asynccontextmanager
async def house(tmp_path: Path, settings: str = CACHE, *, held: bool = False, more: str = "") -> AsyncIterator[tuple[kit.Gate, Provider]]:
    """A gateway that keeps answers, before a provider that counts."""
    provider = Provider()
    if not held:
        provider.gate.set()
    async with raw.upstream(provider.script) as there:
        tables = settings + kit.upstream(Home(tmp_path / "home"), there.url, more=more)
        async with kit.gateway(tmp_path, tables) as gate:
            provider.url = there.url
            yield gate, provider


def kept(home: Home) -> list[Path]:
    """The files."""
    return sorted(home.answers.iterdir()) if home.answers.exists() else []


async def kept_files(home: Home, number: int) -> list[Path]:
    """The files, once there are so many: an answer is written after it has gone out."""
    await kit.until(lambda: len(kept(home)) == number, f"{number} kept answers")
    return kept(home)


def is_hit(answer: kit.Answer) -> bool:
    return answer.headers.get("x-gw-cache") == "hit"


# What may be answered so -------------------------------------------------------------------------------------------------------------


def repeats(path: str, shape: dict[str, Any], *, marked: bool = False) -> bool:
    """Whether a request may be answered by a kept answer."""
    recognised, body = recognise("POST", path), json.dumps(shape).encode()
    assert recognised is not None
    return canonical(read(recognised, {}, body), body, marked=marked) is not None


GEMINI = "/v1beta/models/gemini-2.5-pro:generateContent"
ASK: dict[str, Any] = {
    "model": "m",
    "max_tokens": 9,
    "temperature": 0,
    "messages": [{"role": "user", "content": "see https://example.com"}],
}
RESPOND: dict[str, Any] = {"model": "m", "temperature": 0, "input": "hello", "store": False}
GENERATE: dict[str, Any] = {"contents": [{"parts": [{"text": "hello"}]}], "generationConfig": {"temperature": 0}}
PIXELS = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
TOOL = {"name": "look", "description": "d", "input_schema": {"type": "object", "properties": {"url": {"type": "string"}}}}


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        (MESSAGES, ASK),
        (MESSAGES, {**ASK, "temperature": 0.0, "tools": [TOOL, {**TOOL, "type": "custom"}]}),
        (MESSAGES, {**ASK, "messages": [{"role": "user", "content": [PIXELS]}]}),
        (CHAT, ASK),
        (CHAT, {**ASK, "store": False, "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]}),
        (CHAT, {**ASK, "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png,A"}}]}]}),
        (RESPONSES, RESPOND),
        (GEMINI, GENERATE),
        (GEMINI, {**GENERATE, "tools": [{"functionDeclarations": []}]}),
    ],
)  # fmt: skip
def test_request_whose_answer_depends_on_itself_alone(path: str, shape: dict[str, Any]) -> None:
    assert repeats(path, shape)
    warm = {**shape, "temperature": 0.1, **({"generationConfig": {"temperature": 0.1}} if path == GEMINI else {})}
    warm = {name: value for name, value in warm.items() if path != GEMINI or name != "temperature"}
    assert not repeats(path, warm)
    assert repeats(path, warm, marked=True)


PART: dict[str, dict[str, Any]] = {
    "address": {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    "image": {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    "video": {"type": "video_url", "video_url": {"url": "https://example.com/a.mp4"}},
    "file": {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    "upload": {"type": "container_upload", "file_id": "file_1"},
}


@pytest.mark.parametrize(
    ("path", "more"),
    [
        *((MESSAGES, {"messages": [{"role": "user", "content": [part]}]}) for part in PART.values()),
        *((MESSAGES, {"tools": [{"type": kind, "name": "t"}]}) for kind in ("web_search_20250305", "code_execution_2025", "web_fetch_1")),
        (MESSAGES, {"tools": [{**TOOL, "allowed_callers": ["code_execution_20250825"]}]}),
        (MESSAGES, {"mcp_servers": [{"type": "url", "url": "https://example.com"}]}),
        (MESSAGES, {"container": "container_1"}),
        (MESSAGES, {"context_management": {"edits": []}}),
        (MESSAGES, {"tools": "look"}),
        (MESSAGES, {"tools": [1]}),
        (MESSAGES, {"tools": 5}),
        (MESSAGES, {"temperature": "0"}),
        (MESSAGES, {"temperature": None}),
        (CHAT, {"store": True}),
        (CHAT, {"web_search_options": {}}),
        (CHAT, {"plugins": [{"id": "web"}]}),
        (RESPONSES, {"store": None}),
        (RESPONSES, {"store": True}),
        (RESPONSES, {"previous_response_id": "resp_1"}),
        (RESPONSES, {"conversation": "conv_1"}),
        (RESPONSES, {"prompt": {"id": "pmpt_1"}}),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "rs_1"}]}),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.png"}]}]}),
        (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]}]}),
        *((RESPONSES, {"tools": [{"type": kind}]}) for kind in ("web_search", "file_search", "code_interpreter", "mcp")),
        (GEMINI, {"tools": [{"googleSearch": {}}]}),
        (GEMINI, {"tools": [{"codeExecution": {}}]}),
        (GEMINI, {"cachedContent": "cachedContents/1"}),
        (GEMINI, {"contents": [{"parts": [{"fileData": {"fileUri": "https://example.com", "mimeType": "video/mp4"}}]}]}),
        (GEMINI, {"generationConfig": [0]}),
    ],
)  # fmt: skip
def test_request_whose_answer_may_depend_on_more(path: str, more: dict[str, Any]) -> None:
    shape = {**{MESSAGES: ASK, CHAT: ASK, RESPONSES: RESPOND, GEMINI: GENERATE}[path], **more}
    marked = "temperature" not in more
    assert not repeats(path, shape, marked=marked)


def test_names_in_disguise_and_members_that_come_twice() -> None:
    recognised = recognise("POST", MESSAGES)
    assert recognised is not None
    part = '{"type":"document","source":{"type":"file","%s":"f"}}'
    body = '{"model":"m","max_tokens":9,"temperature":0,"messages":[{"role":"user","content":[%s]}]}'
    for name, found in (("data", True), ("file_id", False), (r"\u0066ile_id", False)):
        text = (body % (part % name)).encode()
        assert (canonical(read(recognised, {}, text), text, marked=False) is not None) == found
    twice = (body % '{"type":"text","text":"a","text":"b"}').encode()
    assert canonical(read(recognised, {}, twice), twice, marked=False) is None


def test_canonical_body_keeps_the_order_of_members() -> None:
    recognised = recognise("POST", MESSAGES)
    assert recognised is not None
    one, other, same = (
        b'{"model":"m","max_tokens":9,"temperature":0,"messages":[{"role":"user","content":"\xc3\xa4"}]}',
        b'{"max_tokens":9,"model":"m","temperature":0,"messages":[{"role":"user","content":"\xc3\xa4"}]}',
        b'{ "model": "m", "max_tokens": 9, "temperature": 0, "messages": [{"role": "user", "content": "\\u00e4"}] }',
    )
    found = [canonical(read(recognised, {}, body), body, marked=False) for body in (one, other, same)]
    assert found[0] == found[2] != found[1]


# Hits ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_same_request_is_answered_once_also_after_a_restart(tmp_path: Path) -> None:
    prices = '[prices."claude-opus-*"]\ninput = 5.0\noutput = 25.0\n'
    async with house(tmp_path, CACHE + prices) as (gate, provider):
        tokens = [gate.crew.agent(f"run/{name}") for name in "ab"]
        first, second = [await gate.post(MESSAGES, COLD, token) for token in tokens]
        assert (first.status, first.body) == (second.status, second.body)
        assert (is_hit(first), is_hit(second), len(provider.asked)) == (False, True, 1)
        assert second.headers["Content-Type"] == first.headers["Content-Type"]
        asked, answered = await kit.settled(gate.home, 2)
        usd = (25 * 5.0 + 15 * 25.0) / 1e6
        assert (asked["end"], asked["cost_usd"]) == ("served", pytest.approx(usd))
        assert (answered["agent"], answered["end"], answered["account"], answered["status"]) == ("run/b", "kept answer", "kept answer", 200)
        assert [answered[name] for name in ("input", "output", "cost_usd", "expected_input")] == [0, 0, 0.0, 0]
        assert answered["output_sha256"] == asked["output_sha256"]
        spent = model_usage.of_attempt(gate.home, "run/b", 1, expected=True)
        assert (spent.input, spent.cost_usd, spent.kept) == (0, 0.0, 40)
        assert spent.notes == ("answers that were kept saved it 40 tokens",)
        (file,) = await kept_files(gate.home, 1)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        cache = (await gate.status())["cache"]
        assert cache == {"bytes": file.stat().st_size, "hits": 1, "tokens": 40, "usd": pytest.approx(usd)}
        url = provider.url
    tables = CACHE + prices + kit.upstream(Home(tmp_path / "home"), url)
    async with kit.gateway(tmp_path, tables) as gate:
        assert is_hit(await gate.post(MESSAGES, COLD, gate.crew.agent("run/c")))
        await kit.until(lambda: len(kit.rows(gate.home)) == 3, "the row")
        cache = (await gate.status())["cache"]
        assert (cache["hits"], cache["tokens"], cache["bytes"]) == (2, 80, file.stat().st_size)


@pytest.mark.asyncio
async def test_stream_is_kept_as_it_came_and_is_another_request(tmp_path: Path) -> None:
    async with house(tmp_path) as (gate, provider):
        token = gate.crew.agent()
        streamed = [await gate.post(MESSAGES, COLD_STREAM, token) for _ in range(2)]
        plain = await gate.post(MESSAGES, COLD, token)
        assert streamed[0].body == streamed[1].body and streamed[1].body.endswith(raw.END)
        assert streamed[1].headers["Content-Type"] == "text/event-stream"
        assert [is_hit(one) for one in (*streamed, plain)] == [False, True, False]
        assert plain.json["n"] == len(provider.asked) == 2


@pytest.mark.asyncio
async def test_every_api_of_the_simulated_provider(tmp_path: Path) -> None:
    async with running(SimSettings()) as sim, kit.gateway(tmp_path, CACHE + kit.all_apis(Home(tmp_path / "home"), sim.url)) as gate:
        token = gate.crew.agent()
        asks = [(MESSAGES, ASK), (CHAT, {**ASK, "model": "gpt-5"}), (RESPONSES, {**RESPOND, "model": "gpt-5"})]
        asks += [(path, {**shape, "stream": True}) for path, shape in asks]
        asks += [(GEMINI, GENERATE), (GEMINI.replace("generate", "streamGenerate"), GENERATE)]
        asks += [(f"{GEMINI.replace('generate', 'streamGenerate')}?alt=sse", GENERATE)]
        for path, shape in asks:
            first, second = [await gate.post(path, json.dumps(shape).encode(), token) for _ in range(2)]
            assert (first.status, is_hit(first), is_hit(second)) == (200, False, True), (path, shape)
            assert first.body == second.body
        assert len(sim.provider.stats.last) == len(asks)


@pytest.mark.asyncio
async def test_nothing_is_kept_without_the_setting_nor_with_a_temperature(tmp_path: Path) -> None:
    async with house(tmp_path, "") as (gate, provider):
        token = gate.crew.agent()
        assert not any([is_hit(await gate.post(MESSAGES, COLD, token)) for _ in range(2)])
        gate.config.write_text(CACHE + gate.config.read_text())
        await gate.gateway.reload()
        assert [is_hit(await gate.post(MESSAGES, COLD, token)) for _ in range(2)] == [False, True]
        warm = kit.messages(temperature=0.5, stream=False)
        assert not any([is_hit(await gate.post(MESSAGES, warm, token)) for _ in range(2)])
        marked = gate.crew.agent("run/marked", repeatable=True)
        assert [is_hit(await gate.post(MESSAGES, warm, marked)) for _ in range(2)] == [False, True]
        assert not is_hit(await gate.post(MESSAGES, warm, token)), "who did not say so gets no kept answer"
        candidate = gate.crew.agent("run/one", repeatable=True, candidate_of="group")
        assert not is_hit(await gate.post(MESSAGES, warm, candidate)), "candidates are there to differ"
        asked = len(provider.asked)
        gate.config.write_text(gate.config.read_text().removeprefix(CACHE))
        await gate.gateway.reload()
        assert not is_hit(await gate.post(MESSAGES, COLD, token))
        assert len(provider.asked) == asked + 1 and "cache" not in await gate.status()


@pytest.mark.asyncio
async def test_client_with_its_own_login_and_model_that_searches(tmp_path: Path) -> None:
    async with house(tmp_path, more='key = "client"') as (gate, provider):
        token = gate.crew.agent()
        for _ in range(2):
            assert not is_hit(await gate.post(MESSAGES, COLD, token, x_api_key="sk-ant-own-login-0123456789"))
        assert len(provider.asked) == 2
    async with house(tmp_path / "other") as (gate, _):
        token = gate.crew.agent()
        for model in ("gpt-4o-search-preview", "sonar-pro", "m:online"):
            body = kit.messages(temperature=0, stream=False, model=model)
            assert not any([is_hit(await gate.post(MESSAGES, body, token)) for _ in range(2)])


@pytest.mark.asyncio
async def test_hit_costs_a_spent_budget_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, CACHE + '[prices."*"]\ninput = 5.0\noutput = 25.0\n') as (gate, _):
        assert (await gate.post(MESSAGES, COLD, gate.crew.agent("run/a"))).status == 200
        poor = gate.crew.agent("run/b", cost_max=1e-9)
        assert (await gate.post(MESSAGES, kit.messages("other", temperature=0), poor)).status == 402
        assert is_hit(await gate.post(MESSAGES, COLD, poor))


# At one moment ------------------------------------------------------------------------------------------------------------------------


async def waiting(gate: kit.Gate, number: int) -> None:
    """Until so many requests are under way in the gateway. Those that wait for another's answer have passed the door by then."""
    await kit.until(lambda: len(gate.gateway.context.under_way) == number, f"{number} requests under way")
    for _ in range(20):  # turns of the loop, which all of them have after they came in
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_fifty_at_once_are_one_and_one_is_charged(tmp_path: Path) -> None:
    async with house(tmp_path, held=True) as (gate, provider):
        tokens = [gate.crew.agent(f"run/a{number}") for number in range(50)]
        asking = [asyncio.create_task(gate.post(MESSAGES, COLD_STREAM, token)) for token in tokens]
        await waiting(gate, 50)
        provider.gate.set()
        answers = await asyncio.gather(*asking)
        assert len(provider.asked) == 1 and len({answer.body for answer in answers}) == 1
        assert sum(map(is_hit, answers)) == 49
        rows = await kit.settled(gate.home, 50)
        assert sorted(row["end"] for row in rows) == ["kept answer"] * 49 + ["served"]
        assert sum(row["input"] for row in rows) == 25


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["error", "cut"])
async def test_when_the_first_fails_the_next_one_asks_by_itself(tmp_path: Path, how: str) -> None:
    async with house(tmp_path, held=True) as (gate, provider):
        provider.plan = [how]
        asking = [asyncio.create_task(gate.post(MESSAGES, COLD_STREAM, gate.crew.agent(f"run/{name}"))) for name in "abcd"]
        await waiting(gate, 4)
        provider.gate.set()
        answers = await asyncio.gather(*asking)
        assert len(provider.asked) == 2
        failed = [answer for answer in answers if answer.status == 400 or answer.cut]
        assert len(failed) == 1 and not is_hit(failed[0])
        assert sorted(is_hit(answer) for answer in answers if answer not in failed) == [False, True, True]
        assert {answer.body for answer in answers if answer not in failed} == {next(one.body for one in answers if is_hit(one))}


@pytest.mark.asyncio
async def test_client_that_leaves_cuts_nobody_else(tmp_path: Path) -> None:
    async with house(tmp_path, held=True) as (gate, provider):
        first = asyncio.create_task(gate.post(MESSAGES, COLD_STREAM, gate.crew.agent("run/first")))
        await kit.until(lambda: len(provider.asked) == 1, "the first to ask")
        others = [asyncio.create_task(gate.post(MESSAGES, COLD_STREAM, gate.crew.agent(f"run/{name}"))) for name in "abc"]
        await waiting(gate, 4)
        others[0].cancel()
        await waiting(gate, 3)
        assert len(provider.asked) == 1, "one that only waited takes nothing along"
        first.cancel()
        await kit.until(lambda: len(provider.asked) == 2, "the next one to ask")
        provider.gate.set()
        answers = await asyncio.gather(*others[1:])
        assert [answer.status for answer in answers] == [200, 200] and sorted(map(is_hit, answers)) == [False, True]
        assert len(provider.asked) == 2


@pytest.mark.asyncio
async def test_nobody_waits_for_the_turn_of_a_lower_class(tmp_path: Path) -> None:
    async with house(tmp_path, held=True) as (gate, provider):
        classes = (TaskClass.BATCH, TaskClass.INTERACTIVE)
        tokens = [gate.crew.agent(f"run/{one}", task_class=one) for one in classes]
        asking = [asyncio.create_task(gate.post(MESSAGES, COLD, token)) for token in tokens]
        await kit.until(lambda: len(provider.asked) == 2, "both to ask")
        provider.gate.set()
        assert not any(map(is_hit, await asyncio.gather(*asking)))
        assert is_hit(await gate.post(MESSAGES, COLD, tokens[0]))


# What nobody must get -----------------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_other_project_header_tool_and_word_are_other_requests(tmp_path: Path) -> None:
    async with house(tmp_path) as (gate, _):
        token = gate.crew.agent("run/a")
        body = kit.messages(temperature=0, stream=False, tools=[TOOL])
        assert not is_hit(await gate.post(MESSAGES, body, token))
        assert not is_hit(await gate.post(MESSAGES, body, gate.crew.agent("else/a", project="q")))
        for headers in ({"anthropic_beta": "context-1m-2025-08-07"}, {"anthropic_version": "2099-01-01"}, {"x_unknown": "1"}):
            assert not is_hit(await gate.post(MESSAGES, body, token, **headers))
        changed = {**TOOL, "description": "e"}
        assert not is_hit(await gate.post(MESSAGES, kit.messages(temperature=0, stream=False, tools=[changed]), token))
        assert not is_hit(await gate.post(f"{MESSAGES}?beta=true", body, token))
        for headers in ({}, {"user_agent": "another"}, {"x_stainless_retry_count": "1"}, {"X_Claude_Code_Session_Id": "9"}):
            assert is_hit(await gate.post(MESSAGES, body, token, **headers))


@pytest.mark.asyncio
async def test_other_key_account_and_model_by_a_route_are_other_requests(tmp_path: Path) -> None:
    async with house(tmp_path) as (gate, provider):
        token, key = gate.crew.agent(), gate.home.keys / "sim.key"
        before = gate.config.read_text()

        async def is_known(text: str) -> bool:
            gate.config.write_text(text)
            await gate.gateway.reload()
            return is_hit(await gate.post(MESSAGES, COLD, token))

        assert [await is_known(before) for _ in range(2)] == [False, True]
        files.atomic_write(key, kit.KEY.replace("canary", "second").encode())
        assert [await is_known(before) for _ in range(2)] == [False, True], "another key may be another account"
        assert not await is_known(f'{before}account = "other"\n')
        route = '[[route]]\nmodel = "claude-opus-*"\nas = "%s"\n'
        assert not await is_known(before + route % "claude-haiku-4-5")
        assert not await is_known(before + route % "claude-sonnet-4-5")
        assert json.loads(provider.asked[-1].body)["model"] == "claude-sonnet-4-5"
        assert await is_known(before)


@pytest.mark.asyncio
async def test_answer_of_an_upstream_that_is_not_in_its_key_is_not_kept(tmp_path: Path) -> None:
    async with house(tmp_path, held=True) as (gate, provider):
        busy = asyncio.create_task(gate.post(MESSAGES, COLD, gate.crew.agent("run/a")))
        await kit.until(lambda: len(provider.asked) == 1, "the request to be sent")
        flight = next(iter(gate.gateway.context.answers._flights.values()))  # type: ignore[union-attr]  # there is one
        flight.sources[:] = [(one, "another key") for one, _ in flight.sources]
        provider.gate.set()
        assert (await busy).status == 200
        assert not is_hit(await gate.post(MESSAGES, COLD, gate.crew.agent("run/a", epoch=2)))


@pytest.mark.asyncio
async def test_fallbacks_answer_is_not_kept_for_the_model_that_was_asked(tmp_path: Path) -> None:
    prices = '[prices."claude-opus-4-8"]\ninput = 5.0\noutput = 25.0\n[prices."claude-haiku-4-5"]\ninput = 1.0\noutput = 5.0\n'
    route = '[[route]]\nmodel = "claude-opus-*"\nfallback = "claude-haiku-4-5"\n'
    settings = f"[gateway]\ncost_per_night = 1000.0\nfallback_at = 1e-9\n{CACHE}{route}{prices}"
    async with house(tmp_path, settings) as (gate, provider):
        token = gate.crew.agent("run/night", task_class=TaskClass.BATCH)
        assert (await gate.post(MESSAGES, kit.messages("first"), token)).status == 200
        for _ in range(2):
            assert not is_hit(await gate.post(MESSAGES, COLD, token))
        assert [json.loads(one.body)["model"] for one in provider.asked] == ["claude-opus-4-8", *["claude-haiku-4-5"] * 2]
        assert not kept(gate.home)


@pytest.mark.asyncio
async def test_errors_and_cut_answers_are_not_kept(tmp_path: Path) -> None:
    async with house(tmp_path) as (gate, provider):
        token = gate.crew.agent()
        provider.plan = ["error", "cut", "no end"]
        assert (await gate.post(MESSAGES, COLD_STREAM, token)).status == 400
        assert (await gate.post(MESSAGES, COLD_STREAM, token)).cut
        answer = await gate.post(MESSAGES, COLD_STREAM, token)
        assert answer.status == 200 and not is_hit(answer)
        assert not kept(gate.home), "it had neither usage nor end"
        provider.plan = ["half"]
        assert (await gate.post(MESSAGES, COLD, token)).status == 200
        assert not is_hit(await gate.post(MESSAGES, COLD, token))
        await kept_files(gate.home, 1)
        assert not is_hit(await gate.post(MESSAGES, COLD_STREAM, token))
        await kept_files(gate.home, 2)


@pytest.mark.asyncio
async def test_chat_stream_without_its_last_event_is_not_kept(tmp_path: Path) -> None:
    provider = Provider(plan=["no end"])
    provider.gate.set()
    home = Home(tmp_path / "home")
    async with (
        raw.upstream(provider.script) as there,
        kit.gateway(tmp_path, CACHE + kit.upstream(home, there.url, api="openai")) as gate,
    ):
        answer = await gate.post(CHAT, json.dumps({**ASK, "stream": True}).encode(), gate.crew.agent())
        (row,) = await kit.settled(gate.home, 1)
        assert (answer.status, row["end"], row["estimated"]) == (200, "served", 0), "nothing else is wrong with it"
        assert not kept(gate.home)


@pytest.mark.asyncio
async def test_file_that_was_changed_is_no_answer(tmp_path: Path) -> None:
    async with house(tmp_path) as (gate, provider):
        token, other = gate.crew.agent(), kit.messages("other", temperature=0, stream=False)
        await gate.post(MESSAGES, COLD, token)
        (file,) = await kept_files(gate.home, 1)
        await gate.post(MESSAGES, other, token)
        (twin,) = [one for one in await kept_files(gate.home, 2) if one != file]
        good = file.read_bytes()
        outside = tmp_path / "outside"
        outside.write_bytes(good)

        async def is_fresh() -> bool:
            number = len(provider.asked)
            answer = await gate.post(MESSAGES, COLD, token)
            return not is_hit(answer) and answer.json["n"] == len(provider.asked) == number + 1

        for text in (good.replace(b'"n"', b'"m"'), good.replace(b"message", b"massage"), twin.read_bytes(), good[:40], b""):
            if text != good:
                file.write_bytes(text)
                assert await is_fresh()
                await kit.until(lambda text=text: file.read_bytes() != text, "the new answer to be kept")
        file.unlink()
        file.symlink_to(outside)
        assert await is_fresh()
        await kit.until(lambda: not file.is_symlink(), "the new answer to be kept")
        assert outside.read_bytes() == good
        file.unlink()
        os.mkfifo(file)
        assert await is_fresh()


@pytest.mark.asyncio
async def test_too_large_and_too_old(tmp_path: Path) -> None:
    clock = kit.StandingClock()
    async with running(SimSettings()) as sim:
        tables = '[cache]\nttl = "10m"\nanswer_max = "2KiB"\n' + kit.upstream(Home(tmp_path / "home"), sim.url)
        async with kit.gateway(tmp_path, tables, clock=clock) as gate:
            token = gate.crew.agent()
            long = kit.messages(temperature=0, max_tokens=8000)
            answers = [await gate.post(MESSAGES, long, token) for _ in range(2)]
            assert len(answers[0].body) > 2048 and not any(map(is_hit, answers))
            short = kit.messages(temperature=0, max_tokens=1, stream=False)
            assert [is_hit(await gate.post(MESSAGES, short, token)) for _ in range(2)] == [False, True]
            clock.now += 599
            assert is_hit(await gate.post(MESSAGES, short, token))
            clock.now += 2
            assert [is_hit(await gate.post(MESSAGES, short, token)) for _ in range(2)] == [False, True]


@pytest.mark.asyncio
async def test_disk_that_takes_nothing_stops_no_traffic(tmp_path: Path) -> None:
    async with house(tmp_path) as (gate, _):
        gate.home.answers.write_text("in the way")
        assert (await gate.post(MESSAGES, COLD, gate.crew.agent())).status == 200
        await kit.until(lambda: "answers are not kept" in gate.log(), "the log to say so")


@pytest.mark.asyncio
async def test_purge_while_a_gateway_runs(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from supervisor.cli.gateway import command

    async with house(tmp_path) as (gate, _):
        token = gate.crew.agent()
        assert [is_hit(await gate.post(MESSAGES, COLD, token)) for _ in range(2)] == [False, True]
        done = CliRunner().invoke(command, ["cache", "--purge"], env={"NIGHTCREW_HOME": str(gate.home.root)})
        assert done.exit_code == 0, done.output
        assert not gate.home.answers.exists() and (await gate.status())["cache"]["bytes"] == 0
        assert [is_hit(await gate.post(MESSAGES, COLD, token)) for _ in range(2)] == [False, True]


def test_least_recently_used_go_first_and_the_rest_stays_below_the_bound(tmp_path: Path) -> None:
    from supervisor.gateway.admission.types import Usage

    shelf = Shelf(tmp_path / "answers", b"secret", AnswerCache(60.0, 10_000, 4000))
    answer = Kept("text/plain", 1000.0, Usage(), None, b"x" * 2000)
    for number, key in enumerate("abcd"):
        shelf.write(key, answer)
        os.utime(tmp_path / "answers" / key, (number, number))
    assert shelf.read("a", 1000.0) == answer, "which makes it the newest one"
    shelf.write("e", answer)
    assert sorted(path.name for path in (tmp_path / "answers").iterdir()) == ["a", "c", "d", "e"]
    assert shelf.size == sum(path.stat().st_size for path in (tmp_path / "answers").iterdir()) <= 10_000
    again = Shelf(tmp_path / "answers", b"secret", AnswerCache(60.0, 10_000, 4000))
    again.trim()
    assert again.size == shelf.size
    assert Shelf(tmp_path / "answers", b"another", AnswerCache(60.0, 10_000, 4000)).read("a", 1000.0) is None
