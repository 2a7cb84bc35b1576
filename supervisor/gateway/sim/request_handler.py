"""Where requests come in: they are read, written down, checked, and given the fault that is meant for them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from supervisor.gateway.sim.counting import model_class, tokens_of
from supervisor.gateway.sim.dialects import WORDS, Anthropic, Ask, Chat, Dialect, Failure
from supervisor.gateway.sim.exchange import SIMULATED, Exchange
from supervisor.gateway.sim.faults import NO_FAULT, Facts
from supervisor.gateway.sim.provider import Provider
from supervisor.gateway.sim.stats import Entry, label, safe_path, without_secrets

_INVALID = Ask("", stream=False, max_tokens=None, body={})
CLAUDE_MODELS = ("claude-opus-4-8", "claude-sonnet-4-5", "claude-haiku-4-5")
GPT_MODELS = ("gpt-5", "gpt-5-mini")
"""Named in lists of models; requests for any other name are served as well."""
_COUNTED = {"anthropic": "input_tokens", "gemini": "totalTokens"}


async def complete(provider: Provider, dialect: Dialect, request: web.Request) -> web.StreamResponse:
    """Answer a request for a completion."""
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return exchange_of(provider, dialect, request, b"").refuse(Failure(413, WORDS[413]), "invalid")
    exchange = exchange_of(provider, dialect, request, body)
    if not is_known(provider, exchange.key):
        return exchange.refuse(Failure(401, WORDS[401]), "key")
    if exchange.ask is _INVALID:
        return exchange.refuse(Failure(400, WORDS[400]), "invalid")
    exchange.fault = provider.faults.choose(Facts(dialect.api, exchange.ask.model, exchange.key, body))
    return await exchange.run()


async def count(provider: Provider, dialect: Dialect, request: web.Request) -> web.Response:
    """Say how many tokens a body has. It costs none, and its own limit on requests is not simulated."""
    body = await request.read()
    exchange = exchange_of(provider, dialect, request, body)
    exchange.entry.api = "count_tokens"
    fault = exchange.fault = provider.faults.choose(Facts("count_tokens", exchange.ask.model, exchange.key, body))
    if not is_known(provider, exchange.key):
        return exchange.refuse(Failure(401, WORDS[401]), "key")
    if exchange.ask is _INVALID:
        return exchange.refuse(Failure(400, WORDS[400]), "invalid")
    if fault.status:
        return exchange.refuse_by_fault()
    tokens = tokens_of(len(body)) if fault.input_tokens is None else fault.input_tokens
    exchange.end("answered")
    return web.json_response({_COUNTED[dialect.api]: tokens}, headers=SIMULATED | dialect.id_headers(exchange.request_id))


async def models(provider: Provider, request: web.Request) -> web.Response:
    """The list of models, in the shape of the API that the request's headers are of. It costs nothing, and no fault is for it."""
    key, anthropic = _key(request.headers, request.query), "anthropic-version" in request.headers
    if not is_known(provider, key):
        failure = Failure(401, WORDS[401])
        error = Anthropic().error(failure, "") if anthropic else Chat().error(failure, "")
        return web.json_response(error, status=401, headers=SIMULATED)
    return web.json_response(_anthropic_models() if anthropic else _openai_models(), headers=SIMULATED)


def _anthropic_models() -> dict[str, Any]:
    listed = [{"type": "model", "id": name, "display_name": name, "created_at": "2025-01-01T00:00:00Z"} for name in CLAUDE_MODELS]
    return {"data": listed, "has_more": False, "first_id": CLAUDE_MODELS[0], "last_id": CLAUDE_MODELS[-1]}


def _openai_models() -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model", "created": 0, "owned_by": "simulated"} for name in GPT_MODELS]}


def exchange_of(provider: Provider, dialect: Dialect, request: web.Request, body: bytes) -> Exchange:
    """Write a request down."""
    key, ask, number = _key(request.headers, request.query), _read(dialect, request, body), provider.stats.number()
    entry = Entry(
        number=number,
        at=time.monotonic(),
        method=request.method,
        path=safe_path(request.path, request.query),
        api=dialect.api,
        model=ask.model,
        stream=ask.stream,
        key=label(key),
        headers=without_secrets(request.headers.items()),
        body_sha256=hashlib.sha256(body).hexdigest(),
        body_bytes=len(body),
    )
    provider.stats.last.append(entry)
    tally = provider.stats.tally(entry.key, model_class(ask.model))
    tally.asked += 1
    return Exchange(provider, dialect, request, entry, tally, key, ask, NO_FAULT, f"sim{number:09d}")


def _read(dialect: Dialect, request: web.Request, body: bytes) -> Ask:
    """The request, or `_INVALID`."""
    try:
        return dialect.read(request.path, request.query, json.loads(body))
    except (KeyError, TypeError, ValueError):
        return _INVALID


def _key(headers: Mapping[str, str], query: Mapping[str, str]) -> str:
    """The key, wherever one of the providers looks for it; empty when there is none."""
    bearer = headers.get("Authorization", "").removeprefix("Bearer ")
    return headers.get("x-api-key") or headers.get("x-goog-api-key") or bearer or query.get("key", "")


def is_known(provider: Provider, key: str) -> bool:
    """Whether the provider takes the key."""
    return key in provider.settings.keys if provider.settings.keys else bool(key) or not provider.settings.needs_key
