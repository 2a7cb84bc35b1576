"""A client of the task API, for CI jobs and scripts: `Client`, and `AsyncClient` with the same methods.

    from nightcrew.client import Client

    with Client("http://127.0.0.1:8421", token) as crew:
        task = crew.submit(command="make test", key="build 17")
        task = crew.wait(task.id)
        print(task.state, crew.result(task.id).stat)

What was not answered is asked again, for `patience_s` in all: each request can be repeated, a submission because of its key. Errors are
`ApiError`, which has what the server said. Only the standard library is needed, and aiohttp by `AsyncClient`. docs/api.md has every route.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

if TYPE_CHECKING:
    import aiohttp

__all__ = ["ApiError", "AsyncClient", "Capacity", "Client", "Result", "Task", "Unreachable"]

BASE = "/api/v1"
ASK_S = 60.0
"""Seconds that one answer may take, beyond what it was asked to wait."""
WAIT_S = 30.0
"""One question of `wait`; it asks again."""
AGAIN = frozenset({429, 502, 503, 504})
FIRST_S, LONGEST_S = 0.2, 5.0
"""Between two tries."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Task:
    """One task, as it was when it was asked for. Moments are RFC 3339."""

    id: str
    name: str
    title: str
    repository: str
    kind: str
    state: str
    final: bool
    """It will not change by itself any more."""
    reason: str
    attempt: int
    submitted: str | None = None
    started: str | None = None
    ended: str | None = None
    end: str | None = None
    cause: str = ""
    branch: str | None = None

    @property
    def is_done(self) -> bool:
        """It ended well."""
        return self.state == "done"


@dataclass(frozen=True, slots=True)
class Result:
    """What a task left."""

    task: str
    state: str
    branch: str | None
    base: str | None
    tip: str | None
    commits: int
    stat: str
    patch: str | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many agents run and wait."""

    slots: int
    living: int
    waiting: int
    predicted_wait_s: float | None


class ApiError(Exception):
    """The server refused. `status` is that of HTTP; `errors` names fields, each with `field` and `why`."""

    def __init__(self, status: int, problem: Mapping[str, Any], retry_s: float | None = None) -> None:
        said = "; ".join(f"{one.get('field')}: {one.get('why')}" for one in problem.get("errors", []))
        super().__init__(f"{status}: {problem.get('detail') or problem.get('title', '')}{f' ({said})' if said else ''}")
        self.status = status
        self.detail = str(problem.get("detail", ""))
        self.next = str(problem.get("next", ""))
        self.errors: list[dict[str, str]] = list(problem.get("errors", []))
        self.retry_s = retry_s


class Unreachable(Exception):
    """No server answered in time."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One request; each can be repeated."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    takes_s: float = 0.0
    """How long it may be held open."""

    @property
    def data(self) -> bytes | None:
        if self.method != "POST":
            return None
        return b"" if self.body is None else json.dumps(self.body).encode()


class _Patience:
    """When to try again, and when no more."""

    def __init__(self, patience_s: float) -> None:
        self._ends_at = time.monotonic() + patience_s
        self._pause_s = FIRST_S

    def pause_s(self, error: Exception) -> float:
        """Seconds until the next try. Raises, when it is no use or the time is over, `error` where the server said it, else Unreachable."""
        pause_s = self._pause_s
        if isinstance(error, ApiError):
            if error.status not in AGAIN:
                raise error
            pause_s = max(pause_s, error.retry_s or 0.0)
        if time.monotonic() + pause_s > self._ends_at:
            if isinstance(error, ApiError):
                raise error
            raise Unreachable(f"no server answers: {str(error) or type(error).__name__}") from error
        self._pause_s = min(2 * self._pause_s, LONGEST_S)
        return pause_s


def _submit(asked: Mapping[str, Any], key: str | None) -> _Call:
    body = {name: value for name, value in asked.items() if value is not None}
    return _Call("POST", "/tasks", body, {"Idempotency-Key": key or secrets.token_hex(16)})


def _of(task: str, what: str = "", query: Mapping[str, Any] | None = None, **more: Any) -> _Call:
    asked = f"?{urlencode(query)}" if query else ""
    return _Call("GET", f"/tasks/{quote(task)}{what}{asked}", **more)


def _wait(task: str, left_s: float) -> _Call:
    waits_s = max(0.0, min(WAIT_S, left_s))
    return _of(task, "/wait", {"timeout": f"{waits_s:g}"}, takes_s=waits_s)


