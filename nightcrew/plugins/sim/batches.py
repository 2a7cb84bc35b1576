"""Anthropic Message Batches as the simulated provider has them, and their routes: made, processed one request after the other, ended, their
results in any order. Their tokens count against no limit. What becomes of a request is a fault's affair (`api: "batch"`).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from nightcrew.plugins.sim.account import add_usage, label, model_class
from nightcrew.plugins.sim.dialects import Anthropic, Ask, Failure, compact
from nightcrew.plugins.sim.exchange import Exchange, Provider, arrive

API, ROUTES = "batch", "batches"
"""What faults name: for one request of a batch, and for the routes."""
MOST = 100_000
EXPIRES_S = 86400.0
_PATH = "/v1/messages/batches"
_LIMIT, _LIMIT_MAX = 20, 1000
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class _AnyBody(Anthropic):
    """Anthropic's errors and headers, for a body that is no request for a completion."""

    def read(self, path: str, query: Any, body: Any) -> Ask:  # noqa: ARG002 - the interface of all dialects
        return Ask("", stream=False, max_tokens=None, body=dict(body))


_ANTHROPIC, _ANY = Anthropic(), _AnyBody()


@dataclass(slots=True)
class Batch:
    """One of them. Times are monotonic seconds of the provider's clock, but `made_wall`."""

    id: str
    key: str
    requests: list[tuple[str, Mapping[str, Any]]]
    made: float
    made_wall: float
    held: bool
    """Nothing of it is processed before somebody releases it."""
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By custom id, of those that are over."""
    cancelled: float | None = None
    ended: float | None = None


class Batches:
    """All of them, the newest last, and a handler for each route. They go on when somebody looks."""

    def __init__(self, app: web.Application, provider: Provider) -> None:
        self._provider = provider
        self._all: dict[str, Batch] = {}
        provider.releases.append(self._release)
        app.router.add_post(_PATH, self.create)
        app.router.add_get(_PATH, self.listed)
        app.router.add_get(f"{_PATH}/{{id}}", self.one)
        app.router.add_get(f"{_PATH}/{{id}}/results", self.results)
        app.router.add_post(f"{_PATH}/{{id}}/cancel", self.cancel)

    def of_key(self, key: str) -> list[Batch]:
        """Return all of one key, the newest first."""
        return [batch for batch in reversed(self._all.values()) if batch.key == key]

    # The routes ---------------------------------------------------------------------------------------------------------------------

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Make one, which begins at once. A fault may refuse it, hold all of it, or make it and break off before it says so."""
        exchange = await self._arrived(request)
        try:
            requests = list(_requests(exchange.ask.body))
        except ValueError as error:
            raise exchange.refused(Failure(400, str(error)), "invalid") from None
        number, wall = f"msgbatch_sim{len(self._all) + 1:06d}", self._provider.clock.wall()
        self._all[number] = batch = Batch(number, exchange.key, requests, self._now(), wall, bool(exchange.fault.hold))
        return exchange.hang_up() if exchange.fault.wire == "no_answer" else exchange.tell(self._shape(batch))

    async def listed(self, request: web.Request) -> web.StreamResponse:
        """List those of the key, the newest first."""
        exchange = await self._arrived(request)
        found = self.of_key(exchange.key)
        names, limit = [batch.id for batch in found], min(int(request.query.get("limit", _LIMIT)), _LIMIT_MAX)
        start = names.index(after) + 1 if (after := request.query.get("after_id", "")) in names else 0
        page = found[start : start + limit]
        ends = {"first_id": page[0].id, "last_id": page[-1].id} if page else {"first_id": None, "last_id": None}
        return exchange.tell({"data": list(map(self._shape, page)), "has_more": start + limit < len(found), **ends})

    async def one(self, request: web.Request) -> web.StreamResponse:
        """Say how one is."""
        exchange, batch = await self._found(request)
        return exchange.tell(self._shape(batch))

    async def results(self, request: web.Request) -> web.StreamResponse:
        """Give one line a request of one that has ended, in an order of chance."""
        exchange, batch = await self._found(request)
        if batch.ended is None:
            raise exchange.refused(Failure(404, "its results are not available before it has ended"), "invalid")
        found = list(batch.results.items())
        random.Random(f"{self._provider.settings.seed} {batch.id}").shuffle(found)  # noqa: S311 - an order, no secret
        return exchange.tell_lines(b"".join(compact({"custom_id": name, "result": result}).encode() + b"\n" for name, result in found))

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """Process no more of one. One that has ended stays as it is."""
        exchange, batch = await self._found(request)
        if batch.ended is None and batch.cancelled is None:
            batch.cancelled = self._now()
        return exchange.tell(self._shape(batch))

    async def _arrived(self, request: web.Request) -> Exchange:
        exchange = await arrive(self._provider, _ANY, request, ROUTES)
        exchange.refuse_by_fault()
        for batch in self._all.values():
            self._go_on(batch)
        return exchange

    async def _found(self, request: web.Request) -> tuple[Exchange, Batch]:
        exchange = await self._arrived(request)
        batch = self._all.get(request.match_info["id"])
        if batch is None or batch.key != exchange.key:
            raise exchange.refused(Failure(404, "no such batch"), "invalid")
        return exchange, batch

    # What becomes of them -----------------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        for batch in self._all.values():
            if batch.held:
                batch.held, batch.made = False, self._now()

    def _now(self) -> float:
        return self._provider.accounts.now()

    def _go_on(self, batch: Batch) -> None:
        """Do what should have been done by now."""
        now = self._now()
        if batch.ended is not None:
            return
        upto = batch.cancelled if batch.cancelled is not None else now
        each_s = self._provider.settings.batch_s / max(1, len(batch.requests))
        for place, (custom_id, params) in enumerate(batch.requests):
            if not batch.held and custom_id not in batch.results and batch.made + (place + 1) * each_s <= upto:
                batch.results[custom_id] = self._process(batch, place, params)
        left = ""
        if batch.cancelled is not None and now > batch.cancelled:
            left = "canceled"
        elif now - batch.made >= EXPIRES_S:
            left = "expired"
        for custom_id, _ in batch.requests if left else ():
            batch.results.setdefault(custom_id, {"type": left})
        if len(batch.results) == len(batch.requests):
            batch.ended = now

    def _process(self, batch: Batch, place: int, params: Mapping[str, Any]) -> dict[str, Any]:
        provider, body, number = self._provider, compact(params).encode(), f"{batch.id}_{place}"
        fault = provider.faults.choose(API, str(params.get("model", "")), batch.key, body)
        if fault.batch:
            return {"type": fault.batch}
        ask = _read(params)
        if fault.status or ask is None:
            return {"type": "errored", "error": _ANTHROPIC.error(Failure(fault.status or 400, fault.message), number)}
        usage = provider.accounts.count(ask, batch.key, len(body), fault)
        tally = provider.stats.tally(label(batch.key), f"{model_class(ask.model)}/batch")
        tally.asked += 1
        tally.answered += 1
        add_usage(tally.used, usage)
        message = _ANTHROPIC.whole(provider.answer(ask, usage, fault, number))
        if "usage" in message:
            message["usage"]["service_tier"] = "batch"
        return {"type": "succeeded", "message": message}

    def _shape(self, batch: Batch) -> dict[str, Any]:
        """Show it as the API does."""
        counts = dict.fromkeys(("canceled", "errored", "expired", "processing", "succeeded"), 0)
        status, results_url = "in_progress", None
        if batch.ended is not None:
            status, results_url = "ended", f"https://api.simulated.invalid{_PATH}/{batch.id}/results"
            for result in batch.results.values():
                counts[result["type"]] += 1
        else:
            counts["processing"] = len(batch.requests)
            if batch.cancelled is not None:
                status = "canceling"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": counts,
            "created_at": _rfc3339(batch.made_wall),
            "expires_at": _rfc3339(batch.made_wall + EXPIRES_S),
            "ended_at": self._told(batch.ended),
            "cancel_initiated_at": self._told(batch.cancelled),
            "archived_at": None,
            "results_url": results_url,
        }

    def _told(self, moment: float | None) -> str | None:
        return None if moment is None else _rfc3339(self._provider.clock.wall() - (self._now() - moment))


def _requests(body: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the requests of a batch by their custom ids. Raises ValueError for one that is not taken."""
    asked = body.get("requests")
    if not isinstance(asked, list) or not 1 <= len(asked) <= MOST:
        raise ValueError(f"requests: a list of 1 to {MOST} is required")
    seen: set[str] = set()
    for place, one in enumerate(asked):
        name = one.get("custom_id") if isinstance(one, dict) else None
        if not isinstance(name, str) or not _CUSTOM_ID.fullmatch(name) or not isinstance(one.get("params"), dict):
            raise ValueError(f"requests.{place}: custom_id and params are required")
        if name in seen:
            raise ValueError(f"requests.{place}.custom_id: {name} is there twice")
        seen.add(name)
        yield name, one["params"]


def _read(params: Mapping[str, Any]) -> Ask | None:
    """Read the request; None for one that a batch cannot have."""
    try:
        ask = _ANTHROPIC.read("", {}, json.loads(json.dumps(params)))
    except (KeyError, TypeError, ValueError):
        return None
    return None if ask.stream or not ask.max_tokens else ask


def _rfc3339(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).isoformat().replace("+00:00", "Z")
