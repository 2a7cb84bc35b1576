"""The life of one request after its arrival."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never, cast

from aiohttp import web
from aiohttp.http_writer import StreamWriter
from multidict import CIMultiDict

from supervisor.gateway import replay
from supervisor.gateway.account.charges import NEVER_SENT, REFUSED, OpenRow, Prices, SettledRow, TurnedAwayRow
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.budget import FASTEST, Never, Wait
from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import (
    NOTHING_OBSERVED,
    Agent,
    Alert,
    Arrived,
    BatchEnded,
    BatchHold,
    Began,
    BreakerState,
    Command,
    End,
    Ended,
    Event,
    Fallback,
    Interrupt,
    Journal,
    LaneKey,
    Observed,
    PoolKey,
    Refusal,
    Refused,
    Responded,
    Send,
    Shown,
    Tick,
    TurnAway,
    Usage,
    Withdrawn,
    model_class,
)
from supervisor.gateway.provider_keys import Keyring, Log
from supervisor.gateway.proxy.upstreams import Cut, Outgoing, Reply, Unreachable, Upstreams, outgoing
from supervisor.gateway.replay import Recorder
from supervisor.gateway.wire.errors import error as api_error
from supervisor.gateway.wire.errors import failure, refusal
from supervisor.gateway.wire.headers import HOP_BY_HOP, dear_word, observed, price_factor
from supervisor.gateway.wire.metering import Answer
from supervisor.gateway.wire.requests import Asked, Endpoint, Recognised, names_input
from supervisor.host.clock import Clock
from supervisor.kernel.engines import Engine
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Route, Upstream
from supervisor.kernel.states import TaskClass

if TYPE_CHECKING:
    from supervisor.gateway.engines import Engines
    from supervisor.gateway.proxy.answers import Answers, Flight

# Admission
# ---------
# The only caller of `Traffic`: reports events to it, wakes requests that may be sent, and sets a timer for what time alone changes.
#
# Everything here is synchronous and on one loop, so nothing can come between a decision and its reservation.


_LATE_S = 0.001
"""A timer may fire this much too early by our clock; then it would find nothing to do, and be set again."""
BUSY_AGAIN_S = 2
"""What a client is told when the gateway stops: the next one is up within this time."""


class Admission:
    """Use it from one event loop."""

    def __init__(self, traffic: Traffic, account: Account, log: Log, now: Callable[[], float]) -> None:
        """`now` gives monotonic seconds."""
        self.traffic = traffic
        self._account = account
        self._log = log
        self._now = now
        self._waiting: dict[int, asyncio.Future[Send | TurnAway]] = {}
        self.cuts: dict[int, Callable[[], None]] = {}
        """Ticket -> what cuts its upstream stream; of those that may be interrupted."""
        self._breakers: dict[tuple[PoolKey, str], BreakerState] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        """By the same clock as `now`."""
        self._closed = False

    async def turn(self, event: Arrived | Refused | Ended) -> Send | TurnAway:
        """Report that a request came, was refused by its upstream, or was interrupted, and wait until it may be sent.

        A caller that is cancelled leaves the queue. One that returns `Send` must tell what became of it: `Refused` by another `turn`, or
        `Ended`.
        """
        turn: asyncio.Future[Send | TurnAway] = asyncio.get_running_loop().create_future()
        self._waiting[event.ticket] = turn
        if self._closed:
            turn.set_result(_going(event.ticket))
        else:
            self.tell(event)
        try:
            return await turn
        except asyncio.CancelledError:
            self.tell(_left(event.ticket, turn))
            raise
        finally:
            self._waiting.pop(event.ticket, None)

    def tell(self, event: Event) -> None:
        """Tell what happened, and do what follows from it."""
        now = self._now()
        for command in self.traffic.handle(event, now):
            self._act(command)
        self._set_timer(now)

    def open_batch(self, batch: BatchHold) -> Wait | Never | None:
        """Reserve the most that a batch can take, to be given back by `close_batch` or by a `BatchEnded`; or why it may not be made now."""
        return self.traffic.crew.open_batch(batch, self._now())

    def close_batch(self, batch: BatchHold) -> None:
        """It was not made."""
        self.tell(BatchEnded(batch, 0.0, 0))

    def breaker(self, pool: PoolKey) -> BreakerState:
        """The worse state of the pool's two breakers."""
        states = {state for (of, _), state in self._breakers.items() if of == pool}
        return next((state for state in (BreakerState.OPEN, BreakerState.HALF_OPEN) if state in states), BreakerState.CLOSED)

    def reload(self, settings: GatewaySettings) -> None:
        """Other settings from now on; those who wait and those who are being served stay."""
        now = self._now()
        for command in self.traffic.reload(settings, now):
            self._act(command)
        self._set_timer(now)

    def close(self) -> None:
        """Answer all waiting requests so that their clients come back; nothing is sent any more."""
        self._closed = True
        for ticket, turn in self._waiting.items():
            if not turn.done():
                turn.set_result(_going(ticket))
        if self._timer is not None:
            self._timer.cancel()

    def _act(self, command: Command) -> None:
        match command:
            case Send() | TurnAway():
                self._wake(command)
            case Interrupt():
                self.cuts.pop(command.ticket)()
            case Journal():
                self._breakers[command.pool, command.breaker] = command.after
                self._account.journal(command)
            case Alert():
                self._account.alert(command)
                self._log.alert(command.about, command.text)
            case _:
                assert_never(command)

    def _wake(self, command: Send | TurnAway) -> None:
        turn = self._waiting.get(command.ticket)
        if turn is not None and not turn.done():
            turn.set_result(command)
        elif isinstance(command, Send):  # its client left a moment ago, and its task has not run yet to say so
            self.tell(_nothing_sent(command.ticket))

    def _set_timer(self, now: float) -> None:
        """One timer for the next moment at which time alone changes something. One that comes too early is kept, and looks again."""
        due = self.traffic.wakes_at(now)
        if due is None or self._closed:
            return
        if self._timer is not None:
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now) + _LATE_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.tell(Tick())


