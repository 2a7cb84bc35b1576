"""The languages that the simulated provider speaks: each turns plain nouns into the bytes that the real API sends. All of it is pure.

`Dialect` has what most of them do, in tables; each language is what it does differently.
"""

# ruff: noqa: ARG002 - one interface for all dialects, and not each needs every argument
from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, count, pairwise
from typing import Any, ClassVar

from nightcrew.plugins.sim.faults import Fault, Reason
from nightcrew.plugins.sim.settings import shell_call
from supervisor.gateway.admission.types import Usage

WORDS: Mapping[int, str] = {
    400: "invalid request",
    401: "invalid API key",
    403: "this key may not do that",
    404: "not found",
    413: "request too large",
    429: "rate limit",
    500: "internal error",
    503: "unavailable",
    529: "Overloaded",
}
"""The words of an error that says nothing special."""
BYTES_PER_TOKEN = 3.6
"""Of JSON bodies as agents send them; a little under the 4 characters that are quoted for plain English."""
MARK = "[simulated] "
TOKENS_PER_EVENT = 16
BIG_LINE = 5_000_000
"""Characters of the one event that `manner: big_line` adds."""
_PLAIN = "No model wrote this. The words only fill the tokens that were asked for. "
_MANIFOLD = "Kein Modell schrieb dies: äöü ßéñ 夜の番 🌙🦉 €. "
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
compact = _ENCODER.encode
"""JSON as the providers write it: no spaces, characters as they are."""

