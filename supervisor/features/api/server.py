"""The task API: what each route does once a token was admitted."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import secrets
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path, PurePath
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from supervisor.features.api import models as api_models
from supervisor.features.api import rows as api_rows
from supervisor.features.api import rules as api_rules
from supervisor.features.api.acting import VerbDoors
from supervisor.features.api.models import Order, Problem, Wrong
from supervisor.features.api.rows import TokenBook
from supervisor.features.api.rules import Kind, Scope, Token
from supervisor.gateway.admission.bucket import Bucket
from supervisor.kernel.errors import (
    BudgetSpent,
    ConfigError,
    DiskFull,
    KeyTaken,
    LedgerError,
    NightcrewError,
    NotFound,
    NotRunning,
    Refused,
    TimedOut,
    TokenRefused,
    ToolMissing,
    UsageError,
    one_line,
)
from supervisor.kernel.format import rfc3339
from supervisor.store import archive, journal, queries, sqlite
from supervisor.store.queries import TaskView

# Problems
# --------
# Errors as `application/problem+json`.


TYPE = "application/problem+json"
_STATUS: tuple[tuple[type[NightcrewError], int], ...] = (
    (TokenRefused, 401), (KeyTaken, 409), (BudgetSpent, 429), (NotRunning, 503), (TimedOut, 503), (DiskFull, 503), (LedgerError, 503),
    (UsageError, 422), (ConfigError, 422), (ToolMissing, 422), (NotFound, 422), (Refused, 409),
)  # fmt: skip
"""The first that fits. What a request names and is not there is a mistake in the request: a task that is not there never comes so far."""
RETRY_S = 2
"""When to ask again while no supervisor answers."""
SHOWN = 20
"""Mistakes that one answer names."""


class Failed(Exception):
    """A request that goes no further, with its answer."""

    def __init__(
        self, status: int, detail: str, *, errors: list[Wrong] | None = None, retry_s: float | None = None, hint: str = ""
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, errors=errors or [], next=hint)
        self.retry_s = retry_s


def answer(failed: Failed) -> web.Response:
    """What goes over the wire."""
    headers = {} if failed.retry_s is None else {"Retry-After": str(max(1, math.ceil(min(failed.retry_s, 86400.0))))}
    if failed.problem.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="nightcrew"'
    text = failed.problem.model_dump_json(exclude_defaults=True)
    return web.Response(status=failed.problem.status, text=text, content_type=TYPE, headers=headers)


def plain(status: int, detail: str) -> web.Response:
    """A refusal that needs no more words."""
    return answer(Failed(status, detail))


def of_error(error: NightcrewError, wait_s: float | None = None) -> Failed:
    """What an error of ours is over HTTP. `wait_s`: when there is room again, of one that says so."""
    status = next((number for cls, number in _STATUS if isinstance(error, cls)), 500)
    detail = one_line(f"{error.what} {error.on}".strip() + (f": {error.why}" if error.why else ""))
    errors = [Wrong(field=_field(error.on), why=one_line(error.why))] if isinstance(error, UsageError) and error.on else []
    retry_s = wait_s if isinstance(error, BudgetSpent) else RETRY_S if status == 503 else None
    failed = Failed(status, detail, errors=errors, retry_s=retry_s)
    if status == 503:  # what to type is for who sits at this machine, and names paths there: only when nothing works without it
        failed.problem.kept, failed.problem.next = one_line(error.kept), one_line(error.hint)
    return failed


def _field(on: str) -> str:
    return one_line(on.removeprefix("--").replace("task_class", "class"))


def _path(loc: tuple[int | str, ...]) -> str:
    """Without the names that the alternatives of a type have."""
    return ".".join(str(part) for part in (*loc[:1], *(one for one in loc[1:] if isinstance(one, int))))


def of_validation(error: ValidationError, where: str) -> Failed:
    """What is wrong with a body or a query; text that is no JSON at all is 400."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    status = 400 if any(one["type"] == "json_invalid" for one in found) else 422
    errors = [Wrong(field=_path(one["loc"]) or where, why=one_line(one["msg"])) for one in found[:SHOWN]]
    return Failed(status, f"the {where} is not as it should be", errors=errors)


# Desk
# ----
# Whose token a request carries, and whether it may do what it asks now: scope, rate, and how many streams it has.