def _left(ticket: int, turn: asyncio.Future[Send | TurnAway]) -> Event:
    """A client that left at the moment its request could be sent: nothing was sent."""
    got_turn = turn.done() and not turn.cancelled() and isinstance(turn.result(), Send)
    return _nothing_sent(ticket) if got_turn else Withdrawn(ticket)


def _nothing_sent(ticket: int) -> Ended:
    return Ended(ticket, End.CLIENT_GONE, Usage(), cost_usd=0.0, tokens=0)


def _going(ticket: int) -> TurnAway:
    return TurnAway(ticket, 503, "the gateway is being restarted; try again", BUSY_AGAIN_S)


# Routing
# -------
# Which upstreams could serve a request, and under which name of the model.


class Way(NamedTuple):
    """`upstreams` is empty when nobody serves the model. `as_model` is empty when its name stays."""

    upstreams: tuple[str, ...]
    as_model: str = ""
    fallback: Way | None = None
    """How a batch request may be answered in its place; `as_model` is its model."""
    to_engine: bool = False
    """An engine may serve it."""


def way(settings: GatewaySettings, api: Api, model: str, usable: Container[str], agent: Agent, work: str = "") -> Way:
    """In the user's order. The first `[[route]]` that fits the model and the agent leads to its upstream, whatever models that one says it
    serves, and never elsewhere. `usable` are the names of upstreams that can be used now, `work` is the weight of the request."""
    there = [upstream for upstream in settings.upstreams if upstream.api is api and upstream.name in usable]
    route = next((route for route in settings.routes if _fits(route, model, agent, work) and _is_for(settings, route, api)), Route(""))
    fallback = None
    if route.fallback and agent.task_class is TaskClass.BATCH and (names := _serving(there, route, route.fallback)):
        fallback = Way(names, route.fallback)
    names = _serving(there, route, route.as_model or model)
    return Way(names, route.as_model, fallback, any(one.engine and one.name in names for one in there))


def _fits(route: Route, model: str, agent: Agent, work: str) -> bool:
    if route.task_class not in (None, agent.task_class) or route.size not in ("", agent.size) or route.work not in ("", work):
        return False
    return fnmatchcase(model, route.model)


