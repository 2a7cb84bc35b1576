"""Message Batches for agents, and what is reserved for living batches."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from aiohttp import web
from multidict import CIMultiDict

from supervisor.gateway.account.charges import BATCH, BATCH_PART, NEVER_SENT, OpenRow, SettledRow, TurnedAwayRow
from supervisor.gateway.account.writer import BatchBook, Kept
from supervisor.gateway.admission.budget import Never
from supervisor.gateway.admission.types import Agent, BatchEnded, BatchHold, End, LaneKey, NightCap, Usage, model_class
from supervisor.gateway.proxy.forward import RequestContext, Way, bound_of, key_of
from supervisor.gateway.proxy.upstreams import Cut, Outgoing, Reply, Unreachable
from supervisor.gateway.wire.errors import error as api_error
from supervisor.gateway.wire.headers import auth_headers
from supervisor.gateway.wire.metering import BatchAsked, read_result
from supervisor.gateway.wire.requests import Asked, BadRequest, Endpoint, Recognised, target
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.gateway_settings import Api

# Batch keeper
# ------------
# Living batches: what is reserved for each, how it is with its provider, and what it took, which is charged once, when it has
# ended.
#
# A batch lives for up to a day and outlives gateways. It is looked at when its agent asks, and now and then although nobody does:
# an agent may be gone. What it took its results say, which are read here whether or not the agent ever reads them.
#
# Whether a provider has made a batch that it was asked for is not known when its answer was lost. Then its newest batches are
# looked through for one of that moment and size that nobody here knows; Anthropic keeps no mark of ours with a batch that could
# tell more.


PATH = "/v1/messages/batches"
VERSION = "2023-06-01"
ANSWER_MAX = 4 * 2**20
_LINE_MAX = 32 * 2**20
"""Bytes of one result: no model writes so much."""
_LISTED = 100
_BEFORE_S, _AFTER_S = 60.0, 660.0
"""By so much a provider's clock may be behind ours, and so long an answer may have taken."""
_UNMADE_S = 60.0
"""A batch that its provider does not list so long after it was asked for was not made."""


class Lost(Exception):
    """The provider cannot be asked now. `why` is for the log."""


