"""OpenAI Responses: named and numbered events; the last one, response.completed, carries the whole answer and its usage."""

# ruff: noqa: ARG002 - one interface for all dialects, and not each needs every argument
from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from nightcrew.plugins.sim.dialects.openai import OpenAi
from nightcrew.plugins.sim.dialects.types import Answer, Ask, Failure, Frame, compact, optional_int
from supervisor.gateway.admission.types import Usage


class Responses(OpenAi):
    """`/v1/responses`."""

    api = "responses"

    def read(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Ask:
        if not isinstance(body["input"], (str, list)):
            raise TypeError("input: a text or a list is required")
        return Ask(str(body["model"]), body.get("stream") is True, optional_int(body.get("max_output_tokens")), body)

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        status = "incomplete" if answer.cut_short else "completed"
        usage = None if answer.usage is None else _counts(answer.usage)
        return {**_response(ask, answer, status), "output": _items(answer), "usage": usage}

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        numbers = count()
        for kind, fields, tokens in self._events(ask, answer):
            event = {"type": kind, "sequence_number": next(numbers), **fields}
            yield Frame(_sse(kind, event), tokens, usage=kind in ("response.completed", "response.incomplete"))

    def _events(self, ask: Ask, answer: Answer) -> Iterator[tuple[str, dict[str, Any], int]]:
        """(type, fields, tokens)."""
        begun = {**_response(ask, answer, "in_progress"), "output": [], "usage": None}
        yield "response.created", {"response": begun}, 0
        yield "response.in_progress", {"response": begun}, 0
        for place, item in enumerate(_items(answer)):
            opened = {**item, **_EMPTY[item["type"]], "status": "in_progress"}
            yield "response.output_item.added", {"output_index": place, "item": opened}, 0
            for kind, fields, tokens in _text_events(answer) if item["type"] == "message" else _call_events(item):
                yield kind, {"item_id": item["id"], "output_index": place, **fields}, tokens
            yield "response.output_item.done", {"output_index": place, "item": item}, 0
        whole = self.whole(ask, answer)
        yield f"response.{whole['status']}", {"response": whole}, 0

    def error_frame(self, failure: Failure, request_id: str) -> bytes:
        """A stream that fails says so in response.failed."""
        code = "rate_limit_exceeded" if failure.status == 429 else "server_error"
        response = {
            "id": f"resp_{request_id}",
            "object": "response",
            "created_at": 0,
            "status": "failed",
            "error": {"code": code, "message": failure.message},
            "incomplete_details": None,
            "output": [],
            "usage": None,
        }
        return _sse("response.failed", {"type": "response.failed", "sequence_number": 0, "response": response})


_EMPTY: dict[str, dict[str, Any]] = {"message": {"content": []}, "function_call": {"arguments": ""}, "custom_tool_call": {"input": ""}}


def _response(ask: Ask, answer: Answer, status: str) -> dict[str, Any]:
    return {
        "id": f"resp_{answer.id}",
        "object": "response",
        "created_at": answer.created,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None,
        "max_output_tokens": ask.max_tokens,
        "model": ask.model,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "metadata": {},
    }


def _items(answer: Answer) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    if answer.text:
        message = {"id": f"msg_{answer.id}", "type": "message", "status": "completed", "role": "assistant"}
        items.append({**message, "content": [_part(answer.text)]})
    if answer.tool is not None:
        custom = isinstance(answer.tool.input, str)
        kind, said = ("custom_tool_call", "input") if custom else ("function_call", "arguments")
        call = {"id": f"fc_{answer.id}", "type": kind, "status": "completed", "call_id": f"call_{answer.id}"}
        items.append({**call, "name": answer.tool.name, said: answer.tool.arguments})
    return items


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _text_events(answer: Answer) -> Iterator[tuple[str, dict[str, Any], int]]:
    yield "response.content_part.added", {"content_index": 0, "part": _part("")}, 0
    for chunk, tokens in zip(answer.chunks, answer.chunk_tokens, strict=True):
        yield "response.output_text.delta", {"content_index": 0, "delta": chunk, "logprobs": []}, tokens
    yield "response.output_text.done", {"content_index": 0, "text": answer.text, "logprobs": []}, 0
    yield "response.content_part.done", {"content_index": 0, "part": _part(answer.text)}, 0


def _call_events(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], int]]:
    if item["type"] == "custom_tool_call":
        yield "response.custom_tool_call_input.delta", {"delta": item["input"]}, 0
        yield "response.custom_tool_call_input.done", {"input": item["input"]}, 0
    else:
        yield "response.function_call_arguments.delta", {"delta": item["arguments"]}, 0
        yield "response.function_call_arguments.done", {"arguments": item["arguments"], "name": item["name"]}, 0


def _counts(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + usage.output,
    }


def _sse(name: str, data: object) -> bytes:
    return f"event: {name}\ndata: {compact(data)}\n\n".encode()
