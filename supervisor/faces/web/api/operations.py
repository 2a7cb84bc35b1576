"""Every route of the API, once: what the server answers, and what its OpenAPI says, are made of this."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from pydantic import BaseModel

from supervisor.core.access import Scope, Token
from supervisor.faces.web.api import handlers, models, streams
from supervisor.faces.web.api.handlers import Api

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
    query: type[BaseModel] = models.Nothing
    body: type[BaseModel] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Each with its words."""
    status: tuple[int, ...] = (200,)


def every(log: Handle) -> tuple[Operation, ...]:
    """All of them. `log` needs to know where logs lie."""
    resume = {"Last-Event-ID": "Go on after this event."}
    key = {handlers.KEY_HEADER: "The same key twice is one task, whatever was killed between."}
    return (
        Operation("submitTask", "POST", f"{BASE}/tasks", "Submit a task.", Scope.SUBMIT, handlers.submit, models.Task,
                  body=models.TaskRequest, headers=key, status=(201, 200)),
        Operation("listTasks", "GET", f"{BASE}/tasks", "List tasks, the newest first.", Scope.READ, handlers.list_all, models.TaskPage,
                  models.ListQuery),
        Operation("getTask", "GET", TASK, "Show a task.", Scope.READ, handlers.show, models.Task),
        Operation("waitForTask", "GET", f"{TASK}/wait", "Wait until a task is final, or the time is over.", Scope.READ, handlers.wait,
                  models.Task, models.WaitQuery),
        Operation("cancelTask", "POST", f"{TASK}/cancel", "End a task and everything that it started.", Scope.ACT, handlers.cancel,
                  models.Cancelled),
        Operation("getResult", "GET", f"{TASK}/result", "Show what a task left: branch, commits, stat, patch.", Scope.READ, handlers.result,
                  models.Result, models.ResultQuery),
        Operation("streamLog", "GET", f"{TASK}/log", "Stream what a task prints, until it has ended.", Scope.READ, log, None,
                  models.LogQuery, headers=resume),
        Operation("streamEvents", "GET", f"{BASE}/events", "Stream what happens to tasks.", Scope.READ, streams.events, None,
                  headers=resume),
        Operation("listRepositories", "GET", f"{BASE}/repositories", "List the repositories that the token reaches.", None,
                  handlers.repositories, models.Repositories),
        Operation("getCapacity", "GET", f"{BASE}/capacity", "Show how many agents run and wait.", Scope.READ, handlers.capacity,
                  models.Capacity),
        Operation("getToken", "GET", f"{BASE}/token", "Show what the token is.", None, handlers.who_am_i, models.WhoAmI),
    )  # fmt: skip
