"""Every route of the API, its description, and the API as a feature of the server."""

from __future__ import annotations

import asyncio
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from supervisor import __version__
from supervisor.features.api import models as api_models
from supervisor.features.api import server as api_server
from supervisor.features.api import streams
from supervisor.features.api.acting import VerbDoors
from supervisor.features.api.rows import TokenBook
from supervisor.features.api.rules import Scope, Token
from supervisor.features.api.server import ACTS, TYPE, Api, Desk, Failed, Made, Pulse, Reader, answer, of_error, plain
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.format import duration
from supervisor.views.web.events import Feature, Handler, Route
from supervisor.views.web.sessions import Access, Who

# Operations
# ----------
# Every route of the API, once: what the server answers, and what its OpenAPI says, are made of this.


Handle = Callable[[Api, web.Request, Token], Awaitable[Any]]
BASE = "/api/v1"
TASK = f"{BASE}/tasks/{{run}}/{{name}}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One route."""

    name: str
    method: str
    path: str
    says: str
    scope: Scope | None
    """None: any token."""
    handle: Handle
    answers: type[BaseModel] | None
    """None: a stream of events."""
    query: type[BaseModel] = api_models.Nothing
    body: type[BaseModel] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Each with its words."""
    status: tuple[int, ...] = (200,)


def every(log: Handle) -> tuple[Operation, ...]:
    """All of them. `log` needs to know where logs lie."""
    resume = {"Last-Event-ID": "Go on after this event."}
    key = {api_server.KEY_HEADER: "The same key twice is one task, whatever was killed between."}
    return (
        Operation("submitTask", "POST", f"{BASE}/tasks", "Submit a task.", Scope.SUBMIT, api_server.submit, api_models.Task,
                  body=api_models.TaskRequest, headers=key, status=(201, 200)),
        Operation("listTasks", "GET", f"{BASE}/tasks", "List tasks, the newest first.", Scope.READ, api_server.list_all,
                  api_models.TaskPage, api_models.ListQuery),
        Operation("getTask", "GET", TASK, "Show a task.", Scope.READ, api_server.show, api_models.Task),
        Operation("waitForTask", "GET", f"{TASK}/wait", "Wait until a task is final, or the time is over.", Scope.READ, api_server.wait,
                  api_models.Task, api_models.WaitQuery),
        Operation("cancelTask", "POST", f"{TASK}/cancel", "End a task and everything that it started.", Scope.ACT, api_server.cancel,
                  api_models.Cancelled),
        Operation("getResult", "GET", f"{TASK}/result", "Show what a task left: branch, commits, stat, patch.", Scope.READ,
                  api_server.result, api_models.Result, api_models.ResultQuery),
        Operation("streamLog", "GET", f"{TASK}/log", "Stream what a task prints, until it has ended.", Scope.READ, log, None,
                  api_models.LogQuery, headers=resume),
        Operation("streamEvents", "GET", f"{BASE}/events", "Stream what happens to tasks.", Scope.READ, streams.events, None,
                  headers=resume),
        Operation("listRepositories", "GET", f"{BASE}/repositories", "List the repositories that the token reaches.", None,
                  api_server.repositories, api_models.Repositories),
        Operation("getCapacity", "GET", f"{BASE}/capacity", "Show how many agents run and wait.", Scope.READ, api_server.capacity,
                  api_models.Capacity),
        Operation("getToken", "GET", f"{BASE}/token", "Show what the token is.", None, api_server.who_am_i, api_models.WhoAmI),
    )  # fmt: skip


# Openapi
# -------
# The API's description, OpenAPI 3.1, made of its operations and models.


_REF = "#/components/schemas/{model}"
_FAILS = {
    "400": "The body is no JSON, or the request is not one that HTTP allows.",
    "401": "No token, or one that opens nothing.",
    "403": "The token has not the scope, or the request comes from a page of another site.",
    "404": "There is no such task, or it is none of the token's.",
    "409": "It was refused, or the key belongs to another request.",
    "413": "The body is too large.",
    "415": "The content type is not application/json.",
    "421": "The request names another host.",
    "422": "Something in the request is wrong; `errors` names each field.",
    "429": "Too many requests, or the quota is spent; `Retry-After` says when there is room.",
    "503": "No supervisor answers; `next` says what starts it.",
}
_EVENT_ID = r"^[0-9]{1,18}$"
_LOG_ID = r"^[0-9]{1,9}:[0-9]{1,18}$"


def document_openapi(operations: Iterable[Operation]) -> dict[str, Any]:
    """As JSON."""
    operations = tuple(operations)
    shown = [(one.answers, "serialization") for one in operations if one.answers is not None]
    taken = [(one.body, "validation") for one in operations if one.body is not None]
    _, found = models_json_schema([*dict.fromkeys([*taken, *shown, (api_models.Problem, "serialization")])], ref_template=_REF)  # type: ignore[list-item]
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "nightcrew", "version": __version__, "description": "Hand tasks over to the crew, and read what became of them."},
        "paths": paths,
        "components": {
            "schemas": found.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "Of `nightcrew token create`."}},
        },
        "security": [{"token": []}],
    }


def _operation(one: Operation) -> dict[str, Any]:
    scope = f" Needs the scope `{one.scope}`." if one.scope is not None else ""
    shape = {
        "operationId": one.name,
        "summary": one.says,
        "description": f"{one.says}{scope}",
        "parameters": [*_in_path(one), *_in_query(one.query), *_in_headers(one)],
        "responses": {**{str(status): _answer(one) for status in one.status}, **_failures()},
    }
    if one.body is not None:
        shape["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(one.body)}}}
    return shape


def _answer(one: Operation) -> dict[str, Any]:
    if one.answers is None:
        return {"description": one.says, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    return {"description": one.says, "content": {"application/json": {"schema": _ref(one.answers)}}}


def _failures() -> dict[str, Any]:
    content = {TYPE: {"schema": _ref(api_models.Problem)}}
    return {**{status: {"description": why, "content": content} for status, why in _FAILS.items()}}


def _ref(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REF.format(model=model.__name__)}


def _in_path(one: Operation) -> list[dict[str, Any]]:
    patterns = {"run": r"^[0-9]{4}-[a-z0-9]{4}$", "name": r"^[a-z0-9][a-z0-9_-]{0,31}$"}
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": patterns[name]}}
        for name in re.findall(r"{(\w+)}", one.path)
    ]


def _in_query(model: type[BaseModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    return [
        {"name": name, "in": "query", "required": False, "schema": _plain(shape), "description": shape.get("description", "")}
        for name, shape in schema.get("properties", {}).items()
    ]


def _plain(shape: dict[str, Any]) -> dict[str, Any]:
    """Without null: a parameter is there or not."""
    kept = [one for one in shape.get("anyOf", []) if one.get("type") != "null"]
    found = kept[0] if len(kept) == 1 else shape
    return {name: value for name, value in found.items() if name not in ("title", "description", "default")}


def _in_headers(one: Operation) -> list[dict[str, Any]]:
    log = one.name == "streamLog"
    schemas: dict[str, dict[str, Any]] = {
        api_server.KEY_HEADER: {"type": "string", "minLength": 1, "maxLength": api_server.KEY_MAX, "pattern": r"^[!-~]([ -~]*[!-~])?$"},
        "Last-Event-ID": {"type": "string", "pattern": _LOG_ID if log else _EVENT_ID},
    }
    return [
        {"name": name, "in": "header", "required": False, "schema": schemas[name], "description": says}
        for name, says in one.headers.items()
    ]


# Feature
# -------
# The API as a feature of the server.


BODY_S = 30.0


def feature(where: Home, doors: VerbDoors) -> Feature:
    """`where`: whose ledger and logs."""
    reader = Reader(where.ledger, where.archive)
    desk = Desk(TokenBook(where.ledger, time.monotonic, time.time), doors, time.monotonic)
    api = Api(reader, Pulse(reader), desk, doors, ThreadPoolExecutor(ACTS, "api-act"))

    async def log(api: Api, request: web.Request, token: Token) -> web.StreamResponse:
        return await streams.log(api, request, token, where)

    operations = every(log)
    document = document_openapi(operations)
    routes = [Route(one.method, one.path, Access.BEARER, _handler(api, one)) for one in operations]

    async def describe(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return web.json_response(document)

    return Feature(routes=(*routes, Route("GET", f"{BASE}/openapi.json", Access.OPEN, describe)))


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
        raise Failed(400, f"the body was not there within {duration(BODY_S)}") from None
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
