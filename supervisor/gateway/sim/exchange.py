"""One request for a completion, from its body to the last byte of its answer."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from email.utils import formatdate

from aiohttp import web

from supervisor.gateway.sim.account import Place, Served
from supervisor.gateway.sim.answers import compose
from supervisor.gateway.sim.broken_http import broken, writes
from supervisor.gateway.sim.dialects import WORDS, Answer, Ask, Dialect, Failure, Frame, compact
from supervisor.gateway.sim.faults import Fault
from supervisor.gateway.sim.provider import Provider
from supervisor.gateway.sim.stats import Entry, Tally, add_usage

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
