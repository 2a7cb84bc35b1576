"""A streamed answer put together into the body that a client expects which did not ask for a stream.

An inference engine notices a hang-up only of a stream, so each request is streamed upstream. Pure: bytes of events in, one JSON body out.
Fields that this module does not know are carried: of a whole message the last value counts, of a piece texts are put together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from supervisor.gateway.wire.metering import Events, Part, data_of
from supervisor.gateway.wire.requests import Asked, Endpoint

_Shape = dict[str, Any]
JOINED = frozenset({Endpoint.MESSAGES, Endpoint.CHAT})
"""What can be put together."""
_WHOLE = frozenset({"id", "type", "role", "name", "index"})
"""Texts of a piece that are said whole, also when they come again."""


class Broken(Exception):
    """An answer that cannot be put together. `why` is for people."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


def as_stream(asked: Asked, shape: _Shape) -> _Shape:
    """Return the request so that its answer is streamed, and says its usage."""
    if asked.stream or asked.endpoint not in JOINED:
        return shape
    usage = {"stream_options": {"include_usage": True}} if asked.endpoint is Endpoint.CHAT else {}
    return {**shape, "stream": True, **usage}


class Joined:
    """Feed it the body of a 2xx answer. An answer that is no stream comes out as it went in."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._take = self._chat if endpoint is Endpoint.CHAT else self._anthropic
        self._events = Events()
        self._plain: bytearray | None = None
        """The answer, when it is no stream."""
        self._began = False
        self._whole: _Shape = {}
        self._parts: dict[int, _Shape] = {}
        """Choices, or blocks of content, by their index."""
        self._inputs: dict[int, str] = {}
        """The JSON of a tool's input, by its block."""
        self._stopped = False

    def feed(self, chunk: bytes) -> None:
        """Take what came. Raises Broken for an error in the stream, and for what is no event of this API."""
        if not self._began and (first := chunk.lstrip()[:1]):
            self._began = True
            self._plain = bytearray() if first == b"{" else None
        if self._plain is not None:
            self._plain += chunk
        else:
            self._read(self._events.feed(chunk))

    def finish(self) -> bytes:
        """Return the body. Raises Broken when the stream ended before the answer did."""
        if self._plain is not None:
            return bytes(self._plain)
        self._read(self._events.finish())
        finished = bool(self._parts) and all(part.get("finish_reason") for part in self._parts.values())
        if not self._stopped and not finished:
            raise Broken("the stream ended before the answer did")
        parts = [self._part(index) for index in sorted(self._parts)]
        whole = self._whole | ({"content": parts} if self._whole.get("type") == "message" else {"choices": parts})
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    def _read(self, parts: Iterable[Part]) -> None:
        for part in parts:
            data = data_of(part.raw)
            if not part.whole:
                raise Broken("an event is too long")
            if data and data.strip() != b"[DONE]":
                self._event(data)

    def _event(self, data: bytes) -> None:
        try:
            event = json.loads(data)
            if fault := event.get("error"):
                raise Broken(f"an error in the stream: {str(fault.get('message') if isinstance(fault, dict) else fault)[:200]}")
            self._take(event)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Broken(f"an event that is none of this API ({type(error).__name__})") from None

    def _chat(self, event: _Shape) -> None:
        choices = event.pop("choices", None) or ()
        self._whole |= {name: value for name, value in event.items() if value is not None} | {"object": "chat.completion"}
        for choice in choices:
            index = choice.get("index", 0)
            mine = self._parts.setdefault(index, {"index": index, "message": {"role": "assistant"}, "finish_reason": None})
            _add(mine["message"], choice.pop("delta", None) or {})
            if isinstance(logprobs := choice.pop("logprobs", None), dict):
                _add(mine.setdefault("logprobs", {}), logprobs)
            mine |= {name: value for name, value in choice.items() if value is not None}

    def _anthropic(self, event: _Shape) -> None:
        match event.pop("type"):
            case "message_start":
                self._whole = event["message"]
            case "content_block_start":
                self._parts[event["index"]] = event["content_block"]
            case "content_block_delta":
                self._delta(event["index"], event["delta"])
            case "message_delta":
                usage = {name: value for name, value in event.pop("usage", {}).items() if value is not None}
                self._whole |= event.pop("delta") | event
                self._whole.setdefault("usage", {}).update(usage)
            case "message_stop":
                self._stopped = bool(self._whole)

    def _delta(self, index: int, delta: _Shape) -> None:
        block = self._parts[index]
        del delta["type"]
        self._inputs[index] = self._inputs.get(index, "") + delta.pop("partial_json", "")
        if (citation := delta.pop("citation", None)) is not None:
            delta["citations"] = [citation]
        _add(block, delta)

    def _part(self, index: int) -> _Shape:
        """A choice or a block as a whole answer has it. The input of a tool that was cut by the limit of tokens is empty."""
        part = self._parts[index]
        if given := self._inputs.get(index):
            try:
                part["input"] = json.loads(given)
            except ValueError:
                part["input"] = {}
        if message := part.get("message"):
            for call in message.get("tool_calls") or ():
                call.pop("index", None)
            message.setdefault("content", None)
            if message["content"] is None and not message.get("tool_calls") and not message.get("refusal"):
                message["content"] = ""
        return part


def _add(whole: _Shape, piece: _Shape) -> None:
    """Add a piece to what came before it: texts and lists grow, members of a list with the same `index` are one."""
    for name, value in piece.items():
        before = whole.get(name)
        if isinstance(value, str) and isinstance(before, str) and name not in _WHOLE:
            whole[name] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            _add(before, value)
        elif isinstance(value, list):
            whole[name] = _added(before if isinstance(before, list) else [], value)
        elif value is not None or name not in whole:
            whole[name] = value


def _added(before: list[Any], items: list[Any]) -> list[Any]:
    places = {item["index"]: item for item in before if isinstance(item, dict) and "index" in item}
    for item in items:
        if isinstance(item, dict) and item.get("index") in places:
            _add(places[item["index"]], item)
        else:
            before.append(item)
            if isinstance(item, dict) and "index" in item:
                places[item["index"]] = item
    return before
