"""The simulated provider's HTTP server: its routes, Anthropic's Message Batches, and the controls under `/sim/`."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aiohttp import web

from nightcrew.plugins.sim.account import add_usage, label, model_class, tokens_of
from nightcrew.plugins.sim.dialects import Anthropic, Ask, Chat, Dialect, Failure, Gemini, Responses, compact
from nightcrew.plugins.sim.exchange import SIMULATED, Exchange, Provider, Refused, arrive, key_of
from nightcrew.plugins.sim.faults import Fault
from nightcrew.plugins.sim.settings import SimSettings
from supervisor.host.clock import Clock
from supervisor.kernel.gateway_settings import Limits

# Batches
# -------
# Anthropic Message Batches: made, processed one request after the other, ended, their results in any order. Their tokens count against no
# limit. What becomes of a request is a fault's affair (`api: "batch"`).


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
MOST_BYTES = 32 * 1024 * 1024
"""Of a request; a larger one gets 413 (Anthropic's limit for Messages)."""
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
    app = web.Application(client_max_size=MOST_BYTES, middlewares=[_errors])
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
