"""Which upstreams could serve a request, and under which name of the model."""

from __future__ import annotations

from collections.abc import Container
from fnmatch import fnmatchcase
from typing import NamedTuple

from supervisor.core.gateway.settings import GatewaySettings, Route, Upstream
from supervisor.core.gateway.types import Api


class Way(NamedTuple):
    """`upstreams` is empty when nobody serves the model. `as_model` is empty when its name stays."""

    upstreams: tuple[str, ...]
    as_model: str = ""


def way(settings: GatewaySettings, api: Api, model: str, usable: Container[str]) -> Way:
    """In the user's order. The first `[[route]]` that fits leads to its upstream, whatever models that one says it serves, and never
    elsewhere. `usable` are the names of upstreams that can be used now."""
    there = [upstream for upstream in settings.upstreams if upstream.api is api and upstream.name in usable]
    route = next((route for route in settings.routes if fnmatchcase(model, route.model) and _is_for(settings, route, api)), Route(""))
    if route.upstream:
        return Way(tuple(upstream.name for upstream in there if upstream.name == route.upstream), route.as_model)
    sent = route.as_model or model
    return Way(tuple(upstream.name for upstream in there if _serves(upstream, sent)), route.as_model)


def _is_for(settings: GatewaySettings, route: Route, api: Api) -> bool:
    """A route to an upstream of another API is none of this request's: nothing is translated."""
    return not route.upstream or any(upstream.name == route.upstream and upstream.api is api for upstream in settings.upstreams)


def _serves(upstream: Upstream, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in upstream.models)
