"""What a page, or an API, brings to the server: frames of pages, routes, and topics of events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web

from supervisor.core.access import Scope
from supervisor.faces.web.guard import Access
from supervisor.faces.web.sessions import Who

Handler = Callable[[web.Request, Who | None], Awaitable[web.StreamResponse]]
"""Answers a request; who asks is None where the access is OPEN or BEARER. May raise NightcrewError, which becomes an answer."""
State = Mapping[str, Any]
"""JSON by keys of the topic's own. What changes is sent key by key, so a key holds what changes together."""


@dataclass(frozen=True, slots=True)
class Page:
    """The frame of a page. All that it shows its script asks for."""

    path: str
    """As aiohttp writes routes: `/agent/{task:.+}`."""
    title: str
    script: str
    """A file of `static/`, a module."""
    nav: str = ""
    """What the navigation calls it; empty: it is not there."""


@dataclass(frozen=True, slots=True)
class Route:
    """One address of the server."""

    method: str
    path: str
    access: Access
    handler: Handler
    scope: Scope | None = None
    """What its token has to be good for; None: read, and to act for `Access.ACT`."""

    @property
    def needs(self) -> Scope:
        """The scope that is asked for."""
        return self.scope or (Scope.ACT if self.access is Access.ACT else Scope.READ)


class Topic(Protocol):
    """Something that is looked at again and again, for all browsers that show it."""

    pause_s: float
    """Least seconds between two looks."""

    def look(self) -> State | None:
        """How it is now, or None when it is as before. Called again and again by one thread of its own; may wait for a change, at most a
        second. Never raises: what is wrong is said in the state."""

    def close(self) -> None:
        """Nobody looks any more; in the same thread."""


@dataclass(frozen=True, slots=True)
class Feature:
    """Everything that one file of pages brings."""

    pages: Sequence[Page] = ()
    routes: Sequence[Route] = ()
    topics: Mapping[str, Callable[[str], Topic]] = field(default_factory=dict)
    """By the first word of their names; what stands after its colon is given. Raises NightcrewError for a name that means nothing."""
