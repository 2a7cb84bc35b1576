"""Living batches: what is reserved for each, how it is with its provider, and what it took, which is charged once, when it has ended.

A batch lives for up to a day and outlives gateways. It is looked at when its agent asks, and now and then although nobody does: an agent
may be gone. What it took its results say, which are read here whether or not the agent ever reads them.

Whether a provider has made a batch that it was asked for is not known when its answer was lost. Then its newest batches are looked through
for one of that moment and size that nobody here knows; Anthropic keeps no mark of ours with a batch that could tell more.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from multidict import CIMultiDict

from supervisor.core.gateway.events import BatchEnded, BatchHold
from supervisor.core.gateway.types import Agent, Api, End, NightCap, Usage
from supervisor.gateway import wire
from supervisor.gateway.account.batches import BatchBook, Kept
from supervisor.gateway.account.rows import NEVER_SENT, SettledRow
from supervisor.gateway.prices import BATCH_PART
from supervisor.gateway.request_context import RequestContext
from supervisor.gateway.upstreams import Cut, Outgoing, Reply, Unreachable
from supervisor.gateway.wire import Endpoint, Recognised

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
        headers = {"anthropic-version": VERSION, "Accept-Encoding": "identity", **wire.auth_headers(Api.ANTHROPIC, found[1])}
        headers |= {"anthropic-beta": beta} if beta else {}
        headers |= {"Content-Type": "application/json"} if body is not None else {}
        outgoing = Outgoing(method, wire.target(found[0].url, recognised), CIMultiDict(headers), body, found[1])
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
            result = wire.read_result(line)
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
