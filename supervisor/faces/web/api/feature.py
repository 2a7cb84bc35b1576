"""The API as a feature of the server."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from supervisor.core.access import Token
from supervisor.core.errors import NightcrewError
from supervisor.faces.access import TokenBook
from supervisor.faces.web.api import openapi, streams
from supervisor.faces.web.api.desk import Desk
from supervisor.faces.web.api.doors import Doors
from supervisor.faces.web.api.handlers import ACTS, Api, Made
from supervisor.faces.web.api.operations import BASE, Operation, every
from supervisor.faces.web.api.page import page
from supervisor.faces.web.api.problems import Failed, answer, of_error, plain
from supervisor.faces.web.api.reading import Pulse, Reader
from supervisor.faces.web.feature import Feature, Handler, Route
from supervisor.faces.web.guard import Access
from supervisor.faces.web.sessions import Who
from supervisor.host.paths import Home

BODY_S = 30.0


def feature(where: Home, doors: Doors) -> Feature:
    """`where`: whose ledger and logs."""
    reader = Reader(where.ledger, where.archive)
    desk = Desk(TokenBook(where.ledger, time.monotonic, time.time), doors, time.monotonic)
    api = Api(reader, Pulse(reader), desk, doors, ThreadPoolExecutor(ACTS, "api-act"))

    async def log(api: Api, request: web.Request, token: Token) -> web.StreamResponse:
        return await streams.log(api, request, token, where)

    operations = every(log)
    document = openapi.document(operations)
    routes = [Route(one.method, one.path, Access.BEARER, _handler(api, one)) for one in operations]
    described = (
        Route("GET", f"{BASE}/openapi.json", Access.OPEN, _fixed(json.dumps(document), "application/json")),
        Route("GET", "/api", Access.OPEN, _fixed(page(document), "text/html")),
    )
    return Feature(routes=(*routes, *described))


def _fixed(text: str, kind: str) -> Handler:
    async def handle(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return web.Response(text=text, content_type=kind)

    return handle


def _handler(api: Api, operation: Operation) -> Handler:
    async def handle(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a token says who
        return await _failing_well(lambda: _answered(api, operation, request))

    return handle


async def _answered(api: Api, operation: Operation, request: web.Request) -> web.StreamResponse:
    token = await api.desk.admit(request, operation.scope)
    try:
        async with asyncio.timeout(BODY_S):
            await request.read()
    except TimeoutError:
        raise Failed(400, f"the body was not there within {BODY_S:.0f} s") from None
    made: Any = await operation.handle(api, request, token)
    if isinstance(made, web.StreamResponse):
        return made
    if isinstance(made, Made):
        return _json(made.body, made.status, {"Location": made.location})
    return _json(made, 200, {})


def _json(body: BaseModel, status: int, headers: dict[str, str]) -> web.Response:
    return web.Response(status=status, text=body.model_dump_json(by_alias=True), content_type="application/json", headers=headers)


async def _failing_well(work: Callable[[], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
    """Every failure as a problem. What no handler foresaw is the server's to say."""
    try:
        return await work()
    except Failed as failed:
        return answer(failed)
    except NightcrewError as error:
        return answer(of_error(error))
    except (web.HTTPException, web.RequestPayloadError):
        raise
    except Exception:  # noqa: BLE001 - a program gets a problem for each failure; whoever serves sees where it came from
        traceback.print_exc()
        return plain(500, "the server failed on this request")
