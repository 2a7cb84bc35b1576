"""The page's server: what every request passes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import resource
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path as File

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler as Asked
from aiohttp.typedefs import Middleware
from aiohttp.web_protocol import RequestHandler

from supervisor.features.api import server as api_server
from supervisor.kernel.errors import NightcrewError
from supervisor.views.web.events import Feature, Handler, Hub, Page, Route
from supervisor.views.web.sessions import BODY_MAX, COOKIE_S, HEADERS, Access, Denied, Guard, Names, Session, Sessions, Who

# Shell
# -----
# The frame of every page: navigation, an empty middle, and the place where things are said. It holds nothing of the crew.


_FRAME = """<!doctype html>
<html lang="en" data-page="{name}"{read_only}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/web.css">
<script type="module" src="/static/{script}"></script>
</head>
<body>
<a class="skip" href="#main">To the content</a>
<header id="top">
<nav aria-label="Pages"><a class="brand" href="/">nightcrew</a>{nav}</nav>
<p id="link" role="status" aria-label="Connection"></p>
</header>
<main id="main" tabindex="-1"></main>
<div id="said" role="status" aria-live="polite"></div>
<noscript>This page needs JavaScript. nightcrew status and nightcrew top need none.</noscript>
</body>
</html>
"""
CLOSED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>nightcrew</title><link rel="icon" href="/static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/static/web.css"></head>
<body><main id="main" class="closed"><h1>nightcrew</h1>
<p>This browser has no session here. Open the address that <code>nightcrew web</code> prints: it holds the token.</p></main></body></html>
"""

_ENTERED = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>nightcrew</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<meta http-equiv="refresh" content="0;url=/#key={key}"></head><body></body></html>
"""


def entered(key: str) -> str:
    """On to the first page. The key stays in the fragment, which no server is sent. Not by a redirect: after one that another site began,
    a browser would keep a strict cookie back."""
    return _ENTERED.format(key=escape(key))


def frame(page: Page, pages: Sequence[Page], *, read_only: bool) -> str:
    """The page as it is served."""
    return _FRAME.format(
        name=escape(page.script.partition(".")[0]),
        read_only=" data-read-only" if read_only else "",
        title=escape(f"{page.title} - nightcrew" if page.title else "nightcrew"),
        script=escape(page.script),
        nav="".join(_link(one, page) for one in pages if one.nav),
    )


def _link(one: Page, shown: Page) -> str:
    here = ' aria-current="page"' if one.path == shown.path else ""
    return f'<a href="{escape(one.path)}"{here}>{escape(one.nav)}</a>'


# App
# ---
# The application: features, static files, and what every request passes: names, site, session, scope.
#
# `/events` is the one stream of events, `/static/` are files of ours. A page's frame is `PAGE`, what it shows `DATA`, what it does
# `ACT`.


STATIC = File(__file__).parent / "static"
KEY_HEADER = "X-Nightcrew-Key"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_STATUS = {2: 400, 3: 400, 4: 404, 5: 503, 6: 409, 7: 429, 8: 409, 124: 504}
"""Of an error's exit code."""
_NO_SESSION = Denied(401, "this browser has no session here: open the address that nightcrew web prints")
HUB: web.AppKey[Hub] = web.AppKey("hub", Hub)


@dataclass(frozen=True, slots=True)
class Server:
    """What the application is given beside its features."""

    names: Names
    sessions: Sessions
    read_only: bool = False


class _Turned(Exception):
    """A request that goes no further."""

    def __init__(self, denied: Denied) -> None:
        super().__init__(denied.why)
        self.denied = denied


def application(server: Server, features: Sequence[Feature]) -> web.Application:
    """Answers every request of a browser, or of a program."""
    hub = Hub({name: maker for feature in features for name, maker in feature.topics.items()})
    doors = _Doors(server)
    app = web.Application(client_max_size=BODY_MAX, middlewares=[_checks(server)])
    app[HUB] = hub
    pages = [page for feature in features for page in feature.pages]
    for page in pages:
        _add(app, doors, Route("GET", page.path, Access.PAGE, _framed(page, pages, read_only=server.read_only)))
    for route in (*_own(server, doors, hub), *(route for feature in features for route in feature.routes)):
        _add(app, doors, route)

    async def close(_: web.Application) -> None:
        hub.close()

    app.on_shutdown.append(close)
    return app


