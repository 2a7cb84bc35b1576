"""The gateway's own pages. They are for the user's own programs, which can read the secret: no agent's token opens them."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from supervisor.features.metrics.page import Metrics
from supervisor.gateway.account import charges
from supervisor.gateway.account.charges import OpenRow
from supervisor.gateway.account.reading import Figures, Window
from supervisor.gateway.admission.types import LaneKey, Usage
from supervisor.gateway.proxy.forward import RequestContext
from supervisor.gateway.proxy.front import Page
from supervisor.gateway.status import caps, status
from supervisor.gateway.status_client import CREW, METRICS, NOW, PAST, PING, RELOAD, STATUS, STOP
from supervisor.gateway.wire.headers import carried
from supervisor.kernel import tokens
from supervisor.kernel.errors import NightcrewError
from supervisor.kernel.gateway_settings import Api
from supervisor.kernel.states import TaskClass

Answer = Callable[[web.BaseRequest], Awaitable[web.Response]]
_WINDOW_S = 300.0
"""Figures are of the last five minutes, or of its own time when that is less: no rate is divided by a time in which it was not there."""
_OLD_S = 15.0
"""A window of 10,000 rows takes about 0.15 s to read: too much for every other second, and who was served in it changes slowly."""


class StatusRoutes:
    """Ping, status, metrics, stop, reload, and what attempts took past the gateway."""

    def __init__(
        self,
        context: RequestContext,
        secret: bytes,
        port: int,
        metrics: Metrics,
        *,
        stop: Callable[[], None],
        reload: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._secret = secret
        self._port = port
        self._metrics = metrics
        self._stop = stop
        self._reload = reload
        self._since = context.clock.wall()
        self._window: Window | None = None
        self._window_at = 0.0

    def pages(self) -> Mapping[str, Page]:
        """By path."""
        return {
            PING: self._page("GET", self._ping),
            STATUS: self._page("GET", self._status),
            NOW: self._page("GET", self._now),
            METRICS: self._page("GET", self._exposed, self._metrics.may_scrape),
            CREW: self._page("POST", self._told),
            STOP: self._page("POST", self._stopped),
            PAST: self._page("POST", self._charged),
            RELOAD: self._page("POST", self._reloaded),
        }

    def _page(self, method: str, answer: Answer, also: Callable[[str], bool] = lambda _: False) -> Page:
        """For the admin, and for who sends a token that `also` takes."""

        async def page(request: web.BaseRequest) -> web.Response:
            found = list(carried({"authorization": request.headers.get("Authorization", "")}))
            if not found or not (tokens.is_admin(self._secret, found[0]) or also(found[0])):
                agent = any(text.startswith(tokens.PREFIX) for text in found)
                self._context.log.refused(f"{403 if agent else 401} {request.method} {request.path}: it is not the admin's")
                return _json({"error": "this page is for its user alone"}, 403 if agent else 401)
            if request.method != method:
                return _json({"error": f"this page takes {method}"}, 405)
            return await answer(request)

        return page

    async def _ping(self, _: web.BaseRequest) -> web.Response:
        return _json({"schema": 1, "pid": os.getpid(), "port": self._port, "stopping": self._context.stopping})

    async def _status(self, _: web.BaseRequest) -> web.Response:
        return await self._shown(0.0)

    async def _now(self, _: web.BaseRequest) -> web.Response:
        """The same for the supervisor, which asks every other second: figures of the account's rows may be a little old."""
        return await self._shown(_OLD_S)

    async def _last_minutes(self, oldest_s: float) -> Window:
        """What the account says of the last minutes, read at most `oldest_s` ago. Raises LedgerError."""
        now = self._context.clock.monotonic()
        if self._window is None or now - self._window_at >= oldest_s:
            self._window = await self._context.account.window(min(_WINDOW_S, max(1.0, self._context.clock.wall() - self._since)))
            self._window_at = now
        return self._window

    async def _shown(self, oldest_s: float) -> web.Response:
        context = self._context
        problems = [*context.keyring.problems.values(), *([context.account.trouble] if context.account.trouble else [])]
        try:
            window = await self._last_minutes(oldest_s)
        except NightcrewError as error:  # what is so now can be shown without it
            window = Window(0.0, {}, {}, Figures())
            problems.append(error)
        shape = status(context.admission.traffic.view(context.clock.monotonic()), window, problems)
        known = {"accounts": sorted({upstream.account for upstream in context.settings.upstreams})}
        traffic = context.admission.traffic
        shared = caps(traffic.crew, context.clock.monotonic())
        return _json({"schema": 1, "port": self._port, "pid": os.getpid(), "since": self._since, **known, "caps": shared, **shape})

    async def _exposed(self, _: web.BaseRequest) -> web.Response:
        body = await self._metrics.render()
        from supervisor.features.metrics.page import CONTENT_TYPE  # late, as what made the page

        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _told(self, request: web.BaseRequest) -> web.Response:
        said = json.loads(await request.read())
        if said.get("schema") != 1:
            return _json({"error": "a supervisor of another version"}, 400)
        self._metrics.told(said)
        return _json({"told": True})

    async def _charged(self, request: web.BaseRequest) -> web.Response:
        """Charge an attempt for what it took past us since it had taken `after` tokens so, once, and tell its caps."""
        said, context = json.loads(await request.read()), self._context
        usage = Usage(**said["tokens"])
        cost = context.prices.cost(said["model"], usage) if said["cost_usd"] is None else said["cost_usd"]
        row = OpenRow(
            agent=said["task"],
            epoch=said["epoch"],
            model=said["model"],
            lane=LaneKey(Api.ANTHROPIC, charges.ELSEWHERE, long_context=False),
            upstream=charges.ELSEWHERE,
            account=charges.ELSEWHERE,
            task_class=TaskClass(said["class"]),
            at=context.clock.wall(),
            queued_ms=0.0,
            attempt_no=1,
            bound=usage,
            expected=usage,
            bound_usd=cost,
            body_key=charges.PAST,
        )
        charged = await context.account.past(row, cost, said.get("after", 0))
        if charged:
            context.admission.traffic.crew.past(row.agent, cost or 0.0, usage.uncached, context.clock.monotonic())
        return _json({"charged": charged})

    async def _stopped(self, _: web.BaseRequest) -> web.Response:
        self._stop()
        return _json({"stopping": True})

    async def _reloaded(self, _: web.BaseRequest) -> web.Response:
        try:
            await self._reload()
        except NightcrewError as error:
            return _json({"error": error.line()}, 400)
        return _json({"reloaded": True})


def _json(shape: Mapping[str, Any], code: int = 200) -> web.Response:
    return web.json_response(shape, status=code)
