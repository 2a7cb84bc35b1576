"""What a person does on a page: each act is what the verb of the same name does. A body is checked before anybody is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp import web

from supervisor.core.errors import UsageError
from supervisor.faces.doors import Acts, NewTask
from supervisor.faces.web.feature import Handler, Route
from supervisor.faces.web.guard import Access
from supervisor.faces.web.sessions import Who

TASKS_MAX = 500
THREADS = 8
"""Acts at one time: a text that is typed takes until its agent has taken it."""
Act = Callable[["Body"], str]
"""Does it, and says in one sentence what came of it. Runs in a thread."""


class Body:
    """What a page asked, read strictly. Each raises UsageError."""

    def __init__(self, shape: Mapping[str, Any]) -> None:
        self._shape = shape

    def text(self, name: str) -> str:
        found = self._shape.get(name)
        if not isinstance(found, str) or "\0" in found or found.encode("utf-8", "ignore").decode() != found:  # a half character
            raise UsageError("not a text:", on=name)
        return found

    def flag(self, name: str) -> bool:
        found = self._shape.get(name)
        if not isinstance(found, bool):
            raise UsageError("neither true nor false:", on=name)
        return found

    def number(self, name: str) -> int:
        found = self._shape.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 2**31:
            raise UsageError("not a number:", on=name)
        return found

    def task(self) -> str:
        return task_id(self.text("task"))

    def tasks(self) -> list[str]:
        found = self._shape.get("tasks")
        if not isinstance(found, list) or not 0 < len(found) <= TASKS_MAX or not all(isinstance(one, str) for one in found):
            raise UsageError("not a list of tasks:", on="tasks")
        return [task_id(one) for one in found]


def task_id(text: str) -> str:
    """A full id. Raises UsageError for what none can be."""
    if not text.isprintable() or "/" not in text or len(text) > 200:
        raise UsageError("not the id of a task", on=text[:50])
    return text


def routes(acts: Acts, acted: Callable[[], None]) -> Sequence[Route]:
    """One route a verb; `acted` is called after each."""
    verbs: Mapping[str, Act] = {
        "send": lambda body: acts.send(body.tasks(), body.text("text")),
        "answer": lambda body: acts.answer(body.task(), body.text("asked"), allow=body.flag("allow")),
        "hold": lambda body: acts.hold(body.tasks(), back=body.flag("back")),
        "kill": lambda body: acts.kill(body.tasks()),
        "retry": lambda body: acts.retry(body.tasks()),
        "take": lambda body: acts.take(body.task()),
        "go-on": lambda body: acts.go_on(body.task(), body.text("text")),
        "start": lambda body: acts.start(_new_task(acts, body)),
    }
    asked = [
        _answer("/data/begin", lambda _: {"kinds": list(acts.kinds()), "repositories": list(acts.repositories())}),
        _answer("/data/merge", lambda query: {"question": acts.merge_question(task_id(query.get("task", "")))}),
    ]
    return [*asked, *(act(f"/act/{verb}", do, acted) for verb, do in verbs.items())]


def _new_task(acts: Acts, body: Body) -> NewTask:
    """Raises UsageError for a kind or a repository that the page was not offered."""
    kind, repo = body.text("kind"), body.text("repo")
    if kind not in acts.kinds():
        raise UsageError("no such kind of agent here", on=kind, hint="nightcrew kinds ls")
    if repo not in acts.repositories():
        raise UsageError("nothing was ever run in", on=repo, hint="nightcrew start -C PATH, once")
    return NewTask(body.text("prompt"), kind, body.text("base"), body.text("name"), repo)


def _answer(path: str, ask: Callable[[Mapping[str, str]], Mapping[str, Any]]) -> Route:
    """A route that reads what an act needs to be asked for; `ask` is given the query, and runs in a thread."""

    async def handle(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return web.json_response(await asyncio.get_running_loop().run_in_executor(_POOL, ask, request.query))

    return Route("GET", path, Access.DATA, handle)


def act(path: str, do: Act, acted: Callable[[], None]) -> Route:
    """A route that acts. Its answer is `{"said": ...}`."""
    return Route("POST", path, Access.ACT, _handler(do, acted))


def _handler(do: Act, acted: Callable[[], None]) -> Handler:
    async def handle(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        body = _read(await request.read())
        try:
            said = await asyncio.get_running_loop().run_in_executor(_POOL, do, body)
        finally:
            acted()
        return web.json_response({"said": said})

    return handle


def _read(data: bytes) -> Body:
    try:
        shape = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError("not JSON") from error
    if not isinstance(shape, dict):
        raise UsageError("not an object")
    return Body(shape)


_POOL = ThreadPoolExecutor(THREADS, thread_name_prefix="act")
