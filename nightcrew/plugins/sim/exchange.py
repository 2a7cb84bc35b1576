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
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
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
    without_secrets,
)
from nightcrew.plugins.sim.dialects import Answer, Ask, Dialect, Failure, Frame, compact, compose
from nightcrew.plugins.sim.faults import NO_FAULT, Fault, FaultBook, Manner, Wire
from nightcrew.plugins.sim.settings import SimSettings
from supervisor.gateway.admission.types import Usage
from supervisor.host.clock import Clock, SystemClock

# Broken http
# -----------
# Answers that break HTTP itself. They are written to the connection by hand, past the server's own framing, and then it is closed.


BOMB_BYTES = 128 * 1024 * 1024
"""What the gzip bomb unpacks to; on the wire it is a thousandth of that."""

_INSIDE = re.compile(rb"(?<=[\xc2-\xf4])(?=[\x80-\xbf])")
"""Between the first byte of a UTF-8 character and its second."""


async def broken(kind: Wire, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the raw bytes of an answer that is broken in this way; nothing for `no_answer`."""
    more, sent = {"Content-Length": str(max(0, len(body) - 10))}, body
    match kind:
        case "no_answer":
            return b""
        case "mid_headers":
            return _head(headers)[:40]
        case "length_long":
            more = {"Content-Length": str(len(body) + 1000)}
        case "no_chunk_end":
            more, sent = {"Transfer-Encoding": "chunked"}, b"%x\r\n%b\r\n" % (len(body), body)
        case "gzip_bomb":
            sent = await asyncio.to_thread(_bomb)
            more = {"Content-Encoding": "gzip", "Content-Length": str(len(sent))}
        case _:  # the length is too short
            pass
    return _head({**headers, **more}) + b"\r\n" + sent


def _head(headers: Mapping[str, str]) -> bytes:
    return b"HTTP/1.1 200 OK\r\n" + "".join(f"{name}: {text}\r\n" for name, text in headers.items()).encode()


@cache
def _bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    block = b" " * (1024 * 1024)
    return b"".join(packer.compress(block) for _ in range(BOMB_BYTES // len(block))) + packer.flush()


def writes(data: bytes, manner: Manner) -> Iterator[bytes]:
    """Yield one event's bytes as the separate writes that `manner` makes of them."""
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


class Provider:
    """One provider's state, shared by all its connections. `clock` moves its buckets and windows and dates its headers; `rng` decides
    lengths and chances."""

    def __init__(self, settings: SimSettings, *, clock: Clock | None = None, rng: random.Random | None = None) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        rng = rng or random.Random(settings.seed)  # noqa: S311 - lengths of answers, no secret
        self.accounts = Accounts(settings, self.clock, rng)
        self.faults = FaultBook(rng)
        self.stats = Stats(settings.keep_last)
        self.releases: list[Callable[[], None]] = []
        """Called when a name is released."""
        self._held: dict[str, asyncio.Event] = {}

    def fault(self, faults: Iterable[Fault]) -> None:
        """Put these faults behind those that are in force."""
        self.faults.add(faults)

    def knows(self, key: str) -> bool:
        """Tell whether it takes the key."""
        return key in self.settings.keys if self.settings.keys else bool(key) or not self.settings.needs_key

    def answer(self, ask: Ask, usage: Usage, fault: Fault, answer_id: str) -> Answer:
        """Compose an answer."""
        created = int(self.clock.wall())
        return compose(ask, usage, fault, answer_id, created)

    async def held(self, name: str) -> None:
        """Wait until `name` is released."""
        self.stats.held[name] += 1
        try:
            await self._held.setdefault(name, asyncio.Event()).wait()
        finally:
            self.stats.held[name] -= 1

    def release(self, name: str) -> None:
        """Let every answer go that waits for `name` now, and every batch that is held; later ones wait anew."""
        for release in self.releases:
            release()
        self._held.pop(name, asyncio.Event()).set()


# Exchange
# --------


PING_EVERY_S = 0.2
"""Of endless pings. Real ones are ten seconds and more apart."""
SIMULATED = {"x-simulated": "nightcrew"}
_INVALID = Ask("", stream=False, max_tokens=None, body={})


class Refused(Exception):
    """The request is answered with an error."""

    def __init__(self, response: web.Response) -> None:
        super().__init__(response.status)
        self.response = response


class _Cut(Exception):
    """End the connection here."""


async def arrive(provider: Provider, dialect: Dialect, request: web.Request, api: str = "") -> Exchange:
    """Read a request, write it down, check it, and give it the fault that is meant for it. `api`: what faults call its route, unless that
    is the dialect's. Raises Refused."""
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise _written(provider, dialect, request, b"", api).refused(Failure(413), "invalid") from None
    exchange = _written(provider, dialect, request, body or b"{}", api)
    if not provider.knows(exchange.key):
        raise exchange.refused(Failure(401), "key")
    if exchange.ask is _INVALID:
        raise exchange.refused(Failure(400), "invalid")
    exchange.fault = provider.faults.choose(exchange.entry.api, exchange.ask.model, exchange.key, body)
    return exchange


def _written(provider: Provider, dialect: Dialect, request: web.Request, body: bytes, api: str) -> Exchange:
    key, number = key_of(request), provider.stats.number()
    try:
        ask = dialect.read(request.path, request.query, json.loads(body))
    except (KeyError, TypeError, ValueError):
        ask = _INVALID
    entry = Entry(
        number=number,
        at=time.monotonic(),
        method=request.method,
        path=safe_path(request.path, request.query),
        api=api or dialect.api,
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


def key_of(request: web.Request) -> str:
    """The key, wherever one of the providers looks for it; empty when there is none."""
    headers = request.headers
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or bearer or request.query.get("key", "")


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
        """Answer it with a completion. However it ends, that is counted once."""
        try:
            return await self._answer()
        except _Cut:
            return self.hang_up()
        except (asyncio.CancelledError, ConnectionError):
            self.end("cancelled")
            raise

    async def _answer(self) -> web.StreamResponse:
        fault, accounts = self.fault, self.provider.accounts
        if fault.status:
            await self._wait(0)
            self.refuse_by_fault()
        usage = accounts.count(self.ask, self.key, self.entry.body_bytes, fault)
        place = accounts.place(self.key, self.ask.model)
        served = accounts.admit(place, self.ask, usage)
        if isinstance(served, Failure):
            raise self.refused(served, f"limit:{served.dimension}", place)
        try:
            return await self._serve(served, place)
        finally:
            served.end(accounts.now())
            add_usage(self.tally.used, served.used)

    async def _serve(self, served: Served, place: Place) -> web.StreamResponse:
        settings = self.provider.settings
        counted = self._headers(place) if settings.head_s else None
        await self._wait(settings.latency_s + settings.head_s)
        answer = self.provider.answer(self.ask, served.usage, self.fault, self.request_id)
        if not self.ask.stream:
            await self._produce_in_time(served, served.usage.output)
        is_events = self.ask.stream and not self.ask.array
        kind = "text/event-stream; charset=utf-8" if is_events else "application/json"
        headers = self._twisted((counted or self._headers(place)) | {"Content-Type": kind})
        return await (self._broken if self.fault.wire else self._send)(served, answer, headers)

    async def _send(self, served: Served, answer: Answer, headers: Mapping[str, str]) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        if not self.ask.stream:
            response.content_length = sum(len(frame.data) for frame in self._written(answer))
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
        """Yield the frames of the whole answer, whether it is a stream or not."""
        if not self.ask.stream:
            yield Frame(compact(self.dialect.whole(answer)).encode(), usage=True)
            return
        for frame in self.dialect.frames(answer):
            yield frame
            if frame.usage and self.fault.usage == "duplicated":
                yield frame

    async def _frames(self, served: Served, answer: Answer) -> AsyncIterator[Frame]:
        """Yield the same in time: each once its tokens are produced, with what goes wrong amid them."""
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
        lasts = math.inf if self.fault.for_s is None else self.fault.for_s
        match self.fault.then:
            case "cut":
                raise _Cut
            case "error":
                failure = Failure(self.fault.error_status, self.fault.message, self.fault.reason)
                yield Frame(self.dialect.error_frame(failure, self.request_id))
            case "silence":
                await asyncio.sleep(lasts)
            case "pings":
                while lasts > 0:
                    yield Frame(self.dialect.ping())
                    await asyncio.sleep(PING_EVERY_S)
                    lasts -= PING_EVERY_S

    async def _produce_in_time(self, served: Served, tokens: int) -> None:
        if tokens and (rate := self.provider.settings.tokens_per_s):
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

    # Other answers --------------------------------------------------------------------------------------------------------------

    def tell(self, told: Mapping[str, Any]) -> web.Response:
        """Answer with a JSON object."""
        self.end("answered")
        return web.json_response(told, headers=self._headers())

    def tell_lines(self, lines: bytes) -> web.Response:
        """Answer with lines of JSON."""
        self.end("answered")
        return web.Response(body=lines, headers=self._headers() | {"Content-Type": "application/x-jsonl"})

    def refused(self, failure: Failure, why: str, place: Place | None = None) -> Refused:
        """Return the API's own error, counted as `why`."""
        headers = self._headers(place) | {"Content-Type": "application/json"}
        if (retry_after := self._retry_after(failure)) is not None:
            headers["retry-after"] = retry_after
        self.end(why)
        self.tally.refused[why] = self.tally.refused.get(why, 0) + 1
        body = compact(self.dialect.error(failure, self.request_id)).encode()
        return Refused(web.Response(status=failure.status, body=body, headers=self._twisted(headers)))

    def refuse_by_fault(self) -> None:
        """Raise the error that the fault asks for, if it asks for one."""
        if status := self.fault.status:
            opens_at = self.provider.clock.wall() + float(self.fault.retry_after or 0) if self.fault.reason == "window" else 0.0
            raise self.refused(Failure(status, self.fault.message, self.fault.reason, opens_at=opens_at), f"fault:{status}")

    def hang_up(self) -> web.Response:
        """Close the connection once what was written is out. The response only ends the handler: it cannot be written any more."""
        self.end("cut")
        if self.request.transport is not None:
            self.request.transport.close()
        return web.Response()

    def _retry_after(self, failure: Failure) -> str | None:
        """Return the scripted text, or whole seconds, rounded up, of a wait that is known. Gemini says it in the body."""
        text = self.fault.retry_after
        if text is not None and text.startswith("date:"):
            return formatdate(self.provider.clock.wall() + float(text.removeprefix("date:")), usegmt=True)
        if text is None and failure.wait_s is not None and self.dialect.api != "gemini":
            return str(max(1, math.ceil(failure.wait_s)))
        return text

    def _headers(self, place: Place | None = None) -> dict[str, str]:
        headers = SIMULATED | self.dialect.id_headers(self.request_id)
        if place is None:
            return headers
        accounts = self.provider.accounts
        return headers | (
            accounts.window_headers(self.key) or self.dialect.limit_headers(accounts.gauges(place), self.provider.clock.wall())
        )

    def _twisted(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return them with what the fault sets or takes away."""
        changed = {name.lower(): text for name, text in self.fault.headers.items()}
        kept = {name: text for name, text in headers.items() if name.lower() not in changed}
        return kept | {name: text for name, text in changed.items() if text is not None}

    # The account ----------------------------------------------------------------------------------------------------------------

    def _reported(self, frame: Frame, answer: Answer) -> None:
        """Note that a final usage was written. Said twice, it still counts once."""
        if frame.usage and answer.usage is not None and self.entry.usage is None:
            self.entry.usage = answer.usage
            add_usage(self.tally.reported, answer.usage)

    def end(self, outcome: str) -> None:
        """Write down how it ended."""
        self.entry.outcome = outcome
        if outcome in ("answered", "cancelled", "cut"):
            setattr(self.tally, outcome, getattr(self.tally, outcome) + 1)
