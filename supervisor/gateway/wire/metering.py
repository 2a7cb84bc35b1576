"""What a response says while it passes: usage and limits."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from supervisor.gateway.admission.types import Usage
from supervisor.gateway.wire.headers import dear_word, price_factor, price_words, price_words_told
from supervisor.gateway.wire.requests import Asked, BadRequest, Endpoint, model_name, names_input, parsed, tokens
from supervisor.kernel.gateway_settings import Api

# Sse
# ---
# A response cut into its parts while it passes: server-sent events.
#
# A part is a piece of the very bytes that came; joined again, the parts are the stream. What is not yet whole is kept back, up to
# PART_MAX.


PART_MAX = 2**20
"""Bytes. A longer event is handed on in pieces that nobody reads."""

_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_BOM = b"\xef\xbb\xbf"


class Part(NamedTuple):
    """Some bytes of the stream; `whole` when they are one event, with what separates it from the next."""

    raw: bytes
    whole: bool


class Events:
    """Server-sent events (WHATWG HTML, 9.2): ended by a blank line, with LF, CRLF or CR, over any boundaries of chunks."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_long = False
        """The event that is being received is too long to be read."""

    def whole(self, chunk: bytes) -> bytes | None:
        """All events that are whole with this chunk, in one piece (the chunk itself where that is all): most need not be taken apart.
        What begins after them is kept back. None, with nothing done: that cannot be told quickly, `feed` it."""
        end = max(chunk.rfind(b"\n\n") + 2, chunk.rfind(b"\r\n\r\n") + 4)
        if end < 4 or self._is_long or len(chunk) > PART_MAX:
            return None
        if not self._rest and end == len(chunk):
            return chunk
        events = bytes(self._rest) + chunk[:end]
        self._rest = bytearray(chunk[end:])
        return events

    def feed(self, chunk: bytes) -> list[Part]:
        """The parts that this chunk makes complete."""
        place = max(0, len(self._rest) - 3)  # a blank line may have begun in the chunk before
        data: bytes | bytearray = chunk
        if self._rest:
            self._rest += chunk
            data = self._rest
        parts, begin = [], 0
        while blank := _BLANK_LINE.search(data, place):
            if blank.end() == len(data) and data.endswith(b"\r"):
                break  # the LF of a CRLF may follow
            parts.append(Part(bytes(data[begin : blank.end()]), not self._is_long))
            self._is_long = False
            begin = place = blank.end()
        self._rest = bytearray(data[begin:]) if data is chunk or begin else self._rest
        if len(self._rest) > PART_MAX or (self._is_long and len(self._rest) > 3):
            keep = len(self._rest) - 3
            parts.append(Part(bytes(self._rest[:keep]), whole=False))
            del self._rest[:keep]
            self._is_long = True
        return parts

    def finish(self) -> list[Part]:
        """What was kept back: by the standard an event that no blank line ended is none, but some servers end so."""
        rest = bytes(self._rest)
        self._rest.clear()
        return [Part(rest, not self._is_long)] if rest else []


def data_of(event: bytes) -> bytes:
    """The data of one event: its `data` lines without their names, joined by LF. Comments and other fields are left out."""
    lines = (line[5:].removeprefix(b" ") for line in event.removeprefix(_BOM).splitlines() if line.startswith(b"data:"))
    return b"\n".join(lines)


# Usages
# ------
# What the providers say that a request took, brought to one form.
#
# Anthropic's `input_tokens` is what was neither read from nor written to its cache; OpenAI's and Gemini's prompt counts hold the
# cached tokens as well, so they are taken out. Thinking belongs to the output everywhere.


ABSURD = 20_000_000
"""Tokens. Twice the longest context that any model has been announced with; more is no count."""

_Message = Mapping[str, Any]
_RESPONSE_ENDS = ("response.completed", "response.incomplete", "response.failed")
_ANTHROPIC_COUNTS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_FIVE_MINUTES, _HOUR = "ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens"


