"""Errors as `application/problem+json`."""

from __future__ import annotations

import math
from http import HTTPStatus

from aiohttp import web
from pydantic import ValidationError

from supervisor.core.errors import (
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
from supervisor.faces.web.api.models import Problem, Wrong

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
