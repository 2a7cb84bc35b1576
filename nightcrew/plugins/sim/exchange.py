"""One request to the simulated provider, from its arrival to the last byte of its answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import re
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate
from functools import cache
from typing import Any

from aiohttp import web

from nightcrew.plugins.sim.account import (
    Accounts,
    Entry,
    Place,
    Served,
    Stats,
    Tally,
    add_usage,
    label,
    model_class,
    safe_path,
    tokens_of,
    without_secrets,
)
from nightcrew.plugins.sim.answers import compose
from nightcrew.plugins.sim.batches import Batches
from nightcrew.plugins.sim.dialects.anthropic import Anthropic
from nightcrew.plugins.sim.dialects.chat import Chat
from nightcrew.plugins.sim.dialects.types import WORDS, Answer, Ask, Dialect, Failure, Frame, compact
from nightcrew.plugins.sim.faults import NO_FAULT, Facts, Fault, FaultBook, Manner, Wire
from nightcrew.plugins.sim.settings import SimSettings
from supervisor.host.clock import Clock, SystemClock

# Broken http
# -----------
# Answers that break HTTP itself. They are written to the connection by hand, past the server's own framing, and then it is closed.


BOMB_BYTES = 128 * 1024 * 1024
"""What the gzip bomb unpacks to; on the wire it is a thousandth of that."""

_INSIDE = re.compile(rb"(?<=[\xc2-\xf4])(?=[\x80-\xbf])")
"""Between the first byte of a UTF-8 character and its second."""


async def broken(kind: Wire, headers: Mapping[str, str], body: bytes) -> bytes:
    """The raw bytes of an answer that is broken in this way; nothing for `no_answer`."""
    match kind:
        case "no_answer":
            return b""
        case "mid_headers":
            return _head(headers)[:40]
        case "length_short":
            return _head({**headers, "Content-Length": str(max(0, len(body) - 10))}) + b"\r\n" + body
        case "length_long":
            return _head({**headers, "Content-Length": str(len(body) + 1000)}) + b"\r\n" + body
        case "no_chunk_end":
            return _head({**headers, "Transfer-Encoding": "chunked"}) + b"\r\n" + f"{len(body):x}\r\n".encode() + body + b"\r\n"
        case "gzip_bomb":
            packed = await asyncio.to_thread(_bomb)
            return _head({**headers, "Content-Encoding": "gzip", "Content-Length": str(len(packed))}) + b"\r\n" + packed
        case _:
            raise ValueError(f"nothing is broken: {kind!r}")


def _head(headers: Mapping[str, str]) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + "".join(f"{name}: {text}\r\n" for name, text in headers.items()).encode()


@cache
def _bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    block = b" " * (1024 * 1024)
    return b"".join(packer.compress(block) for _ in range(BOMB_BYTES // len(block))) + packer.flush()


def writes(data: bytes, manner: Manner) -> Iterator[bytes]:
    """One event's bytes as the separate writes that `manner` makes of them."""
    match manner:
        case "bytes":
            yield from (data[place : place + 1] for place in range(len(data)))
        case "split":
            yield from (part for part in _INSIDE.split(data) if part)
        case "crlf":
            yield data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        case "comments":
            yield b": a comment\n\n:\n" + data
        case _:
            yield data


# Provider
# --------
# The simulated provider's state, shared by all its connections, and the same controls in Python that `/sim/...` gives over HTTP.


