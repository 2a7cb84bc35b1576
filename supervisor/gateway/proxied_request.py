"""One request of one agent on its way through, and what of the answer goes back."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import NamedTuple

from aiohttp import web
from multidict import CIMultiDict

from supervisor.core.gateway.events import Arrived, Fallback
from supervisor.core.gateway.models import model_class
from supervisor.core.gateway.types import Agent, Api, LaneKey, Usage
from supervisor.gateway import wire
from supervisor.gateway.routing import Way
from supervisor.gateway.wire import Asked, Endpoint, Recognised

_OUTPUT_MAX = {Api.ANTHROPIC: 128_000, Api.OPENAI: 128_000, Api.GEMINI: 65_536}
"""Tokens: the most that the providers' models put out in one answer; the bound of a request that names none."""
BYTES_PER_TOKEN = 2
"""For bounds: requests of clients have about 3.6 bytes a token. One that has fewer than this is flagged when its usage is known."""
_CAPPED_BYTES_PER_TOKEN = 1
"""The same where such a cap stands: no text has more tokens than bytes (20,000 digits were 20,000 tokens), so the cap cannot be passed.
Without a cap nobody is held back by a bound; there 2 finds what is odd."""
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
    """A cap on what it may take in all holds for it."""

    @property
    def model(self) -> str:
        """As it is sent."""
        return self.way.as_model or self.asked.model

    def by_fallback(self) -> ProxiedRequest | None:
        """The same as its route's fallback answers it; None when there is none."""
        other = self.way.fallback
        return self._replace(way=other, lane=lane_of(self.asked, other)) if other is not None else None

    def arrived(self, bound_usd: float | None, fallback: Fallback | None) -> Arrived:
        """What the queue is told."""
        return Arrived(
            ticket=self.ticket,
            agent=self.agent,
            lane=self.lane,
            model=self.model,
            upstreams=self.way.upstreams,
            body_bytes=len(self.body),
            max_tokens=0 if self.asked.endpoint is Endpoint.EMBEDDINGS else self.asked.max_tokens,
            body_key=f"{self.agent.name}:{self.body_key}",
            session=self.asked.session,
            bound_usd=bound_usd,
            bound_tokens=self.bound.uncached,
            fallback=fallback,
        )


def lane_of(asked: Asked, chosen: Way) -> LaneKey:
    """By the model as it is sent."""
    return LaneKey(asked.api, model_class(asked.api, chosen.as_model or asked.model), asked.long_context)


def bound_of(asked: Asked, size: int, *, capped: bool) -> Usage:
    """The most that a request of `size` bytes can take. `capped`: a cap on what it may take in all holds for it."""
    bytes_per_token = _CAPPED_BYTES_PER_TOKEN if capped else BYTES_PER_TOKEN
    output = 0 if asked.endpoint is Endpoint.EMBEDDINGS else asked.max_tokens or _OUTPUT_MAX[asked.api] * asked.choices
    return Usage(input=size // bytes_per_token + 1, output=output)


def key_of(body: bytes) -> str:
    """Tells one agent's bodies apart, by their length and 1024 bytes that are spread over them: a mistake makes two of its own requests
    change places, or charges one that was lost for another prompt of its length. A digest of the whole costs a twentieth of a request."""
    return f"{len(body)}:{zlib.crc32(body[:: len(body) // 1024 + 1])}"


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
