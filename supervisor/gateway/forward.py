"""The life of one request after its arrival: its turn, its sending, the answer passed on while it comes, the account.

    turn -> Send -> open row (durable) -> upstream -> refused? -> settle, and wait for the next turn
                                                  -> served:      first byte -> ... -> end, settle
         -> TurnAway -> our own answer

Before the first byte reaches the client everything that fails is tried again, as the queue decides; after it nothing is: an answer that
breaks off is passed on as broken off. Each sending is settled exactly once, on every way out.
"""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass, field, replace
from typing import cast

from aiohttp import web
from aiohttp.http_writer import StreamWriter

from supervisor.core.gateway.commands import Send, TurnAway
from supervisor.core.gateway.estimate import FASTEST
from supervisor.core.gateway.events import Began, Ended, Fallback, Refused, Responded
from supervisor.core.gateway.settings import Upstream
from supervisor.core.gateway.types import NOTHING_OBSERVED, End, Observed, PoolKey, Refusal, Usage
from supervisor.gateway import recording, wire
from supervisor.gateway.account.rows import NEVER_SENT, REFUSED, OpenRow, SettledRow, TurnedAwayRow
from supervisor.gateway.credentials import outgoing
from supervisor.gateway.proxied_request import BYTES_PER_TOKEN, ProxiedRequest, passed_back
from supervisor.gateway.request_context import RequestContext
from supervisor.gateway.upstreams import Cut, Reply, Unreachable
from supervisor.gateway.wire.unbounded import names_input

_ERROR_MAX = 64 * 2**10
"""Bytes of an error's body that are looked at."""
_STALL_S = 600.0
"""A client that reads nothing for so long is taken for gone."""
KEPT_MAX, KEPT_OF_ALL_MAX = 4 * 2**20, 64 * 2**20
"""Bytes of an answer, and of all answers, that are kept for clients that do not read. 64,000 tokens that come one by one are 10 MB of
events, of which the sockets' own buffers take some; an answer of usual size is a hundredth of that."""
_SLOW_FROM = 2**16
"""Bytes of an answer that wait for its client: less is what any client leaves for a moment, and counts for nothing."""


class _Unserved(Exception):
    """The upstream did not serve, and the client has seen nothing of it."""

    def __init__(self, why: Refusal, observed: Observed = NOTHING_OBSERVED, detail: str = "") -> None:
        super().__init__(detail)
        self.why = why
        self.observed = observed
        self.detail = detail


class _Response(web.StreamResponse):
    """Its headers go out together with its first piece, which is there already: one packet instead of two."""

    _send_headers_immediately = False

    async def keep(self, data: bytes) -> None:
        """Write without waiting for the client to read."""
        await cast(StreamWriter, self._payload_writer).write(data, drain=False)


async def forward(context: RequestContext, call: ProxiedRequest) -> web.StreamResponse:
    """Serve a request that waits its turn. What it returns is prepared already, unless it is an answer of our own."""
    if call.capped and (call.asked.stored_input or names_input(call.body)):
        why = (
            "a cap on cost or tokens cannot be kept for a request that refers to input by name (a stored item, a file, an address, a PDF, "
            "a tool of the provider's); send its text"
        )
        return _turned_away(context, call, TurnAway(call.ticket, 402, why))
    if call.capped and (word := wire.tiers.dear(call.asked.api, dict(call.asked.price_words))):
        why = f"a cap on cost or tokens cannot be kept for a request with {word}, whose price is not known; leave that out"
        return _turned_away(context, call, TurnAway(call.ticket, 402, why))
    bound_usd, other = _bound_usd(context, call), call.by_fallback()
    other_usd = None if other is None else _bound_usd(context, other)
    fallback = None if other is None else Fallback(other.lane, other.model, other.way.upstreams, other_usd)
    turn = await context.admission.turn(call.arrived(bound_usd, fallback))
    while isinstance(turn, Send):
        if turn.fallback and other is not None:
            call, bound_usd = other, other_usd
        outcome = await Sending(context, call, turn, bound_usd).run()
        if isinstance(outcome, web.StreamResponse):
            return outcome
        turn = await context.admission.turn(outcome)
    return _turned_away(context, call, turn)


