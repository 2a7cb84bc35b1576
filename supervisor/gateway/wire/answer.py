"""One response, read beside the stream that passes.

The bytes that are forwarded are those that came; reading them can fail in any way without the client noticing. The one exception is a
chat stream into which we put `include_usage`: there each event is held until it is whole, and the one that the client did not ask for is
left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from supervisor.core.gateway.types import Usage
from supervisor.gateway.wire.asked import Asked, Endpoint
from supervisor.gateway.wire.sse import PART_MAX, Elements, Events, Part, data_of
from supervisor.gateway.wire.usages import Meter

OUTPUT_BYTES_PER_TOKEN = 3.6
"""Of generated text as it stands in the JSON; for what a cut stream is charged."""

_TAIL = 2**16
_USAGE = re.compile(rb'"(usage(?:Metadata)?)"\s*:\s*(?=\{)')
_HINT = re.compile(rb'"usage|"error"')
_TELLING = re.compile(rb'"usage(?:Metadata)?"\s*:\s*\{|"error"')
_STRING = rb'"\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"'
_TEXT = {
    Endpoint.MESSAGES: re.compile(rb'"(?:text|thinking|partial_json)' + _STRING),
    Endpoint.CHAT: re.compile(rb'"(?:content|reasoning_content|reasoning|refusal|arguments)' + _STRING),
    Endpoint.RESPONSES: re.compile(rb'"delta' + _STRING),
    Endpoint.COMPACT: re.compile(rb'"encrypted_content' + _STRING),
    Endpoint.EMBEDDINGS: re.compile(rb"(?!)"),
    Endpoint.GENERATE: re.compile(rb'"text' + _STRING),
    Endpoint.STREAM_GENERATE: re.compile(rb'"text' + _STRING),
}


class Answer:
    """Feed it the body of an answer that is passed on (status 2xx), decoded of any Content-Encoding, and forward what it gives back.

    Never raises. Keeps at most about 2 MiB. `usage`, `final`, `began`, `failed` and `flags` grow while it is fed.
    """

    def __init__(self, asked: Asked, injected_usage: bool = False) -> None:
        """`injected_usage`: the request was sent with the edit that `asked.usage_edit` holds."""
        self.output_so_far_bytes = 0
        """Bytes of generated text that have passed."""
        self._meter = Meter(asked)
        self._text = _TEXT.get(asked.endpoint)
        self._is_numbers = asked.endpoint is Endpoint.EMBEDDINGS
        """The answer holds numbers, and no text that a model wrote."""
        self._injected = injected_usage
        self._is_stream: bool | None = None
        """Events or elements; None before the first byte that tells."""
        self._parts: Events | Elements = Events()
        self._whole = bytearray()
        """A body that is no stream; above PART_MAX its end alone."""
        self._whole_bytes = 0

    @property
    def usage(self) -> Usage | None:
        """What the provider has said so far; None while it said nothing that makes sense."""
        return self._meter.usage

    @property
    def began(self) -> bool:
        """The input is known."""
        return self._meter.began

    @property
    def final(self) -> bool:
        """The provider's last word was seen: `usage` is what is settled. Else the account says `estimated`."""
        return self._meter.final

    @property
    def failed(self) -> str:
        """The error's own name when one came inside the 200 (see `failure`); else empty."""
        return self._meter.failed

    @property
    def price_words(self) -> Mapping[str, str]:
        """The words that decide the price, as the request or the answer says them; see `tiers`."""
        return self._meter.price_words

    @property
    def flags(self) -> tuple[str, ...]:
        """What was wrong with the usage, for the account: usage_negative, usage_absurd, usage_not_a_number, usage_fell, usage_repeated,
        usage_missing (after `finish`), cached_above_input, event_too_long, reader_failed."""
        return tuple(self._meter.flags)

    def charge(self) -> Usage | None:
        """What to settle: the final usage; of a stream that was cut, what was seen, its output not below the estimate by what passed.
        None when the provider never said anything (then the reservation stands)."""
        usage = self.usage
        if usage is None or self.final:
            return usage
        return replace(usage, output=max(usage.output, self.said()[1]))

    def said(self) -> tuple[Usage | None, int]:
        """What the provider has said so far, and tokens of output that have passed, by their bytes."""
        return self.usage, math.ceil(self.output_so_far_bytes / OUTPUT_BYTES_PER_TOKEN)

    def feed(self, chunk: bytes) -> bytes:
        """What to forward now: the chunk itself, the same object; of an injected chat stream the events that are whole, b"" if none."""
        if self._is_stream is None:
            self._look(chunk)
        if self._text is None or self._is_stream is None:
            return chunk
        if not self._is_stream:
            self._keep(chunk)
            return chunk
        events = self._parts.whole(chunk) if isinstance(self._parts, Events) else None
        passed = self._read(self._parts.feed(chunk)) if events is None else self._skim(events)
        return passed if self._injected else chunk

    def finish(self) -> bytes:
        """The body has ended, whole or cut. What is left to forward: b"" but for an injected chat stream that ended within an event."""
        passed = b""
        if self._text is None:
            return passed
        if self._is_stream and isinstance(self._parts, Events):
            passed = self._read(self._parts.finish())
        elif self._whole:
            whole = bytes(self._whole)
            self._whole.clear()
            self._note(_json(whole) if self._whole_bytes == len(whole) else _last_usage(whole))
        if self.usage is None and not self.failed:
            self._meter.flag("usage_missing")
        return passed if self._injected else b""

    def _look(self, chunk: bytes) -> None:
        """By its first byte: what an upstream answers is not always what was asked for."""
        first = chunk.lstrip()[:1]
        if not first:
            return
        self._is_stream = first != b"{"
        if first == b"[":
            self._parts = Elements()
        if first in b"[{":
            self._injected = False

    def _skim(self, events: bytes) -> bytes:
        """The same as `_read` for whole events in one piece, which are taken apart only when one of them tells something."""
        if _tells(events):
            if self._injected or b"\r" in events:
                return self._read(Events().feed(events))
            for event in _telling(events):
                self._note(_json(data_of(event)))
        self._count(events)
        return events

    def _read(self, parts: Iterable[Part]) -> bytes:
        """Reads the parts; gives them joined, without the event that the client did not ask for."""
        passed = []
        for part in parts:
            if not part.whole:
                self._meter.flag("event_too_long")
            elif _tells(part.raw):
                message = _json(data_of(part.raw) if isinstance(self._parts, Events) else part.raw)
                self._note(message)
                if _is_usage_alone(message):
                    continue
            self._count(part.raw)
            passed.append(part.raw)
        return b"".join(passed)

    def _note(self, message: object) -> None:
        try:
            self._meter.read(message)
        except Exception:  # noqa: BLE001 - a mistake in our reading must never break a stream that a client reads
            self._meter.flag("reader_failed")

    def _count(self, raw: bytes) -> None:
        if self._text is not None:
            self.output_so_far_bytes += sum(map(len, self._text.findall(raw)))

    def _keep(self, chunk: bytes) -> None:
        self.output_so_far_bytes += 0 if self._is_numbers else len(chunk)
        self._whole_bytes += len(chunk)
        self._whole += chunk
        if self._whole_bytes > PART_MAX and len(self._whole) > 2 * _TAIL:
            del self._whole[:-_TAIL]