@dataclass(frozen=True, slots=True)
class Said:
    """A provider's answer to one of our own questions."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def shape(self) -> dict[str, Any]:
        """Its JSON; empty for anything else."""
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(self.body)
            return found if isinstance(found, dict) else {}
        return {}


class BatchKeeper:
    """Belongs to the gateway's loop."""

    def __init__(self, context: RequestContext, book: BatchBook) -> None:
        self._context = context
        self.book = book
        self._holds: dict[int, BatchHold] = {}
        self._charging: set[int] = set()

    def restore(self, nights: Iterable[tuple[NightCap, list[str]]]) -> None:
        """Reserve again what the batches of before can take. `nights`: those with a cap, which the queue knows, with their tasks."""
        of = {task: night for night, tasks in nights for task in tasks}
        for kept in self.book.living():
            row = kept.row
            agent = Agent(row.agent, row.epoch, row.task_class, family=kept.family, night=of.get(row.agent))
            self.hold(kept, BatchHold(agent, row.model, row.bound_usd, row.bound.uncached), made=True)

    def hold(self, kept: Kept, hold: BatchHold, *, made: bool = False) -> None:
        """What is reserved for it; `made`: it is not yet."""
        self._holds[kept.row_id] = hold
        if made:
            self._context.admission.traffic.crew.open_batch(hold, self._context.clock.monotonic(), checked=False)

    # The provider ---------------------------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def reply(
        self, upstream: str, recognised: Recognised, method: str = "GET", body: bytes | None = None, beta: str = ""
    ) -> AsyncIterator[Reply]:
        """What an upstream answers. Raises Lost."""
        found = self._context.upstream(upstream)
        if found is None:
            raise Lost(f"the upstream {upstream} cannot be used")
        headers = {"anthropic-version": VERSION, "Accept-Encoding": "identity", **auth_headers(Api.ANTHROPIC, found[1])}
        headers |= {"anthropic-beta": beta} if beta else {}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        outgoing = Outgoing(method, target(found[0].url, recognised), CIMultiDict(headers), body, found[1])
        try:
            with await self._context.upstreams.send(upstream, outgoing) as reply:
                yield reply
        except (Unreachable, Cut) as error:
            raise Lost(error.why) from None

    async def ask(self, upstream: str, recognised: Recognised, method: str = "GET", body: bytes | None = None, beta: str = "") -> Said:
        """Its whole answer. Raises Lost."""
        async with self.reply(upstream, recognised, method, body, beta) as reply:
            found = bytearray()
            while piece := await reply.chunk():
                found += piece
                if len(found) > ANSWER_MAX:
                    raise Lost(f"it answered more than {ANSWER_MAX} bytes")
            return Said(reply.status, reply.lower(), bytes(found))

    async def one(self, kept: Kept) -> Said:
        """How a batch is, as its provider says; one that has ended is charged by that. Raises Lost."""
        said = await self.ask(kept.row.upstream, _of(Endpoint.BATCH, f"{PATH}/{kept.id}"))
        if said.status == 200 and said.shape.get("processing_status") == "ended":
            await self.charge(kept)
        elif said.status == 404 and not kept.over:
            self._over(kept, SettledRow(End.CUT, kept.row.expected, 404, kept.row.bound_usd, estimated=True, flags=("batch", "gone")))
        return said

    async def look(self) -> None:
        """See to all that live. What cannot be known now is left for the next time."""
        for kept in self.book.living():
            try:
                await (self.one(kept) if kept.id else self.find_out(kept))
            except Lost as error:
                self._context.log.say_seldom(f"{kept.row.upstream}: a batch: {error}")

    # Whether it was made --------------------------------------------------------------------------------------------------------------

    async def find_out(self, kept: Kept) -> None:
        """Learn whether a batch whose answer was lost was made. Raises Lost."""
        said = await self.ask(kept.row.upstream, _of(Endpoint.BATCHES, PATH, f"limit={_LISTED}"))
        listed = said.shape.get("data")
        if kept.id or kept.over or said.status != 200 or not isinstance(listed, list):
            return
        known = {one.id for one in self.book.all.values()}
        found = [str(one["id"]) for one in listed if isinstance(one, dict) and one.get("id") not in known and _may_be(one, kept)]
        rivals = [one for one in self.book.living() if not one.id and one is not kept and _alike(one, kept)]
        if len(found) == 1 and not rivals:
            await self.book.name(kept, found[0])
        elif not found and self._context.clock.wall() - kept.row.at > _UNMADE_S:
            self.unmade(kept)

    def unmade(self, kept: Kept, status: int | None = None) -> None:
        """Its provider has not made it: it took nothing."""
        self._over(kept, SettledRow(NEVER_SENT if status is None else End.REJECTED, Usage(), status, 0.0, flags=("batch",)))

    # What it took ---------------------------------------------------------------------------------------------------------------------

    async def charge(self, kept: Kept) -> None:
        """Charge a batch that has ended what its results say; once, however often it is asked for. Raises Lost; it is tried again then."""
        if kept.over or kept.row_id in self._charging:
            return
        self._charging.add(kept.row_id)
        try:
            usage, cost, missing = await self._took(kept)
        finally:
            self._charging.discard(kept.row_id)
        flags = ("batch", *(["usage_missing"] if missing else []))
        total_ms = 1000 * max(0.0, self._context.clock.wall() - kept.row.at)
        self._over(kept, SettledRow(End.SERVED, usage, 200, cost, estimated=bool(missing), total_ms=total_ms, flags=flags))

    async def _took(self, kept: Kept) -> tuple[Usage, float | None, int]:
        """Tokens and dollars of all its requests, and of how many nobody said: those count as the most that each can have taken."""
        usage, cost, missing = Usage(), 0.0, 0
        each = replace(kept.row.bound, input=kept.row.bound.input // kept.requests, output=kept.row.bound.output // kept.requests)
        async for line in self._lines(kept):
            result = read_result(line)
            if result is not None and not result.served:
                continue
            took = result.usage if result is not None else None
            missing += took is None
            took = took or each
            usage += took
            price, times = self._context.prices.cost(kept.row.model, took), result.times if result is not None else 1.0
            cost += price * times * BATCH_PART if price is not None and times is not None else float("nan")
        return usage, None if cost != cost else cost, missing

    async def _lines(self, kept: Kept) -> AsyncIterator[bytes]:
        async with self.reply(kept.row.upstream, _of(Endpoint.BATCH_RESULTS, f"{PATH}/{kept.id}/results")) as reply:
            if reply.status != 200 or reply.unreadable:
                raise Lost(f"its results: {reply.unreadable or reply.status}")
            rest = b""
            while piece := await reply.chunk():
                *whole, rest = (rest + piece).split(b"\n")
                if len(rest) > _LINE_MAX:
                    raise Lost(f"a result of more than {_LINE_MAX} bytes")
                for line in filter(None, whole):
                    yield line
            if rest:
                yield rest

    def _over(self, kept: Kept, row: SettledRow) -> None:
        hold = self._holds.pop(kept.row_id, None)
        if self.book.settle(kept, row) and hold is not None:
            self._context.admission.tell(BatchEnded(hold, row.cost_usd, row.usage.uncached))


def _of(endpoint: Endpoint, path: str, query: str = "") -> Recognised:
    return Recognised(endpoint, Api.ANTHROPIC, path, query)


def _alike(one: Kept, other: Kept) -> bool:
    """Whether a batch at the provider could be either."""
    return one.row.upstream == other.row.upstream and one.requests == other.requests and abs(one.row.at - other.row.at) < _AFTER_S


def _may_be(listed: dict[str, Any], kept: Kept) -> bool:
    """Whether a batch at the provider can be this one."""
    try:
        made = datetime.fromisoformat(listed["created_at"]).timestamp()
        return sum(listed["request_counts"].values()) == kept.requests and -_BEFORE_S <= made - kept.row.at <= _AFTER_S
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


# Batches
# -------
# Message Batches for agents: making one, looking at it, its results, cancelling it. Each agent sees its own family's and no others.
#
#     caps -> open row (durable) -> upstream -> its id (durable) -> the client
#                                            -> refused: charged nothing
#                                            -> no answer: `batch_keeper` finds out whether it was made
#
# A client that gives an `Idempotency-Key` gets the batch that was made with it before, if there is one: so whoever does not know
# whether its batch was made asks for it again.


_AGAIN_S = 10
_PASSED_BACK = ("request-id", "retry-after", "content-type")
_KEY_MAX = 255


class BatchCall(NamedTuple):
    """One request of an agent that concerns batches."""

    request: web.BaseRequest
    recognised: Recognised
    headers: Mapping[str, str]
    agent: Agent
    body: bytes
    asked: BatchAsked | None
    """Of one that makes a batch."""
    way: Way
    capped: bool
    """A cap on what it may take in all holds for it."""

    @property
    def family(self) -> str:
        return self.agent.family or self.agent.name


class Batches:
    """Belongs to the gateway's loop."""

    def __init__(self, context: RequestContext, keeper: BatchKeeper) -> None:
        self._context = context
        self._keeper = keeper
        self._making: set[asyncio.Task[web.Response]] = set()

    async def serve(self, call: BatchCall) -> web.StreamResponse:
        """Answer it."""
        try:
            if call.asked is not None:
                return await self._make_whatever_happens(call, call.asked)
            if call.recognised.endpoint is Endpoint.BATCHES:
                return await self._list(call)
            kept = self._keeper.book.find(call.family, call.recognised.batch)
            if kept is None:
                return _error(404, "no such batch of yours")
            if call.recognised.endpoint is Endpoint.BATCH_RESULTS:
                return await self._results(call, kept)
            return await self._one(call, kept)
        except Lost as error:
            self._context.log.say_seldom(f"{call.recognised.endpoint}: {error}")
            return _error(503, f"the upstream did not serve this: {error}", _AGAIN_S)

    # Making ---------------------------------------------------------------------------------------------------------------------------

    async def _make_whatever_happens(self, call: BatchCall, asked: BatchAsked) -> web.Response:
        """A client that leaves meanwhile must not keep its batch's id from being written down."""
        task = asyncio.get_running_loop().create_task(self._make(call, asked))
        self._making.add(task)
        task.add_done_callback(self._making.discard)
        return await asyncio.shield(task)

    async def _make(self, call: BatchCall, asked: BatchAsked) -> web.Response:
        key = call.headers.get("idempotency-key", "")
        if len(key) > _KEY_MAX or not key.isprintable():
            raise BadRequest(400, f"Idempotency-Key: at most {_KEY_MAX} printable characters.")
        if (known := self._keeper.book.by_key(call.family, key)) is not None:
            if not known.id:
                await self._keeper.find_out(known)
            if known.id:
                return await self._one(call, known)
            if not known.over:
                return _error(503, "nobody knows yet whether this batch was made; ask again", _AGAIN_S)
        return await self._make_new(call, asked, key)

    async def _make_new(self, call: BatchCall, asked: BatchAsked, key: str) -> web.Response:
        if call.capped and asked.names_input:
            return self._turned_away(call, asked, 402, "a cap cannot be kept for a request that refers to input by name; send its text")
        upstream = self._upstream(call)
        row = self._row(call, asked, upstream)
        hold = BatchHold(call.agent, asked.model, row.bound_usd, row.bound.uncached)
        refused = self._context.admission.open_batch(hold)
        if refused is not None:
            never = isinstance(refused, Never)
            why = refused.why if isinstance(refused, Never) else "the caps leave no room for it while others are under way"
            return self._turned_away(call, asked, 402 if never else 429, why)
        try:
            kept = await self._keeper.book.open(row, call.family, key, len(asked.requests))
        except (NightcrewError, asyncio.CancelledError):
            self._context.admission.close_batch(hold)
            raise
        self._keeper.hold(kept, hold)
        return await self._sent(call, kept)

    async def _sent(self, call: BatchCall, kept: Kept) -> web.Response:
        beta = call.headers.get("anthropic-beta", "")
        said = await self._keeper.ask(kept.row.upstream, call.recognised, "POST", call.body, beta)
        batch = said.shape.get("id")
        if said.status < 300 and isinstance(batch, str) and batch:
            await self._keeper.book.name(kept, batch)
        elif 400 <= said.status < 500 or said.status == 529:
            self._keeper.unmade(kept, said.status)
        else:
            raise Lost(f"it answered {said.status}, and whether the batch was made is not known")
        return self._passed(call, said)

    def _upstream(self, call: BatchCall) -> str:
        kinds = {one.name: one.key.kind for one in self._context.settings.upstreams}
        if call.way.as_model and call.asked is not None and call.way.as_model != call.asked.model:
            raise BadRequest(400, "a route of the settings gives this model another name; ask for that one in a batch.")
        found = next((name for name in call.way.upstreams if kinds.get(name) != "client"), None)
        if found is None:
            raise BadRequest(400, "batches need a key of the gateway's; the upstream of this model passes on the client's own login.")
        return found

    def _row(self, call: BatchCall, asked: BatchAsked, upstream: str) -> OpenRow:
        """What it can take at most: of each request its bytes, and what it allows as output."""
        each = [bound_of(_asked(asked.model, one.max_tokens), one.size, capped=call.capped) for one in asked.requests]
        prices = [self._context.prices.bound(asked.model, one.input, one.output) for one in each]
        usd = None if None in prices else BATCH_PART * asked.times * sum(filter(None, prices))
        bound = Usage(sum(one.input for one in each), sum(one.output for one in each))
        owner = next(one.account for one in self._context.settings.upstreams if one.name == upstream)
        return OpenRow(
            agent=call.agent.name,
            epoch=call.agent.epoch,
            model=asked.model,
            asked=asked.model,
            lane=LaneKey(Api.ANTHROPIC, model_class(Api.ANTHROPIC, asked.model)),
            upstream=upstream,
            account=owner,
            task_class=call.agent.task_class,
            at=self._context.clock.wall(),
            queued_ms=0.0,
            attempt_no=1,
            bound=bound,
            expected=bound,
            bound_usd=usd,
            body_key=f"{BATCH}{key_of(call.body)}",
        )

    def _turned_away(self, call: BatchCall, asked: BatchAsked, status: int, why: str) -> web.Response:
        agent, lane = call.agent, LaneKey(Api.ANTHROPIC, model_class(Api.ANTHROPIC, asked.model))
        self._context.account.turned_away(TurnedAwayRow(agent.name, agent.epoch, lane, status, why, 0.0, self._context.clock.wall()))
        return _error(status, why, _AGAIN_S if status == 429 else None)

    # Those that were made ---------------------------------------------------------------------------------------------------------------

    async def _one(self, call: BatchCall, kept: Kept) -> web.Response:
        """How it is, after it was cancelled where that is asked."""
        if call.recognised.endpoint is Endpoint.BATCH_CANCEL:
            return self._passed(call, await self._keeper.ask(kept.row.upstream, call.recognised, "POST", b""))
        return self._passed(call, await self._keeper.one(kept))

    async def _list(self, call: BatchCall) -> web.Response:
        """A page of the provider's, less what is not the agent's: it may be empty although another one follows."""
        said = await self._keeper.ask(self._upstream(call), call.recognised)
        return self._passed(call, said)

    async def _results(self, call: BatchCall, kept: Kept) -> web.StreamResponse:
        if not kept.over:
            await self._keeper.one(kept)  # so that it is charged before anybody has its results
        async with self._keeper.reply(kept.row.upstream, call.recognised) as reply:
            headers = {name: value for name, value in reply.lower().items() if name in _PASSED_BACK}
            client = web.StreamResponse(status=reply.status, headers=headers)
            await client.prepare(call.request)
            try:
                while piece := await reply.chunk():
                    await client.write(piece)
                await client.write_eof()
            except BaseException:
                call.request.protocol.force_close()  # the client sees that it was cut
                raise
            return client

    def _passed(self, call: BatchCall, said: Said) -> web.Response:
        headers = {name: value for name, value in said.headers.items() if name in _PASSED_BACK}
        shape = said.shape
        if said.status >= 300 or not shape:
            return web.Response(status=said.status, body=said.body, headers=headers)
        if isinstance(shape.get("data"), list):
            own = {kept.id for kept in self._keeper.book.all.values() if kept.family == call.family}
            shape["data"] = [self._at_home(call, one) for one in shape["data"] if isinstance(one, dict) and one.get("id") in own]
        return web.Response(status=said.status, body=json.dumps(self._at_home(call, shape)).encode(), headers=headers)

    def _at_home(self, call: BatchCall, shape: dict[str, Any]) -> dict[str, Any]:
        """With the address of its results here: the provider's own would be asked without a key."""
        if not shape.get("results_url"):
            return shape
        prefix = f"/a/{call.recognised.token}" if call.recognised.token else ""
        return {**shape, "results_url": f"http://{call.request.host}{prefix}{PATH}/{shape.get('id')}/results"}


def _asked(model: str, max_tokens: int | None) -> Asked:
    return Asked(Api.ANTHROPIC, Endpoint.MESSAGES, model, max_tokens=max_tokens)


def _error(status: int, why: str, retry_after_s: int | None = None) -> web.Response:
    headers, body = api_error(Api.ANTHROPIC, status, why, retry_after_s)
    return web.Response(status=status, headers=headers, body=body)
