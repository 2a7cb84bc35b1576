"""Gemini: the model in the path, CRLF between events, usage in every chunk (cumulative), no limit headers, RetryInfo in the 429's body."""

# ruff: noqa: ARG002 - one interface for all dialects, and not each needs every argument
from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from nightcrew.plugins.sim.dialects.types import Answer, Ask, Failure, Frame, Gauge, compact, optional_int
from supervisor.gateway.admission.types import Usage

_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_RPC = "type.googleapis.com/google.rpc"


class Gemini:
    """`/v1beta/models/MODEL:generateContent` and `:streamGenerateContent`, as events (`?alt=sse`) or as one JSON array."""

    api = "gemini"

    def read(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Ask:
        if not isinstance(body["contents"], list):
            raise TypeError("contents: a list is required")
        model, _, method = path.rpartition("/")[2].partition(":")
        config = body.get("generationConfig")
        limit = optional_int(config.get("maxOutputTokens")) if isinstance(config, dict) else None
        return Ask(model, method == "streamGenerateContent", limit, body, array=query.get("alt") != "sse")

    def whole(self, ask: Ask, answer: Answer) -> dict[str, Any]:
        return _chunk(ask, answer, _parts(answer.text, answer), answer.usage, last=True)

    def frames(self, ask: Ask, answer: Answer) -> Iterator[Frame]:
        chunks = answer.chunks or ("",)
        produced = list(accumulate(answer.chunk_tokens or (0,)))
        for place, (text, tokens) in enumerate(zip(chunks, answer.chunk_tokens or (0,), strict=True)):
            last = place == len(chunks) - 1
            usage = answer.usage if last or answer.usage is None else _so_far(answer.usage, produced[place])
            parts = _parts(text, answer if last else None)
            data = compact(_chunk(ask, answer, parts, usage, last=last))
            yield Frame(_framed(data, place, last=last, array=ask.array), tokens, usage=last)

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        error: dict[str, Any] = {"code": failure.status, "message": failure.message, "status": _STATUS.get(failure.status, "INTERNAL")}
        if failure.status == 429 and failure.reason != "spend_cap":
            error["details"] = _details(failure)
        return {"error": error}

    def error_frame(self, failure: Failure, request_id: str) -> bytes:
        return f"data: {compact(self.error(failure, request_id))}\r\n\r\n".encode()

    def ping(self) -> bytes:
        """Gemini has none."""
        return b": keep-alive\r\n\r\n"

    def limit_headers(self, gauges: Mapping[str, Gauge], wall: float) -> dict[str, str]:
        """Gemini says nothing of its limits before they are reached."""
        return {}

    def id_headers(self, request_id: str) -> dict[str, str]:
        return {"server-timing": "gfet4t7; dur=1"}


def _framed(data: str, place: int, *, last: bool, array: bool) -> bytes:
    if not array:
        return f"data: {data}\r\n\r\n".encode()
    return f"{'[' if place == 0 else f',{chr(13)}{chr(10)}'}{data}{']' if last else ''}".encode()


def _chunk(ask: Ask, answer: Answer, parts: list[dict[str, Any]], usage: Usage | None, *, last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if last:
        candidate["finishReason"] = "MAX_TOKENS" if answer.cut_short else "STOP"
    chunk = {"candidates": [candidate], "modelVersion": ask.model, "responseId": answer.id}
    return chunk if usage is None else chunk | {"usageMetadata": _counts(usage)}


def _parts(text: str, ended: Answer | None) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": text}] if text else []
    if ended is not None and ended.tool is not None:
        parts.append({"functionCall": {"name": ended.tool.name, "args": ended.tool.input}})
    return parts or [{"text": ""}]


def _so_far(usage: Usage, produced: int) -> Usage:
    return Usage(usage.input, min(produced, usage.output), usage.cache_read, usage.cache_write)


def _counts(usage: Usage) -> dict[str, Any]:
    prompt = usage.input + usage.cache_read + usage.cache_write
    counts = {"promptTokenCount": prompt, "candidatesTokenCount": usage.output, "totalTokenCount": prompt + usage.output}
    return counts | ({"cachedContentTokenCount": usage.cache_read} if usage.cache_read else {})


def _details(failure: Failure) -> list[dict[str, Any]]:
    metric = "generate_content_requests" if failure.dimension == "requests" else "generate_content_input_token_count"
    violation = {"quotaMetric": f"generativelanguage.googleapis.com/{metric}", "quotaValue": str(round(failure.limit))}
    details: list[dict[str, Any]] = [{"@type": f"{_RPC}.QuotaFailure", "violations": [violation]}]
    if failure.wait_s is not None:
        details.append({"@type": f"{_RPC}.RetryInfo", "retryDelay": f"{failure.wait_s:g}s"})
    return details
