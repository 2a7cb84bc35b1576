"""The scripted engine itself: what other tests rely on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.engines.scripted import Answer, ScriptedEngine, scripted

pytestmark = pytest.mark.asyncio

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
LONG = "word " * 50


def body(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": text}], **more}


def client() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


async def post(session: aiohttp.ClientSession, engine: ScriptedEngine, path: str, shape: dict[str, Any]) -> Any:
    async with session.post(engine.url + path, json=shape) as response:
        text = await response.text()
        return text if shape.get("stream") else json.loads(text)


async def test_a_prefix_is_reused_in_its_slot_alone(tmp_path: Path) -> None:
    async with scripted(2, save_path=tmp_path) as engine, client() as session:
        for slot in (0, 1, 1):
            await post(session, engine, CHAT, body(LONG, id_slot=slot))
        await post(session, engine, MESSAGES, body("other", id_slot=1))
        assert [(served.slot, served.cached > 5) for served in engine.requests] == [(0, False), (1, False), (1, True), (0, False)]
        await post(session, engine, "/slots/1?action=save", {"filename": "a.bin"})
        await post(session, engine, "/slots/0?action=restore", {"filename": "a.bin"})
        await post(session, engine, CHAT, body(LONG, id_slot=0))
        assert engine.requests[-1].cached == len(engine.requests[-1].prompt) - 1


async def test_a_save_of_a_busy_slot_waits(tmp_path: Path) -> None:
    async with scripted(1, save_path=tmp_path) as engine, client() as session:
        engine.tokens.close()
        busy = asyncio.create_task(post(session, engine, CHAT, body(LONG, stream=True)))
        await engine.arrived(1)
        saving = asyncio.create_task(post(session, engine, "/slots/0?action=save", {"filename": "a.bin"}))
        while "POST /slots/0?action=save" not in engine.calls:
            await asyncio.sleep(0)
        assert not saving.done()
        assert not engine.saved
        await engine.tokens.open()
        assert "Hello" in await busy
        assert (await saving)["n_saved"] == len(engine.saved["a.bin"])


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_hang_up_frees_the_slot_of_a_stream_alone(path: str) -> None:
    async with scripted(2) as engine, client() as session:
        engine.tokens.close()
        asking = [asyncio.create_task(post(session, engine, path, body(LONG, stream=stream))) for stream in (True, False)]
        await engine.arrived(2)
        await engine.tokens.let(2)
        for task in asking:
            task.cancel()
        streamed, whole = sorted(engine.requests, key=lambda served: not served.body["stream"])
        ended = await engine.ended(1 + engine.requests.index(streamed))
        assert ended.end == "hung up"
        assert whole.end == ""
        await engine.tokens.open()
        assert (await engine.ended(1 + engine.requests.index(whole))).end == "done"


async def test_answers_of_both_apis() -> None:
    async with scripted(1) as engine, client() as session:
        engine.answer = lambda _: Answer(("Hi",), thinking=("hm",), calls=(("look", ('{"a"', ":1}")),))
        whole = await post(session, engine, MESSAGES, body("x"))
        assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use"]
        chat = await post(session, engine, CHAT, body("x"))
        assert chat["choices"][0]["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"a":1}'}
        streamed = await post(session, engine, CHAT, body("x", stream=True, stream_options={"include_usage": True}))
        assert streamed.endswith("data: [DONE]\n\n")
        assert '"cached_tokens": ' in streamed
        assert '"partial_json"' in await post(session, engine, MESSAGES, body("x", stream=True))


async def test_a_connection_is_closed_after_a_stream() -> None:
    async with scripted(1) as engine, aiohttp.ClientSession() as session:
        engine.closes_late = True
        for stream in (False, True):
            await post(session, engine, CHAT, body("x", stream=stream))
        with pytest.raises(aiohttp.ClientConnectionError):
            await post(session, engine, CHAT, body("x"))
        await post(session, engine, CHAT, body("x"))
        assert [served.connection for served in engine.requests] == [0, 0, 1]