class Provider:
    """One provider. `clock` moves its buckets and windows and dates its headers; `rng` decides lengths and chances."""

    def __init__(self, settings: SimSettings, *, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        rng = rng or random.Random(settings.seed)  # noqa: S311 - lengths of answers, no secret
        self.accounts = Accounts(settings, self.clock, rng)
        self.faults = FaultBook(rng)
        self.stats = Stats(settings.keep_last)
        self.batches = Batches(settings, self.clock, rng, (self.accounts, self.faults, self.stats))
        self._held: dict[str, asyncio.Event] = {}

    def fault(self, faults: Iterable[Fault]) -> None:
        """Put these faults behind those that are in force."""
        self.faults.add(faults)

    async def held(self, name: str) -> None:
        """Wait until `name` is released."""
        self.stats.held[name] += 1
        try:
            await self._held.setdefault(name, asyncio.Event()).wait()
        finally:
            self.stats.held[name] -= 1

    def release(self, name: str) -> None:
        """Let every answer go that waits for `name` now, and every batch that is held; later ones wait anew."""
        self.batches.release()
        self._held.pop(name, asyncio.Event()).set()


# Exchange
# --------
# One request for a completion, from its body to the last byte of its answer.


PING_EVERY_S = 0.2
"""Of endless pings. Real ones are ten seconds and more apart."""
SIMULATED = {"x-simulated": "nightcrew"}


class _Cut(Exception):
    """End the connection here."""


@dataclass(slots=True)
class Exchange:
    """What is known of the request, and where it is written down."""

    provider: Provider
    dialect: Dialect
    request: web.Request
    entry: Entry
    tally: Tally
    key: str
    ask: Ask
    fault: Fault
    request_id: str

    async def run(self) -> web.StreamResponse:
        """Answer it. However it ends, that is counted once."""
        try:
            return await self._answer()
        except _Cut:
            self.end("cut")
            return hang_up(self.request)
        except (asyncio.CancelledError, ConnectionError):
            self.end("cancelled")
            raise

    async def _answer(self) -> web.StreamResponse:
        fault, accounts = self.fault, self.provider.accounts
        if fault.status:
            await self._wait(0)
            return self.refuse_by_fault()
        usage = accounts.count(self.ask, self.key, self.entry.body_bytes, fault)
        place = accounts.place(self.key, self.ask.model, usage)
        served = accounts.admit(place, self.ask, usage)
        if isinstance(served, Failure):
            return self.refuse(served, f"limit:{served.dimension}", place)
        try:
            return await self._serve(served, place)
        finally:
            served.end(accounts.now())
            add_usage(self.tally.used, served.used)

    async def _serve(self, served: Served, place: Place) -> web.StreamResponse:
        settings = self.provider.settings
        counted = self._headers(place) if settings.head_s else None
        await self._wait(settings.latency_s + settings.head_s)
        created = int(self.provider.clock.wall())
        answer = compose(
            self.ask, served.usage, self.fault, per_event=settings.tokens_per_event, answer_id=self.request_id, created=created
        )
        if not self.ask.stream:
            await self._produce_in_time(served, served.usage.output)
        headers = (counted or self._headers(place)) | {"Content-Type": self._content_type()}
        if self.fault.wire:
            return await self._broken(served, answer, self._twisted(headers))
        return await self._send(served, answer, self._twisted(headers))

    async def _send(self, served: Served, answer: Answer, headers: Mapping[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        if not self.ask.stream:
            response.content_length = len(self._body(answer))
        await response.prepare(self.request)
        sent = hashlib.sha256()
        self.provider.stats.streams += self.ask.stream
        try:
            async for frame in self._frames(served, answer):
                for part in writes(frame.data, self.fault.manner):
                    await response.write(part)
                    sent.update(part)
                self._reported(frame, answer)
            await response.write_eof()
        finally:
            self.provider.stats.streams -= self.ask.stream
            self.entry.sent_sha256 = sent.hexdigest()
        self.end("answered")
        return response

    async def _broken(self, served: Served, answer: Answer, headers: Mapping[str, str]) -> web.StreamResponse:
        body = b"".join(frame.data for frame in self._written(answer))
        self._produce(served, served.usage.output - served.produced)
        raw = await broken(self.fault.wire, headers, body)
        if self.request.transport is not None:
            self.request.transport.write(raw)
        raise _Cut

    # What is written ------------------------------------------------------------------------------------------------------------

    def _written(self, answer: Answer) -> Iterator[Frame]:
        """The frames of the whole answer, whether it is a stream or not."""
        if not self.ask.stream:
            yield Frame(self._body(answer), usage=True)
            return
        for frame in self.dialect.frames(self.ask, answer):
            yield frame
            if frame.usage and self.fault.usage == "duplicated":
                yield frame

    def _body(self, answer: Answer) -> bytes:
        return compact(self.dialect.whole(self.ask, answer)).encode()

    async def _frames(self, served: Served, answer: Answer) -> AsyncIterator[Frame]:
        """The same in time: each once its tokens are produced, with what goes wrong amid them."""
        for place, frame in enumerate(self._written(answer)):
            if place == self.fault.after and self.fault.then:
                async for extra in self._amid():
                    yield extra
                if self.fault.then == "error":
                    return
            await self._produce_in_time(served, frame.tokens)
            yield frame
        self._produce(served, served.usage.output - served.produced)

    async def _amid(self) -> AsyncIterator[Frame]:
        match self.fault.then:
            case "cut":
                raise _Cut
            case "error":
                status = self.fault.error_status
                failure = Failure(status, self.fault.message or WORDS.get(status, "error"), self.fault.reason)
                yield Frame(self.dialect.error_frame(failure, self.request_id))
            case "silence":
                await asyncio.sleep(math.inf if self.fault.for_s is None else self.fault.for_s)
            case "pings":
                pings = None if self.fault.for_s is None else math.ceil(self.fault.for_s / PING_EVERY_S)
                while pings is None or pings > 0:
                    yield Frame(self.dialect.ping())
                    await asyncio.sleep(PING_EVERY_S)
                    pings = None if pings is None else pings - 1

    async def _produce_in_time(self, served: Served, tokens: int) -> None:
        if tokens == 0:
            return
        if rate := self.provider.settings.tokens_per_s:
            await asyncio.sleep(tokens / rate)
        self._produce(served, tokens)

    def _produce(self, served: Served, tokens: int) -> None:
        served.produce(tokens, self.provider.accounts.now())

    async def _wait(self, latency_s: float) -> None:
        """Everything that is silent before the headers."""
        if (silence := latency_s + self.fault.delay_s) > 0:
            await asyncio.sleep(silence)
        if self.fault.hold:
            await self.provider.held(self.fault.hold)

    # Headers and refusals -------------------------------------------------------------------------------------------------------

    def refuse(self, failure: Failure, why: str, place: Place | None = None) -> web.Response:
        """The API's own error, counted as `why`."""
        headers = self._headers(place)
        retry_after = self._retry_after(failure)
        if retry_after is not None:
            headers["retry-after"] = retry_after
        self.end(why)
        self.tally.refused[why] = self.tally.refused.get(why, 0) + 1
        body = compact(self.dialect.error(failure, self.request_id)).encode()
        return web.Response(status=failure.status, body=body, headers=self._twisted(headers | {"Content-Type": "application/json"}))

    def refuse_by_fault(self) -> web.Response:
        """The error that the fault asks for."""
        status = self.fault.status
        opens_at = self.provider.clock.wall() + float(self.fault.retry_after or 0) if self.fault.reason == "window" else 0.0
        failure = Failure(status, self.fault.message or WORDS.get(status, "error"), self.fault.reason, opens_at=opens_at)
        return self.refuse(failure, f"fault:{status}")

    def _retry_after(self, failure: Failure) -> str | None:
        """The scripted text, or whole seconds, rounded up, of a wait that is known. Gemini says it in the body."""
        text = self.fault.retry_after
        if text is not None and text.startswith("date:"):
            return formatdate(self.provider.clock.wall() + float(text.removeprefix("date:")), usegmt=True)
        if text is None and failure.wait_s is not None and self.dialect.api != "gemini":
            return str(max(1, math.ceil(failure.wait_s)))
        return text

    def _headers(self, place: Place | None) -> dict[str, str]:
        headers = SIMULATED | self.dialect.id_headers(self.request_id)
        if place is None:
            return headers
        accounts = self.provider.accounts
        limits = accounts.window_headers(self.key) or self.dialect.limit_headers(accounts.gauges(place), self.provider.clock.wall())
        return headers | limits

    def _twisted(self, headers: Mapping[str, str]) -> dict[str, str]:
        """With what the fault sets or takes away."""
        changed = {name.lower(): text for name, text in self.fault.headers.items()}
        kept = {name: text for name, text in headers.items() if name.lower() not in changed}
        return kept | {name: text for name, text in changed.items() if text is not None}

    def _content_type(self) -> str:
        if self.ask.stream and not self.ask.array:
            return "text/event-stream; charset=utf-8"
        return "application/json"

    # The account ----------------------------------------------------------------------------------------------------------------

    def _reported(self, frame: Frame, answer: Answer) -> None:
        """A final usage was written. Said twice, it still counts once."""
        if frame.usage and answer.usage is not None and self.entry.usage is None:
            self.entry.usage = answer.usage
            add_usage(self.tally.reported, answer.usage)

    def end(self, outcome: str) -> None:
        """It is over: write down how."""
        self.entry.outcome = outcome
        match outcome:
            case "answered":
                self.tally.answered += 1
            case "cancelled":
                self.tally.cancelled += 1
            case "cut":
                self.tally.cut += 1


def hang_up(request: web.Request) -> web.Response:
    """Close the connection once what was written is out. The response only ends the handler: it cannot be written any more."""
    if request.transport is not None:
        request.transport.close()
    return web.Response()


# Request handler
# ---------------
# Where requests come in: they are read, written down, checked, and given the fault that is meant for them.


_INVALID = Ask("", stream=False, max_tokens=None, body={})
CLAUDE_MODELS = ("claude-opus-4-8", "claude-sonnet-4-5", "claude-haiku-4-5")
GPT_MODELS = ("gpt-5", "gpt-5-mini")
"""Named in lists of models; requests for any other name are served as well."""
_COUNTED = {"anthropic": "input_tokens", "gemini": "totalTokens"}


async def complete(provider: Provider, dialect: Dialect, request: web.Request) -> web.StreamResponse:
    """Answer a request for a completion."""
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return exchange_of(provider, dialect, request, b"").refuse(Failure(413, WORDS[413]), "invalid")
    exchange = exchange_of(provider, dialect, request, body)
    if not is_known(provider, exchange.key):
        return exchange.refuse(Failure(401, WORDS[401]), "key")
    if exchange.ask is _INVALID:
        return exchange.refuse(Failure(400, WORDS[400]), "invalid")
    exchange.fault = provider.faults.choose(Facts(dialect.api, exchange.ask.model, exchange.key, body))
    return await exchange.run()


async def count(provider: Provider, dialect: Dialect, request: web.Request) -> web.Response:
    """Say how many tokens a body has. It costs none, and its own limit on requests is not simulated."""
    body = await request.read()
    exchange = exchange_of(provider, dialect, request, body)
    exchange.entry.api = "count_tokens"
    fault = exchange.fault = provider.faults.choose(Facts("count_tokens", exchange.ask.model, exchange.key, body))
    if not is_known(provider, exchange.key):
        return exchange.refuse(Failure(401, WORDS[401]), "key")
    if exchange.ask is _INVALID:
        return exchange.refuse(Failure(400, WORDS[400]), "invalid")
    if fault.status:
        return exchange.refuse_by_fault()
    tokens = tokens_of(len(body)) if fault.input_tokens is None else fault.input_tokens
    exchange.end("answered")
    return web.json_response({_COUNTED[dialect.api]: tokens}, headers=SIMULATED | dialect.id_headers(exchange.request_id))


async def models(provider: Provider, request: web.Request) -> web.Response:
    """The list of models, in the shape of the API that the request's headers are of. It costs nothing, and no fault is for it."""
    key, anthropic = _key(request.headers, request.query), "anthropic-version" in request.headers
    if not is_known(provider, key):
        failure = Failure(401, WORDS[401])
        error = Anthropic().error(failure, "") if anthropic else Chat().error(failure, "")
        return web.json_response(error, status=401, headers=SIMULATED)
    return web.json_response(_anthropic_models() if anthropic else _openai_models(), headers=SIMULATED)


def _anthropic_models() -> dict[str, Any]:
    listed = [{"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"} for name in CLAUDE_MODELS]
    return {"data": listed, "has_more": False, "first_id": CLAUDE_MODELS[0], "last_id": CLAUDE_MODELS[-1]}


def _openai_models() -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "simulated"} for name in GPT_MODELS]}


