"""Responses in the shapes of the three APIs, for the tests of the wire."""

from __future__ import annotations

import json
from typing import Any

from supervisor.gateway.admission.types import Usage
from supervisor.gateway.wire.metering import Answer
from supervisor.gateway.wire.requests import Asked, read, recognise

BODY = b'{"model":"m","stream":true}'
PATHS = {
    "anthropic": "/v1/messages",
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "gemini": "/v1beta/models/m:streamGenerateContent",
}


def asked(kind: str) -> Asked:
    found = recognise("POST", PATHS[kind])
    assert found is not None
    return read(found, {}, BODY)


def event(data: object, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"


def named(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])


def start(**usage: Any) -> bytes:
    return named({"type": "message_start", "message": {"id": "m", "type": "message", "content": [], "usage": usage}})


def text(words: str) -> bytes:
    return named({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}})


def delta(**usage: Any) -> bytes:
    return named({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})


STOP = named({"type": "message_stop"})


def chat_chunk(words: str | None = None, usage: object = None, **choice: Any) -> bytes:
    choices = [] if words is None else [{"index": 0, "delta": {"content": words}, "finish_reason": None, **choice}]
    return event({"id": "c", "object": "chat.completion.chunk", "choices": choices, "usage": usage})


DONE = b"data: [DONE]\n\n"
CHAT_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 8},
}
RESPONSES_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 8},
    "total_tokens": 120,
}


def gemini_chunk(words: str, candidates: int, **more: Any) -> dict[str, Any]:
    counts = {"promptTokenCount": 100, "cachedContentTokenCount": 60, "thoughtsTokenCount": 8, "candidatesTokenCount": candidates}
    return {"candidates": [{"content": {"parts": [{"text": words}]}, **more}], "usageMetadata": counts}


STREAMS: dict[str, tuple[bytes, Usage]] = {
    "anthropic": (
        start(input_tokens=10, cache_creation_input_tokens=300, cache_read_input_tokens=5000, output_tokens=1)
        + named({"type": "ping"})
        + b": a comment\n\n"
        + text("Grüße \U0001f30d")
        + text('"usage": {"output_tokens": 7}')
        + delta(output_tokens=42)
        + STOP,
        Usage(10, 42, 5000, 300),
    ),
    "chat": (
        chat_chunk("a") + chat_chunk("ü") + chat_chunk("", finish_reason="stop") + chat_chunk(None, CHAT_USAGE) + DONE,
        Usage(40, 20, 60, 0),
    ),
    "responses": (
        named({"type": "response.created", "response": {"object": "response", "status": "in_progress", "usage": None, "error": None}})
        + named({"type": "response.output_text.delta", "delta": "ü"})
        + named(
            {
                "type": "response.completed",
                "response": {"object": "response", "status": "completed", "usage": RESPONSES_USAGE, "error": None},
            }
        ),
        Usage(30, 20, 60, 10),
    ),
    "gemini": (
        event(gemini_chunk("a", 5)) + event(gemini_chunk("ü", 12, finishReason="STOP")),
        Usage(40, 20, 60, 0),
    ),
}


def feed(answer: Answer, chunks: list[bytes]) -> bytes:
    """What is forwarded of the chunks, to the last byte."""
    return b"".join(answer.feed(chunk) for chunk in chunks) + answer.finish()


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[place : place + size] for place in range(0, len(data), size)]
