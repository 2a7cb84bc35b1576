"""The simulated provider's HTTP server: routes, and the controls under `/sim/`."""

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

from nightcrew.plugins.sim.account import tokens_of
from nightcrew.plugins.sim.batches import Batches
from nightcrew.plugins.sim.dialects import Anthropic, Chat, Dialect, Failure, Gemini, Responses
from nightcrew.plugins.sim.exchange import SIMULATED, Provider, Refused, arrive, key_of
from nightcrew.plugins.sim.faults import Fault
from nightcrew.plugins.sim.settings import SimSettings
from supervisor.host.clock import Clock
from supervisor.kernel.gateway_settings import Limits

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
ANTHROPIC, CHAT, RESPONSES, GEMINI = Anthropic(), Chat(), Responses(), Gemini()
_GEMINI = "/{version:v1beta|v1}/models/{model:[^/:]+}"
COMPLETIONS = {
    "/v1/messages": ANTHROPIC,
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    f"{_GEMINI}:generateContent": GEMINI,
    f"{_GEMINI}:streamGenerateContent": GEMINI,
}
COUNTS = {"/v1/messages/count_tokens": ANTHROPIC, f"{_GEMINI}:countTokens": GEMINI}
CLAUDE_MODELS = ("claude-opus-4-8", "claude-sonnet-4-5", "claude-haiku-4-5")
GPT_MODELS = ("gpt-5", "gpt-5-mini")
"""Named in lists of models; requests for any other name are served as well."""


@dataclass(slots=True)
class Running:
    """A simulated provider in this process. It ends with the block that began it."""

    provider: Provider
    url: str
    runner: web.AppRunner = field(repr=False)
    batches: Batches = field(repr=False)

    def faults(self, *faults: Fault) -> None:
        """Put these behind those in force."""
        self.provider.fault(faults)

    def release(self, name: str) -> None:
        """Let the answers go that wait for `name`."""
        self.provider.release(name)

    def stats(self) -> dict[str, Any]:
        """Return what `GET /sim/stats` says."""
        return _stats(self.provider, self.runner)


@asynccontextmanager
async def running(settings: SimSettings, *, clock: Clock | None = None, rng: random.Random | None = None) -> AsyncIterator[Running]:
    """Run a simulated provider on 127.0.0.1 until the end of the block."""
    provider = Provider(settings, clock=clock, rng=rng)
    app = web.Application(client_max_size=settings.max_body, middlewares=[_errors])
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    batches = _routes(app, provider, runner)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", settings.port)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield Running(provider, f"http://{host}:{port}", runner, batches)
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


def _routes(app: web.Application, provider: Provider, runner: web.AppRunner) -> Batches:
    get, post = app.router.add_get, app.router.add_post
    get("/", _home)
    for path, dialect in COMPLETIONS.items():
        post(path, partial(_complete, provider, dialect))
    for path, dialect in COUNTS.items():
        post(path, partial(_count, provider, dialect))
    get("/v1/models", partial(_models, provider))
    get("/sim/stats", partial(_tell, provider, runner))
    post("/sim/{verb:faults|release|limits|clear}", partial(_control, provider))
    return Batches(app, provider)


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what an exchange refuses; and what no route and no dialect answers in the shape that most clients read."""
    try:
        return await handler(request)
    except Refused as refused:
        return refused.response
    except web.HTTPException as error:
        return _plain(ANTHROPIC, Failure(error.status, error.reason))


def _plain(dialect: Dialect, failure: Failure) -> web.Response:
    return web.json_response(dialect.error(failure, ""), status=failure.status, headers=SIMULATED)


async def _home(_request: web.Request) -> web.Response:
    """Claude Code asks `HEAD /` before its first request."""
    return web.Response(headers=SIMULATED)


async def _complete(provider: Provider, dialect: Dialect, request: web.Request) -> web.StreamResponse:
    """Answer a request for a completion."""
    return await (await arrive(provider, dialect, request)).run()


async def _count(provider: Provider, dialect: Dialect, request: web.Request) -> web.Response:
    """Say how many tokens a body has. It costs none, and its own limit on requests is not simulated."""
    exchange = await arrive(provider, dialect, request, "count_tokens")
    exchange.refuse_by_fault()
    scripted = exchange.fault.input_tokens
    return exchange.tell({dialect.counted: tokens_of(exchange.entry.body_bytes) if scripted is None else scripted})


async def _models(provider: Provider, request: web.Request) -> web.Response:
    """List the models, in the shape of the API that the request's headers are of. It costs nothing, and no fault is for it."""
    anthropic = "anthropic-version" in request.headers
    if not provider.knows(key_of(request)):
        return _plain(ANTHROPIC if anthropic else CHAT, Failure(401))
    if not anthropic:
        models = [{"id": name, "object": "model", "created": 0, "owned_by": "simulated"} for name in GPT_MODELS]
        return web.json_response({"object": "list", "data": models}, headers=SIMULATED)
    listed = [{"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"} for name in CLAUDE_MODELS]
    ends = {"has_more": False, "first_id": CLAUDE_MODELS[0], "last_id": CLAUDE_MODELS[-1]}
    return web.json_response({"data": listed, **ends}, headers=SIMULATED)


async def _tell(provider: Provider, runner: web.AppRunner, _request: web.Request) -> web.Response:
    return web.json_response(_stats(provider, runner))


async def _control(provider: Provider, request: web.Request) -> web.Response:
    """The verbs of a test: `faults` (a list of them), `clear`, `release` (`{"hold": name}`), `limits` (`{"class": name, rpm...}`)."""
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
                class_name = given.pop("class", "")
                provider.accounts.change(Limits(**given), class_name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return web.json_response({"error": str(error)}, status=400)
    return web.json_response({"ok": True})


def _stats(provider: Provider, runner: web.AppRunner) -> dict[str, Any]:
    connections = len(runner.server.connections) if runner.server is not None else 0
    return provider.stats.to_json(connections, provider.faults.done(), provider.accounts.told())