def _bound_usd(context: RequestContext, call: ProxiedRequest) -> float | None:
    """The most that it can cost; None when nobody knows."""
    times = wire.tiers.factor(call.asked.api, dict(call.asked.price_words))
    most = context.prices.bound(call.model, call.bound.input, call.bound.output)
    return None if call.asked.stored_input or times is None or most is None else most * times


def own_answer(call: ProxiedRequest, status: int, why: str, retry_after_s: int | None = None) -> web.Response:
    """An error of ours, in the shape that the client's API has."""
    headers, body = wire.error(call.asked.api, status, why, retry_after_s)
    return web.Response(status=status, headers=headers, body=body)


def _turned_away(context: RequestContext, call: ProxiedRequest, turn: TurnAway) -> web.Response:
    now = context.clock.monotonic()
    agent = call.agent
    waited_ms = 1000 * (now - call.arrived_at)
    context.account.turned_away(TurnedAwayRow(agent.name, agent.epoch, call.lane, turn.status, turn.why, waited_ms, context.clock.wall()))
    context.log.say_seldom(f"{turn.status} for {agent.name}: {turn.why}")
    return own_answer(call, turn.status, turn.why, turn.retry_after_s)


@dataclass(slots=True)
class Sending:
    """One request on its way to one upstream, once."""

    context: RequestContext
    call: ProxiedRequest
    send: Send
    bound_usd: float | None
    row: int = 0
    queued_s: float = 0.0
    pool: PoolKey | None = None
    status: int | None = None
    sent_at: float | None = None
    settled: bool = False
    first_byte_at: float | None = None
    observed: Observed = NOTHING_OBSERVED
    answer: wire.Answer | None = None
    client: _Response | None = None
    began: bool = False
    tape: recording.Tape | None = None
    passed: hashlib._Hash = field(default_factory=hashlib.sha256)
    """Of what the client got."""

    async def run(self) -> web.StreamResponse | Refused:
        """Pass the answer on, or say why there is none to pass on. Raises CancelledError and ConnectionError when the client has gone."""
        try:
            return await self._run()
        except _Unserved as unserved:
            self.answer = None
            self._settle(REFUSED, Usage(), str(unserved.why))
            self.context.log.say_seldom(f"{self.send.upstream}: {unserved.why}: {unserved.detail}")
            return Refused(self.call.ticket, unserved.why, unserved.observed, unserved.detail)
        except (asyncio.CancelledError, ConnectionError):
            if self.answer is not None:
                self.answer.finish()  # what has passed of it is read to its end
            flags = ["gateway_stopped"] if self.context.stopping else ["stopped"] if self.context.stopped else []
            self._end(End.CUT if self.context.stopping else End.CLIENT_GONE, *flags)
            raise
        finally:
            self.context.kept.pop(self.call.ticket, None)
            if not self.settled:  # a fault of ours: whatever it was, the reservation and the row must not be left open
                self._end(End.CUT, "our_fault")

    async def _run(self) -> web.StreamResponse:
        found = self.context.upstream(self.send.upstream)
        if found is None:
            raise _Unserved(Refusal.UNREACHABLE, detail="it is no longer in the settings")
        upstream, key = found
        await self._open(upstream)
        self.sent_at = self.context.clock.monotonic()
        try:
            with await self.context.upstreams.send(upstream.name, outgoing(self.call, upstream, key)) as reply:
                return await self._answered(reply, upstream)
        except Unreachable as error:
            raise _Unserved(Refusal.UNREACHABLE, detail=error.why) from None

    async def _open(self, upstream: Upstream) -> None:
        """Write the upper bound to disk before the upstream sees a byte. Where that fails, nothing is sent."""
        call = self.call
        self.queued_s = self.context.clock.monotonic() - call.arrived_at
        self.pool = PoolKey(upstream.owner, call.lane)
        row = OpenRow(
            agent=call.agent.name,
            epoch=call.agent.epoch,
            model=call.model,
            asked=call.asked.model,
            lane=call.lane,
            upstream=upstream.name,
            account=upstream.owner,
            task_class=call.agent.task_class,
            at=self.context.clock.wall(),
            queued_ms=1000 * self.queued_s,
            attempt_no=self.send.attempt,
            bound=call.bound,
            expected=self.send.expected,
            bound_usd=self.bound_usd,
            session=call.asked.session,
            body_key=call.body_key,
        )
        self.row = await self.context.account.open(row)

    # The answer ---------------------------------------------------------------------------------------------------------------------

    async def _answered(self, reply: Reply, upstream: Upstream) -> web.StreamResponse:
        self.status = reply.status
        headers = reply.lower()
        if why := no_answer(upstream.name, reply):
            self._end(End.CUT if reply.unreadable else End.REJECTED)
            return own_answer(self.call, 502, why)
        if reply.status >= 400:
            return await self._failed(reply, headers, upstream)
        self.observed = wire.observed(self.call.asked.api, headers)
        self.context.admission.tell(Responded(self.call.ticket, self.observed))
        self.answer = wire.Answer(self.call.asked, self.call.asked.usage_edit is not None)
        self.context.account.watch(self.row, self.answer.said)
        return await self._stream(reply, self.answer, upstream)

    async def _failed(self, reply: Reply, headers: dict[str, str], upstream: Upstream) -> web.StreamResponse:
        """An error of the upstream's is left to the queue, which may try again; an error of the client's own is passed on."""
        try:
            body = await reply.start(_ERROR_MAX)
        except Cut as error:
            raise _Unserved(Refusal.UNREACHABLE, detail=f"{reply.status}, and {error.why}") from None
        refused = wire.refusal(self.call.asked.api, reply.status, headers, body[:_ERROR_MAX])
        if refused is not None and not (refused[0] is Refusal.KEY_REFUSED and upstream.key.kind == "client"):
            raise _Unserved(refused[0], refused[1], f"{reply.status}")
        self.observed = wire.observed(self.call.asked.api, headers)
        client = await self._begin(reply, upstream)
        try:
            while body:
                self._record(body)
                await self._write(client, body)
                body = await reply.chunk()
        except Cut as error:
            return self._cut(client, error.why)
        self._end(End.REJECTED)
        await client.write_eof()
        return client

    async def _stream(self, reply: Reply, answer: wire.Answer, upstream: Upstream) -> web.StreamResponse:
        """Pass on each piece as it comes, and read it beside that."""
        try:
            while chunk := await reply.chunk():
                out = answer.feed(chunk)
                if self.client is None:
                    self._check_first(answer)
                    self.client = await self._begin(reply, upstream)
                if reply.is_whole:
                    return await self._finish(self.client, answer, out)
                if out:
                    self._record(out)
                    await self._write(self.client, out)
                self._tell_began(answer)
        except Cut as error:
            if self.client is None:
                raise Unreachable(f"{self.status}, then {error.why}") from None
            return self._cut(self.client, error.why)
        return await self._finish(self.client or await self._begin(reply, upstream), answer, b"")

    async def _finish(self, client: _Response, answer: wire.Answer, out: bytes) -> web.StreamResponse:
        """`out`, which is not sent yet, and the end of the answer go out together."""
        out += answer.finish()
        self._record(out)
        self._end(End.CUT if answer.failed else End.SERVED, *([answer.failed] if answer.failed else []))
        await self._write(client, out, last=True)
        return client

    def _tell_began(self, answer: wire.Answer) -> None:
        if answer.began and not self.began:
            self.began = True
            if answer.usage is not None:
                self.context.admission.tell(Began(self.call.ticket, answer.usage))

    def _check_first(self, answer: wire.Answer) -> None:
        """Treat an error inside a 200, before any text, as a 529: the client need not see it."""
        why = wire.failure(self.call.asked.api, answer.failed) if answer.failed and not answer.output_so_far_bytes else None
        if why is not None:
            raise _Unserved(why, self.observed, f"{self.status} with {answer.failed} in it")

    async def _begin(self, reply: Reply, upstream: Upstream) -> _Response:
        """From here on the client has seen something."""
        self.first_byte_at = self.context.clock.monotonic()
        own_login, keeps_length = upstream.key.kind == "client", self.call.asked.usage_edit is None
        headers = passed_back(reply.headers.items(), self.queued_s, own_login=own_login, keeps_length=keeps_length)
        client = self.client = _Response(status=reply.status, reason=reply.reason, headers=headers)
        await client.prepare(self.call.request)
        if self.context.recorder is not None:
            self.tape = self.context.recorder.begin(self._recorded(), reply.status, reply.headers)
        return client

    def _record(self, data: bytes) -> None:
        self.passed.update(data)
        if self.tape is not None and data:
            self.tape.piece(data)

    def _recorded(self) -> recording.Request:
        call = self.call
        endpoint = recording.endpoint(call.request.method, call.recognised)
        return recording.Request(self.row, call.agent.name.partition("/")[0], endpoint, call.body)

    async def _write(self, client: _Response, data: bytes, *, last: bool = False) -> None:
        """Keep a bounded part of the answer for a client that reads slowly, then wait for it. One that is paused reads nothing: its
        answer is read to the end meanwhile, so that its tokens are counted and the provider does not stall."""
        if not last and self._may_keep(len(data)):
            await client.keep(data)
            return
        write = client.write_eof if last else client.write
        if not self.call.request.protocol.writing_paused:
            await write(data)
            return
        try:
            async with asyncio.timeout(_STALL_S):
                await write(data)
        except TimeoutError:
            raise ConnectionError("the client reads nothing") from None

    def _may_keep(self, more: int) -> bool:
        transport, kept = self.call.request.transport, self.context.kept
        size = transport.get_write_buffer_size() + more if isinstance(transport, asyncio.WriteTransport) else KEPT_MAX
        if size < _SLOW_FROM:
            return True
        kept[self.call.ticket] = size
        return size < KEPT_MAX and sum(kept.values()) < KEPT_OF_ALL_MAX

    def _cut(self, client: web.StreamResponse, why: str) -> web.StreamResponse:
        """Let the client see that it was cut: its connection ends before the answer does."""
        if self.answer is not None:
            self.answer.finish()
        self._end(End.CUT, why)
        self.context.log.say_seldom(f"{self.send.upstream}: an answer was cut: {why}")
        self.call.request.protocol.force_close()
        return client

    # The end ------------------------------------------------------------------------------------------------------------------------

    def _end(self, end: End, *flags: str) -> None:
        """Report the end to the queue and to the account, once."""
        if self.settled:
            return
        usage, unseen = self.answer.charge() if self.answer is not None else None, self._unseen(end)
        if self.sent_at is None:
            end, usage = End.CLIENT_GONE, Usage()
        elif end is End.REJECTED:
            usage = Usage()
        elif usage is not None and self.answer is not None and not self.answer.final:
            usage = replace(usage, output=min(max(usage.output, unseen), self.call.bound.output))
        said = str(end) if self.sent_at is not None else NEVER_SENT
        charged, counted = self._settle(said, usage, *flags, *self._oddities(usage), least_output=unseen)
        self.context.admission.tell(Ended(self.call.ticket, end, usage, counted, charged.uncached, self.observed))

    def _unseen(self, end: End) -> int:
        """The most output that a provider may have made before we left it: thinking is charged, and need not be shown. 0 where the
        provider had the last word, or itself broke off."""
        if self.sent_at is None or (self.answer is not None and self.answer.final) or not (end is End.CLIENT_GONE or self.context.stopping):
            return 0
        return min(self.call.bound.output, int(FASTEST * (self.context.clock.monotonic() - self.sent_at)) + 1)

    def _oddities(self, usage: Usage | None) -> list[str]:
        """What is strange about the usage."""
        found = list(self.answer.flags) if self.answer is not None else []
        bound = self.call.bound
        if usage is None and "usage_missing" not in found:
            found.append("usage_missing")
        if usage is not None and (usage.output > bound.output or usage.total - usage.output > bound.input):
            found.append("usage_above_bound")
        return found

    def _settle(self, end: str, told: Usage | None, *flags: str, least_output: int = 0) -> tuple[Usage, float | None]:
        """Write it down; what it is charged, and the dollars that caps count. `told` None: the provider never said, so it is the input that
        was expected, the most output that it can have been by what was seen, and not less than `least_output` tokens of that."""
        self.settled = True
        if self.tape is not None:
            self.tape.end(end)
        call, now, answer = self.call, self.context.clock.monotonic(), self.answer
        seen = answer.output_so_far_bytes if answer is not None else 0
        usage = told or replace(self.send.expected, output=min(max(seen // BYTES_PER_TOKEN, least_output), call.bound.output))
        cost = self._cost(usage) if usage.total else 0.0
        counted = self._counted(end, told)
        if counted is None and cost is None:
            counted = self.bound_usd  # the provider says a tier that nobody asked for, and whose price is not known
        row = SettledRow(
            end=end,
            usage=usage,
            status=self.status,
            cost_usd=cost,
            counted_usd=counted,
            estimated=told is None or (answer is not None and not answer.final),
            first_byte_ms=1000 * (self.first_byte_at - call.arrived_at) if self.first_byte_at is not None else None,
            total_ms=1000 * (now - call.arrived_at),
            retries=self.send.attempt - 1,
            breaker=str(self.context.admission.breaker(self.pool)) if self.pool is not None else "",
            flags=tuple(flags),
            body=call.body,
            output_sha256=self.passed.hexdigest() if self.client is not None else None,
        )
        if self.row:
            self.context.account.settle(self.row, row)
        return usage, cost if counted is None else counted

    def _cost(self, usage: Usage) -> float | None:
        """US dollars, by the tier that the answer or the request says; None if the price is not known."""
        asked, found = self.call.asked, self.context.upstream(self.send.upstream)
        words = dict(asked.price_words) if self.answer is None else self.answer.price_words
        times = wire.tiers.factor(asked.api, words, found[0].url if found is not None else "")
        cost = self.context.prices.cost(self.call.model, usage)
        return None if times is None or cost is None else cost * times

    def _counted(self, end: str, told: Usage | None) -> float | None:
        """What counts below the caps on dollars when the client hung up: the most that the answer can have become, since it may be billed
        whole, and what is expected of it is what the agent's other answers were like. None: what it costs."""
        is_over = self.answer is not None and self.answer.final
        if end != End.CLIENT_GONE or is_over or self.bound_usd is None or (self.status or 0) >= 400:
            return None
        whole = None if told is None else self._cost(replace(told, output=self.call.bound.output))
        return self.bound_usd if whole is None else min(whole, self.bound_usd)


def no_answer(name: str, reply: Reply) -> str:
    """Why an answer is not passed on; empty: it is. A change of protocol (101) was not asked for. Followed, a redirect could take the key
    elsewhere; passed on, it could take the client there. What cannot be decoded may hold our key; an error is passed on without it."""
    status = reply.status
    if status < 200:
        return f"the upstream {name} answered {status}, which nobody asked for: its url in the settings is not that of the API"
    if reply.unreadable and status < 300:
        return f"the upstream {name} answered in a content encoding that {reply.unreadable}"
    return f"the upstream {name} redirects elsewhere: its url in the settings is not that of the API" if 300 <= status < 400 else ""
