"""The simulated provider's HTTP server: routes, who asks, and the controls under `/sim/`."""

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

from supervisor.core.gateway.settings import Limits
from supervisor.gateway.sim import batch_routes
from supervisor.gateway.sim.dialects import Anthropic, Chat, Failure, Gemini, Responses
from supervisor.gateway.sim.exchange import SIMULATED
from supervisor.gateway.sim.faults import Fault
from supervisor.gateway.sim.provider import Provider
from supervisor.gateway.sim.request_handler import complete, count, models
from supervisor.gateway.sim.settings import SimSettings
from supervisor.host.clock import Clock

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
    batch_routes.add(app, provider)
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