STREAMS_MAX, STREAMS_EACH = 256, 16
"""Requests that are held open: of all tokens, and of one."""
NOTED_S = 60.0
"""A token that is used all the time is noted so often."""
_NO_TOKEN = "send the token of nightcrew token create as Authorization: Bearer"  # noqa: S105 - words


class Desk:
    """One server's. It belongs to one event loop."""

    def __init__(self, book: TokenBook, doors: VerbDoors, now: Callable[[], float]) -> None:
        self._book, self._doors, self._now = book, doors, now
        self._buckets: dict[str, Bucket] = {}
        self._noted: dict[str, float] = {}
        self._open: Counter[str] = Counter()
        self._notes: set[asyncio.Task[None]] = set()

    async def admit(self, request: web.Request, scope: Scope | None) -> Token:
        """The token of a request that may go on. Raises Failed: 401, 403, 429, 503."""
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            raise Failed(403, "requests of other pages are refused")
        token = await self._verified(request)
        bucket = self._buckets.setdefault(token.id, api_rules.bucket(token, self._now()))
        if wait := bucket.wait_s(1.0, self._now()):
            raise Failed(429, f"this token may ask {token.rate:g} times a second", retry_s=wait)
        bucket.take(1.0, self._now())
        if scope is not None and not token.may(scope):
            raise Failed(403, f"this token has not the scope {scope}")
        self._note(token.id)
        return token

    async def _verified(self, request: web.Request) -> Token:
        given = request.headers.getall("Authorization", [])
        scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.lower() != "bearer":
            raise Failed(401, _NO_TOKEN)
        at_once = self._book.knows(text.strip())
        token = await self._asked(lambda: self._book.verify(text.strip(), Kind.API), at_once=at_once)
        if token is None:
            raise Failed(401, "this token opens nothing: it is wrong, was revoked, or its time is over")
        return token

    async def _asked(self, ask: Callable[[], Token | None], *, at_once: bool = False) -> Token | None:
        try:
            return ask() if at_once else await asyncio.to_thread(ask)
        except LedgerError as error:
            raise of_error(error) from None

    async def still_holds(self, token: Token) -> bool:
        """Whether a request that is held open may go on."""
        with contextlib.suppress(Failed):
            return await self._asked(lambda: self._book.holder(token.id, Kind.API)) is not None
        return True  # nobody can tell now

    @contextlib.asynccontextmanager
    async def held_open(self, token: Token) -> AsyncIterator[None]:
        """One more request of this token that is held open. Raises Failed: 429."""
        if self._open[token.id] >= STREAMS_EACH or self._open.total() >= STREAMS_MAX:
            raise Failed(429, f"a token may have {STREAMS_EACH} requests that wait", retry_s=1.0)
        self._open[token.id] += 1
        try:
            yield
        finally:
            self._open[token.id] -= 1
            if not self._open[token.id]:
                del self._open[token.id]

    def _note(self, token: str) -> None:
        if self._now() - self._noted.get(token, -NOTED_S) < NOTED_S:
            return
        self._noted[token] = self._now()
        task = asyncio.get_running_loop().create_task(self._noting(token))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def _noting(self, token: str) -> None:
        with contextlib.suppress(NightcrewError):  # it is noted next time
            await asyncio.to_thread(self._doors.used, token)


# Reading
# -------
# The ledger, read in threads of its own, and the one look that all who wait share.


T = TypeVar("T")
THREADS = 4
LOOK_S = 0.1
"""Between two looks for those who wait."""


