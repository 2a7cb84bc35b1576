"""The real SDKs read what the simulated provider says, streamed or not."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest
from anthropic.types import TextBlock, ToolUseBlock
from openai.types.responses import ResponseCompletedEvent, ResponseFunctionToolCall

from tests.gateway.sim.raw import GEMINI, GEMINI_STREAM, MESSAGES, anthropic_body, ask, gemini_body
from tests.gateway.simulator import Simulator

MODEL = "claude-opus-4-8"
WEATHER = {"city": "Zürich", "days": 3}


def test_messages(claude: anthropic.Anthropic, sim: Simulator, key: str) -> None:
    message = claude.messages.create(model=MODEL, max_tokens=50, messages=[{"role": "user", "content": "hi"}])
    block = message.content[0]
    assert isinstance(block, TextBlock) and block.text.startswith("[simulated] ")
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 50
    assert sim.tally(key).reported["input"] == message.usage.input_tokens


def test_messages_streamed_in_the_order_of_the_real_events(claude: anthropic.Anthropic, sim: Simulator, key: str) -> None:
    with claude.messages.create(model=MODEL, max_tokens=50, messages=[{"role": "user", "content": "hi"}], stream=True) as stream:
        events = list(stream)
    names = [event.type for event in events if event.type != "content_block_delta"]
    # The SDK itself drops `ping`.
    assert names == ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    start, end = events[0], events[-2]
    assert start.type == "message_start" and start.message.usage.output_tokens == 1
    assert end.type == "message_delta" and end.usage.output_tokens == 50, "cumulative"
    kept = {"cache_read": 0, "cache_write": 0, "cache_write_1h": 0}
    assert sim.tally(key).reported == {"input": start.message.usage.input_tokens, "output": 50, **kept}


def test_messages_tool_use(claude: anthropic.Anthropic, sim: Simulator) -> None:
    sim.faults(tool="weather", tool_input=WEATHER)
    whole = claude.messages.create(model=MODEL, max_tokens=50, messages=[{"role": "user", "content": "hi"}])
    with claude.messages.stream(model=MODEL, max_tokens=50, messages=[{"role": "user", "content": "hi"}]) as stream:
        streamed = stream.get_final_message()
    for message in (whole, streamed):
        text, call = message.content
        assert isinstance(text, TextBlock) and text.text == "[simulated] weather"
        assert isinstance(call, ToolUseBlock) and (call.name, call.input) == ("weather", WEATHER)
        assert message.stop_reason == "tool_use"


def test_count_tokens_costs_nothing(claude: anthropic.Anthropic, sim: Simulator, key: str) -> None:
    counted = claude.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "hi " * 1000}])
    assert counted.input_tokens == pytest.approx(3000 / 3.6, rel=0.1)
    told = sim.tally(key)
    assert told.answered == 1 and not told.used


def test_the_cache_is_told_in_the_usage(claude: anthropic.Anthropic) -> None:
    def usage() -> anthropic.types.Usage:
        return claude.messages.create(
            model=MODEL,
            max_tokens=5,
            system=[{"type": "text", "text": "word " * 2000, "cache_control": {"type": "ephemeral"}}],
            messages=[{"role": "user", "content": "hi"}],
        ).usage

    first, second = usage(), usage()
    assert (first.cache_read_input_tokens, second.cache_creation_input_tokens) == (0, 0)
    assert first.cache_creation_input_tokens == second.cache_read_input_tokens
    assert (second.cache_read_input_tokens or 0) > 2500


def test_chat(gpt: openai.OpenAI, sim: Simulator, key: str) -> None:
    answer = gpt.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
    assert (answer.choices[0].message.content or "").startswith("[simulated] ")
    assert answer.usage is not None and answer.usage.completion_tokens == sim.tally(key).reported["output"]


@pytest.mark.parametrize("asked", [True, False])
def test_chat_streamed_tells_usage_only_when_asked(gpt: openai.OpenAI, asked: bool) -> None:
    chunks = list(
        gpt.chat.completions.create(
            model="gpt-5",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": asked},
            max_completion_tokens=40,
        )
    )
    told = [chunk.usage for chunk in chunks if chunk.usage is not None]
    assert len(told) == asked and all(usage.completion_tokens == 40 for usage in told)
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_chat_tool_calls(gpt: openai.OpenAI, sim: Simulator) -> None:
    sim.faults(tool="weather", tool_input=WEATHER)
    with gpt.chat.completions.stream(model="gpt-5", messages=[{"role": "user", "content": "hi"}]) as stream:
        streamed = stream.get_final_completion()
    whole = gpt.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
    for choice in (streamed.choices[0], whole.choices[0]):
        call = (choice.message.tool_calls or [])[0]
        assert choice.finish_reason == "tool_calls"
        assert call.type == "function" and (call.function.name, json.loads(call.function.arguments)) == ("weather", WEATHER)


def test_responses(gpt: openai.OpenAI, sim: Simulator, key: str) -> None:
    answer = gpt.responses.create(model="gpt-5", input="hi", max_output_tokens=30)
    assert answer.output_text.startswith("[simulated] ") and answer.status == "incomplete"
    assert answer.usage is not None and answer.usage.output_tokens == 30 == sim.tally(key).reported["output"]


def test_responses_streamed_numbered_and_complete(gpt: openai.OpenAI) -> None:
    with gpt.responses.stream(model="gpt-5", input="hi") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events if not event.type.endswith("delta")] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == final.output_text
    assert final.usage is not None and final.usage.total_tokens == final.usage.input_tokens + final.usage.output_tokens


@pytest.mark.parametrize("streamed", [True, False])
def test_responses_function_call(gpt: openai.OpenAI, sim: Simulator, streamed: bool) -> None:
    sim.faults(tool="weather", tool_input=WEATHER, text="")
    if streamed:
        events = list(gpt.responses.create(model="gpt-5", input="hi", stream=True))
        assert isinstance(events[-1], ResponseCompletedEvent)
        answer = events[-1].response
    else:
        answer = gpt.responses.create(model="gpt-5", input="hi")
    (call,) = answer.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, json.loads(call.arguments)) == ("weather", WEATHER)


def test_gemini_whole_events_and_array_say_the_same(sim: Simulator, key: str) -> None:
    sim.faults(text="One two three four five six seven eight nine ten. " * 10, output_tokens=100)
    whole = ask(sim.url, GEMINI, gemini_body(), key).json
    events = ask(sim.url, f"{GEMINI_STREAM}?alt=sse", gemini_body(), key)
    array = ask(sim.url, GEMINI_STREAM, gemini_body(), key)
    assert events.headers["content-type"].startswith("text/event-stream") and b"\r\n\r\n" in events.body
    assert array.headers["content-type"].startswith("application/json")
    for chunks in (events.events(), array.json):
        assert len(chunks) > 1
        texts = [part["text"] for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        assert "".join(texts) == whole["candidates"][0]["content"]["parts"][0]["text"]
        produced = [chunk["usageMetadata"]["candidatesTokenCount"] for chunk in chunks]
        assert produced == sorted(produced) and produced[-1] == 100 == whole["usageMetadata"]["candidatesTokenCount"]
        assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


def test_gemini_function_call_and_count(sim: Simulator, key: str) -> None:
    sim.faults(tool="weather", tool_input=WEATHER, times=1)
    parts = ask(sim.url, GEMINI, gemini_body(), key).json["candidates"][0]["content"]["parts"]
    assert parts[-1] == {"functionCall": {"name": "weather", "args": WEATHER}}
    assert ask(sim.url, GEMINI.replace("generateContent", "countTokens"), gemini_body(), key).json["totalTokens"] > 0


def test_every_answer_is_marked_as_simulated(sim: Simulator, key: str) -> None:
    sim.faults(status=529, times=1)
    answers = [ask(sim.url, path, anthropic_body(), key) for path in (MESSAGES, MESSAGES, "/v1/messages/count_tokens", "/v1/nothing")]
    assert [answer.status for answer in answers] == [529, 200, 200, 404]
    assert all(answer.headers["x-simulated"] == "nightcrew" for answer in answers)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"model": "m"}', b'{"model": "m", "messages": "hi"}', b'{"model":"m","messages":[],"max_tokens":"x"}']
)
def test_a_bad_body_is_the_clients_own_fault(sim: Simulator, key: str, body: bytes) -> None:
    answer = ask(sim.url, MESSAGES, body, key)
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")
    assert sim.tally(key).refused == {"invalid": 1}