def _is_for(settings: GatewaySettings, route: Route, api: Api) -> bool:
    """A route to an upstream of another API is none of this request's: nothing is translated."""
    return not route.upstream or any(upstream.known_as == route.upstream and upstream.api is api for upstream in settings.upstreams)


def _serving(there: Iterable[Upstream], route: Route, model: str) -> tuple[str, ...]:
    """A model that an engine serves goes to no provider."""
    found = [one for one in there if (one.known_as == route.upstream if route.upstream else _serves(one, model))]
    return tuple(one.name for one in [one for one in found if one.engine] or found)


def _serves(upstream: Upstream, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in upstream.models)


# Proxied request
# ---------------
# One request of one agent on its way through, and what of the answer goes back.


_OUTPUT_MAX = {Api.ANTHROPIC: 128_000, Api.OPENAI: 128_000, Api.GEMINI: 65_536}
"""Tokens: the most that the providers' models put out in one answer; the bound of a request that names none."""
BYTES_PER_TOKEN = 2
"""For bounds: requests of clients have about 3.6 bytes a token. One that has fewer than this is flagged when its usage is known."""
_CAPPED_BYTES_PER_TOKEN = 1
"""The same where such a cap stands: no text has more tokens than bytes (20,000 digits were 20,000 tokens), so the cap cannot be passed.
Without a cap nobody is held back by a bound; there 2 finds what is odd."""
_SHARED_STATE = ("anthropic-ratelimit-", "anthropic-priority-", "x-ratelimit-")


class ProxiedRequest(NamedTuple):
    """What came. Times are monotonic seconds."""

    request: web.BaseRequest
    recognised: Recognised
    asked: Asked
    agent: Agent
    body: bytes
    way: Way
    lane: LaneKey
    """Whose queue it waits in."""
    ticket: int
    arrived_at: float
    body_key: str
    """What tells this agent's bodies apart, in this process and the next; see `key_of`."""
    bound: Usage
    """The most that it can take, see `bound_of`."""
    capped: bool
    """A cap on what it may take in all holds for it."""
    flight: Flight | None = None
    """Who waits for the same answer, where answers are kept."""

    @property
    def model(self) -> str:
        """As it is sent."""
        return self.way.as_model or self.asked.model

    def by_fallback(self) -> ProxiedRequest | None:
        """The same as its route's fallback answers it; None when there is none."""
        other = self.way.fallback
        return self._replace(way=other, lane=lane_of(self.asked, other)) if other is not None else None

    def arrived(self, bound_usd: float | None, fallback: Fallback | None) -> Arrived:
        """What the queue is told."""
        return Arrived(
            ticket=self.ticket,
            agent=self.agent,
            lane=self.lane,
            model=self.model,
            upstreams=self.way.upstreams,
            body_bytes=len(self.body),
            max_tokens=0 if self.asked.endpoint is Endpoint.EMBEDDINGS else self.asked.max_tokens,
            body_key=f"{self.agent.name}:{self.body_key}",
            session=self.asked.session,
            bound_usd=bound_usd,
            bound_tokens=self.bound.uncached,
            fallback=fallback,
            tools=self.asked.tools,
            to_engine=self.way.to_engine,
        )


def lane_of(asked: Asked, chosen: Way) -> LaneKey:
    """By the model as it is sent."""
    return LaneKey(asked.api, model_class(asked.api, chosen.as_model or asked.model), asked.long_context)