def _checks(server: Server) -> Middleware:
    guard = Guard(server.names)

    @web.middleware
    async def check(request: web.Request, handler: Asked) -> web.StreamResponse:
        """Every answer, also a refusal, has the headers."""
        try:
            denied = guard.check(request.method, request.headers)
            response = await handler(request) if denied is None else _refused(request, denied)
        except _Turned as turned:
            response = _refused(request, turned.denied)
        except NightcrewError as error:
            response = _said(request, _STATUS.get(error.exit_code, 500), error.line())
        except web.HTTPException as error:
            response = _said(request, error.status, error.reason)
            response.headers.update({name: error.headers[name] for name in ("Allow",) if name in error.headers})
        except web.RequestPayloadError:
            response = _refused(request, Denied(400, "the body is not what its headers say"))
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - whoever asks gets an answer with the headers; whoever serves sees where it came from
            traceback.print_exc()
            response = _refused(request, Denied(500, "the server failed on this request"))
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    return check


def _refused(request: web.Request, denied: Denied) -> web.Response:
    response = _said(request, denied.status, denied.why)
    response.force_close()
    return response


def _said(request: web.Request, status: int, why: str) -> web.Response:
    """What is wrong, to a page or to a program."""
    return api_server.plain(status, why) if request.path.startswith("/api/") else web.json_response({"error": why}, status=status)


class _Doors:
    """Whether a request may have the route that it names."""

    def __init__(self, server: Server) -> None:
        self._server, self._guard = server, Guard(server.names)
        self.cookie = f"nightcrew-{server.names.port}"

    async def pass_(self, request: web.Request, route: Route) -> Who | None:
        """Who asks. Raises _Turned."""
        denied = self._guard.check_site(route.access, request.headers)
        if denied is not None:
            raise _Turned(denied)
        if route.access is Access.BEARER and route.method != "GET" and self._server.read_only:
            raise _Turned(Denied(403, "this server only shows: it was started with --read-only"))
        if route.access in (Access.OPEN, Access.BEARER):
            return None
        cookie = request.cookies.get(self.cookie, "")
        who = await self._server.sessions.who(cookie)
        if who is None:
            raise _Turned(_NO_SESSION)
        if route.access is not Access.PAGE and not self._server.sessions.has_key(cookie, _key(request)):
            raise _Turned(Denied(401, "the key of this session is missing: open the address that nightcrew web prints again"))
        self._check_scope(route, who)
        return who

    def _check_scope(self, route: Route, who: Who) -> None:
        if route.access is Access.ACT and self._server.read_only:
            raise _Turned(Denied(403, "this server only shows: it was started with --read-only"))
        if not who.may(route.needs):
            raise _Turned(Denied(403, f"this token may not {route.needs}"))

    async def alive(self, request: web.Request) -> bool:
        """Whether its session still holds."""
        return await self._server.sessions.who(request.cookies.get(self.cookie, "")) is not None

    def give(self, response: web.StreamResponse, session: Session, *, secure: bool) -> None:
        """The cookie."""
        response.set_cookie(self.cookie, session.cookie, max_age=COOKIE_S, httponly=True, samesite="Strict", secure=secure, path="/")


def _key(request: web.Request) -> str:
    """An EventSource cannot send headers."""
    return request.headers.get(KEY_HEADER) or (request.query.get("key", "") if request.path == "/events" else "")


def _add(app: web.Application, doors: _Doors, route: Route) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            who = await doors.pass_(request, route)
        except _Turned as turned:
            if route.access is Access.PAGE:
                return web.Response(status=turned.denied.status, text=CLOSED, content_type="text/html")
            raise
        return await route.handler(request, who)

    app.router.add_route(route.method, route.path, answer)