def exchange_of(provider: Provider, dialect: Dialect, request: web.Request, body: bytes) -> Exchange:
    """Write a request down."""
    key, ask, number = _key(request.headers, request.query), _read(dialect, request, body), provider.stats.number()
    entry = Entry(
        number=number,
        at=time.monotonic(),
        method=request.method,
        path=safe_path(request.path, request.query),
        api=dialect.api,
        model=ask.model,
        stream=ask.stream,
        key=label(key),
        headers=without_secrets(request.headers.items()),
        body_sha256=hashlib.sha256(body).hexdigest(),
        body_bytes=len(body),
    )
    provider.stats.last.append(entry)
    tally = provider.stats.tally(entry.key, model_class(ask.model))
    tally.asked += 1
    return Exchange(provider, dialect, request, entry, tally, key, ask, NO_FAULT, f"sim{number:09d}")


def _read(dialect: Dialect, request: web.Request, body: bytes) -> Ask:
    """The request, or `_INVALID`."""
    try:
        return dialect.read(request.path, request.query, json.loads(body))
    except (KeyError, TypeError, ValueError):
        return _INVALID


def _key(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The key, wherever one of the providers looks for it; empty when there is none."""
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or bearer or query.get("key", "")


def is_known(provider: Provider, key: str) -> bool:
    """Whether the provider takes the key."""
    return key in provider.settings.keys if provider.settings.keys else bool(key) or not provider.settings.needs_key
