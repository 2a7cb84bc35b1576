"""What each route does, once a token was admitted. Each answers with a model, or a response of its own."""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from supervisor.core import access
from supervisor.core.access import Token
from supervisor.core.errors import NightcrewError, NotFound
from supervisor.core.units import rfc3339
from supervisor.faces.web.api import models
from supervisor.faces.web.api.desk import Desk
from supervisor.faces.web.api.doors import Doors, Order
from supervisor.faces.web.api.problems import Failed, of_error, of_validation
from supervisor.faces.web.api.reading import Pulse, Reader
from supervisor.ledger import access as tokens
from supervisor.ledger import queries
from supervisor.ledger.queries import TaskView

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
KEY_HEADER = "Idempotency-Key"
KEY_MAX = 255
HELD_S = 0.5
"""A request that waits looks so often whether its token still holds."""
ACTS = 16
"""Submissions, and whatever else takes a while, at the same time."""


@dataclass(frozen=True, slots=True)
class Api:
    """What the handlers work with."""

    reader: Reader
    pulse: Pulse
    desk: Desk
    doors: Doors
    pool: ThreadPoolExecutor

    async def act(self, do: Callable[[], T]) -> T:
        """In a thread. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, do)


@dataclass(frozen=True, slots=True)
class Made:
    """A model with a status of its own."""

    body: BaseModel
    status: int
    location: str


async def submit(api: Api, request: web.Request, token: Token) -> Made:
    """Take a task, once for each key."""
    asked = _body(await request.read(), models.TaskRequest)
    key, digest = _key(request, token), _digest(asked)
    run, places = await api.reader.ask(lambda db: (_known(db, key, digest), tokens.places(db, token)))
    new = run is None
    if run is None:
        root = _root(places, asked.repository)
        await _check_after(api, token, asked)
        run = await _handed_over(api, Order(token, root, key, digest, asked))
    view = await api.reader.ask_of(run, lambda db: queries.of_run(db, str(run))[0])
    return Made(task(view), 201 if new else 200, f"/api/v1/tasks/{view.id}")


async def _handed_over(api: Api, order: Order) -> str:
    try:
        return await api.act(lambda: api.doors.submit(order))
    except NightcrewError as error:
        failed = of_error(error, access.wait_s(await _as_it_is(api, order.token), 1, time.time()))
        if isinstance(error, NotFound) and error.on == order.request.base:
            failed.problem.errors = [models.Wrong(field="base", why=error.why)]
        raise failed from None


async def _as_it_is(api: Api, token: Token) -> Token:
    """A token with its quota as it is now: requests stand on what was read a moment ago."""
    return await api.reader.ask(lambda db: tokens.held(db).get(token.id, token))


def _known(db: Any, key: str, digest: str) -> str | None:
    run = tokens.run_of_key(db, key)
    if run is not None:
        tokens.refuse_another(run, digest, tokens.digest_of(db, run))
    return run


def _root(places: dict[str, str], asked: str | None) -> str:
    """The repository that a request means. Raises Failed."""
    if asked is None and len(places) == 1:
        return next(iter(places.values()))
    found = [root for project, root in places.items() if asked in (project, PurePath(root).name)]
    if len(found) != 1:
        known = ", ".join(sorted(PurePath(root).name for root in places.values())) or "none"
        why = f"this token reaches: {known}" if not found else "several have this name: give the id"
        raise Failed(422, "no such repository", errors=[models.Wrong(field="repository", why=why)])
    return found[0]


async def _check_after(api: Api, token: Token, asked: models.TaskRequest) -> None:
    for name in asked.after:
        try:
            await _view(api, token, name)
        except Failed:
            raise Failed(422, "no such task", errors=[models.Wrong(field="after", why=f"there is no task {name}")]) from None


def _key(request: web.Request, token: Token) -> str:
    given = request.headers.getall(KEY_HEADER, [])
    if not given:
        return f"api {token.id} {secrets.token_hex(16)}"
    text = given[0]
    if len(given) > 1 or not 0 < len(text) <= KEY_MAX or not (text.isascii() and text.isprintable()):
        raise Failed(422, "not a key", errors=[models.Wrong(field=KEY_HEADER, why=f"1 to {KEY_MAX} printable characters of ASCII")])
    return f"api {token.id} key {text}"


def _digest(asked: BaseModel) -> str:
    return hashlib.sha256(json.dumps(asked.model_dump(exclude_unset=True), sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def _body(data: bytes, model: type[M]) -> M:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise of_validation(error, "body") from None


def query(request: web.Request, model: type[M]) -> M:
    """The query, checked; of one that is given twice. Raises Failed."""
    try:
        if len({*request.query}) != len(request.query):
            raise Failed(422, "a parameter is there twice")
        return model.model_validate(dict(request.query))
    except ValidationError as error:
        raise of_validation(error, "query") from None


def named(request: web.Request) -> str:
    """The id in the address."""
    return f"{request.match_info['run']}/{request.match_info['name']}"


async def _view(api: Api, token: Token, name: str) -> TaskView:
    """A task that the token may know of. Raises Failed: 404, the same for one that is not there."""

    def look(db: Any) -> TaskView | None:
        try:
            view = queries.one(db, name)
        except NotFound:
            return None
        return view if token.sees(view.project, tokens.owner(db, view.run)) else None

    found = await api.reader.ask_of(name.partition("/")[0], look) if name.isprintable() else None
    if found is None:
        raise Failed(404, "there is no such task")
    return found


async def view_of(api: Api, request: web.Request, token: Token) -> TaskView:
    """The task in the address. Raises Failed."""
    return await _view(api, token, named(request))


async def show(api: Api, request: web.Request, token: Token) -> models.Task:
    """One task."""
    return task(await view_of(api, request, token))


async def list_all(api: Api, request: web.Request, token: Token) -> models.TaskPage:
    """A page of the tasks that it may know of."""
    asked = query(request, models.ListQuery)

    def look(db: Any) -> tuple[list[TaskView], int]:
        names, more = tokens.visible(db, token, int(asked.cursor or 0), asked.limit, asked.state or "")
        views = {view.id: view for view in queries.several(db, names)}
        return [views[name] for name in names if name in views], more

    views, more = await api.reader.ask(look)
    return models.TaskPage(tasks=[task(view) for view in views], next=str(more) if more else None)


async def wait(api: Api, request: web.Request, token: Token) -> models.Task:
    """A task once it is final, or as it is when the time is over."""
    asked = query(request, models.WaitQuery)
    ends_at = asyncio.get_running_loop().time() + asked.timeout
    async with api.desk.held_open(token):
        while True:
            seen = api.pulse.seen
            view = await view_of(api, request, token)
            left = ends_at - asyncio.get_running_loop().time()
            if view.final or left <= 0:
                return task(view)
            await api.pulse.next(seen, min(left, HELD_S))
            if not await api.desk.still_holds(token):
                raise Failed(401, "this token was revoked")


async def cancel(api: Api, request: web.Request, token: Token) -> models.Cancelled:
    """Ask a task to end."""
    if await request.read() not in (b"", b"{}"):
        raise Failed(422, "this takes no body", errors=[models.Wrong(field="body", why="leave it empty")])
    view = await view_of(api, request, token)
    return models.Cancelled(task=view.id, asked=await api.act(lambda: api.doors.cancel(view.id)))


async def result(api: Api, request: web.Request, token: Token) -> models.Result:
    """What a task left, or has by now."""
    asked = query(request, models.ResultQuery)
    view = await view_of(api, request, token)
    found = await api.act(lambda: api.doors.result(view, patch=asked.patch == "true"))
    commits = (view.result or {}).get("commits") or 0
    return models.Result(task=view.id, state=str(view.state), branch=view.branch, commits=commits, **found)  # type: ignore[arg-type]  # a word


async def repositories(api: Api, request: web.Request, token: Token) -> models.Repositories:
    """Those that the token reaches."""
    query(request, models.Nothing)
    places = await api.reader.ask(lambda db: tokens.places(db, token))
    return models.Repositories(repositories=[models.Repository(id=one, name=PurePath(root).name) for one, root in places.items()])


async def capacity(api: Api, request: web.Request, token: Token) -> models.Capacity:  # noqa: ARG001 - every handler is called so
    """How many agents run and wait."""
    query(request, models.Nothing)
    shape = await api.act(api.doors.capacity)
    return models.Capacity(**{name: shape[name] for name in models.Capacity.model_fields})


async def who_am_i(api: Api, request: web.Request, token: Token) -> models.WhoAmI:
    """What the token is."""
    query(request, models.Nothing)
    token = await _as_it_is(api, token)
    left = int(token.quota - access.spent(token, time.time())) if token.quota else None
    return models.WhoAmI(
        id=token.id, name=token.name, user=token.user, scopes=sorted(token.scopes), rate=token.rate, quota=token.quota, left=left,
        expires=rfc3339(token.expires),
    )  # fmt: skip


_AS_THEY_ARE = ("id", "run", "name", "title", "kind", "final", "reason", "priority", "end", "branch")


def task(view: TaskView) -> models.Task:
    """As it is shown. Where it lies on this machine is nobody's business."""
    shape: dict[str, Any] = {name: getattr(view, name) for name in _AS_THEY_ARE}
    moments = {"submitted": view.submitted, "started": view.started or view.created, "ended": view.ended}
    return models.Task(
        **shape,
        **{name: rfc3339(at) for name, at in moments.items()},  # type: ignore[arg-type]  # these are texts
        state=str(view.state),  # type: ignore[arg-type]  # one of its words
        task_class=view.task_class,
        repository=view.project,
        attempt=view.epoch,
        cause=view.end_cause or "",
    )