def _framed(page: Page, pages: Sequence[Page], *, read_only: bool) -> Handler:
    text = frame(page, pages, read_only=read_only)

    async def framed(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return web.Response(text=text, content_type="text/html")

    return framed


def _own(server: Server, doors: _Doors, hub: Hub) -> Sequence[Route]:
    async def enter(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        """From the address that holds the token to the first page."""
        session = await server.sessions.open(request.query.get("token", ""))
        if session is None:
            return web.Response(status=401, text=CLOSED, content_type="text/html")
        response = web.Response(text=entered(session.key), content_type="text/html")
        doors.give(response, session, secure=request.headers.get("X-Forwarded-Proto") == "https")
        return response

    async def proof(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        """That this is the server of the session: a page asks before it sends the key to whoever answers at its address."""
        cookie, nonce = request.cookies.get(doors.cookie, ""), request.query.get("nonce", "")
        if await server.sessions.who(cookie) is None:
            raise _Turned(_NO_SESSION)
        if not re.fullmatch("[0-9a-f]{32}", nonce):
            raise _Turned(Denied(400, "not a nonce"))
        return web.json_response({"proof": server.sessions.proof(cookie, request.headers["Host"], nonce)})

    async def events(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return await hub.stream(request, lambda: doors.alive(request), HEADERS)

    return (
        Route("GET", "/enter", Access.OPEN, enter),
        Route("GET", "/data/proof", Access.OPEN, proof),
        Route("GET", "/events", Access.DATA, events),
        Route("GET", "/static/{name}", Access.OPEN, _static),
        Route("GET", "/favicon.ico", Access.OPEN, _icon),
    )


async def _static(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
    return _file(request, request.match_info["name"])


async def _icon(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
    """Of pages that name none: browsers ask for it, and say aloud when there is none."""
    return _file(request, "icon.svg")


def _file(request: web.Request, name: str) -> web.Response:
    found = _files().get(name)
    if found is None:
        raise web.HTTPNotFound
    body, kind, tag = found
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """By name: what it holds, its type, its tag. Read once: nothing that a browser names is ever opened."""
    bodies = {file.name: file.read_bytes() for file in STATIC.iterdir()}
    bodies["web.css"] = (STATIC.parents[1] / "base.css").read_bytes() + bodies["web.css"]
    tags = {name: f'"{hashlib.sha256(body).hexdigest()[:16]}"' for name, body in bodies.items()}
    return {name: (body, TYPES.get(File(name).suffix, "text/plain"), tags[name]) for name, body in bodies.items()}


# Connections
# -----------
# Who holds a connection and asks nothing with it is let go: a flood of silent connections keeps nobody out.
#
# Every program of this machine can connect, an agent in a sandbox with the host's network among them.


SILENT_S, CROWDED_S = 60.0, 1.0
"""How long a connection may be silent: before its first request, and between two; and when there are CROWD."""
CROWD = 300
LOOK_S = 0.5
FILES = 65536
"""Open files that are asked for, as far as the system allows."""


class Connections:
    """Of one server. `busy` is its middleware."""

    def __init__(self) -> None:
        self._busy = set[RequestHandler]()
        self._silent: dict[RequestHandler, float] = {}
        """Since when."""

    @property
    def busy(self) -> Middleware:
        """Notes which connections have a request under way."""

        @web.middleware
        async def note(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
            self._busy.add(request.protocol)
            try:
                return await handler(request)
            finally:
                self._busy.discard(request.protocol)
                self._silent.pop(request.protocol, None)

        return note

    async def watch(self, server: web.Server) -> None:
        """Let the silent ones go, until it is cancelled."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(LOOK_S)
            now = clock()
            self._silent = {one: self._silent.get(one, now) for one in server.connections if one not in self._busy}
            crowded = len(self._silent) > CROWD
            for one, since in self._silent.items():
                is_over = now - since > (CROWDED_S if crowded else SILENT_S)
                if is_over and one.transport is not None and (crowded or not _is_sent_to(one.transport)):
                    one.transport.abort()


def _is_sent_to(transport: asyncio.BaseTransport) -> bool:
    """Whether an answer is still on its way, to somebody slow."""
    return isinstance(transport, asyncio.WriteTransport) and transport.get_write_buffer_size() > 0


def more_files() -> None:
    """Let this process have as many open files as the system allows it, up to FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def logger() -> logging.Logger:
    """Of the server: without what strangers sent, which would fill it, and may hold a cookie with its key."""
    log = logging.getLogger("aiohttp.server")
    if not any(isinstance(one, _NotOfStrangers) for one in log.filters):
        log.addFilter(_NotOfStrangers())
    return log


class _NotOfStrangers(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)
