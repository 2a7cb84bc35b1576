"""A body for `/v1/messages/batches`, and the lines of its results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from supervisor.core.gateway.types import Api, Usage
from supervisor.gateway.wire import tiers
from supervisor.gateway.wire.asked import Asked, BadRequest, Endpoint
from supervisor.gateway.wire.reading import model_name, parsed, tokens
from supervisor.gateway.wire.unbounded import names_input
from supervisor.gateway.wire.usages import Meter

MOST = 100_000
"""Requests in a batch, as Anthropic has it."""
_MESSAGE = Asked(Api.ANTHROPIC, Endpoint.MESSAGES, may_cache_hour=True)


class BatchRequest(NamedTuple):
    """One request of a batch, as far as it is reckoned with."""

    size: int
    """Bytes of its parameters."""
    max_tokens: int | None


class BatchAsked(NamedTuple):
    """What a batch asks for."""

    model: str
    requests: tuple[BatchRequest, ...]
    names_input: bool
    """One of its requests refers to input that is not in it."""
    times: float
    """The most that one of its requests costs, in prices of the table."""


class BatchResult(NamedTuple):
    """One line of the results. `usage` None: it took nothing, or (with `served`) the provider does not say what."""

    custom_id: str
    served: bool
    usage: Usage | None
    times: float | None = 1.0
    """Its price, as a multiple of the table's; None if unknown."""


def read_batch(body: bytes) -> BatchAsked:
    """What is asked. Raises BadRequest for what is no batch, for one that asks several models (each has a price and a limit of its own; ask
    for a batch each), and for one that asks for a stream."""
    asked = [one.value for name, one in parsed(body, once=True)[1].items() if name == "requests"]
    requests = asked[0] if asked else None
    if not isinstance(requests, list) or not 1 <= len(requests) <= MOST:
        raise BadRequest(400, f"requests: a list of 1 to {MOST} is required.")
    params = [one["params"] if isinstance(one, dict) and isinstance(one.get("params"), dict) else None for one in requests]
    found = [one for one in params if one is not None]
    if len(found) < len(requests):
        raise BadRequest(400, "requests: each is an object with a custom_id and params.")
    models = {model_name(one.get("model")) for one in found}
    if len(models) > 1:
        raise BadRequest(400, "requests: one batch asks one model here; make a batch for each.")
    if any(one.get("stream") for one in found):
        raise BadRequest(400, "requests: nothing in a batch is streamed.")
    words = [tiers.asked(Api.ANTHROPIC, one) for one in found]
    if dear := next(filter(None, (tiers.dear(Api.ANTHROPIC, each) for each in words)), ""):
        raise BadRequest(400, f"requests: the price of {dear.partition(' ')[0]} with that value is not known in a batch; leave it out.")
    times = max(tiers.factor(Api.ANTHROPIC, each) or 1.0 for each in words)
    read = [_read(one) for one in found]
    return BatchAsked(models.pop(), tuple(one for one, _ in read), any(named for _, named in read), times)


def _read(params: Mapping[str, Any]) -> tuple[BatchRequest, bool]:
    text = json.dumps(params, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return BatchRequest(len(text), tokens(params.get("max_tokens"))), names_input(text)


def read_result(line: bytes) -> BatchResult | None:
    """A line of the results; None for what is none."""
    try:
        said = json.loads(line)
        custom_id, result = str(said["custom_id"]), said["result"]
        if result["type"] != "succeeded":
            return BatchResult(custom_id, served=False, usage=None)
        meter = Meter(_MESSAGE)
        meter.read({"type": "message", **result["message"]})
        return BatchResult(custom_id, served=True, usage=meter.usage, times=tiers.factor(Api.ANTHROPIC, meter.price_words))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