class Meter:
    """Reads the messages of one response, as they come. A count that makes no sense is not taken, and flagged; what was known stays."""

    def __init__(self, asked: Asked) -> None:
        self.usage: Usage | None = None
        """What the provider has said so far; None while it said nothing that makes sense."""
        self.began = False
        """The input is known."""
        self.final = False
        """The provider's last word was seen: `usage` is what is settled. Else the account says `estimated`."""
        self.failed = ""
        """The error's own name when one came inside the 200 (see `failure`); else empty."""
        self.flags: list[str] = []
        """What was wrong with the usage, for the account: usage_negative, usage_absurd, usage_not_a_number, usage_fell, usage_repeated,
        cached_above_input; of an `Answer` also event_too_long, reader_failed and, after `finish`, usage_missing."""
        self.price_words = dict(asked.price_words)
        """Words of the request that change its price, or those of the answer where it has them."""
        self._may_cache_hour = asked.may_cache_hour
        self._said: dict[str, int] = {}
        """Anthropic's counts so far: a later message names only those that changed."""
        # Plain functions: its own bound methods would keep it alive until the collector comes.
        self._read: Callable[[Meter, _Message], None] = {
            Api.ANTHROPIC: Meter._anthropic,
            Api.OPENAI: Meter._responses if asked.endpoint in (Endpoint.RESPONSES, Endpoint.COMPACT) else Meter._chat,
            Api.GEMINI: Meter._gemini,
        }[asked.api]

    def read(self, message: object) -> None:
        """Read the data of one event, or the whole of an answer that is no stream."""
        if isinstance(message, dict):
            self._read(self, message)

    def flag(self, name: str) -> None:
        """Keep a doubt for the account, once."""
        if name not in self.flags:
            self.flags.append(name)

    def _anthropic(self, message: _Message) -> None:
        match message.get("type"):
            case "message_start":
                if self.began:
                    self.flag("usage_repeated")
                self._anthropic_usage(_dict(message.get("message")).get("usage"))
            case "message_delta":
                self.final |= self._anthropic_usage(message.get("usage"))
            case "message":
                self.final |= self._anthropic_usage(message.get("usage"))
            case "error":
                self._fail(message.get("error"), "type")

    def _anthropic_usage(self, said: object) -> bool:
        if not isinstance(said, dict) or not (counts := self._anthropic_counts(said)):
            return False
        self._said |= counts
        self.price_words |= {word: value for word, value in price_words_told(Api.ANTHROPIC, said).items() if word != "service_tier"}
        usage = self._anthropic_sum(self._said)
        for extra in _dicts(said.get("iterations")):
            if extra.get("type") == "compaction":  # "not included in the top-level usage", says Anthropic's SDK
                usage += self._anthropic_sum(self._anthropic_counts(extra) or {})
        self._take(usage)
        return True

    def _anthropic_counts(self, said: _Message) -> dict[str, int] | None:
        counts = self._counts(said, _ANTHROPIC_COUNTS)
        split = self._counts(_dict(said.get("cache_creation")), (_FIVE_MINUTES, _HOUR))
        return None if counts is None or split is None else counts | split

    def _anthropic_sum(self, counts: Mapping[str, int]) -> Usage:
        """What is written to the cache, and not said to be for five minutes, is for an hour where the request may have asked for that."""
        given, output, read, written = (counts.get(name, 0) for name in _ANTHROPIC_COUNTS)
        short, hour = counts.get(_FIVE_MINUTES, 0), counts.get(_HOUR, 0)
        written = max(written, short + hour)
        return Usage(given, output, read, written, written - short if self._may_cache_hour else hour)

    def _chat(self, message: _Message) -> None:
        if message.get("error"):
            self._fail(message["error"], "code", "type")
        self.price_words |= price_words_told(Api.OPENAI, message)
        choices = _dicts(message.get("choices"))
        if self._openai_usage(message.get("usage"), "prompt_tokens", "completion_tokens"):
            # Servers that report at every chunk are done when a choice is; the others report once.
            whole = message.get("object") == "chat.completion"
            self._end(whole or not choices or any(choice.get("finish_reason") for choice in choices))

    def _responses(self, message: _Message) -> None:
        kind = message.get("type")
        if kind == "error":
            self._fail(message, "code", "type")
        elif kind in _RESPONSE_ENDS or message.get("object") in ("response", "response.compaction"):
            response = _dict(message.get("response")) if kind in _RESPONSE_ENDS else message
            self.price_words |= price_words_told(Api.OPENAI, response)
            if self._openai_usage(response.get("usage"), "input_tokens", "output_tokens"):
                self._end(True)
            if response.get("status") == "failed" or kind == "response.failed":
                self._fail(response.get("error"), "code", "type")

    def _openai_usage(self, said: object, prompt: str, completion: str) -> bool:
        if not isinstance(said, dict):
            return False
        counts = self._counts(said, (prompt, completion, "total_tokens"))
        details = self._counts(_dict(said.get(f"{prompt}_details")), ("cached_tokens", "cache_write_tokens"))
        thought = self._counts(_dict(said.get(f"{completion}_details")), ("reasoning_tokens",))
        if not counts or details is None or thought is None or prompt not in counts:
            return False
        output = counts.get(completion, 0)
        apart = thought.get("reasoning_tokens", 0)
        if apart and counts.get("total_tokens") == counts[prompt] + output + apart:
            output += apart  # some servers count the thinking beside the completion, and the sum tells
        self._take(self._without_cached(counts[prompt], output, details.get("cached_tokens", 0), details.get("cache_write_tokens", 0)))
        return True

    def _gemini(self, message: _Message) -> None:
        if message.get("error"):
            self._fail(message["error"], "status", "code")
        names = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount")
        said = message.get("usageMetadata")
        if not isinstance(said, dict) or not (counts := self._counts(said, names)):
            return
        self.price_words |= price_words_told(Api.GEMINI, said)
        prompt, candidates, thoughts, tools, cached = (counts.get(name, 0) for name in names)
        self._take(self._without_cached(prompt + tools, candidates + thoughts, cached, 0))
        blocked = _dict(message.get("promptFeedback")).get("blockReason")
        self.final |= bool(blocked) or any(choice.get("finishReason") for choice in _dicts(message.get("candidates")))

    def _without_cached(self, prompt: int, output: int, read: int, written: int) -> Usage:
        if read + written > prompt:
            self.flag("cached_above_input")
            read, written = min(read, prompt), max(0, min(written, prompt - read))
        return Usage(prompt - read - written, output, read, written)

    def _counts(self, said: Mapping[str, Any], names: Iterable[str]) -> dict[str, int] | None:
        """The counts that are there. None when one of them makes no sense: then none of them is believed."""
        counts: dict[str, int] = {}
        for name in names:
            value = said.get(name)
            if value is None:
                continue
            if flaw := _flaw(value):
                self.flag(flaw)
                return None
            counts[name] = int(value)
        return counts

    def _take(self, new: Usage) -> None:
        """Counts are cumulative: a later one replaces the one before. One that fell is not believed."""
        old = self.usage or Usage()
        if new.total - new.output < old.total - old.output:
            self.flag("usage_fell")
            new = replace(old, output=new.output)
        if new.output < old.output:
            self.flag("usage_fell")
            new = replace(new, output=old.output)
        self.usage = new
        self.began = True

    def _end(self, is_final: bool) -> None:
        if self.final and is_final:
            self.flag("usage_repeated")
        self.final |= is_final

    def _fail(self, fault: object, *names: str) -> None:
        said = [str(_dict(fault).get(name)) for name in names if _dict(fault).get(name)]
        self.failed = self.failed or (said[0][:100] if said else "error")


