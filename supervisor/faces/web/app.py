"""The application: features, static files, and what every request passes: names, site, session, scope.

`/events` is the one stream of events, `/static/` are files of ours. A page's frame is `PAGE`, what it shows `DATA`, what it does `ACT`.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File

from aiohttp import web
from aiohttp.typedefs import Handler as Asked
from aiohttp.typedefs import Middleware

from supervisor.core.errors import NightcrewError
from supervisor.faces.web import shell
from supervisor.faces.web.api import problems
from supervisor.faces.web.events import Hub
from supervisor.faces.web.feature import Feature, Handler, Page, Route
from supervisor.faces.web.guard import BODY_MAX, HEADERS, Access, Denied, Guard, Names
from supervisor.faces.web.sessions import Session, Sessions, Who

STATIC = File(__file__).parent / "static"
KEY_HEADER = "X-Nightcrew-Key"
COOKIE_S = 30 * 86400
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
    return problems.plain(status, why) if request.path.startswith("/api/") else web.json_response({"error": why}, status=status)


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
                return web.Response(status=turned.denied.status, text=shell.CLOSED, content_type="text/html")
            raise
        return await route.handler(request, who)

    app.router.add_route(route.method, route.path, answer)


def _framed(page: Page, pages: Sequence[Page], *, read_only: bool) -> Handler:
    text = shell.frame(page, pages, read_only=read_only)

    async def framed(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return web.Response(text=text, content_type="text/html")

    return framed


def _own(server: Server, doors: _Doors, hub: Hub) -> Sequence[Route]:
    async def enter(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        """From the address that holds the token to the first page."""
        session = await server.sessions.open(request.query.get("token", ""))
        if session is None:
            return web.Response(status=401, text=shell.CLOSED, content_type="text/html")
        response = web.Response(text=shell.entered(session.key), content_type="text/html")
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
    found = {}
    for file in STATIC.rglob("*"):
        if file.is_file():
            body = file.read_bytes()
            kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "text/plain"
            found[file.name] = (body, kind, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found
