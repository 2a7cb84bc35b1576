"""Where an agent's token is swapped for the provider's credential: what is sent upstream of a request, and nothing else of the client's."""

from __future__ import annotations

from collections.abc import Container, Mapping

from multidict import CIMultiDict

from supervisor.core import tokens
from supervisor.core.gateway.settings import Upstream
from supervisor.gateway import wire
from supervisor.gateway.identity import carried
from supervisor.gateway.proxied_request import ProxiedRequest
from supervisor.gateway.upstreams import Outgoing

_NOT_SENT = (
    wire.CLIENT_AUTH_HEADERS
    | wire.HOP_BY_HOP
    | {"host", "content-length", "accept-encoding", "expect", "forwarded", "x-goog-fieldmask", "x-http-method-override"}
    | {"x-vertex-ai-llm-request-type", "x-vertex-ai-llm-shared-request-type"}
)
"""The last four would hide the usage from us, change what the request does, and change its price."""
_OF_THE_KEY = frozenset({"openai-organization", "openai-project", "x-goog-user-project"})
"""Who pays: not the client's choice while the key is the user's."""


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


def _is_text(value: str) -> bool:
    """Whether it can be written: bytes that are no UTF-8 come as lone surrogates, which cannot."""
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _listed(headers: Mapping[str, str]) -> frozenset[str]:
    """Names of headers that belong to the client's connection alone, as its `Connection` header says."""
    listed = headers.get("Connection")
    return frozenset(name.strip().lower() for name in listed.split(",")) if listed else frozenset()


def _own_login(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's own keys; a header in which our token stands is not one."""
    lower = {name.lower(): value for name, value in headers.items()}
    names = [name for name in wire.CLIENT_AUTH_HEADERS if name in lower and name not in wire.HOP_BY_HOP and name != "cookie"]
    return {name: lower[name] for name in names if not any(text.startswith(tokens.PREFIX) for text in carried({name: lower[name]}))}