def _flaw(value: object) -> str:
    """What is wrong with a count; empty for nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "usage_not_a_number"
    if not -ABSURD <= value <= ABSURD or value != int(value):
        return "usage_absurd"
    return "usage_negative" if value < 0 else ""


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


# Answer
# ------
# One response, read beside the stream that passes.
#
# The bytes that are forwarded are those that came; reading them can fail in any way without the client noticing. The one exception
# is a chat stream into which we put `include_usage`: there each event is held until it is whole, and the one that the client did
# not ask for is left out.


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


class Answer(Meter):
    """Feed it the body of an answer that is passed on (status 2xx), decoded of any Content-Encoding, and forward what it gives back.

    Never raises. Keeps at most about 2 MiB. A stream of Gemini's without `alt=sse` is one JSON array: it is read at its end.
    """

    def __init__(self, asked: Asked, injected_usage: bool = False) -> None:
        """`injected_usage`: the request was sent with the edit that `asked.usage_edit` holds."""
        super().__init__(asked)
        self.output_so_far_bytes = 0
        """Bytes of generated text that have passed."""
        self._text = _TEXT.get(asked.endpoint)
        self._is_numbers = asked.endpoint is Endpoint.EMBEDDINGS
        """The answer holds numbers, and no text that a model wrote."""
        self._injected = injected_usage
        self._is_stream: bool | None = None
        """Events; None before the first byte that tells."""
        self._events = Events()
        self._whole = bytearray()
        """A body that is no stream; above PART_MAX its end alone."""
        self._whole_bytes = 0

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
        events = self._events.whole(chunk)
        passed = self._pass(self._events.feed(chunk)) if events is None else self._skim(events)
        return passed if self._injected else chunk

    def finish(self) -> bytes:
        """The body has ended, whole or cut. What is left to forward: b"" but for an injected chat stream that ended within an event."""
        passed = b""
        if self._text is None:
            return passed
        if self._is_stream:
            passed = self._pass(self._events.finish())
        elif self._whole:
            whole = bytes(self._whole)
            self._whole.clear()
            said = _json(whole) if self._whole_bytes == len(whole) else _last_usage(whole)
            for message in said if isinstance(said, list) else [said]:
                self._note(message)
        if self.usage is None and not self.failed:
            self.flag("usage_missing")
        return passed if self._injected else b""

    def _look(self, chunk: bytes) -> None:
        """By its first byte: what an upstream answers is not always what was asked for."""
        first = chunk.lstrip()[:1]
        if not first:
            return
        self._is_stream = first not in b"[{"
        self._injected &= self._is_stream

    def _skim(self, events: bytes) -> bytes:
        """The same as `_pass` for whole events in one piece, which are taken apart only when one of them tells something."""
        if _tells(events):
            if self._injected or b"\r" in events:
                return self._pass(Events().feed(events))
            for event in _telling(events):
                self._note(_json(data_of(event)))
        self._count(events)
        return events

    def _pass(self, parts: Iterable[Part]) -> bytes:
        """Reads the parts; gives them joined, without the event that the client did not ask for."""
        passed = []
        for part in parts:
            if not part.whole:
                self.flag("event_too_long")
            elif _tells(part.raw):
                message = _json(data_of(part.raw))
                self._note(message)
                if _is_usage_alone(message):
                    continue
            self._count(part.raw)
            passed.append(part.raw)
        return b"".join(passed)

    def _note(self, message: object) -> None:
        try:
            self.read(message)
        except Exception:  # noqa: BLE001 - a mistake in our reading must never break a stream that a client reads
            self.flag("reader_failed")

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


# Encodings
# ---------
# Undo the Content-Encoding of an answer: nobody asked for one, and neither its usage nor our key in it could be read.


GZIP, DEFLATE = 31, 15
_RAW = -15
_WBITS = {"gzip": GZIP, "x-gzip": GZIP, "deflate": DEFLATE}


class BadEncoding(Exception):
    """The bytes are not of the encoding that the headers name, or we cannot read that encoding."""


class Decoder:
    """Decodes one body in bounded steps: `give` it what came, then `take` until that is empty."""

    def __init__(self, wbits: int, most: int) -> None:
        """`most`: bytes that `take` returns at once, however small their encoded form is."""
        self._wbits = wbits
        self._most = most
        self._inner = zlib.decompressobj(wbits)
        self._waiting = b""
        self._began = False

    def give(self, data: bytes) -> None:
        """Add what came."""
        self._waiting += data

    def take(self) -> bytes:
        """Return decoded bytes; empty if more has to come first. Raises BadEncoding."""
        while True:
            if self._inner.eof:  # a second member of a gzip file, or what follows the end, which counts for nothing
                if not self._waiting.startswith(b"\x1f\x8b"):
                    self._waiting = b""
                    return b""
                self._inner = zlib.decompressobj(self._wbits)
            before, data = len(self._waiting), self._decoded()
            if data or len(self._waiting) == before or not self._waiting:
                return data

    @property
    def is_done(self) -> bool:
        """Nothing waits, and the body is whole; also one of which nothing came."""
        return not self._waiting and (self._inner.eof or not self._began)

    def _decoded(self) -> bytes:
        data = self._waiting
        try:
            found = self._inner.decompress(data, self._most)
        except zlib.error as error:
            if self._wbits != DEFLATE or self._began:
                raise BadEncoding(str(error)) from None
            self._wbits, self._inner = _RAW, zlib.decompressobj(_RAW)  # some servers send deflate without its header
            return self._decoded()
        self._began = self._began or bool(data)
        self._waiting = self._inner.unconsumed_tail or self._inner.unused_data
        return found


def decoder(content_encoding: str, most: int) -> Decoder | None:
    """Return what decodes a body; None if it is not encoded. Raises BadEncoding if it cannot be read."""
    named = [name for part in content_encoding.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if not named:
        return None
    if len(named) > 1 or named[0] not in _WBITS:
        raise BadEncoding(f"cannot be read here: {', '.join(named)[:60]!r}")
    return Decoder(_WBITS[named[0]], most)


# Batches
# -------
# A body for `/v1/messages/batches`, and the lines of its results.


MOST = 100_000
"""Requests in a batch, as Anthropic has it."""
_MESSAGE = Asked(Api.ANTHROPIC, Endpoint.MESSAGES, may_cache_hour=True)


class BatchRequest(NamedTuple):
    """One request of a batch, as far as it is reckoned with."""

    size: int
    """Bytes of its parameters."""
    max_tokens: int | None


class BatchAsked(NamedTuple):
    """What a batch asks for."""

    model: str
    requests: tuple[BatchRequest, ...]
    names_input: bool
    """One of its requests refers to input that is not in it."""
    times: float
    """The most that one of its requests costs, in prices of the table."""


class BatchResult(NamedTuple):
    """One line of the results. `usage` None: it took nothing, or (with `served`) the provider does not say what."""

    custom_id: str
    served: bool
    usage: Usage | None
    times: float | None = 1.0
    """Its price, as a multiple of the table's; None if unknown."""


