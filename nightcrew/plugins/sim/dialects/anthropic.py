"""Anthropic Messages: events named in the `event:` line, usage in message_start and (cumulative) in message_delta."""

# ruff: noqa: ARG002 - one interface for all dialects, and not each needs every argument
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from nightcrew.plugins.sim.dialects.types import Answer, Ask, Failure, Frame, Gauge, compact, optional_int
from supervisor.gateway.admission.types import Usage

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_DIMENSIONS = {"requests": "requests", "input": "input-tokens", "output": "output-tokens", "tokens": "tokens"}


class Anthropic:
    """`/v1/messages`."""

    api = "anthropic"

    def read(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Ask:
        if not isinstance(body["messages"], list):
            raise TypeError("messages: a list is required")
        return Ask(str(body["model"]), body.get("stream") is True, optional_int(body.get("max_tokens")), body)

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        return {
            **_message(ask, answer, answer.usage),
            "content": [*_text_block(answer.text), *_tool_blocks(answer)],
            "stop_reason": _stop(answer),
        }

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        yield _frame({"type": "message_start", "message": _message(ask, answer, _at_start(answer.usage))})
        yield from _text_frames(answer)
        for index, block in enumerate(_tool_blocks(answer), start=1 if answer.chunks else 0):
            yield from _tool_frames(block, index)
        delta = {"type": "message_delta", "delta": {"stop_reason": _stop(answer), "stop_sequence": None}}
        yield _frame(delta | ({} if answer.usage is None else {"usage": _counts(answer.usage)}), usage=True)
        yield _frame({"type": "message_stop"})

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        error: dict[str, Any] = {"type": _TYPES.get(failure.status, "api_error"), "message": failure.message}
        if failure.reason == "spend_cap":
            error["details"] = {"error_code": "enforced_spend_limit_reached", "error_visibility": "user_facing"}
        return {"type": "error", "error": error, "request_id": request_id}

    def error_frame(self, failure: Failure, request_id: str) -> bytes:
        return _sse("error", self.error(failure, request_id))

    def ping(self) -> bytes:
        return _sse("ping", {"type": "ping"})

    def limit_headers(self, gauges: Mapping[str, Gauge], wall: float) -> dict[str, str]:
        shown = dict(gauges)
        if {"input", "output"} <= shown.keys():
            shown.setdefault("tokens", _sum(shown["input"], shown["output"]))
        headers = {}
        for name, gauge in shown.items():
            step = 1 if name == "requests" else 1000
            prefix = f"anthropic-ratelimit-{_DIMENSIONS[name]}"
            headers[f"{prefix}-limit"] = str(round(gauge.limit))
            headers[f"{prefix}-remaining"] = str(max(0, round(gauge.remaining / step) * step))
            headers[f"{prefix}-reset"] = datetime.fromtimestamp(wall + gauge.full_in_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return headers

    def id_headers(self, request_id: str) -> dict[str, str]:
        return {"request-id": request_id, "anthropic-organization-id": "00000000-0000-4000-8000-000000000000"}


def _sum(one: Gauge, other: Gauge) -> Gauge:
    """What the `tokens` headers show: both limits together (recorded from a live answer, August 2025: 80000 + 16000 = 96000)."""
    return Gauge(one.limit + other.limit, one.remaining + other.remaining, max(one.full_in_s, other.full_in_s))


def _message(ask: Ask, answer: Answer, usage: Usage | None) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": f"msg_{answer.id}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }
    return message if usage is None else message | {"usage": {**_counts(usage), "service_tier": "standard"}}


def _counts(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }


def _at_start(usage: Usage | None) -> Usage | None:
    """message_start knows the input and the first token."""
    return None if usage is None else Usage(usage.input, min(1, usage.output), usage.cache_read, usage.cache_write)


def _stop(answer: Answer) -> str:
    if answer.stop:
        return answer.stop
    if answer.tool is not None:
        return "tool_use"
    return "max_tokens" if answer.cut_short else "end_turn"


def _text_block(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def _tool_blocks(answer: Answer) -> list[dict[str, Any]]:
    tools = [] if answer.tool is None else [answer.tool, *answer.more_tools]
    ids = (f"toolu_{answer.id}" + (f"_{place}" if place else "") for place in range(len(tools)))
    return [{"type": "tool_use", "id": name, "name": tool.name, "input": tool.input} for name, tool in zip(ids, tools, strict=True)]


def _text_frames(answer: Answer) -> Iterator[Frame]:
    if not answer.chunks:
        return
    yield _frame({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    yield _frame({"type": "ping"})
    for chunk, tokens in zip(answer.chunks, answer.chunk_tokens, strict=True):
        yield _frame({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": chunk}}, tokens)
    yield _frame({"type": "content_block_stop", "index": 0})


def _tool_frames(block: Mapping[str, Any], index: int) -> Iterator[Frame]:
    yield _frame({"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}})
    for part in ("", json.dumps(block["input"], ensure_ascii=False)):
        yield _frame({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": part}})
    yield _frame({"type": "content_block_stop", "index": index})


def _frame(event: Mapping[str, Any], tokens: int = 0, *, usage: bool = False) -> Frame:
    return Frame(_sse(str(event["type"]), event), tokens, usage)


def _sse(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {compact(data)}\n\n".encode()
