"""The simulated provider's HTTP server: routes and controls."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from aiohttp import web

from nightcrew.plugins.sim.batches import Batch, Misshapen, shape
from nightcrew.plugins.sim.dialects.anthropic import Anthropic
from nightcrew.plugins.sim.dialects.chat import Chat
from nightcrew.plugins.sim.dialects.gemini import Gemini
from nightcrew.plugins.sim.dialects.responses import Responses
from nightcrew.plugins.sim.dialects.types import WORDS, Ask, Failure
from nightcrew.plugins.sim.exchange import SIMULATED, Exchange, Provider, complete, count, exchange_of, hang_up, is_known, models
from nightcrew.plugins.sim.faults import Facts, Fault
from nightcrew.plugins.sim.settings import SimSettings
from supervisor.gateway.admission.types import Limits
from supervisor.host.clock import Clock

# Batch routes
# ------------
# The routes of `/v1/messages/batches`.


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


# Server
# ------
# The simulated provider's HTTP server: routes, who asks, and the controls under `/sim/`.


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

ANTHROPIC, CHAT, RESPONSES, GEMINI = Anthropic(), Chat(), Responses(), Gemini()


@dataclass(slots=True)
class Running:
    """A simulated provider in this process. It ends with the block that began it."""

    provider: Provider
    url: str
    runner: web.AppRunner = field(repr=False)

    def faults(self, *faults: Fault) -> None:
        """Put these behind those in force."""
        self.provider.fault(faults)

    def release(self, name: str) -> None:
        """Let the answers go that wait for `name`."""
        self.provider.release(name)

    def stats(self) -> dict[str, Any]:
        """What `GET /sim/stats` says."""
        return _stats(self.provider, self.runner)


@asynccontextmanager
async def running(settings: SimSettings, *, clock: Clock | None = None, rng: random.Random | None = None) -> AsyncIterator[Running]:
    """A simulated provider on 127.0.0.1 until the end of the block."""
    provider = Provider(settings, clock=clock, rng=rng)
    app = web.Application(client_max_size=settings.max_body, middlewares=[_plain_errors])
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    _routes(app, provider, runner)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", settings.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield Running(provider, f"http://{host}:{port}", runner)
    finally:
        await runner.cleanup()


async def serve_until_stopped(settings: SimSettings, announce: Callable[[str], None]) -> None:
    """Run until SIGINT or SIGTERM; `announce` is called once with the URL when it listens."""
    stopped = asyncio.Event()
    for wanted in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(wanted, stopped.set)
    async with running(settings) as simulated:
        announce(simulated.url)
        await stopped.wait()


# Routes ---------------------------------------------------------------------------------------------------------------------------


def _routes(app: web.Application, provider: Provider, runner: web.AppRunner) -> None:
    post = app.router.add_post
    app.router.add_get("/", _home)
    post("/v1/messages", partial(complete, provider, ANTHROPIC))
    post("/v1/messages/count_tokens", partial(count, provider, ANTHROPIC))
    post("/v1/chat/completions", partial(complete, provider, CHAT))
    post("/v1/responses", partial(complete, provider, RESPONSES))
    for version in ("v1beta", "v1"):
        path = f"/{version}/models/{{model:[^/:]+}}"
        post(f"{path}:generateContent", partial(complete, provider, GEMINI))
        post(f"{path}:streamGenerateContent", partial(complete, provider, GEMINI))
        post(f"{path}:countTokens", partial(count, provider, GEMINI))
    add(app, provider)
    app.router.add_get("/v1/models", partial(models, provider))
    app.router.add_get("/sim/stats", partial(_tell, provider, runner))
    post("/sim/{verb:faults|release|limits|clear}", partial(_control, provider))


async def _home(_request: web.Request) -> web.Response:
    """Claude Code asks `HEAD /` before its first request."""
    return web.Response(headers=SIMULATED)


async def _tell(provider: Provider, runner: web.AppRunner, _request: web.Request) -> web.Response:
    return web.json_response(_stats(provider, runner))


@web.middleware
async def _plain_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """What no route and no dialect answers: the server's own errors, in the shape that most clients read."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        failure = Failure(error.status, error.reason)
        return web.json_response(ANTHROPIC.error(failure, ""), status=error.status, headers=SIMULATED)


async def _control(provider: Provider, request: web.Request) -> web.Response:
    """The verbs of a test: `faults` (a list of them), `clear`, `release` (`{"hold": name}`), `limits` (`{"class": name, rpm...}` or
    `{"times": factor}`)."""
    given = json.loads(await request.read() or b"null")
    try:
        match request.match_info["verb"]:
            case "faults":
                provider.fault([Fault.from_json(fault) for fault in given])
            case "clear":
                provider.faults.clear()
            case "release":
                provider.release(given["hold"])
            case "limits":
                _relimit(provider, **given)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return web.json_response({"error": str(error)}, status=400)
    return web.json_response({"ok": True})


def _relimit(provider: Provider, *, times: float | None = None, **limits: Any) -> None:
    """Other limits, or the present ones `times` as high."""
    class_name = limits.pop("class", "")
    if times is None:
        provider.accounts.change(Limits(**limits), class_name)
    elif limits:
        raise ValueError("times and limits do not go together")
    else:
        provider.accounts.scale(times, class_name)


def _stats(provider: Provider, runner: web.AppRunner) -> dict[str, Any]:
    connections = len(runner.server.connections) if runner.server is not None else 0
    return provider.stats.to_json(connections, provider.faults.done(), provider.accounts.told())