# Nouns
# -----


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for a completion."""

    model: str
    stream: bool
    max_tokens: int | None
    body: Mapping[str, Any]
    array: bool = False
    """Gemini: the stream is a JSON array instead of events."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The answer wants a tool run. `input` is a text for a custom tool of the Responses API."""

    id: str
    name: str
    input: Mapping[str, Any] | str

    @property
    def arguments(self) -> str:
        """The input as the API's JSON text."""
        return self.input if isinstance(self.input, str) else json.dumps(self.input, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What will be said. `chunks` are the pieces of its text, one an event, with the tokens that each takes to produce."""

    ask: Ask
    id: str
    created: int
    """Seconds since 1970."""
    chunks: tuple[tuple[str, int], ...]
    tools: tuple[ToolCall, ...]
    """Only Anthropic answers with more than the first."""
    stop: str
    """The stop reason that was asked for; empty: the API's own. Anthropic only."""
    cut_short: bool
    """It ends because `max_tokens` was reached."""
    usage: Usage | None
    """As it is reported; None: not at all."""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(text for text, _ in self.chunks)

    def ended(self, tool: str, cut: str, whole: str) -> str:
        """Return the API's word for why it ends."""
        if self.tools:
            return tool
        return cut if self.cut_short else whole


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream as it is written. `tokens` were produced with it; `usage`: it carries the final one."""

    data: bytes
    tokens: int = 0
    usage: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that is refused."""

    status: int
    message: str = ""
    reason: Reason = ""
    dimension: str = "tokens"
    limit: float = 0.0
    """Of that dimension, per minute."""
    wait_s: float | None = None
    """Until it would be served; None: not known."""
    opens_at: float = 0.0
    """Of a window that is spent: when it opens again, in seconds since 1970."""

    @property
    def words(self) -> str:
        """What it says."""
        return self.message or WORDS.get(self.status, "error")


@dataclass(frozen=True, slots=True)
class Gauge:
    """One bucket as the headers show it."""

    limit: float
    remaining: float
    full_in_s: float


def compose(ask: Ask, usage: Usage, fault: Fault, answer_id: str, created: int) -> Answer:
    """Make the answer that takes `usage`, scripted by `fault` where it says something."""
    if fault.command and (call := shell_call(ask.body, fault.command)) is not None:
        fault = replace(fault, tool=call[0], tool_input=call[1])
    chunks = _chunks(_text(usage.output, fault), usage.output)
    if fault.manner == "big_line":
        chunks.append(("x" * BIG_LINE, 0))
    called = [(fault.tool, fault.tool_input), *fault.more_tools] if fault.tool else []
    return Answer(
        ask=ask,
        id=answer_id,
        created=created,
        chunks=tuple(chunks),
        tools=tuple(ToolCall(answer_id + (f"_{place}" if place else ""), *call) for place, call in enumerate(called)),
        stop=fault.stop,
        cut_short=not fault.tool and ask.max_tokens is not None and usage.output >= ask.max_tokens,
        usage=_reported(usage, fault),
    )


def _text(output: int, fault: Fault) -> str:
    if fault.text is not None:
        return fault.text
    if fault.tool:
        return f"{MARK}{fault.tool}"
    filler = _MANIFOLD if fault.manner == "split" else _PLAIN
    size = max(len(MARK), round(output * BYTES_PER_TOKEN))
    return (MARK + filler * (size // len(filler) + 1))[:size]


def _chunks(text: str, output: int) -> list[tuple[str, int]]:
    """Cut into events that are nearly equal, with at most TOKENS_PER_EVENT where the text is long enough."""
    if not text:
        return []
    events = max(1, min(len(text), math.ceil(output / TOKENS_PER_EVENT)))
    cuts = [(len(text) * place // events, output * place // events) for place in range(events + 1)]
    return [(text[begin:end], upto - before) for (begin, before), (end, upto) in pairwise(cuts)]


def _reported(usage: Usage, fault: Fault) -> Usage | None:
    match fault.usage:
        case "missing":
            return None
        case "negative":
            return Usage(-usage.input, -usage.output, -usage.cache_read, -usage.cache_write)
        case "larger":
            return replace(usage, output=usage.output * 10)
        case _:
            return usage


# What they have in common
# ------------------------


class Dialect:
    """One API's shapes."""

    api = ""
    history = "messages"
    """The field of a request that holds the conversation."""
    limits: tuple[str, ...] = ("max_tokens",)
    """The fields that bound an answer; the first that is there counts."""
    names_events = True
    line = "\n"
    """What ends a line of a stream."""
    ids: ClassVar[Mapping[str, str]] = {}
    """Headers of every answer; `{}` is the request's id."""
    counted = ""
    """The field in which its route for counting says how many tokens a body has."""

    def read(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Ask:
        """Read a request. Raises KeyError, TypeError or ValueError for a body that the API would call invalid."""
        if not isinstance(body[self.history], (list, *self._also())):
            raise TypeError(f"{self.history}: a list is required")
        return Ask(str(body["model"]), body.get("stream") is True, self._limit(body), body)

    def _also(self) -> tuple[type, ...]:
        return ()

    def _limit(self, holder: Mapping[str, Any]) -> int | None:
        found = next((holder[name] for name in self.limits if holder.get(name) is not None), None)
        if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
            raise TypeError(f"not a number: {found!r}")
        return found

    def whole(self, answer: Answer) -> dict[str, Any]:
        """Return the body of an answer that is not streamed."""
        raise NotImplementedError

    def frames(self, answer: Answer) -> Iterator[Frame]:
        """Yield the events of one that is."""
        raise NotImplementedError

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """Return the body of a refusal."""
        raise NotImplementedError

    def error_frame(self, failure: Failure, request_id: str) -> bytes:
        """Return the same inside a stream that began with 200."""
        return self.sse(self.error(failure, request_id), "error")

    def ping(self) -> bytes:
        """Return an event that says nothing; where the API has none, servers keep a stream alive with comments."""
        return f": keep-alive{self.line * 2}".encode()

    def sse(self, data: object, name: str = "") -> bytes:
        """Return one event of a stream."""
        head = f"event: {name}{self.line}" if self.names_events else ""
        return f"{head}data: {compact(data)}{self.line * 2}".encode()

    def limit_headers(self, gauges: Mapping[str, Gauge], wall: float) -> dict[str, str]:
        """Return what the answer's headers say of the limits; `wall` is the time in seconds since 1970."""
        return {}

    def id_headers(self, request_id: str) -> dict[str, str]:
        """Return the other headers that every answer has."""
        return {name: text.format(request_id) for name, text in self.ids.items()}


def _prompt(usage: Usage) -> int:
    return usage.input + usage.cache_read + usage.cache_write


# Anthropic
# ---------


class Anthropic(Dialect):
    """`/v1/messages`: events named in the `event:` line, usage in message_start and (cumulative) in message_delta."""

    api = "anthropic"
    ids: ClassVar[Mapping[str, str]] = {"request-id": "{}", "anthropic-organization-id": "00000000-0000-4000-8000-000000000000"}
    counted = "input_tokens"
    types: ClassVar = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        529: "overloaded_error",
    }
    dimensions: ClassVar = {"requests": "requests", "input": "input-tokens", "output": "output-tokens", "tokens": "tokens"}

    def whole(self, answer: Answer) -> dict[str, Any]:
        text = [{"type": "text", "text": answer.text}] if answer.chunks else []
        blocks = [*text, *self._tool_blocks(answer)]
        return {**self._message(answer, answer.usage), "content": blocks, "stop_reason": self._stop(answer)}

    def frames(self, answer: Answer) -> Iterator[Frame]:
        first = (
            None if answer.usage is None else replace(answer.usage, output=min(1, answer.usage.output))
        )  # of the output one token is known
        yield self._frame({"type": "message_start", "message": self._message(answer, first)})
        if answer.chunks:
            yield self._frame({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
            yield self._frame({"type": "ping"})
            for text, tokens in answer.chunks:
                delta = {"type": "text_delta", "text": text}
                yield self._frame({"type": "content_block_delta", "index": 0, "delta": delta}, tokens)
            yield self._frame({"type": "content_block_stop", "index": 0})
        for index, block in enumerate(self._tool_blocks(answer), start=1 if answer.chunks else 0):
            yield self._frame({"type": "content_block_start", "index": index, "content_block": {**block, "input": {}}})
            for part in ("", json.dumps(block["input"], ensure_ascii=False)):
                delta = {"type": "input_json_delta", "partial_json": part}
                yield self._frame({"type": "content_block_delta", "index": index, "delta": delta})
            yield self._frame({"type": "content_block_stop", "index": index})
        end: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": self._stop(answer), "stop_sequence": None}}
        if answer.usage is not None:
            end["usage"] = self._counts(answer.usage)
        yield self._frame(end, usage=True)
        yield self._frame({"type": "message_stop"})

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        error: dict[str, Any] = {"type": self.types.get(failure.status, "api_error"), "message": failure.words}
        if failure.reason == "spend_cap":
            error["details"] = {"error_code": "enforced_spend_limit_reached", "error_visibility": "user_facing"}
        return {"type": "error", "error": error, "request_id": request_id}

    def ping(self) -> bytes:
        return self.sse({"type": "ping"}, "ping")

    def limit_headers(self, gauges: Mapping[str, Gauge], wall: float) -> dict[str, str]:
        shown = dict(gauges)
        if {"input", "output"} <= shown.keys():
            shown.setdefault("tokens", _both(shown["input"], shown["output"]))
        headers = {}
        for name, gauge in shown.items():
            step = 1 if name == "requests" else 1000
            prefix = f"anthropic-ratelimit-{self.dimensions[name]}"
            headers[f"{prefix}-limit"] = str(round(gauge.limit))
            headers[f"{prefix}-remaining"] = str(max(0, round(gauge.remaining / step) * step))
            headers[f"{prefix}-reset"] = datetime.fromtimestamp(wall + gauge.full_in_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return headers

    def _frame(self, event: Mapping[str, Any], tokens: int = 0, *, usage: bool = False) -> Frame:
        return Frame(self.sse(event, str(event["type"])), tokens, usage)

    def _message(self, answer: Answer, usage: Usage | None) -> dict[str, Any]:
        message = {"id": f"msg_{answer.id}", "type": "message", "role": "assistant", "model": answer.ask.model, "content": []}
        told = {} if usage is None else {"usage": {**self._counts(usage), "service_tier": "standard"}}
        return {**message, "stop_reason": None, "stop_sequence": None, **told}

    def _counts(self, usage: Usage) -> dict[str, Any]:
        cache = {"cache_creation_input_tokens": usage.cache_write, "cache_read_input_tokens": usage.cache_read}
        return {"input_tokens": usage.input, **cache, "output_tokens": usage.output}

    def _stop(self, answer: Answer) -> str:
        return answer.stop or answer.ended("tool_use", "max_tokens", "end_turn")

    def _tool_blocks(self, answer: Answer) -> list[dict[str, Any]]:
        return [{"type": "tool_use", "id": f"toolu_{tool.id}", "name": tool.name, "input": tool.input} for tool in answer.tools]


def _both(one: Gauge, other: Gauge) -> Gauge:
    """What the `tokens` headers show: both limits together (recorded from a live answer, August 2025: 80000 + 16000 = 96000)."""
    return Gauge(one.limit + other.limit, one.remaining + other.remaining, max(one.full_in_s, other.full_in_s))


# OpenAI
# ------


class OpenAi(Dialect):
    """What its two APIs share: errors and headers."""

    ids: ClassVar[Mapping[str, str]] = {
        "x-request-id": "{}",
        "openai-processing-ms": "1",
        "openai-version": "2020-10-01",
        "openai-organization": "simulated",
    }

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        """OpenAI's object has no request id: the header carries it."""
        if failure.reason == "window":  # as ChatGPT's backend answers, by what Codex 0.169.0 reads of it
            return {"error": {"message": failure.words, "type": "usage_limit_reached", "resets_at": math.ceil(failure.opens_at)}}
        kind, code = self._kind(failure)
        return {"error": {"message": failure.words, "type": kind, "param": None, "code": code}}

    def _kind(self, failure: Failure) -> tuple[str, str | None]:
        if failure.reason == "spend_cap":
            return "insufficient_quota", "insufficient_quota"
        if failure.status == 429:
            return ("requests" if failure.dimension == "requests" else "tokens"), "rate_limit_exceeded"
        if failure.status in (400, 401, 403, 404):
            return "invalid_request_error", "invalid_api_key" if failure.status == 401 else None
        return "server_error", None

    def limit_headers(self, gauges: Mapping[str, Gauge], wall: float) -> dict[str, str]:
        """The headers that current OpenAI answers carry: requests and tokens, resets as durations."""
        headers = {}
        for name, gauge in (("requests", gauges.get("requests")), ("tokens", gauges.get("tokens") or gauges.get("input"))):
            if gauge is not None:
                headers[f"x-ratelimit-limit-{name}"] = str(round(gauge.limit))
                headers[f"x-ratelimit-remaining-{name}"] = str(max(0, int(gauge.remaining)))
                headers[f"x-ratelimit-reset-{name}"] = _duration(gauge.full_in_s)
        return headers


def _duration(seconds: float) -> str:
    """As OpenAI writes it: `20ms`, `8.64s`, `6m0s`, `1h0m0s`."""
    if seconds < 1:
        return f"{round(seconds * 1000)}ms"
    if seconds < 60:
        return f"{round(seconds, 3):g}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s"


class Chat(OpenAi):
    """`/v1/chat/completions`: unnamed events, usage only in a last chunk that must be asked for, then `[DONE]`."""

    api = "chat"
    limits = ("max_completion_tokens", "max_tokens")
    names_events = False

    def whole(self, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None, "annotations": []}
        if answer.tools:
            message["tool_calls"] = [self._call(answer.tools[0])]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish(answer)}
        whole = {**self._head(answer, "chat.completion"), "choices": [choice]}
        return whole if answer.usage is None else whole | {"usage": self._counts(answer.usage)}

    def frames(self, answer: Answer) -> Iterator[Frame]:
        options = answer.ask.body.get("stream_options")
        with_usage = isinstance(options, dict) and options.get("include_usage") is True
        head = self._head(answer, "chat.completion.chunk") | ({"usage": None} if with_usage else {})

        def chunk(delta: Mapping[str, Any], tokens: int = 0, finish: str | None = None) -> Frame:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return Frame(self.sse({**head, "choices": [choice]}), tokens)

        yield chunk({"role": "assistant", "content": "", "refusal": None})
        for text, tokens in answer.chunks:
            yield chunk({"content": text}, tokens)
        for tool in answer.tools[:1]:
            call = self._call(tool)
            yield chunk({"tool_calls": [{"index": 0, **call, "function": {**call["function"], "arguments": ""}}]})
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": tool.arguments}}]})
        yield chunk({}, finish=self._finish(answer))
        if with_usage and answer.usage is not None:
            yield Frame(self.sse({**head, "choices": [], "usage": self._counts(answer.usage)}), usage=True)
        yield Frame(b"data: [DONE]\n\n")

    def _head(self, answer: Answer, kind: str) -> dict[str, Any]:
        own = {"id": f"chatcmpl-{answer.id}", "object": kind, "created": answer.created, "model": answer.ask.model}
        return {**own, "service_tier": "default", "system_fingerprint": "fp_simulated"}

    def _call(self, tool: ToolCall) -> dict[str, Any]:
        return {"id": f"call_{tool.id}", "type": "function", "function": {"name": tool.name, "arguments": tool.arguments}}

    def _finish(self, answer: Answer) -> str:
        return answer.ended("tool_calls", "length", "stop")

    def _counts(self, usage: Usage) -> dict[str, Any]:
        return {
            "prompt_tokens": _prompt(usage),
            "completion_tokens": usage.output,
            "total_tokens": _prompt(usage) + usage.output,
            "prompt_tokens_details": {"cached_tokens": usage.cache_read, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }


class Responses(OpenAi):
    """`/v1/responses`: named and numbered events; the last one, response.completed, carries the whole answer and its usage."""

    api = "responses"
    history = "input"
    limits = ("max_output_tokens",)
    fixed: ClassVar[Mapping[str, Any]] = {
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
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
        "output": [],
        "usage": None,
    }
    """What all of them have, and nobody asked for."""
    said: ClassVar = {"message": "content", "function_call": "arguments", "custom_tool_call": "input"}
    """The field of each sort of item that holds what it says."""

    def _also(self) -> tuple[type, ...]:
        return (str,)

    def whole(self, answer: Answer) -> dict[str, Any]:
        status = "incomplete" if answer.cut_short else "completed"
        why = {"incomplete_details": {"reason": "max_output_tokens"}} if answer.cut_short else {}
        usage = None if answer.usage is None else self._counts(answer.usage)
        return {**self._response(answer, status), **why, "output": self._items(answer), "usage": usage}

    def frames(self, answer: Answer) -> Iterator[Frame]:
        numbers = count()
        for kind, fields, tokens in self._events(answer):
            event = {"type": kind, "sequence_number": next(numbers), **fields}
            yield Frame(self.sse(event, kind), tokens, usage=kind in ("response.completed", "response.incomplete"))

    def error_frame(self, failure: Failure, request_id: str) -> bytes:
        """A stream that fails says so in response.failed."""
        error = {"code": "rate_limit_exceeded" if failure.status == 429 else "server_error", "message": failure.words}
        response = {**self.fixed, "id": f"resp_{request_id}", "object": "response", "created_at": 0, "status": "failed", "error": error}
        return self.sse({"type": "response.failed", "sequence_number": 0, "response": response}, "response.failed")

    def _events(self, answer: Answer) -> Iterator[tuple[str, dict[str, Any], int]]:
        """Yield (type, fields, tokens) of each."""
        begun = self._response(answer, "in_progress")
        yield "response.created", {"response": begun}, 0
        yield "response.in_progress", {"response": begun}, 0
        for place, item in enumerate(self._items(answer)):
            said = self.said[item["type"]]
            empty: object = [] if said == "content" else ""
            yield "response.output_item.added", {"output_index": place, "item": {**item, said: empty, "status": "in_progress"}}, 0
            for kind, fields, tokens in self._text(answer) if said == "content" else self._call(item, said):
                yield f"response.{kind}", {"item_id": item["id"], "output_index": place, **fields}, tokens
            yield "response.output_item.done", {"output_index": place, "item": item}, 0
        whole = self.whole(answer)
        yield f"response.{whole['status']}", {"response": whole}, 0

    def _text(self, answer: Answer) -> Iterator[tuple[str, dict[str, Any], int]]:
        yield "content_part.added", {"content_index": 0, "part": self._part("")}, 0
        for text, tokens in answer.chunks:
            yield "output_text.delta", {"content_index": 0, "delta": text, "logprobs": []}, tokens
        yield "output_text.done", {"content_index": 0, "text": answer.text, "logprobs": []}, 0
        yield "content_part.done", {"content_index": 0, "part": self._part(answer.text)}, 0

    def _call(self, item: Mapping[str, Any], said: str) -> Iterator[tuple[str, dict[str, Any], int]]:
        named = {"name": item["name"]} if said == "arguments" else {}
        yield f"{item['type']}_{said}.delta", {"delta": item[said]}, 0
        yield f"{item['type']}_{said}.done", {said: item[said], **named}, 0

    def _response(self, answer: Answer, status: str) -> dict[str, Any]:
        own = {"id": f"resp_{answer.id}", "object": "response", "created_at": answer.created, "status": status}
        return {**self.fixed, **own, "model": answer.ask.model, "max_output_tokens": answer.ask.max_tokens}

    def _items(self, answer: Answer) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        if answer.text:
            message = {"id": f"msg_{answer.id}", "type": "message", "status": "completed", "role": "assistant"}
            items.append({**message, "content": [self._part(answer.text)]})
        for tool in answer.tools[:1]:
            kind = "custom_tool_call" if isinstance(tool.input, str) else "function_call"
            call = {"id": f"fc_{tool.id}", "type": kind, "status": "completed", "call_id": f"call_{tool.id}", "name": tool.name}
            items.append({**call, self.said[kind]: tool.arguments})
        return items

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _counts(self, usage: Usage) -> dict[str, Any]:
        return {
            "input_tokens": _prompt(usage),
            "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": _prompt(usage) + usage.output,
        }


# Gemini
# ------


class Gemini(Dialect):
    """`/v1beta/models/MODEL:generateContent` and `:streamGenerateContent`, as events (`?alt=sse`) or as one JSON array: CRLF between
    events, usage in every chunk (cumulative), no limit headers, RetryInfo in the 429's body."""

    api = "gemini"
    history = "contents"
    limits = ("maxOutputTokens",)
    names_events = False
    line = "\r\n"
    ids: ClassVar[Mapping[str, str]] = {"server-timing": "gfet4t7; dur=1"}
    counted = "totalTokens"
    types: ClassVar = {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED",
        503: "UNAVAILABLE",
    }

    def read(self, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Ask:
        model, _, method = path.rpartition("/")[2].partition(":")
        config = body.get("generationConfig")
        ask = super().read(path, query, {**body, "model": model})
        limit = self._limit(config) if isinstance(config, dict) else None
        return replace(ask, stream=method == "streamGenerateContent", max_tokens=limit, body=body, array=query.get("alt") != "sse")

    def whole(self, answer: Answer) -> dict[str, Any]:
        return self._chunk(answer, answer.text, answer.usage, last=True)

    def frames(self, answer: Answer) -> Iterator[Frame]:
        chunks = answer.chunks or (("", 0),)
        produced = list(accumulate(tokens for _, tokens in chunks))
        for place, (text, tokens) in enumerate(chunks):
            last, usage = place == len(chunks) - 1, answer.usage
            if usage is not None and not last:
                usage = replace(usage, output=min(produced[place], usage.output))
            chunk = self._chunk(answer, text, usage, last=last)
            data = self.sse(chunk)
            if answer.ask.array:
                data = f"{',' + self.line if place else '['}{compact(chunk)}{']' if last else ''}".encode()
            yield Frame(data, tokens, usage=last)

    def error(self, failure: Failure, request_id: str) -> dict[str, Any]:
        error: dict[str, Any] = {"code": failure.status, "message": failure.words, "status": self.types.get(failure.status, "INTERNAL")}
        if failure.status == 429 and failure.reason != "spend_cap":
            metric = "generate_content_requests" if failure.dimension == "requests" else "generate_content_input_token_count"
            violation = {"quotaMetric": f"generativelanguage.googleapis.com/{metric}", "quotaValue": str(round(failure.limit))}
            rpc = "type.googleapis.com/google.rpc"
            error["details"] = [{"@type": f"{rpc}.QuotaFailure", "violations": [violation]}]
            if failure.wait_s is not None:
                error["details"].append({"@type": f"{rpc}.RetryInfo", "retryDelay": f"{failure.wait_s:g}s"})
        return {"error": error}

    def _chunk(self, answer: Answer, text: str, usage: Usage | None, *, last: bool) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": text}] if text else []
        if last:
            parts += [{"functionCall": {"name": tool.name, "args": tool.input}} for tool in answer.tools[:1]]
        candidate: dict[str, Any] = {"content": {"parts": parts or [{"text": ""}], "role": "model"}, "index": 0}
        if last:
            candidate["finishReason"] = answer.ended("STOP", "MAX_TOKENS", "STOP")
        chunk = {"candidates": [candidate], "modelVersion": answer.ask.model, "responseId": answer.id}
        return chunk if usage is None else chunk | {"usageMetadata": self._counts(usage)}

    def _counts(self, usage: Usage) -> dict[str, Any]:
        prompt = _prompt(usage)
        counts = {"promptTokenCount": prompt, "candidatesTokenCount": usage.output, "totalTokenCount": prompt + usage.output}
        return counts | ({"cachedContentTokenCount": usage.cache_read} if usage.cache_read else {})
