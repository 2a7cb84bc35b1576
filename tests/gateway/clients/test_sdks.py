"""The Python SDKs of Anthropic and OpenAI through the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.gateway.clients.kit import Through

if TYPE_CHECKING:  # every worker imports this file, but only who runs these tests should spend seconds on importing the SDKs
    import anthropic
    import openai

MODEL = "claude-opus-4-8"


@pytest.fixture
def claude_sdk(endpoint: Through) -> Iterator[anthropic.Anthropic]:
    import anthropic

    with anthropic.Anthropic(auth_token=endpoint.token("a"), api_key=None, base_url=endpoint.url, max_retries=0) as client:
        yield client


@pytest.fixture
def gpt_sdk(endpoint: Through) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(api_key=endpoint.token("a"), base_url=f"{endpoint.url}/v1", max_retries=0) as client:
        yield client


def ask_claude(client: anthropic.Anthropic) -> anthropic.types.Message:
    with client.messages.stream(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "hi"}]) as stream:
        return stream.get_final_message()


def test_anthropic_whole_streamed_and_counted(claude_sdk: anthropic.Anthropic, endpoint: Through) -> None:
    whole = claude_sdk.messages.create(model=MODEL, max_tokens=100, messages=[{"role": "user", "content": "hi"}])
    streamed = ask_claude(claude_sdk)
    assert claude_sdk.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "hi"}]).input_tokens > 0
    used = [message.usage for message in (whole, streamed)]
    assert endpoint.charged("a") == (sum(usage.input_tokens for usage in used), sum(usage.output_tokens for usage in used))


def test_anthropic_tool_use(claude_sdk: anthropic.Anthropic, endpoint: Through) -> None:
    from anthropic.types import ToolUseBlock

    endpoint.sim.faults(tool="weather", tool_input={"city": "Zürich"}, times=1)
    message = ask_claude(claude_sdk)
    assert message.stop_reason == "tool_use"
    assert isinstance(message.content[-1], ToolUseBlock) and message.content[-1].input == {"city": "Zürich"}


def test_openai_chat_and_responses(gpt_sdk: openai.OpenAI, endpoint: Through) -> None:
    chat = gpt_sdk.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
    chunks = list(gpt_sdk.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}], stream=True))
    assert not any(chunk.usage for chunk in chunks), "what the client did not ask for does not reach it"
    with gpt_sdk.responses.stream(model="gpt-5", input="hi") as stream:
        response = stream.get_final_response()
    assert chat.usage is not None and response.usage is not None
    told = endpoint.sim.tally().reported
    assert told["output"] > chat.usage.completion_tokens + response.usage.output_tokens
    assert endpoint.charged("a") == (told["input"], told["output"]), "the stream that told its client nothing was charged as well"


@pytest.mark.parametrize("status", [429, 529])
def test_they_see_nothing_of_refusals(claude_sdk: anthropic.Anthropic, gpt_sdk: openai.OpenAI, endpoint: Through, status: int) -> None:
    """Neither SDK is allowed to retry here: it is the gateway that does."""
    for api in ("anthropic", "responses"):
        endpoint.sim.faults(api=api, status=status, retry_after="1" if status == 429 else None, times=1)
    assert ask_claude(claude_sdk).usage.output_tokens > 0
    assert gpt_sdk.responses.create(model="gpt-5", input="hi").output_text
    told = endpoint.sim.tally()
    assert (told.refused, told.answered) == ({f"fault:{status}": 2}, 2)


def test_a_cut_stream_reaches_them_as_cut(claude_sdk: anthropic.Anthropic, endpoint: Through) -> None:
    endpoint.sim.faults(then="cut", after=6, times=1)
    with pytest.raises(Exception, match="without sending complete message body"):  # its HTTP library's own, which it does not wrap
        ask_claude(claude_sdk)
    told = endpoint.sim.tally()
    assert (told.cut, told.used["output"]) == (1, 42), "three of seven events that have 100 tokens"
    read, written = endpoint.charged("a")
    assert read == told.used["input"], "it was said"
    assert written == pytest.approx(42, rel=0.1), "estimated by what was seen"
    assert ask_claude(claude_sdk).usage.output_tokens > 0