def _log(task: str, stream: str, at: str) -> _Call:
    return _of(task, "/log", {"stream": stream}, headers={"Last-Event-ID": at} if at else {}, takes_s=60.0)


def _cancel(task: str) -> _Call:
    return _Call("POST", f"/tasks/{quote(task)}/cancel")


def _page(state: str | None, cursor: str | None) -> _Call:
    query = urlencode({name: value for name, value in (("state", state), ("cursor", cursor)) if value})
    return _Call("GET", f"/tasks?{query}" if query else "/tasks")


def _made(of: type[T], shape: Mapping[str, Any]) -> T:
    """What a newer server says beside it is left out."""
    names = {one.name for one in fields(of)}  # type: ignore[arg-type]  # a dataclass of ours
    return of(**{name: value for name, value in shape.items() if name in names})


def _failed(status: int, data: bytes, retry_after: str | None) -> ApiError:
    try:
        problem = json.loads(data)
    except ValueError:
        problem = {"detail": data[:200].decode("utf-8", "replace")}
    retry_s = float(retry_after) if retry_after and retry_after.isdigit() else None
    return ApiError(status, problem if isinstance(problem, dict) else {}, retry_s)


class _Events:
    """Reads server-sent events from lines."""

    def __init__(self) -> None:
        self.id = ""
        """Of the newest event: where to go on."""
        self._next, self._name, self._data = "", "", ""

    def line(self, text: str) -> tuple[str, dict[str, Any]] | None:
        """The event that this line ends, if it ends one."""
        name, _, value = text.partition(": ")
        if name == "id":
            self._next = value
        elif name == "event":
            self._name = value
        elif name == "data":
            self._data = value
        elif not text and self._data:
            self.id, event = self._next, (self._name, json.loads(self._data))
            self._data = ""
            return event
        return None


class Client:
    """Asks one request after the other; for one thread. `url` is the server's address."""

    def __init__(self, url: str, token: str, *, patience_s: float = 60.0) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname:
            raise ValueError(f"not an address: {url}")
        self._https, self._host, self._port = place.scheme == "https", place.hostname, place.port
        self._prefix = place.path.rstrip("/") + BASE
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._patience_s = patience_s
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def submit(self, *, key: str | None = None, **task: Any) -> Task:
        """Hand a task over; its keys are those of docs/api.md (`command` or `prompt`, `kind`, `repository`, `gate`...; `class` as
        `**{"class": "batch"}`). The same `key` twice is one task, also after everything was killed between: give the same when you begin
        again. Raises ApiError, Unreachable."""
        return _made(Task, self._ask(_submit(task, key)))

    def get(self, task: str) -> Task:
        """One task."""
        return _made(Task, self._ask(_of(task)))

    def wait(self, task: str, timeout_s: float = float("inf")) -> Task:
        """The task once it is final. Raises TimeoutError."""
        ends_at = time.monotonic() + timeout_s
        while True:
            found = _made(Task, self._ask(_wait(task, ends_at - time.monotonic())))
            if found.final:
                return found
            if time.monotonic() >= ends_at:
                raise TimeoutError(f"{task} is {found.state}")

    def cancel(self, task: str) -> bool:
        """Ask it to end; False: it had ended already."""
        return bool(self._ask(_cancel(task))["asked"])

    def result(self, task: str) -> Result:
        """What it left, with its patch."""
        return _made(Result, self._ask(_of(task, "/result")))

    def capacity(self) -> Capacity:
        """How many agents run and wait."""
        return _made(Capacity, self._ask(_Call("GET", "/capacity")))

    def tasks(self, state: str | None = None) -> Iterator[Task]:
        """All that the token may know of, the newest first; a page is asked for when it is needed."""
        cursor: str | None = None
        while True:
            page = self._ask(_page(state, cursor))
            yield from (_made(Task, one) for one in page["tasks"])
            cursor = page["next"]
            if cursor is None:
                return

    def log(self, task: str, stream: str = "stdout") -> Iterator[str]:
        """What it prints, until it has ended; goes on where it was when the connection breaks."""
        events = _Events()
        patience = _Patience(self._patience_s)
        while True:
            try:
                for line in self._lines(_log(task, stream, events.id)):
                    event = events.line(line)
                    if event is not None and event[0] == "end":
                        return
                    if event is not None:
                        patience = _Patience(self._patience_s)
                        yield str(event[1]["text"])
            except (OSError, http.client.HTTPException, ApiError) as error:
                time.sleep(patience.pause_s(error))

    def _ask(self, call: _Call) -> dict[str, Any]:
        patience = _Patience(self._patience_s)
        while True:
            try:
                answer = self._answer(call)
                shape: dict[str, Any] = json.loads(answer.read())
            except (OSError, http.client.HTTPException, ApiError) as error:
                self.close() if not isinstance(error, ApiError) else None
                time.sleep(patience.pause_s(error))
            else:
                return shape

    def _answer(self, call: _Call) -> http.client.HTTPResponse:
        connection = self._connected()
        connection.timeout = ASK_S + call.takes_s
        connection.request(call.method, self._prefix + call.path, call.data, {**self._headers, **call.headers})
        answer = connection.getresponse()
        if answer.status >= 400:
            raise _failed(answer.status, answer.read(), answer.headers.get("Retry-After"))
        return answer

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            made = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
            self._connection = made(self._host, self._port, timeout=ASK_S)
        return self._connection

    def _lines(self, call: _Call) -> Iterator[str]:
        self.close()
        try:
            answer = self._answer(call)
            while line := answer.readline():
                yield line.decode().rstrip("\n")
        finally:
            self.close()