def _tells(raw: bytes) -> bool:
    """Whether it can hold usage or an error: most events do not, and are not parsed."""
    if b'"usage' not in raw and b'"error"' not in raw:
        return False
    return _TELLING.search(raw) is not None or raw.count(b"data:") > 1


def _telling(events: bytes) -> Iterator[bytes]:
    """Those of several whole events, LF between them, that tell; the others are not even cut out."""
    end = 0
    for hint in _HINT.finditer(events):
        if hint.start() < end:
            continue
        begun = events[end : hint.start()].rpartition(b"\n\n")[2]
        begin = hint.start() - len(begun)
        end = events.find(b"\n\n", hint.end())
        if _tells(event := events[begin:end]):
            yield event


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _is_usage_alone(message: object) -> bool:
    """The chunk by which OpenAI answers `include_usage`: no choices, only the usage."""
    return isinstance(message, dict) and message.get("choices") == [] and isinstance(message.get("usage"), dict)


def _last_usage(tail: bytes) -> object:
    """A message made of the last usage in the end of a long answer. All providers put it behind what the model wrote."""
    found = list(_USAGE.finditer(tail))
    try:
        usage, _ = json.JSONDecoder().raw_decode(tail[found[-1].end() :].decode("utf-8", "replace"))
    except (IndexError, ValueError, RecursionError):
        return None
    return {"type": "message", "object": "response", found[-1][1].decode(): usage, "candidates": [{"finishReason": "STOP"}]}
