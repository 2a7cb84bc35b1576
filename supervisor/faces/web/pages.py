"""The pages beside the crew's: limits, runs, trains, maps, memory, mail, audit, resources. Their scripts ask for what `models` makes.

A report of a run is a document of its own, under a policy of its own. A browser can only open it by its address, so the address holds a
proof that one of our pages gave it: the cookie alone is sent to every port of this machine.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web

from supervisor.core.errors import LedgerError, NotFound
from supervisor.faces.report import page as report_page
from supervisor.faces.web.feature import Feature, Page, Route, Topic
from supervisor.faces.web.guard import Access
from supervisor.faces.web.models.asked import Asked
from supervisor.faces.web.models.written import Served
from supervisor.faces.web.plain import plain
from supervisor.faces.web.sessions import Who

Read = Callable[[Asked], Mapping[str, Any]]
SHARED_S = 1.0
"""An answer is given to all who ask for the same in so many seconds."""
VENDOR = report_page.HERE / "vendor"
PAGES = (
    Page("/limits", "Limits", "limits.js", "Limits"),
    Page("/runs", "Runs", "runs.js", "Runs"),
    Page("/run/{run}", "Run", "run.js"),
    Page("/trains", "Trains", "trains.js", "Trains"),
    Page("/maps", "Maps", "maps.js", "Maps"),
    Page("/memory", "Memory", "memory.js", "Memory"),
    Page("/mail", "Mail", "mail.js", "Mail"),
    Page("/audit", "Audit", "audit.js", "Audit"),
    Page("/resources", "Resources", "resources.js", "Resources"),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Who looks. All but the topics are called in threads, and may raise NightcrewError."""

    reads: Mapping[str, Read]
    """By the name that their address has after `/data/`."""
    report: Callable[[str, str], Served]
    """The report of a run, of a kind."""
    topics: Mapping[str, Callable[[str], Topic]]


def feature(sources: Sources) -> Feature:
    """All of them."""
    secret = os.urandom(32)
    reads = {**sources.reads, "run": _with_reports(sources.reads["run"], secret)}
    return Feature(
        pages=PAGES,
        routes=(
            *(Route("GET", f"/data/{name}", Access.DATA, _data(read)) for name, read in reads.items()),
            Route("GET", "/report/{run}/{kind}/{proof}", Access.PAGE, _report(sources, secret)),
            Route("GET", "/uplot.js", Access.OPEN, _vendored(_uplot, "text/javascript")),
            Route("GET", "/uplot.css", Access.OPEN, _vendored(_uplot_style, "text/css")),
        ),
        topics=sources.topics,
    )


def _data(read: Read) -> Callable[[web.Request, Who | None], Any]:
    recent = Recent(read)

    async def answer(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        return web.Response(body=await recent.get(dict(request.query)), content_type="application/json")

    return answer


class Recent:
    """The last answers of one address. However many browsers ask for the same at once, somebody looks once, and at most every SHARED_S.
    Who has seen a commit says which, so that it gets no answer of before."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._found: dict[tuple[tuple[str, str], ...], tuple[float, asyncio.Future[bytes]]] = {}

    async def get(self, asked: Asked) -> bytes:
        """The answer as JSON. Raises what the look raised."""
        key, now = tuple(sorted(asked.items())), time.monotonic()
        self._found = {one: kept for one, kept in self._found.items() if not kept[1].done() or now - kept[0] < SHARED_S}
        if key not in self._found:
            look = asyncio.ensure_future(asyncio.to_thread(_encoded, self._read, asked))
            look.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # who asked may have left meanwhile
            self._found[key] = now, look
        return await asyncio.shield(self._found[key][1])


def _encoded(read: Read, asked: Asked) -> bytes:
    return json.dumps(plain(_read(read, asked)), separators=(",", ":"), allow_nan=False).encode("ascii")


def _read(read: Read, asked: Asked) -> Mapping[str, Any]:
    try:
        return read(asked)
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a row that holds what no version of ours has written
        raise LedgerError("cannot show what is there", why=f"a row is not as it was written ({type(error).__name__})") from error


# Reports --------------------------------------------------------------------------------------------------------------------------


def _with_reports(read: Read, secret: bytes) -> Read:
    """With the address of each report of the run."""

    def found(asked: Asked) -> Mapping[str, Any]:
        shape = read(asked)
        run = shape["run"]
        return {**shape, "run": {**run, "reports": [{"kind": kind, "href": _address(secret, run["id"], kind)} for kind in run["reports"]]}}

    return found


def _address(secret: bytes, run: str, kind: str) -> str:
    return f"/report/{quote(run, safe='')}/{kind}/{_proof(secret, run, kind)}"


def _proof(secret: bytes, run: str, kind: str) -> str:
    return hmac.new(secret, f"{run}\0{kind}".encode(), hashlib.sha256).hexdigest()


def _report(sources: Sources, secret: bytes) -> Callable[[web.Request, Who | None], Any]:
    async def answer(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        run, kind, proof = (request.match_info[name] for name in ("run", "kind", "proof"))
        if not hmac.compare_digest(proof.encode(), _proof(secret, run, kind).encode()):
            raise NotFound("this address of a report is of another time", on=run[:40], hint="open it again from the page of the run")
        served = await asyncio.to_thread(sources.report, run, kind)
        return web.Response(text=served.html, content_type="text/html", headers={"Content-Security-Policy": served.policy})

    return answer


# What draws the charts ------------------------------------------------------------------------------------------------------------


def _vendored(read: Callable[[], bytes], kind: str) -> Callable[[web.Request, Who | None], Any]:
    async def answer(request: web.Request, who: Who | None) -> web.StreamResponse:  # noqa: ARG001 - a handler
        body = read()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=headers)

    return answer


@cache
def _uplot() -> bytes:
    """As a module, with its licence: what the reports hold in themselves."""
    licence, script = (_text(VENDOR / name) for name in ("LICENSE", "uPlot.iife.min.js"))
    return f"/*!\n{licence.rstrip()}\n*/\n{script}\nexport default uPlot;\n".encode()


@cache
def _uplot_style() -> bytes:
    return (VENDOR / "uPlot.min.css").read_bytes()


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")