class AsyncClient:
    """As `Client`, for asyncio: any number of requests at once. Use it as an async context."""

    def __init__(self, url: str, token: str, *, patience_s: float = 60.0) -> None:
        self._url = url.rstrip("/") + BASE
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._patience_s = patience_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> AsyncClient:
        import aiohttp

        self._session = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def submit(self, *, key: str | None = None, **task: Any) -> Task:
        """As `Client.submit`."""
        return _made(Task, await self._ask(_submit(task, key)))

    async def get(self, task: str) -> Task:
        """As `Client.get`."""
        return _made(Task, await self._ask(_of(task)))

    async def wait(self, task: str, timeout_s: float = float("inf")) -> Task:
        """As `Client.wait`."""
        ends_at = time.monotonic() + timeout_s
        while True:
            found = _made(Task, await self._ask(_wait(task, ends_at - time.monotonic())))
            if found.final:
                return found
            if time.monotonic() >= ends_at:
                raise TimeoutError(f"{task} is {found.state}")

    async def cancel(self, task: str) -> bool:
        """As `Client.cancel`."""
        return bool((await self._ask(_cancel(task)))["asked"])

    async def result(self, task: str) -> Result:
        """As `Client.result`."""
        return _made(Result, await self._ask(_of(task, "/result")))

    async def capacity(self) -> Capacity:
        """As `Client.capacity`."""
        return _made(Capacity, await self._ask(_Call("GET", "/capacity")))

    async def tasks(self, state: str | None = None) -> AsyncIterator[Task]:
        """As `Client.tasks`."""
        cursor: str | None = None
        while True:
            page = await self._ask(_page(state, cursor))
            for one in page["tasks"]:
                yield _made(Task, one)
            cursor = page["next"]
            if cursor is None:
                return

    async def log(self, task: str, stream: str = "stdout") -> AsyncIterator[str]:
        """As `Client.log`."""
        import aiohttp

        events = _Events()
        patience = _Patience(self._patience_s)
        while True:
            try:
                async with self._asked(_log(task, stream, events.id)) as answer:
                    await _refused(answer)
                    async for line in answer.content:
                        event = events.line(line.decode().rstrip("\n"))
                        if event is not None and event[0] == "end":
                            return
                        if event is not None:
                            patience = _Patience(self._patience_s)
                            yield str(event[1]["text"])
            except (OSError, aiohttp.ClientError, ApiError) as error:
                await asyncio.sleep(patience.pause_s(error))

    async def _ask(self, call: _Call) -> dict[str, Any]:
        import aiohttp

        patience = _Patience(self._patience_s)
        while True:
            try:
                async with self._asked(call) as answer:
                    await _refused(answer)
                    shape: dict[str, Any] = await answer.json()
                    return shape
            except (OSError, aiohttp.ClientError, ApiError) as error:
                await asyncio.sleep(patience.pause_s(error))

    def _asked(self, call: _Call) -> aiohttp.client._RequestContextManager:
        import aiohttp

        if self._session is None:
            raise RuntimeError("use it as: async with AsyncClient(...) as crew")
        limit = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S, sock_read=ASK_S + call.takes_s)
        return self._session.request(call.method, self._url + call.path, data=call.data, headers=call.headers, timeout=limit)


async def _refused(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= 400:
        raise _failed(answer.status, await answer.read(), answer.headers.get("Retry-After"))