def read_batch(body: bytes) -> BatchAsked:
    """What is asked. Raises BadRequest for what is no batch, for one that asks several models (each has a price and a limit of its own; ask
    for a batch each), and for one that asks for a stream."""
    asked = [one.value for name, one in parsed(body, once=True)[1].items() if name == "requests"]
    requests = asked[0] if asked else None
    if not isinstance(requests, list) or not 1 <= len(requests) <= MOST:
        raise BadRequest(400, f"requests: a list of 1 to {MOST} is required.")
    params = [one["params"] if isinstance(one, dict) and isinstance(one.get("params"), dict) else None for one in requests]
    found = [one for one in params if one is not None]
    if len(found) < len(requests):
        raise BadRequest(400, "requests: each is an object with a custom_id and params.")
    models = {model_name(one.get("model")) for one in found}
    if len(models) > 1:
        raise BadRequest(400, "requests: one batch asks one model here; make a batch for each.")
    if any(one.get("stream") for one in found):
        raise BadRequest(400, "requests: nothing in a batch is streamed.")
    words = [price_words(Api.ANTHROPIC, one) for one in found]
    if dear := next(filter(None, (dear_word(Api.ANTHROPIC, each) for each in words)), ""):
        raise BadRequest(400, f"requests: the price of {dear.partition(' ')[0]} with that value is not known in a batch; leave it out.")
    times = max(price_factor(Api.ANTHROPIC, each) or 1.0 for each in words)
    read = [_read(one) for one in found]
    return BatchAsked(models.pop(), tuple(one for one, _ in read), any(named for _, named in read), times)


def _read(params: Mapping[str, Any]) -> tuple[BatchRequest, bool]:
    text = json.dumps(params, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return BatchRequest(len(text), tokens(params.get("max_tokens"))), names_input(text)


def read_result(line: bytes) -> BatchResult | None:
    """A line of the results; None for what is none."""
    try:
        said = json.loads(line)
        custom_id, result = str(said["custom_id"]), said["result"]
        if result["type"] != "succeeded":
            return BatchResult(custom_id, served=False, usage=None)
        meter = Meter(_MESSAGE)
        meter.read({"type": "message", **result["message"]})
        return BatchResult(custom_id, served=True, usage=meter.usage, times=price_factor(Api.ANTHROPIC, meter.price_words))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
