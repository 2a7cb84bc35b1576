"""Requests that take no tokens (counting them, lists of models): they wait in no queue, and nothing is charged.

Providers limit them too, and a client that counts before each turn stops when it cannot. So what fails is tried at each upstream that
serves it, and then again, for a short while.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

from supervisor.core.gateway.settings import Upstream
from supervisor.core.gateway.types import Refusal
from supervisor.gateway import wire
from supervisor.gateway.credentials import outgoing
from supervisor.gateway.forward import no_answer, own_answer
from supervisor.gateway.proxied_request import ProxiedRequest, passed_back
from supervisor.gateway.request_context import RequestContext
from supervisor.gateway.upstreams import Cut, Reply, Unreachable

_ROUNDS = 4
_WAIT_S = 0.5
"""Before the second round; twice as long before each one after it, when no upstream says how long."""
_WAIT_MAX_S = 10.0
_AGAIN_S = 5
_ERROR_MAX = 64 * 2**10
_LASTING = frozenset({Refusal.KEY_REFUSED, Refusal.SPEND_CAP})
"""No other try helps before a person does something."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """One upstream did not serve it. `why` is for the client; `wait_s` is what the upstream asked for."""

    status: int
    why: str
    wait_s: float | None = None
    lasts: bool = False


async def forward_free(context: RequestContext, call: ProxiedRequest) -> web.StreamResponse:
    """Serve it by the first upstream that can. What it returns is prepared already, unless it is an answer of our own."""
    names = list(call.way.upstreams)
    failed = _Failed(503, "no upstream serves this")
    for again in range(_ROUNDS):
        waits: list[float] = []
        for name in tuple(names):
            outcome = await _ask(context, call, name, again)
            if not isinstance(outcome, _Failed):
                return outcome
            context.log.say_seldom(f"{call.recognised.endpoint}: {outcome.why}")
            failed = outcome
            if failed.lasts:
                names.remove(name)
            else:
                waits.append(failed.wait_s if failed.wait_s is not None else _WAIT_S * 2**again)
        wait_s = min(waits, default=None)
        if wait_s is None or wait_s > _WAIT_MAX_S or again == _ROUNDS - 1 or not _in_time(context, call, wait_s):
            break
        await asyncio.sleep(wait_s)
    return own_answer(call, failed.status, failed.why, None if failed.lasts else max(_AGAIN_S, round(failed.wait_s or 0)))


def _in_time(context: RequestContext, call: ProxiedRequest, wait_s: float) -> bool:
    return not context.stopping and context.clock.monotonic() + wait_s < call.arrived_at + context.settings.policy.hold_s


async def _ask(context: RequestContext, call: ProxiedRequest, name: str, again: int) -> web.StreamResponse | _Failed:
    found = context.upstream(name)
    if found is None:
        return _Failed(503, f"the upstream {name} cannot be used", lasts=True)
    upstream, key = found
    try:
        with await context.upstreams.send(name, outgoing(call, upstream, key)) as reply:
            return await _answered(call, reply, upstream, again)
    except Unreachable as error:
        return _Failed(503, f"the upstream {name} cannot be reached: {error.why}")


async def _answered(call: ProxiedRequest, reply: Reply, upstream: Upstream, again: int) -> web.StreamResponse | _Failed:
    if why := no_answer(upstream.name, reply):
        return _Failed(502, why, lasts=True)
    own_login, begun = upstream.key.kind == "client", b""
    try:
        if reply.status >= 400:
            begun = await reply.start(_ERROR_MAX)
        else:
            begun = await reply.chunk()
    except Cut as error:
        return _Failed(503, f"the upstream {upstream.name} cannot be reached: {error.why}")
    refused = wire.refusal(call.asked.api, reply.status, reply.lower(), begun[:_ERROR_MAX])
    if refused is not None and not (own_login and refused[0] is Refusal.KEY_REFUSED):
        refusal, seen = refused
        status = 429 if reply.status == 429 and refusal not in _LASTING else 503
        lasts = refusal in _LASTING and (again > 0 or refusal is not Refusal.KEY_REFUSED)  # good keys are refused for moments
        return _Failed(status, f"the upstream {upstream.name} did not serve this: {refusal}", seen.retry_after_s, lasts)
    client = web.StreamResponse(
        status=reply.status,
        reason=reply.reason,
        headers=passed_back(reply.headers.items(), 0.0, own_login=own_login, keeps_length=True),
    )
    await client.prepare(call.request)
    try:
        while begun:
            await client.write(begun)
            begun = await reply.chunk()
        await client.write_eof()
    except Cut:
        call.request.protocol.force_close()
    return client
