"""The front door: what a request must pass before it may wait for its turn.

guard -> our own pages | WebSocket? -> address -> who -> body -> what is asked -> which upstreams -> forward
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Mapping

from aiohttp import web

from supervisor.core.errors import NightcrewError
from supervisor.core.gateway.types import Agent, Api
from supervisor.core.log_lines import Level
from supervisor.gateway import wire
from supervisor.gateway.admission import BUSY_AGAIN_S
from supervisor.gateway.batches import BatchCall, Batches
from supervisor.gateway.bodies import Bodies, Body, NoRoom
from supervisor.gateway.browser_guard import BrowserGuard
from supervisor.gateway.forward import forward
from supervisor.gateway.identity import Caller, Stranger, identify
from supervisor.gateway.proxied_request import ProxiedRequest, bound_of, key_of, lane_of
from supervisor.gateway.request_context import RequestContext
from supervisor.gateway.roster import Roster
from supervisor.gateway.routing import Way, way
from supervisor.gateway.uncharged import forward_free
from supervisor.gateway.wire import Asked, BadRequest, Endpoint, Recognised
from supervisor.gateway.wire.asked import OF_BATCHES

_ROOM_AGAIN_S = 2
_STOPPED_AGAIN_S = 5
Page = Callable[[web.BaseRequest], Awaitable[web.Response]]


class _Turned(Exception):
    """A request that goes no further, and what its client is told."""

    def __init__(self, status: int, why: str, retry_after_s: int | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
        self.retry_after_s = retry_after_s


class _Denied(_Turned):
    """One that the guard let not in: its connection ends with the answer."""


class RequestHandler:
    """Answers every request of the gateway."""

    def __init__(self, context: RequestContext, guard: BrowserGuard, roster: Roster, pages: Mapping[str, Page], batches: Batches) -> None:
        """`pages` are the gateway's own, by path; each looks after who may see it."""
        self._context = context
        self._batches = batches
        self._guard = guard
        self._roster = roster
        self._pages = pages
        self._tickets = itertools.count(1)
        self._primed: set[str] = set()
        self._bodies = Bodies()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request. Whatever goes wrong here, its client gets an answer in its own language, and the log a line without secrets."""
        recognised = None
        try:
            self._check(request)
            if page := self._pages.get(request.raw_path):
                return await page(request)
            headers = {name.lower(): value for name, value in request.headers.items()}
            if refused := wire.upgrade_refused(request.method, request.raw_path, headers):
                return _last(web.Response(status=refused[0], headers=refused[1], body=refused[2]))
            recognised = wire.recognise(request.method, request.raw_path)
            if recognised is None:
                raise _Turned(404, "no such address; only the providers' own are passed on")
            if recognised.endpoint is Endpoint.PROBE:
                return web.Response()
            with self._cut_when_stopped():
                return await self._serve(request, recognised, headers)
        except _Turned as turned:
            return self._answer(request, recognised, turned)
        except NoRoom as error:
            self._context.log.say_seldom(f"429 {request.method}: {error.why}")
            return self._answer(request, recognised, _Turned(429, error.why, _ROOM_AGAIN_S))
        except BadRequest as error:
            return self._answer(request, recognised, _Turned(error.status, error.why))
        except NightcrewError as error:
            self._context.log.say_seldom(error)
            return self._answer(request, recognised, _Turned(503, f"the gateway cannot work now: {error.what}", BUSY_AGAIN_S))
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken request must not end the others; it is said, not hidden
            self._context.log.say(f"a request failed: {type(error).__name__}: {error} at {_place(error)}", Level.ERROR)
            return self._answer(request, recognised, _Turned(500, "the gateway failed on this request"))

    @contextlib.contextmanager
    def _cut_when_stopped(self) -> Iterator[None]:
        """Have the request that is served here cut when a person stops everything."""
        task = asyncio.current_task()
        if task is None:
            yield
            return
        self._context.under_way.add(task)
        try:
            yield
        finally:
            self._context.under_way.discard(task)

    def _check(self, request: web.BaseRequest) -> None:
        over_unix = request.headers.get("Host") == "localhost" and _is_unix(request)
        denied = self._guard.check(request.method, request.headers, over_unix=over_unix)
        if denied is not None:
            self._context.log.refused(f"{denied.status} {request.method}: {denied.why}")
            raise _Denied(denied.status, denied.why)

    async def _serve(self, request: web.BaseRequest, recognised: Recognised, headers: Mapping[str, str]) -> web.StreamResponse:
        context = self._context
        arrived_at = context.clock.monotonic()
        if context.stopping:
            raise _Turned(503, "the gateway is being restarted; try again", BUSY_AGAIN_S)
        if context.stopped:
            raise _Turned(503, "everything is stopped (nightcrew stop-all); nightcrew thaw lets it go on", _STOPPED_AGAIN_S)
        caller = await self._caller(request, recognised, headers)
        with Body(self._bodies, caller.agent.name) as held:
            body = await held.read(request)
            if recognised.endpoint in OF_BATCHES:
                return await self._batch(request, recognised, headers, caller.agent, body)
            asked = wire.read(recognised, headers, body)
            chosen = self._way(asked, caller)
            await self._prime(caller.agent)
            lane, ticket = lane_of(asked, chosen), next(self._tickets)
            capped = self._is_capped(caller.agent)
            bound = bound_of(asked, len(body), capped=capped)
            call = ProxiedRequest(
                request, recognised, asked, caller.agent, body, chosen, lane, ticket, arrived_at, key_of(body), bound, capped
            )
            return await (forward_free if asked.free else forward)(context, call)

    async def _batch(
        self, request: web.BaseRequest, recognised: Recognised, headers: Mapping[str, str], agent: Agent, body: bytes
    ) -> web.StreamResponse:
        asked = wire.read_batch(body) if (request.method, recognised.endpoint) == ("POST", Endpoint.BATCHES) else None
        chosen = self._way(Asked(Api.ANTHROPIC, recognised.endpoint, asked.model if asked else ""), Caller(agent, own_login=False))
        await self._prime(agent)
        return await self._batches.serve(BatchCall(request, recognised, headers, agent, body, asked, chosen, self._is_capped(agent)))

    def _is_capped(self, agent: Agent) -> bool:
        return agent.strict or self._context.settings.policy.cost_per_night is not None

    async def _caller(self, request: web.BaseRequest, recognised: Recognised, headers: Mapping[str, str]) -> Caller:
        caller = await identify(self._roster, headers, recognised.token)
        if isinstance(caller, Stranger):
            status = 403 if caller.ended else 401  # Claude Code tries a 401 eleven times in three minutes, and gives up at once on 403
            self._context.log.refused(f"{status} {request.method} {recognised.endpoint}: {caller.why}")
            raise _Turned(status, f"this request is no running attempt's: {caller.why}")
        return caller

    def _way(self, asked: Asked, caller: Caller) -> Way:
        """Raises when nobody can serve it: it would wait in vain."""
        context = self._context
        usable = context.usable(own_login=caller.own_login)
        if not asked.model:  # a list of models
            names = tuple(one.name for one in context.settings.upstreams if one.api is asked.api and one.name in usable)
            chosen = Way(names)
        else:
            chosen = way(context.settings, asked.api, asked.model, usable, caller.agent)
        if chosen.upstreams:
            return chosen
        every = [one.name for one in context.settings.upstreams]
        if not asked.model or not way(context.settings, asked.api, asked.model, every, caller.agent).upstreams:
            raise _Turned(404, f"no upstream in the settings serves {asked.model or 'this'} over the {asked.api} API")
        raise _Turned(503, "the upstream of this model cannot be used: there is no key for it; nightcrew doctor says more")

    async def _prime(self, agent: Agent) -> None:
        """Before a task's first request the queue is told what it, and its night, took before this gateway started: caps hold over
        restarts."""
        if agent.night is not None and agent.night.run not in self._context.admission.traffic.crew.nights:
            await self.prime_nights()
        if not agent.capped or agent.name in self._primed:
            return
        spent = await asyncio.to_thread(self._context.account.spent, agent.name)
        if agent.name not in self._primed:  # another request of it may have been quicker
            self._primed.add(agent.name)
            self._context.admission.traffic.crew.spent(agent.name, *spent)

    async def prime_nights(self) -> None:
        """Tell the queue what each night that has not ended spent before. Raises LedgerError."""
        for night, tasks in await self._roster.nights():
            if night.run not in self._context.admission.traffic.crew.nights:
                spent = await asyncio.to_thread(self._context.account.at_most, tasks)
                self._context.admission.traffic.crew.night_of(night, spent)

    def _answer(self, request: web.BaseRequest, recognised: Recognised | None, turned: _Turned) -> web.Response:
        if request.writer.output_size:
            request.protocol.force_close()  # an answer has begun: nothing can be said any more but that it is broken
        headers, body = wire.error(_api(recognised), turned.status, turned.why, turned.retry_after_s)
        response = web.Response(status=turned.status, headers=headers, body=body)
        unread = request.can_read_body and not request.content.at_eof()
        return _last(response) if unread or isinstance(turned, _Denied) else response


def _is_unix(request: web.BaseRequest) -> bool:
    return isinstance(request.transport and request.transport.get_extra_info("sockname"), str | bytes)


def _last(response: web.Response) -> web.Response:
    """The last one on its connection: what may follow is the rest of a body, or no HTTP at all."""
    response.force_close()
    return response


def _api(recognised: Recognised | None) -> Api | None:
    return recognised.api if recognised is not None else None


def _place(error: BaseException) -> str:
    """Where in our code it happened."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace is not None else "?"
