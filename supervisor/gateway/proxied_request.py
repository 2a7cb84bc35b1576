"""One request of one agent on its way through, and what is sent of it."""

from __future__ import annotations

import zlib
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from aiohttp import web
from multidict import CIMultiDict

from supervisor.core import tokens
from supervisor.core.gateway.events import Arrived
from supervisor.core.gateway.models import model_class
from supervisor.core.gateway.settings import Upstream
from supervisor.core.gateway.types import Agent, Api, LaneKey, Usage
from supervisor.gateway import wire
from supervisor.gateway.identity import carried
from supervisor.gateway.routing import Way
from supervisor.gateway.upstreams import Outgoing
from supervisor.gateway.wire import Asked, Recognised

_OUTPUT_MAX = {Api.ANTHROPIC: 128_000, Api.OPENAI: 128_000, Api.GEMINI: 65_536}
"""Tokens: the most that the providers' models put out in one answer; the bound of a request that names none."""
BYTES_PER_TOKEN = 2
"""For bounds: requests of clients have about 3.6 bytes a token. One that has fewer than this is flagged when its usage is known."""
_CAPPED_BYTES_PER_TOKEN = 1
"""The same where a cost cap stands: no text has more tokens than bytes (20,000 digits were 20,000 tokens), so the cap cannot be passed.
Without a cap nobody is held back by a bound; there 2 finds what is odd."""
_NOT_SENT = (
    wire.CLIENT_AUTH_HEADERS
    | wire.HOP_BY_HOP
    | {"host", "content-length", "accept-encoding", "expect", "forwarded", "x-goog-fieldmask", "x-http-method-override"}
)
"""The last two would hide the usage from us, and make another request of it."""
_OF_THE_KEY = frozenset({"openai-organization", "openai-project", "x-goog-user-project"})
"""Who pays: not the client's choice while the key is the user's."""
_SHARED_STATE = ("anthropic-ratelimit-", "anthropic-priority-", "x-ratelimit-")


class ProxiedRequest(NamedTuple):
    """What came. Times are monotonic seconds."""

    request: web.BaseRequest
    recognised: Recognised
    asked: Asked
    agent: Agent
    body: bytes
    way: Way
    lane: LaneKey
    """Whose queue it waits in."""
    ticket: int
    arrived_at: float
    body_key: str
    """What tells this agent's bodies apart, in this process and the next; see `key_of`."""
    bound: Usage
    """The most that it can take, see `bound_of`."""
    capped: bool
    """A cap on money holds for it."""

    @property
    def model(self) -> str:
        """As it is sent."""
        return self.way.as_model or self.asked.model

    def arrived(self, bound_usd: float | None) -> Arrived:
        """What the queue is told."""
        return Arrived(
            ticket=self.ticket,
            agent=self.agent,
            lane=self.lane,
            model=self.model,
            upstreams=self.way.upstreams,
            body_bytes=len(self.body),
            max_tokens=self.asked.max_tokens,
            body_key=f"{self.agent.name}:{self.body_key}",
            session=self.asked.session,
            bound_usd=bound_usd,
        )


def lane_of(asked: Asked, chosen: Way) -> LaneKey:
    """By the model as it is sent."""
    return LaneKey(asked.api, model_class(asked.api, chosen.as_model or asked.model), asked.long_context)


def bound_of(asked: Asked, body: bytes, *, capped: bool) -> Usage:
    """The most that a request can take. `capped`: a cap on money holds for it."""
    bytes_per_token = _CAPPED_BYTES_PER_TOKEN if capped else BYTES_PER_TOKEN
    output = asked.max_tokens or _OUTPUT_MAX[asked.api] * asked.choices
    return Usage(input=len(body) // bytes_per_token + 1, output=output)


def key_of(body: bytes) -> str:
    """Tells one agent's bodies apart, by their length and 1024 bytes that are spread over them: a mistake makes two of its own requests
    change places, or charges one that was lost for another prompt of its length. A digest of the whole costs a twentieth of a request."""
    return f"{len(body)}:{zlib.crc32(body[:: len(body) // 1024 + 1])}"


def outgoing(call: ProxiedRequest, upstream: Upstream, key: str) -> Outgoing:
    """What `upstream` gets: the client's body, and its headers without those that carry a key, which is replaced by the provider's.

    The answer must not be compressed, or its usage could not be read while it passes.
    """
    came = call.request.headers
    own_login = upstream.key.kind == "client"
    left_out = _NOT_SENT | _listed(came) | (frozenset() if own_login else _OF_THE_KEY)
    headers = CIMultiDict((name, value) for name, value in came.items() if _is_sent(name.lower(), left_out) and _is_text(value))
    headers["Accept-Encoding"] = "identity"
    headers.update(_own_login(came) if own_login else wire.auth_headers(call.asked.api, key) if key else {})
    model = call.way.as_model or None
    body = wire.sent_body(call.asked, call.body, model=model) if call.request.method == "POST" else None
    return Outgoing(call.request.method, wire.target(upstream.url, call.recognised, model=model), headers, body, key)


def _is_sent(name: str, left_out: Container[str]) -> bool:
    return name not in left_out and not name.startswith("x-forwarded-")


def passed_back(headers: Iterable[tuple[str, str]], queued_s: float, *, own_login: bool, keeps_length: bool) -> CIMultiDict[str]:
    """What the client gets of an answer's headers.

    What they say of the limit is left out: it is the limit that the whole crew shares, and a client that slows down or stops because the
    others are busy would do the gateway's work a second time, and worse. With its own login it is told: that account is its own.
    """
    kept = CIMultiDict(
        (name, value) for name, value in headers if _is_passed_back(name.lower(), own_login=own_login, keeps_length=keeps_length)
    )
    kept["x-gw-queue-ms"] = str(round(queued_s * 1000))
    return kept


def _is_passed_back(name: str, *, own_login: bool, keeps_length: bool) -> bool:
    if name in wire.HOP_BY_HOP or (name == "content-length" and not keeps_length):
        return False
    return own_login or not name.startswith(_SHARED_STATE)


def _is_text(value: str) -> bool:
    """What is no UTF-8 comes as lone surrogates, which nothing can write again."""
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _listed(headers: Mapping[str, str]) -> frozenset[str]:
    """Names that the client calls its own connection's affair."""
    listed = headers.get("Connection")
    return frozenset(name.strip().lower() for name in listed.split(",")) if listed else frozenset()


def _own_login(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's own keys; a header in which our token stands is not one."""
    lower = {name.lower(): value for name, value in headers.items()}
    names = [name for name in wire.CLIENT_AUTH_HEADERS if name in lower and name not in wire.HOP_BY_HOP and name != "cookie"]
    return {name: lower[name] for name in names if not any(text.startswith(tokens.PREFIX) for text in carried({name: lower[name]}))}
