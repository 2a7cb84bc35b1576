"""OpenAI Chat Completions: unnamed events, usage only in a last chunk that must be asked for, then `[DONE]`."""

# ruff: noqa: ARG002 - one interface for all dialects, and not each needs every argument
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nightcrew.plugins.sim.dialects.openai import OpenAi
from nightcrew.plugins.sim.dialects.types import Answer, Ask, Failure, Frame, ToolCall, compact, optional_int
from supervisor.gateway.admission.types import Usage


class Chat(OpenAi):
    """`/v1/chat/completions`."""

    api = "chat"

    def read(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Ask:
        if not isinstance(body["messages"], list):
            raise TypeError("messages: a list is required")
        limit = optional_int(body.get("max_completion_tokens") or body.get("max_tokens"))
        return Ask(str(body["model"]), body.get("stream") is True, limit, body)

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
        if answer.tool is not None:
            message["tool_calls"] = [_call(answer.tool, answer.id)]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        whole = {**_head(ask, answer, "chat.completion"), "choices": [choice]}
        return whole if answer.usage is None else whole | {"usage": _counts(answer.usage)}

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        options = ask.body.get("stream_options")
        with_usage = isinstance(options, dict) and options.get("include_usage") is True
        head = _head(ask, answer, "chat.completion.chunk") | ({"usage": None} if with_usage else {})
        yield _chunk(head, {"role": "assistant", "content": "", "refusal": None})
        for text, tokens in zip(answer.chunks, answer.chunk_tokens, strict=True):
            yield _chunk(head, {"content": text}, tokens=tokens)
        if answer.tool is not None:
            call = _call(answer.tool, answer.id)
            opened = {**call, "function": {**call["function"], "arguments": ""}}
            yield _chunk(head, {"tool_calls": [{"index": 0, **opened}]})
            yield _chunk(head, {"tool_calls": [{"index": 0, "function": {"arguments": answer.tool.arguments}}]})
        yield _chunk(head, {}, finish=_finish(answer))
        if with_usage and answer.usage is not None:
            yield Frame(_sse({**head, "choices": [], "usage": _counts(answer.usage)}), usage=True)
        yield Frame(b"data: [DONE]\n\n")

    def error_frame(self, failure: Failure, request_id: str) -> bytes:
        return _sse(self.error(failure, request_id))


def _head(ask: Ask, answer: Answer, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.id}",
        "object": kind,
        "created": answer.created,
        "model": ask.model,
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
    }


def _chunk(head: Mapping[str, Any], delta: Mapping[str, Any], *, tokens: int = 0, finish: str | None = None) -> Frame:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return Frame(_sse({**head, "choices": [choice]}), tokens)


def _call(tool: ToolCall, answer_id: str) -> dict[str, Any]:
    return {"id": f"call_{answer_id}", "type": "function", "function": {"name": tool.name, "arguments": tool.arguments}}


def _finish(answer: Answer) -> str:
    if answer.tool is not None:
        return "tool_calls"
    return "length" if answer.cut_short else "stop"


def _counts(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def _sse(data: object) -> bytes:
    return f"data: {compact(data)}\n\n".encode()