def bound_of(asked: Asked, size: int, *, capped: bool) -> Usage:
    """The most that a request of `size` bytes can take. `capped`: a cap on what it may take in all holds for it."""
    bytes_per_token = _CAPPED_BYTES_PER_TOKEN if capped else BYTES_PER_TOKEN
    output = 0 if asked.endpoint is Endpoint.EMBEDDINGS else asked.max_tokens or _OUTPUT_MAX[asked.api] * asked.choices
    return Usage(input=size // bytes_per_token + 1, output=output)


def key_of(body: bytes) -> str:
    """Tells one agent's bodies apart, by their length and 1024 bytes that are spread over them: a mistake makes two of its own requests
    change places, or charges one that was lost for another prompt of its length. A digest of the whole costs a twentieth of a request."""
    return f"{len(body)}:{zlib.crc32(body[:: len(body) // 1024 + 1])}"


def passed_back(headers: Iterable[tuple[str, str]], queued_s: float, *, own_login: bool, keeps_length: bool) -> CIMultiDict[str]:
    """What the client gets of an answer's headers.

    What they say of the limit is left out: it is the limit that the whole crew shares, and a client that slows down or stops because the
    others are busy would do the gateway's work a second time, and worse. With its own login it is told: that account is its own.
    """
    kept = CIMultiDict(
        (name, value) for name, value in headers if _is_passed_back(name.lower(), own_login=own_login, keeps_length=keeps_length)
    )
    kept["x-gw-queue-ms"] = str(round(queued_s * 1000))
    return kept


def _is_passed_back(name: str, *, own_login: bool, keeps_length: bool) -> bool:
    if name in HOP_BY_HOP or (name == "content-length" and not keeps_length):
        return False
    return own_login or not name.startswith(_SHARED_STATE)


# Request context
# ---------------
# What the life of a request needs beside the request itself.


@dataclass(slots=True)
class RequestContext:
    """One gateway's. `settings`, `keyring`, `prices` and `recorder` are replaced by a reload: look them up when they are used."""

    settings: GatewaySettings
    keyring: Keyring
    admission: Admission
    account: Account
    upstreams: Upstreams
    prices: Prices
    log: Log
    clock: Clock
    recorder: Recorder | None = None
    stopping: bool = False
    """No new requests are taken."""
    sentinel: Path = Path("/nonexistent")
    """While it exists nobody is served: `nightcrew stop-all`."""
    under_way: set[asyncio.Task[Any]] = field(default_factory=set)
    """What serves requests of agents now."""

    engines: Engines | None = None
    """Where the engines answer; None: the settings name none."""
    engines_dir: Path = Path("/nonexistent")
    """Where the engines keep what they saved of their slots."""
    placements: dict[str, Any] = field(default_factory=dict)
    """The `engine_slots.Placement` of each engine that has slots of its own."""

    answers: Answers | None = None
    """None: no answer is kept. Replaced by a reload too."""
    kept: dict[int, int] = field(default_factory=dict)
    """Ticket -> bytes of its answer that are kept for a client that reads slowly."""

    @property
    def stopped(self) -> bool:
        """Whether everything was stopped by a person. Costs a system call."""
        return self.sentinel.exists()

    def upstream(self, name: str) -> tuple[Upstream, str] | None:
        """An upstream and its key; None when the settings have lost it since, and for an engine that does not serve now."""
        found = next((upstream for upstream in self.settings.upstreams if upstream.name == name), None)
        if found is not None and found.engine is not None:
            found = self.engines.ready(found) if self.engines is not None else None
        return (found, self.keyring.keys[name]) if found is not None and name in self.keyring.keys else None

    def usable(self, *, own_login: bool) -> Mapping[str, str]:
        """Upstreams that can serve now: those with a key, and those that pass on a login of the client's own if it brought one."""
        kinds = {upstream.name: upstream.key.kind for upstream in self.settings.upstreams}
        return {name: key for name, key in self.keyring.keys.items() if own_login or kinds.get(name) != "client"}


# Forward
# -------
# The life of one request after its arrival: its turn, its sending, the answer passed on while it comes, the account.
#
#     turn -> Send -> open row (durable) -> upstream -> refused? -> settle, and wait for the next turn
#                                                   -> served:      first byte -> ... -> end, settle
#          -> TurnAway -> our own answer
#
# Before the first byte reaches the client everything that fails is tried again, as the queue decides; after it nothing is: an
# answer that breaks off is passed on as broken off. Each sending is settled exactly once, on every way out.


_ERROR_MAX = 64 * 2**10
"""Bytes of an error's body that are looked at."""
_STALL_S = 600.0
"""A client that reads nothing for so long is taken for gone."""
KEPT_MAX, KEPT_OF_ALL_MAX = 4 * 2**20, 64 * 2**20
"""Bytes of an answer, and of all answers, that are kept for clients that do not read. 64,000 tokens that come one by one are 10 MB of
events, of which the sockets' own buffers take some; an answer of usual size is a hundredth of that."""
_WITHHELD_S = 60.0
"""The answer of a batch request that may be interrupted is kept back for so long, where its client wants it as it comes: clients give a
silent request up after five minutes."""
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
    if call.capped and (word := dear_word(call.asked.api, dict(call.asked.price_words))):
        why = f"a cap on cost or tokens cannot be kept for a request with {word}, whose price is not known; leave that out"
        return _turned_away(context, call, TurnAway(call.ticket, 402, why))
    if context.engines is not None:
        context.engines.need(call.way.upstreams)
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
    times = price_factor(call.asked.api, dict(call.asked.price_words))
    most = context.prices.bound(call.model, call.bound.input, call.bound.output)
    return None if call.asked.stored_input or times is None or most is None else most * times


def own_answer(call: ProxiedRequest, status: int, why: str, retry_after_s: int | None = None) -> web.Response:
    """An error of ours, in the shape that the client's API has."""
    headers, body = api_error(call.asked.api, status, why, retry_after_s)
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
    answer: Answer | None = None
    client: _Response | None = None
    began: bool = False
    interrupted: bool = False
    reply: Reply | None = None
    tape: replay.Tape | None = None
    engine: Engine | None = None
    """What it is sent to, where that is an engine."""
    engine_s: float = 0.0
    """For how long that worked for it."""
    passed: hashlib._Hash = field(default_factory=hashlib.sha256)
    """Of what the client got."""
    source: tuple[Upstream, str] | None = None
    """The upstream, and its key."""

    async def run(self) -> web.StreamResponse | Refused | Ended:
        """Pass the answer on, or say why there is none to pass on. Raises CancelledError and ConnectionError when the client has gone."""
        try:
            return await self._run()
        except _Unserved as unserved:
            if self.interrupted and self.answer is not None:
                self.answer.finish()
                return self._ended(End.INTERRUPTED)
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
            self.context.admission.cuts.pop(self.call.ticket, None)
            if not self.settled:  # a fault of ours: whatever it was, the reservation and the row must not be left open
                self._end(End.CUT, "our_fault")

    async def _run(self) -> web.StreamResponse:
        found = self.context.upstream(self.send.upstream)
        if found is None:
            raise _Unserved(Refusal.UNREACHABLE, detail="it does not run, or is no longer in the settings")
        upstream, key = self.source = found
        await self._open(upstream)
        self.sent_at = self.context.clock.monotonic()
        sent = outgoing(self.call, upstream, key)
        try:
            if upstream.engine is None:
                return await self._passed(upstream, sent)
            from supervisor.gateway.proxy.engine_slots import placed

            async with placed(self.context, upstream, self.call.asked, sent) as changed:
                return await self._passed(upstream, changed)
        except Unreachable as error:
            raise _Unserved(Refusal.UNREACHABLE, detail=error.why) from None

    async def _passed(self, upstream: Upstream, sent: Outgoing) -> web.StreamResponse:
        with await self.context.upstreams.send(upstream.name, sent) as reply:
            return await self._answered(reply, upstream)

    async def _open(self, upstream: Upstream) -> None:
        """Write the upper bound to disk before the upstream sees a byte. Where that fails, nothing is sent."""
        call = self.call
        self.queued_s = self.context.clock.monotonic() - call.arrived_at
        self.pool, self.engine = PoolKey(upstream.account, call.lane), upstream.engine
        row = OpenRow(
            agent=call.agent.name,
            epoch=call.agent.epoch,
            model=call.model,
            asked=call.asked.model,
            lane=call.lane,
            upstream=upstream.name,
            account=upstream.account,
            task_class=call.agent.task_class,
            at=self.context.clock.wall(),
            queued_ms=1000 * self.queued_s,
            attempt_no=self.send.attempt,
            bound=call.bound,
            expected=self.send.expected,
            bound_usd=self.bound_usd,
            session=call.asked.session,
            body_key=call.body_key,
            work=call.asked.work,
            work_why=call.asked.work_why,
        )
        self.row = await self.context.account.open(row)

    # The answer ---------------------------------------------------------------------------------------------------------------------

    async def _answered(self, reply: Reply, upstream: Upstream) -> web.StreamResponse:
        self.status, self.reply = reply.status, reply
        headers = reply.lower()
        if why := no_answer(upstream.name, reply):
            self._end(End.CUT if reply.unreadable else End.REJECTED)
            return own_answer(self.call, 502, why)
        if reply.status >= 400:
            return await self._failed(reply, headers, upstream)
        self.observed = observed(self.call.asked.api, headers)
        self.context.admission.tell(Responded(self.call.ticket, self.observed))
        self.answer = Answer(self.call.asked, self.call.asked.usage_edit is not None)
        self.context.account.watch(self.row, self.answer.said)
        if upstream.engine is not None and not self.call.asked.stream:
            return await self._join(reply, self.answer, upstream)
        return await self._stream(reply, self.answer, upstream)

    async def _failed(self, reply: Reply, headers: dict[str, str], upstream: Upstream) -> web.StreamResponse:
        """An error of the upstream's is left to the queue, which may try again; an error of the client's own is passed on."""
        try:
            body = await reply.start(_ERROR_MAX)
        except Cut as error:
            raise _Unserved(Refusal.UNREACHABLE, detail=f"{reply.status}, and {error.why}") from None
        refused = refusal(self.call.asked.api, reply.status, headers, body[:_ERROR_MAX])
        if refused is not None and not (refused[0] is Refusal.KEY_REFUSED and upstream.key.kind == "client"):
            raise _Unserved(refused[0], refused[1], f"{reply.status}")
        self.observed = observed(self.call.asked.api, headers)
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

    async def _stream(self, reply: Reply, answer: Answer, upstream: Upstream) -> web.StreamResponse:
        """Pass on each piece as it comes, and read it beside that."""
        held: list[bytes] = []
        try:
            while chunk := await reply.chunk():
                out = answer.feed(chunk)
                if self.client is None:
                    self._check_first(answer)
                    held.append(out)
                    if self._withholds(reply):
                        self._tell_began(answer)
                        continue
                    self.client = await self._begin(reply, upstream)
                    out = b"".join(held)
                    held.clear()
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
        if self.interrupted:  # an answer that ends with its connection
            raise Unreachable("it was interrupted")
        return await self._finish(self.client or await self._begin(reply, upstream), answer, b"".join(held))

    def _withholds(self, reply: Reply) -> bool:
        """Whether its client is to see nothing yet."""
        if not self.send.withhold or reply.is_whole:
            return False
        return self.interrupted or self.context.clock.monotonic() - (self.sent_at or 0.0) < _WITHHELD_S

    async def _join(self, reply: Reply, answer: Answer, upstream: Upstream) -> web.StreamResponse:
        """Collect a stream that its client did not ask for. The client has seen nothing of one that breaks off, so it is tried again."""
        from supervisor.gateway.wire.joined import Broken, Joined

        joined = Joined(self.call.asked.endpoint)
        try:
            while chunk := await reply.chunk():
                answer.feed(chunk)
                joined.feed(chunk)
                self._tell_began(answer)
            body = joined.finish()
        except (Cut, Broken) as error:
            raise Unreachable(f"{self.status}, then {error.why}") from None
        return await self._finish(await self._begin(reply, upstream, "application/json"), answer, body)

    async def _finish(self, client: _Response, answer: Answer, out: bytes) -> web.StreamResponse:
        """`out`, which is not sent yet, and the end of the answer go out together."""
        out += answer.finish()
        self._record(out)
        self._end(End.CUT if answer.failed else End.SERVED, *([answer.failed] if answer.failed else []))
        await self._write(client, out, last=True)
        return client

    def _tell_began(self, answer: Answer) -> None:
        may_cut = self.send.withhold and self.client is None
        if self.began or not (answer.began or (may_cut and answer.output_so_far_bytes)):
            return
        self.began = True
        if may_cut:
            self.context.admission.cuts[self.call.ticket] = self._interrupt
        if may_cut or answer.usage is not None:
            self.context.admission.tell(Began(self.call.ticket, answer.usage))

    def _interrupt(self) -> None:
        """A more urgent request needs its slot, and its client has seen nothing: it ends as unserved, and is sent again."""
        self.interrupted = True
        if self.reply is not None:
            self.reply.hang_up()
        self.context.log.say_seldom(f"{self.send.upstream}: a batch request was interrupted for an interactive one")

    def _check_first(self, answer: Answer) -> None:
        """Treat an error inside a 200, before any text, as a 529: the client need not see it."""
        why = failure(self.call.asked.api, answer.failed) if answer.failed and not answer.output_so_far_bytes else None
        if why is not None:
            raise _Unserved(why, self.observed, f"{self.status} with {answer.failed} in it")

    async def _begin(self, reply: Reply, upstream: Upstream, content_type: str = "") -> _Response:
        """From here on the client has seen something. `content_type` is that of an answer which was put together here."""
        if self.context.admission.cuts.pop(self.call.ticket, None) or self.send.withhold:
            self.context.admission.tell(Shown(self.call.ticket))
        self.first_byte_at = self.context.clock.monotonic()
        own_login, keeps_length = upstream.key.kind == "client", self.call.asked.usage_edit is None
        headers = passed_back(reply.headers.items(), self.queued_s, own_login=own_login, keeps_length=keeps_length)
        if content_type:
            headers["Content-Type"] = content_type
        client = self.client = _Response(status=reply.status, reason=reply.reason, headers=headers)
        await client.prepare(self.call.request)
        if self.context.recorder is not None:
            self.tape = self.context.recorder.begin(self._recorded(), reply.status, reply.headers)
        return client

    def _record(self, data: bytes) -> None:
        self.passed.update(data)
        if self.call.flight is not None:
            self.call.flight.take(data)
        if self.tape is not None and data:
            self.tape.piece(data)

    def _recorded(self) -> replay.Request:
        call = self.call
        endpoint = replay.endpoint(call.request.method, call.recognised)
        return replay.Request(self.row, call.agent.name.partition("/")[0], endpoint, call.body)

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
        if not self.settled:
            self.context.admission.tell(self._ended(end, *flags))

    def _ended(self, end: End, *flags: str) -> Ended:
        """Write the end into the account; what the queue is told."""
        usage, unseen = self.answer.charge() if self.answer is not None else None, self._unseen(end)
        if self.sent_at is None:
            end, usage = End.CLIENT_GONE, Usage()
        elif end is End.REJECTED:
            usage = Usage()
        elif usage is not None and self.answer is not None and not self.answer.final:
            usage = replace(usage, output=min(max(usage.output, unseen), self.call.bound.output))
        said = str(end) if self.sent_at is not None else NEVER_SENT
        charged, counted = self._settle(said, usage, *flags, *self._oddities(usage), least_output=unseen)
        return Ended(self.call.ticket, end, usage, counted, charged.uncached, self.observed, self.engine_s)

    def _kv_bytes_per_token(self) -> float:
        """What the engine says of its memory; 0 where no engine is at work, or it says nothing."""
        engines = self.context.engines
        record = None if self.engine is None or engines is None else engines.record(self.engine.name)
        return 0.0 if record is None else record.kv_bytes

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
        kv_bytes = 0
        if self.engine is not None and self.sent_at is not None and end != REFUSED:
            self.engine_s, kv_bytes = now - self.sent_at, int(usage.total * self._kv_bytes_per_token())
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
            prompt_at=call.asked.prompt_at,
            recorded=self.tape is not None,
            output_sha256=self.passed.hexdigest() if self.client is not None else None,
            engine_s=self.engine_s,
            kv_bytes=kv_bytes,
        )
        if self.row:
            self.context.account.settle(self.row, row)
        if call.flight is not None and end == End.SERVED:
            call.flight.land(self, usage, cost)
        return usage, cost if counted is None else counted

    def _cost(self, usage: Usage) -> float | None:
        """US dollars, by the tier that the answer or the request says; None if the price is not known."""
        asked, found = self.call.asked, self.context.upstream(self.send.upstream)
        words = dict(asked.price_words) if self.answer is None else self.answer.price_words
        times = price_factor(asked.api, words, found[0].url if found is not None else "")
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
