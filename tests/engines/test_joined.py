"""Streams put together: what a client that does not stream gets of an engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from supervisor.gateway.wire.joined import Broken, Joined
from supervisor.gateway.wire.requests import Endpoint
from tests.engines.gateway_kit import CHAT, MESSAGES, ask, engine_gate, message
from tests.engines.scripted import Answer
from tests.gateway import kit

TALK = Answer(("Hello", " wörld", "."), thinking=("Let", " me"), calls=(("look", ('{"path": "', 'ä.py"}')), ("stop", ())))


def events(*shapes: Any) -> bytes:
    return b"".join(f"data: {json.dumps(shape)}\n\n".encode() for shape in shapes)


def chat(*shapes: Any, size: int = 7) -> Any:
    """What comes of a chat stream that arrives in pieces of `size` bytes."""
    joined, data = Joined(Endpoint.CHAT), events(*shapes) + b"data: [DONE]\n\n"
    for place in range(0, len(data), size):
        joined.feed(data[place : place + size])
    return json.loads(joined.finish())


def anthropic(*shapes: Any) -> Any:
    joined = Joined(Endpoint.MESSAGES)
    joined.feed(events(*shapes))
    return json.loads(joined.finish())


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
async def test_a_client_gets_the_body_that_the_engine_would_have_sent(tmp_path: Path, path: str) -> None:
    async with engine_gate(tmp_path) as (engine, gate), aiohttp.ClientSession() as session:
        engine.answer = lambda _: TALK
        body = ask("Be brief.", "hi") if path == CHAT else message("Be brief.", "hi")
        answer = await gate.post(path, body, gate.crew.agent())
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json"), answer.body
        assert engine.requests[0].body["stream"] is True
        engine.slots[engine.requests[0].slot or 0].tokens = []
        async with session.post(engine.url + path, data=body) as response:
            whole = await response.json()
        assert answer.json | {"id": "", "created": 0} == whole | {"id": "", "created": 0}
        row = (await kit.settled(gate.home, 1))[0]
        assert (row["end"], row["output"], row["input"]) == ("served", 9, len(engine.requests[0].prompt))


@pytest.mark.asyncio
async def test_a_hang_up_of_a_client_that_does_not_stream_frees_the_slot(tmp_path: Path) -> None:
    async with engine_gate(tmp_path) as (engine, gate):
        engine.tokens.close()
        asking = asyncio.create_task(gate.post(CHAT, ask("s", "hi"), gate.crew.agent()))
        await engine.arrived(1)
        await engine.tokens.let(1)
        asking.cancel()
        assert (await engine.ended(1)).end == "hung up"


@pytest.mark.asyncio
@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("fault", [Answer(error="the slot was lost"), Answer(cut=True)], ids=["error", "cut"])
async def test_what_breaks_off_is_tried_again_and_its_client_sees_nothing(tmp_path: Path, path: str, fault: Answer) -> None:
    async with engine_gate(tmp_path) as (engine, gate):
        engine.answer = lambda served: fault if served is engine.requests[0] else Answer(("fine",))
        body = ask("s", "hi") if path == CHAT else message("s", "hi")
        answer = await gate.post(path, body, gate.crew.agent())
        assert answer.status == 200, answer.body
        assert b'"fine"' in answer.body
        assert [served.end for served in engine.requests] == ["error" if fault.error else "cut", "done"]


def test_choices_unknown_fields_and_logprobs_are_carried() -> None:
    def piece(index: int, delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        return {
            "id": "c",
            "object": "chat.completion.chunk",
            "choices": [{"index": index, "delta": delta, "finish_reason": finish, **more}],
        }

    whole = chat(
        piece(1, {"role": "assistant", "content": None}),
        piece(0, {"role": "assistant", "content": "a"}, logprobs={"content": [{"token": "a"}]}),
        piece(
            1,
            {"tool_calls": [{"index": 1, "id": "x", "type": "function", "function": {"name": "f", "arguments": "{"}, "extra": {"s": "1"}}]},
        ),
        piece(0, {"content": "b", "annotations": [{"n": 1}]}, logprobs={"content": [{"token": "b"}]}),
        piece(1, {"tool_calls": [{"index": 1, "id": "x", "function": {"arguments": "}"}}]}, "tool_calls"),
        piece(0, {"annotations": [{"n": 2}]}, "stop", stop_reason=7),
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 1}, "timings": {"cache_n": 2}},
    )
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}, "extra": {"s": "1"}}
    first = {"role": "assistant", "content": "ab", "annotations": [{"n": 1}, {"n": 2}]}
    logprobs = {"content": [{"token": "a"}, {"token": "b"}]}
    assert whole == {
        "id": "c",
        "object": "chat.completion",
        "usage": {"prompt_tokens": 1},
        "timings": {"cache_n": 2},
        "choices": [
            {"index": 0, "message": first, "finish_reason": "stop", "logprobs": logprobs, "stop_reason": 7},
            {"index": 1, "message": {"role": "assistant", "content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"},
        ],
    }


def test_signatures_citations_and_later_usage_of_a_message_are_carried() -> None:
    start = {"type": "message", "role": "assistant", "content": [], "usage": {"input_tokens": 3, "output_tokens": 0}}
    whole = anthropic(
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s="}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "", "citations": None}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"p": 1}}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "so"}},
        {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
        {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": '{"cut": "'}},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}, "context": {"n": 1}},
        {"type": "message_stop"},
    )
    assert whole["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "s="},
        {"type": "text", "text": "so", "citations": [{"p": 1}]},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    ]
    assert whole["usage"] == {"input_tokens": 3, "output_tokens": 9}
    assert (whole["stop_reason"], whole["context"]) == ("max_tokens", {"n": 1})


def test_a_message_without_a_start_is_whole() -> None:
    found = anthropic(
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "é"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
    assert (found["type"], found["role"], found["content"]) == ("message", "assistant", [{"type": "text", "text": "é"}])
    assert found["usage"] == {"output_tokens": 2, "input_tokens": 0}


def test_an_answer_that_is_no_stream_comes_out_as_it_went_in() -> None:
    joined = Joined(Endpoint.CHAT)
    for piece in (b"\n", b'{"choices"', b": []}"):
        joined.feed(piece)
    assert json.loads(joined.finish()) == {"choices": []}


@pytest.mark.parametrize(
    ("endpoint", "data"),
    [
        (Endpoint.CHAT, b""),
        (Endpoint.CHAT, b"data: [DONE]\n\n"),
        (Endpoint.CHAT, events({"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]})),
        (Endpoint.CHAT, events({"choices": [7]})),
        (Endpoint.CHAT, b"data: no json\n\n"),
        (Endpoint.CHAT, events(["no object"])),
        (Endpoint.MESSAGES, events({"type": "message_start", "message": {}})),
        (Endpoint.MESSAGES, events({"type": "message_stop"})),
        (Endpoint.MESSAGES, events({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}})),
        (Endpoint.MESSAGES, events({"type": "error", "error": {"type": "api_error", "message": "lost"}})),
    ],
)
def test_what_cannot_be_put_together_is_broken(endpoint: Endpoint, data: bytes) -> None:
    def put_together() -> bytes:
        joined = Joined(endpoint)
        joined.feed(data)
        return joined.finish()

    with pytest.raises(Broken):
        put_together()
