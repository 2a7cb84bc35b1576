"""The routes of `/v1/messages/batches`."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from supervisor.gateway.sim.batches import Batch, Misshapen, shape
from supervisor.gateway.sim.dialects import WORDS, Anthropic, Ask, Failure
from supervisor.gateway.sim.exchange import SIMULATED, Exchange, hang_up
from supervisor.gateway.sim.faults import Facts
from supervisor.gateway.sim.provider import Provider
from supervisor.gateway.sim.request_handler import exchange_of, is_known

API = "batches"
"""What faults for these routes name."""
_PATH = "/v1/messages/batches"
_LIMIT, _LIMIT_MAX = 20, 1000


def add(app: web.Application, provider: Provider) -> None:
    """Put them into an application."""
    routes = BatchRoutes(provider)
    app.router.add_post(_PATH, routes.create)
    app.router.add_get(_PATH, routes.listed)
    app.router.add_get(f"{_PATH}/{{id}}", routes.one)
    app.router.add_get(f"{_PATH}/{{id}}/results", routes.results)
    app.router.add_post(f"{_PATH}/{{id}}/cancel", routes.cancel)


class BatchRoutes:
    """One handler a route."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def create(self, request: web.Request) -> web.StreamResponse:
        """A fault of it may refuse it, hold all of it, or make it and break off before it says so."""
        exchange, refused = await self._begin(request)
        if refused is not None:
            return refused
        try:
            batch = self._provider.batches.make(exchange.key, exchange.ask.body, exchange.fault)
        except Misshapen as error:
            return exchange.refuse(Failure(400, str(error)), "invalid")
        if exchange.fault.wire == "no_answer":
            exchange.end("cut")
            return hang_up(request)
        return self._said(exchange, self._shape(batch))

    async def listed(self, request: web.Request) -> web.StreamResponse:
        """The newest first."""
        exchange, refused = await self._begin(request)
        if refused is not None:
            return refused
        found = self._provider.batches.of_key(exchange.key)
        names, limit = [batch.id for batch in found], min(int(request.query.get("limit", _LIMIT)), _LIMIT_MAX)
        start = names.index(after) + 1 if (after := request.query.get("after_id", "")) in names else 0
        page = found[start : start + limit]
        told = {"data": [self._shape(batch) for batch in page], "has_more": start + limit < len(found)}
        return self._said(exchange, {**told, "first_id": page[0].id if page else None, "last_id": page[-1].id if page else None})

    async def one(self, request: web.Request) -> web.StreamResponse:
        """How it is."""
        exchange, batch, refused = await self._found(request)
        return refused or self._said(exchange, self._shape(batch))

    async def results(self, request: web.Request) -> web.StreamResponse:
        """One line a request, in any order."""
        exchange, batch, refused = await self._found(request)
        if refused is not None:
            return refused
        if batch.ended is None:
            return exchange.refuse(Failure(404, "its results are not available before it has ended"), "invalid")
        exchange.end("answered")
        headers = SIMULATED | exchange.dialect.id_headers(exchange.request_id) | {"Content-Type": "application/x-jsonl"}
        return web.Response(body=self._provider.batches.lines(batch), headers=headers)

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        """Ask that no more of it is processed."""
        exchange, batch, refused = await self._found(request)
        if refused is None:
            self._provider.batches.cancel(batch)
        return refused or self._said(exchange, self._shape(batch))

    async def _found(self, request: web.Request) -> tuple[Exchange, Batch, web.Response | None]:
        exchange, refused = await self._begin(request)
        batch = self._provider.batches.find(exchange.key, request.match_info["id"])
        if batch is None and refused is None:
            refused = exchange.refuse(Failure(404, "no such batch"), "invalid")
        return exchange, batch, refused  # type: ignore[return-value]  # nobody looks at it when it is refused

    async def _begin(self, request: web.Request) -> tuple[Exchange, web.Response | None]:
        """The request, written down; and its refusal."""
        body = await request.read()
        exchange = exchange_of(self._provider, _ANY, request, body or b"{}")
        exchange.entry.api = API
        if not is_known(self._provider, exchange.key):
            return exchange, exchange.refuse(Failure(401, WORDS[401]), "key")
        exchange.fault = self._provider.faults.choose(Facts(API, "", exchange.key, body))
        return exchange, exchange.refuse_by_fault() if exchange.fault.status else None

    def _shape(self, batch: Batch) -> dict[str, Any]:
        return shape(batch, "https://api.simulated.invalid", self._provider.clock.wall(), self._provider.accounts.now())

    def _said(self, exchange: Exchange, told: dict[str, Any]) -> web.Response:
        exchange.end("answered")
        return web.json_response(told, headers=SIMULATED | exchange.dialect.id_headers(exchange.request_id))


class _AnyBody(Anthropic):
    """Anthropic's errors and headers, for a body that is no request for a completion."""

    def read(self, path: str, query: Any, body: Any) -> Ask:  # noqa: ARG002 - the interface of all dialects
        if not isinstance(body, dict):
            raise TypeError("an object is required")
        return Ask("", stream=False, max_tokens=None, body=body)


_ANY = _AnyBody()
