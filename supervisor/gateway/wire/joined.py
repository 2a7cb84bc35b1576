"""A streamed answer put together into the body that a client expects which did not ask for a stream.

An inference engine notices a hang-up only of a stream, so each request is streamed upstream. Pure: bytes of events in, one JSON body out.
Fields that this module does not know are carried: of a whole message the last value counts, of a piece texts are put together.
"""

from __future__ import annotations

import json
from typing import Any

from supervisor.gateway.wire.metering import Events, data_of
from supervisor.gateway.wire.requests import Asked, Endpoint

_Shape = dict[str, Any]
JOINED = frozenset({Endpoint.MESSAGES, Endpoint.CHAT})
"""What can be put together."""
_WHOLE = frozenset({"id", "type", "role", "name", "finish_reason"})
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
        self._is_chat = endpoint is Endpoint.CHAT
        self._events = Events()
        self._plain: bytes | None = b""
        """The answer while it may be no stream; None: it is one."""
        self._whole: _Shape = {}
        self._parts: list[_Shape] = []
        """Choices, or blocks of content; each knows its `index`."""
        self._stopped = False

    def feed(self, chunk: bytes) -> None:
        """Take what came. Raises Broken for an error in the stream, and for what is no event of this API."""
        if self._plain is not None:
            chunk = self._plain = self._plain + chunk
            if chunk.lstrip()[:1] in (b"", b"{"):
                return
            self._plain = None
        for part in self._events.feed(chunk):
            data = data_of(part.raw).strip()
            if not part.whole:
                raise Broken("an event is too long")
            if data and data != b"[DONE]":
                self._event(data)

    def finish(self) -> bytes:
        """Return the body. Raises Broken when the stream ended before the answer did."""
        if self._plain:
            return self._plain
        self.feed(b"\n\n")  # some servers end without it
        if self._is_chat:
            self._stopped = bool(self._parts) and all(part.get("finish_reason") for part in self._parts)
        if not self._stopped:
            raise Broken("the stream ended before the answer did")
        parts = [_choice(part) if self._is_chat else _block(part) for part in sorted(self._parts, key=lambda part: part["index"])]
        if self._is_chat:
            whole = self._whole | {"object": "chat.completion", "choices": parts}
        else:  # llama.cpp leaves message_start out where an answer begins with a part of a character
            whole = {"id": "", "type": "message", "role": "assistant", "model": "", **self._whole, "content": parts}
            whole.setdefault("usage", {}).setdefault("input_tokens", 0)
        return json.dumps(whole, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def _event(self, data: bytes) -> None:
        try:
            event = json.loads(data)
            if fault := event.get("error"):
                raise Broken(f"an error in the stream: {str(fault)[:200]}")
            if self._is_chat:
                _extend(self._parts, [dict(choice) for choice in event.pop("choices", None) or ()])
                self._whole |= {name: value for name, value in event.items() if value is not None}
            else:
                self._anthropic(event)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Broken(f"an event that is none of this API ({type(error).__name__})") from None

    def _anthropic(self, event: _Shape) -> None:
        match event.pop("type"):
            case "message_start":
                self._whole = event["message"]
            case "content_block_start":
                _extend(self._parts, [{**event["content_block"], "index": event["index"]}])
            case "content_block_delta":
                piece = event["delta"] | {"index": event["index"]}
                del piece["type"]
                if "citation" in piece:
                    piece["citations"] = [piece.pop("citation")]
                _extend(self._parts, [piece])
            case "message_delta":
                _add(self._whole.setdefault("usage", {}), event.pop("usage", {}))
                self._whole |= event.pop("delta") | event
            case "message_stop":
                self._stopped = bool(self._whole)


def _choice(part: _Shape) -> _Shape:
    """A choice as a whole answer has it."""
    message = {"content": None, **part.pop("delta")}
    for call in message.get("tool_calls") or ():
        call.pop("index", None)
    if message["content"] is None and not (message.get("tool_calls") or message.get("refusal")):
        message["content"] = ""
    return {**part, "message": message}


def _block(part: _Shape) -> _Shape:
    """A block as a whole answer has it. The input of a tool that was cut by the limit of tokens is empty."""
    del part["index"]
    if given := part.pop("partial_json", ""):
        try:
            part["input"] = json.loads(given)
        except ValueError:
            part["input"] = {}
    return part


def _add(whole: _Shape, piece: _Shape) -> None:
    """Add a piece to what came before it: texts and lists grow."""
    for name, value in piece.items():
        before = whole.get(name)
        if isinstance(value, str) and isinstance(before, str) and name not in _WHOLE:
            whole[name] = before + value
        elif isinstance(value, dict) and isinstance(before, dict):
            _add(before, value)
        elif isinstance(value, list):
            whole[name] = before or []
            _extend(whole[name], value)
        elif value is not None or before is None:
            whole[name] = value


def _extend(whole: list[Any], pieces: list[Any]) -> None:
    """Add each piece to the one with its `index`, or to the end."""
    for piece in pieces:
        index = piece.get("index") if isinstance(piece, dict) else None
        same = next((one for one in whole if index is not None and one.get("index") == index), None)
        if same is None:
            whole.append(piece)
        else:
            _add(same, piece)