class Reader:
    """Use it from one event loop; `close` it."""

    def __init__(self, ledger: Path, archived: Path) -> None:
        self._path, self._archive = ledger, archived
        self._pool = ThreadPoolExecutor(THREADS, "api-read")
        self._mine = threading.local()

    async def ask(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """What `look` finds in the ledger. Raises LedgerError, and what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._asked, look)

    async def ask_of(self, run: str, look: Callable[[sqlite3.Connection], T]) -> T:
        """The same of a run that may be archived."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._asked_of, run, look)

    def _asked(self, look: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return look(self._db())
        except LedgerError:  # the file may have been replaced, or migrated by a newer supervisor: look at it afresh, once
            self._drop()
            return look(self._db())

    def _asked_of(self, run: str, look: Callable[[sqlite3.Connection], T]) -> T:
        if self._asked(lambda db: archive.stays(db, run)):
            return self._asked(look)
        with contextlib.closing(archive.reader(self._path, self._archive, run)) as db:
            return look(db)

    def _db(self) -> sqlite3.Connection:
        known: tuple[sqlite3.Connection, tuple[int, int]] | None = getattr(self._mine, "known", None)
        if known is None:
            known = self._mine.known = sqlite.connect_readonly(self._path), sqlite.file_identity(self._path)
        sqlite.check_same_file(self._path, known[1])
        return known[0]

    def _drop(self) -> None:
        known = getattr(self._mine, "known", None)
        if known is not None:
            self._mine.known = None
            known[0].close()

    def close(self) -> None:
        """Nothing is asked any more."""
        self._pool.shutdown(wait=False)


class Pulse:
    """Wakes who waits for something to happen in the ledger: one look for all of them, and none while nobody waits."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._beat = asyncio.Event()
        self._waiting = 0
        self._looking: asyncio.Task[None] | None = None
        self.seen = -1
        """What has happened, as a number: take it before you look, and give it to `next` when there was nothing for you."""

    async def next(self, seen: int, timeout_s: float) -> None:
        """Until more has happened than was `seen`, or the time is over."""
        self._waiting += 1
        try:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(self._look())
            with contextlib.suppress(TimeoutError):
                if self.seen == seen:
                    await asyncio.wait_for(self._beat.wait(), timeout_s)
        finally:
            self._waiting -= 1

    async def _look(self) -> None:
        while self._waiting:
            with contextlib.suppress(LedgerError):  # whoever is woken asks again, and meets it
                newest = await self._reader.ask(journal.newest_entry)
                if newest != self.seen:
                    self.seen = newest
                    self._beat.set()
                    self._beat = asyncio.Event()
            await asyncio.sleep(LOOK_S)


# Handlers
# --------
# What each route does, once a token was admitted. Each answers with a model, or a response of its own.


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
    doors: VerbDoors
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
    asked = _body(await request.read(), api_models.TaskRequest)
    key, digest = _key(request, token), _digest(asked)
    run, places = await api.reader.ask(lambda db: (_known(db, key, digest), api_rows.places(db, token)))
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
        failed = of_error(error, api_rules.wait_s(await _as_it_is(api, order.token), 1, time.time()))
        if isinstance(error, NotFound) and error.on == order.request.base:
            failed.problem.errors = [api_models.Wrong(field="base", why=error.why)]
        raise failed from None


async def _as_it_is(api: Api, token: Token) -> Token:
    """A token with its quota as it is now: requests stand on what was read a moment ago."""
    return await api.reader.ask(lambda db: api_rows.held(db).get(token.id, token))


def _known(db: Any, key: str, digest: str) -> str | None:
    run = api_rows.run_of_key(db, key)
    if run is not None:
        queries.refuse_another(run, digest, queries.digest_of(db, run))
    return run


def _root(places: dict[str, str], asked: str | None) -> str:
    """The repository that a request means. Raises Failed."""
    if asked is None and len(places) == 1:
        return next(iter(places.values()))
    found = [root for project, root in places.items() if asked in (project, PurePath(root).name)]
    if len(found) != 1:
        known = ", ".join(sorted(PurePath(root).name for root in places.values())) or "none"
        why = f"this token reaches: {known}" if not found else "several have this name: give the id"
        raise Failed(422, "no such repository", errors=[api_models.Wrong(field="repository", why=why)])
    return found[0]


async def _check_after(api: Api, token: Token, asked: api_models.TaskRequest) -> None:
    for name in asked.after:
        try:
            await _view(api, token, name)
        except Failed:
            raise Failed(422, "no such task", errors=[api_models.Wrong(field="after", why=f"there is no task {name}")]) from None


def _key(request: web.Request, token: Token) -> str:
    given = request.headers.getall(KEY_HEADER, [])
    if not given:
        return f"api {token.id} {secrets.token_hex(16)}"
    text = given[0]
    if len(given) > 1 or not 0 < len(text) <= KEY_MAX or not (text.isascii() and text.isprintable()):
        raise Failed(422, "not a key", errors=[api_models.Wrong(field=KEY_HEADER, why=f"1 to {KEY_MAX} printable characters of ASCII")])
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
        return view if token.sees(view.project, api_rows.owner(db, view.run)) else None

    found = await api.reader.ask_of(name.partition("/")[0], look) if name.isprintable() else None
    if found is None:
        raise Failed(404, "there is no such task")
    return found


async def view_of(api: Api, request: web.Request, token: Token) -> TaskView:
    """The task in the address. Raises Failed."""
    return await _view(api, token, named(request))


async def show(api: Api, request: web.Request, token: Token) -> api_models.Task:
    """One task."""
    return task(await view_of(api, request, token))


async def list_all(api: Api, request: web.Request, token: Token) -> api_models.TaskPage:
    """A page of the tasks that it may know of."""
    asked = query(request, api_models.ListQuery)

    def look(db: Any) -> tuple[list[TaskView], int]:
        names, more = api_rows.visible(db, token, int(asked.cursor or 0), asked.limit, asked.state or "")
        views = {view.id: view for view in queries.several(db, names)}
        return [views[name] for name in names if name in views], more

    views, more = await api.reader.ask(look)
    return api_models.TaskPage(tasks=[task(view) for view in views], next=str(more) if more else None)


async def wait(api: Api, request: web.Request, token: Token) -> api_models.Task:
    """A task once it is final, or as it is when the time is over."""
    asked = query(request, api_models.WaitQuery)
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


async def cancel(api: Api, request: web.Request, token: Token) -> api_models.Cancelled:
    """Ask a task to end."""
    if await request.read() not in (b"", b"{}"):
        raise Failed(422, "this takes no body", errors=[api_models.Wrong(field="body", why="leave it empty")])
    view = await view_of(api, request, token)
    return api_models.Cancelled(task=view.id, asked=await api.act(lambda: api.doors.cancel(view.id)))


async def result(api: Api, request: web.Request, token: Token) -> api_models.Result:
    """What a task left, or has by now."""
    asked = query(request, api_models.ResultQuery)
    view = await view_of(api, request, token)
    found = await api.act(lambda: api.doors.result(view, patch=asked.patch == "true"))
    commits = (view.result or {}).get("commits") or 0
    return api_models.Result(task=view.id, state=str(view.state), branch=view.branch, commits=commits, **found)  # type: ignore[arg-type]  # a word


async def repositories(api: Api, request: web.Request, token: Token) -> api_models.Repositories:
    """Those that the token reaches."""
    query(request, api_models.Nothing)
    places = await api.reader.ask(lambda db: api_rows.places(db, token))
    return api_models.Repositories(repositories=[api_models.Repository(id=one, name=PurePath(root).name) for one, root in places.items()])


async def capacity(api: Api, request: web.Request, token: Token) -> api_models.Capacity:  # noqa: ARG001 - every handler is called so
    """How many agents run and wait."""
    query(request, api_models.Nothing)
    shape = await api.act(api.doors.capacity)
    return api_models.Capacity(**{name: shape[name] for name in api_models.Capacity.model_fields})


async def who_am_i(api: Api, request: web.Request, token: Token) -> api_models.WhoAmI:
    """What the token is."""
    query(request, api_models.Nothing)
    token = await _as_it_is(api, token)
    left = int(token.quota - api_rules.spent(token, time.time())) if token.quota else None
    return api_models.WhoAmI(
        id=token.id, name=token.name, user=token.user, scopes=sorted(token.scopes), rate=token.rate, quota=token.quota, left=left,
        expires=rfc3339(token.expires),
    )  # fmt: skip


_AS_THEY_ARE = ("id", "run", "name", "title", "kind", "final", "reason", "priority", "end", "branch")


def task(view: TaskView) -> api_models.Task:
    """As it is shown. Where it lies on this machine is nobody's business."""
    shape: dict[str, Any] = {name: getattr(view, name) for name in _AS_THEY_ARE}
    moments = {"submitted": view.submitted, "started": view.started or view.created, "ended": view.ended}
    return api_models.Task(
        **shape,
        **{name: rfc3339(at) for name, at in moments.items()},  # type: ignore[arg-type]  # these are texts
        state=str(view.state),  # type: ignore[arg-type]  # one of its words
        task_class=view.task_class,
        repository=view.project,
        attempt=view.epoch,
        cause=view.end_cause or "",
    )
