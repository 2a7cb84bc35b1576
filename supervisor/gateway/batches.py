"""Message Batches for agents: making one, looking at it, its results, cancelling it. Each agent sees its own family's and no others.

    caps -> open row (durable) -> upstream -> its id (durable) -> the client
                                           -> refused: charged nothing
                                           -> no answer: `batch_keeper` finds out whether it was made

A client that gives an `Idempotency-Key` gets the batch that was made with it before, if there is one: so whoever does not know whether its
batch was made asks for it again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from aiohttp import web

from supervisor.core.errors import NightcrewError
from supervisor.core.gateway.events import BatchHold
from supervisor.core.gateway.models import model_class
from supervisor.core.gateway.pot import Never
from supervisor.core.gateway.types import Agent, Api, LaneKey, Usage
from supervisor.gateway import wire
from supervisor.gateway.account.batches import Kept
from supervisor.gateway.account.rows import BATCH, OpenRow, TurnedAwayRow
from supervisor.gateway.batch_keeper import PATH, BatchKeeper, Lost, Said
from supervisor.gateway.prices import BATCH_PART
from supervisor.gateway.proxied_request import bound_of, key_of
from supervisor.gateway.request_context import RequestContext
from supervisor.gateway.routing import Way
from supervisor.gateway.wire import Asked, BadRequest, BatchAsked, Endpoint, Recognised

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
        owner = next(one.owner for one in self._context.settings.upstreams if one.name == upstream)
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
    headers, body = wire.error(Api.ANTHROPIC, status, why, retry_after_s)
    return web.Response(status=status, headers=headers, body=body)
