"""Which upstreams could serve a request, and under which name of the model."""

from __future__ import annotations

from collections.abc import Container, Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from supervisor.core.gateway.settings import GatewaySettings, Route, Upstream
from supervisor.core.gateway.types import Agent, Api
from supervisor.core.states import TaskClass


class Way(NamedTuple):
    """`upstreams` is empty when nobody serves the model. `as_model` is empty when its name stays."""

    upstreams: tuple[str, ...]
    as_model: str = ""
    fallback: Way | None = None
    """How a batch request may be answered in its place; `as_model` is its model."""


def way(settings: GatewaySettings, api: Api, model: str, usable: Container[str], agent: Agent) -> Way:
    """In the user's order. The first `[[route]]` that fits the model and the agent leads to its upstream, whatever models that one says it
    serves, and never elsewhere. `usable` are the names of upstreams that can be used now."""
    there = [upstream for upstream in settings.upstreams if upstream.api is api and upstream.name in usable]
    route = next((route for route in settings.routes if _fits(route, model, agent) and _is_for(settings, route, api)), Route(""))
    fallback = None
    if route.fallback and agent.task_class is TaskClass.BATCH and (names := _serving(there, route, route.fallback)):
        fallback = Way(names, route.fallback)
    return Way(_serving(there, route, route.as_model or model), route.as_model, fallback)


def _fits(route: Route, model: str, agent: Agent) -> bool:
    if route.task_class not in (None, agent.task_class) or route.size not in ("", agent.size):
        return False
    return fnmatchcase(model, route.model)


def _is_for(settings: GatewaySettings, route: Route, api: Api) -> bool:
    """A route to an upstream of another API is none of this request's: nothing is translated."""
    return not route.upstream or any(upstream.name == route.upstream and upstream.api is api for upstream in settings.upstreams)


def _serving(there: Iterable[Upstream], route: Route, model: str) -> tuple[str, ...]:
    return tuple(one.name for one in there if (one.name == route.upstream if route.upstream else _serves(one, model)))


def _serves(upstream: Upstream, model: str) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in upstream.models)
