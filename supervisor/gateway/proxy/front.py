"""The front door: what a request must pass before it may wait for its turn."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from aiohttp.streams import StreamReader

from supervisor.features.night import rows as night_rows
from supervisor.gateway.account import queries as reading
from supervisor.gateway.admission.types import Agent, NightCap, Refusal
from supervisor.gateway.proxy.batches import BatchCall, Batches
from supervisor.gateway.proxy.forward import (
    BUSY_AGAIN_S,
    ProxiedRequest,
    RequestContext,
    Way,
    bound_of,
    forward,
    key_of,
    lane_of,
    no_answer,
    own_answer,
    passed_back,
    way,
)
from supervisor.gateway.proxy.upstreams import Cut, Reply, Unreachable, outgoing
from supervisor.gateway.wire.errors import error as api_error
from supervisor.gateway.wire.errors import refusal
from supervisor.gateway.wire.headers import carried
from supervisor.gateway.wire.metering import read_batch
from supervisor.gateway.wire.requests import OF_BATCHES, Asked, BadRequest, Endpoint, Recognised, Turned, read, recognise, upgrade_refused
from supervisor.gateway.wire.work import weigh
from supervisor.host import attempt_tokens
from supervisor.kernel import codec
from supervisor.kernel.audit import Level
from supervisor.kernel.errors import LedgerError, NightcrewError
from supervisor.kernel.format import duration
from supervisor.kernel.gateway_settings import Api, Upstream
from supervisor.kernel.kind import is_patient
from supervisor.kernel.names import attempt_name
from supervisor.kernel.night import NightState
from supervisor.kernel.spec import TaskSpec
from supervisor.kernel.states import LIVING
from supervisor.store import journal, sqlite

# Roster
# ------
# Who the agents are: what the ledger says of the attempt that a token names. It is only read here, in a thread of its own, so that a
# slow disk holds up new requests and never a stream.


FRESH_S = 1.0
"""What was read is believed for so long: a token dies at most this much after its attempt."""
_CACHED = 10_000
MAP_WORKER = "map-prompt"
"""The kind of the workers of a map that ask models. The same map, asked for again, has other tasks: they go on with its batches."""


class Roster:
    """Use it from one event loop; `close` it."""

    def __init__(self, ledger: Path, secret: bytes, now: Callable[[], float]) -> None:
        """`now` gives monotonic seconds."""
        self._path = ledger
        self._secret = secret
        self._now = now
        self._thread = ThreadPoolExecutor(1, "roster")
        self._db: sqlite3.Connection | None = None
        self._opened = (0, 0)
        self._known: dict[str, tuple[float, Agent | None]] = {}
        """By tokens of ours: when it was read, and what."""

    async def agent(self, token: str) -> Agent | None:
        """Whose token it is; None for one that is not ours, or whose attempt has ended. Raises LedgerError when nobody can tell."""
        read_at, agent = self._known.get(token, (-FRESH_S, None))
        if self._now() - read_at < FRESH_S:
            return agent
        name = self.attempt(token)
        if name is None:
            return None
        agent = await asyncio.get_running_loop().run_in_executor(self._thread, self._read, *name)
        if len(self._known) >= _CACHED:
            self._known.clear()
        self._known[token] = (self._now(), agent)
        return agent

    def attempt(self, token: str) -> tuple[str, int] | None:
        """The task and epoch of a token of ours, whether or not its attempt lives; None for any other."""
        return attempt_tokens.check(self._secret, token)

    async def nights(self) -> list[tuple[NightCap, list[str]]]:
        """The nights with a cap that have not ended, each with all its tasks. Raises LedgerError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._nights)

    def _nights(self) -> list[tuple[NightCap, list[str]]]:
        with contextlib.closing(sqlite.connect_readonly(self._path)) as db:
            found = [row for row in night_rows.every(db) if row.terms.cost_max and row.state is not NightState.ENDED]
            return [(NightCap(row.run, row.terms.cost_max), night_rows.tasks(db, row.run)) for row in found]

    async def close(self) -> None:
        """Give the ledger back."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown()

    def _read(self, task: str, epoch: int) -> Agent | None:
        try:
            return self._look(task, epoch)
        except LedgerError:  # the file may have been replaced, or migrated by a newer daemon: look at it afresh, once
            self._drop()
            return self._look(task, epoch)

    def _look(self, task: str, epoch: int) -> Agent | None:
        if self._db is None:
            self._db = sqlite.connect_readonly(self._path)
            self._opened = sqlite.file_identity(self._path)
        sqlite.check_same_file(self._path, self._opened)
        row = self._db.execute(
            """SELECT t.spec, t.project, t.gates, a.state, n.run AS night, n.cost_max FROM task t
               JOIN attempt a ON a.task = t.id AND a.epoch = t.epoch JOIN run r ON r.id = t.run
               LEFT JOIN night n ON n.run = r.night AND n.cost_max > 0 AND n.state <> 'ended'
               WHERE t.id = ? AND t.epoch = ?""",
            (task, epoch),
        ).fetchone()
        if row is None or row["state"] not in LIVING:
            return None
        agent = _agent(task, epoch, row["spec"], row["project"], row["gates"])
        if row["night"] is not None:
            agent = replace(agent, night=NightCap(row["night"], row["cost_max"]))
        if agent.cost_max is None:
            return agent
        return replace(agent, cost_max=max(0.0, agent.cost_max - journal.given_to_children(self._db, task)))

    def _drop(self) -> None:
        if self._db is not None:
            with contextlib.suppress(LedgerError):
                self._db.close()
            self._db = None


@functools.lru_cache(maxsize=1000)  # of the thread; a spec does not change while its attempt lives
def _agent(task: str, epoch: int, text: str, project: str, gates: int) -> Agent:
    spec = codec.loads(TaskSpec, text)
    return Agent(
        name=task,
        epoch=epoch,
        task_class=spec.task_class,
        weight=spec.weight,
        tpm_max=spec.tpm_max or None,
        cost_max=spec.cost_max or None,
        cost_assumed="cost_max" in spec.assumed,
        tokens_max=spec.tokens_max or None,
        engine_seconds_max=spec.engine_seconds_max or None,
        work=spec.work,
        raised=gates > 0,
        size=spec.size,
        project=project,
        repeatable=spec.repeatable and not spec.candidate_of,  # candidates are there to differ
        family=f"maps of {project}" if spec.kind == MAP_WORKER else task,
        patient=is_patient(spec.task_class),
    )


# Identity
# --------
# Who sends a request: the attempt token in it, wherever the client puts its key.


class Caller(NamedTuple):
    """An agent, and whether its request also carries a login of its client's own, which an upstream with `key = "client"` passes on."""

    agent: Agent
    own_login: bool


async def identify(roster: Roster, headers: Mapping[str, str], in_address: str) -> Caller:
    """`headers` has lower-case names; `in_address` is the token that the address carries, or empty. Raises LedgerError; _Refused when the
    sender is not known, with no token in its words.

    Claude Code sends two keys when its environment holds two, so whatever is not ours is passed over; two tokens of ours that differ
    are refused: nobody has both by right.
    """
    keys = list(carried(headers))
    ours = {text for text in (in_address, *keys) if text.startswith(attempt_tokens.PREFIX)}
    if len(ours) != 1:
        raise _Refused(401, f"{_NO_ATTEMPT}: there {'are tokens of two attempts' if ours else 'is no attempt token'} in it")
    token = ours.pop()
    agent = await roster.agent(token)
    if agent is not None:
        return Caller(agent, own_login=any(not text.startswith(attempt_tokens.PREFIX) for text in keys))
    if (name := roster.attempt(token)) is None:
        raise _Refused(401, f"{_NO_ATTEMPT}: its attempt token is wrong")
    # Claude Code tries a 401 eleven times in three minutes, and gives up at once on 403.
    raise _Refused(403, f"{_NO_ATTEMPT}: the attempt of its token has ended ({attempt_name(*name)})")


_NO_ATTEMPT = "this request is no running attempt's"


# Browser guard
# -------------
# Checks a request before anybody looks at who sends it. A browser that a web page drives cannot get past it: not by a name that
# resolves to 127.0.0.1 (Host), not from another site (Origin), not by a form (content type).


METHODS = frozenset({"GET", "HEAD", "POST"})
BODY_MAX = 32 * 2**20
"""Bytes of the largest request: what the providers themselves take at most."""


class _Refused(Turned):
    """A request of somebody who may not ask: the audit log says so too."""


class _Denied(_Refused):
    """One that the guard let not in: its connection ends with the answer."""


def check_browser(hosts: Collection[str], method: str, headers: Mapping[str, str], *, over_unix: bool) -> None:
    """Raise _Denied unless the request may go on. `hosts` are the names under which the gateway answers; `headers` is case-insensitive.

    Over the UNIX socket the name is `localhost`, or one of `hosts`: whoever bridges the socket into a sandbox keeps its clients' address.
    """
    host = headers.get("Host", "")
    if host not in hosts and not (over_unix and host == "localhost"):
        raise _Denied(421, "this is not the host that the request names")
    if "Origin" in headers:
        raise _Denied(403, "requests of web pages are refused")
    if method not in METHODS:
        raise _Denied(405, f"the method is one of {', '.join(sorted(METHODS))}")
    if "Transfer-Encoding" not in headers and headers.get("Content-Length", "0") == "0":
        return
    if method != "POST":
        raise _Denied(400, f"a {method} has no body")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise _Denied(415, "the content type must be application/json")
    if int(headers.get("Content-Length", 0)) > BODY_MAX:  # the parser took it, so it is a number
        raise _Denied(413, _TOO_LONG)


_TOO_LONG = f"a request has at most {BODY_MAX // 2**20} MiB"


# Bodies
# ------
# The bodies of requests, and how much memory all of them together may take: they stay until their requests have been answered.


BODY_S = 60.0
"""Seconds for a whole body: it comes from this machine."""
ALL_MAX = 256 * 2**20
"""Bytes of all bodies. A request of Claude Code has at most about a million."""
AGENTS_PART = 4
"""One agent has at most this part of them, so that none can keep the others out."""


_ROOM_AGAIN_S = 2


class Bodies:
    """The room that all bodies share. Use it from one event loop."""

    def __init__(self) -> None:
        self._all = 0
        self._agents: Counter[str] = Counter()

    @contextlib.contextmanager
    def room(self, agent: str) -> Iterator[Callable[[int], None]]:
        """Give a function that takes so many bytes more for a body of this agent. It raises Turned, and then takes none; all that it took
        is given back when the `with` block ends."""
        held = 0

        def take(size: int) -> None:
            nonlocal held
            if self._agents[agent] + size > ALL_MAX // AGENTS_PART:
                raise Turned(429, "requests of this agent hold all the memory that one agent may have", _ROOM_AGAIN_S)
            if self._all + size > ALL_MAX:
                raise Turned(429, "requests hold all the memory that they may have", _ROOM_AGAIN_S)
            self._agents[agent] += size
            self._all += size
            held += size

        try:
            yield take
        finally:
            self._all -= held
            self._agents[agent] -= held
            if not self._agents[agent]:
                del self._agents[agent]


async def read_body(request: web.BaseRequest, take: Callable[[int], None]) -> bytes:
    """Return the whole body, as it came. A body that says how long it will be is refused before any of it is read. Raises Turned: there is
    no room for it, or it is too long, too slow, or cut."""
    if not request.can_read_body:
        return b""
    said = request.content_length or 0
    take(said)
    await _continue(request)
    try:
        async with asyncio.timeout(BODY_S):
            return await _whole(request.content, said, take)
    except TimeoutError:
        raise BadRequest(408, f"the request did not arrive within {duration(BODY_S)}") from None
    except web.RequestPayloadError:
        raise BadRequest(400, "the request's body is misshapen") from None


async def _whole(content: StreamReader, said: int, take: Callable[[int], None]) -> bytes:
    """`said`: the length that was taken already."""
    pieces: list[bytes] = []
    size = 0
    while piece := await content.readany():
        pieces.append(piece)
        more = size + len(piece) - max(size, said)
        size += len(piece)
        if size > BODY_MAX:
            raise BadRequest(413, _TOO_LONG)
        if more > 0:  # it did not say how long it would be
            take(more)
    return b"".join(pieces)


async def _continue(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":  # curl asks so before it sends much
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer has not begun by that


# Uncharged
# ---------
# Requests that take no tokens (counting them, lists of models): they wait in no queue, and nothing is charged.
#
# Providers limit them too, and a client that counts before each turn stops when it cannot. So what fails is tried at each upstream
# that serves it, and then again, for a short while.


_ROUNDS = 4
_WAIT_S = 0.5
"""Before the second round; twice as long before each one after it, when no upstream says how long."""
_WAIT_MAX_S = 10.0
_AGAIN_S = 5
_ERROR_MAX = 64 * 2**10
_LASTING = frozenset({Refusal.KEY_REFUSED, Refusal.SPEND_CAP})
"""No other try helps before a person does something."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """One upstream did not serve it. `why` is for the client; `wait_s` is what the upstream asked for."""

    status: int
    why: str
    wait_s: float | None = None
    lasts: bool = False


async def forward_free(context: RequestContext, call: ProxiedRequest) -> web.StreamResponse:
    """Serve it by the first upstream that can. What it returns is prepared already, unless it is an answer of our own."""
    names = list(call.way.upstreams)
    failed = _Failed(503, "no upstream serves this")
    for again in range(_ROUNDS):
        waits: list[float] = []
        for name in tuple(names):
            outcome = await _ask(context, call, name, again)
            if not isinstance(outcome, _Failed):
                return outcome
            context.log.say_seldom(f"{call.recognised.endpoint}: {outcome.why}")
            failed = outcome
            if failed.lasts:
                names.remove(name)
            else:
                waits.append(failed.wait_s if failed.wait_s is not None else _WAIT_S * 2**again)
        wait_s = min(waits, default=None)
        if wait_s is None or wait_s > _WAIT_MAX_S or again == _ROUNDS - 1 or not _in_time(context, call, wait_s):
            break
        await asyncio.sleep(wait_s)
    return own_answer(call, failed.status, failed.why, None if failed.lasts else max(_AGAIN_S, round(failed.wait_s or 0)))


def _in_time(context: RequestContext, call: ProxiedRequest, wait_s: float) -> bool:
    return not context.stopping and context.clock.monotonic() + wait_s < call.arrived_at + context.settings.policy.hold_s


async def _ask(context: RequestContext, call: ProxiedRequest, name: str, again: int) -> web.StreamResponse | _Failed:
    found = context.upstream(name)
    if found is None:
        return _Failed(503, f"the upstream {name} cannot be used", lasts=True)
    upstream, key = found
    try:
        with await context.upstreams.send(name, outgoing(call, upstream, key)) as reply:
            return await _answered(call, reply, upstream, again)
    except Unreachable as error:
        return _Failed(503, f"the upstream {name} cannot be reached: {error.why}")


async def _answered(call: ProxiedRequest, reply: Reply, upstream: Upstream, again: int) -> web.StreamResponse | _Failed:
    if why := no_answer(upstream.name, reply):
        return _Failed(502, why, lasts=True)
    own_login, begun = upstream.key.kind == "client", b""
    try:
        if reply.status >= 400:
            begun = await reply.start(_ERROR_MAX)
        else:
            begun = await reply.chunk()
    except Cut as error:
        return _Failed(503, f"the upstream {upstream.name} cannot be reached: {error.why}")
    refused = refusal(call.asked.api, reply.status, reply.lower(), begun[:_ERROR_MAX])
    if refused is not None and not (own_login and refused[0] is Refusal.KEY_REFUSED):
        kind, seen = refused
        status = 429 if reply.status == 429 and kind not in _LASTING else 503
        lasts = kind in _LASTING and (again > 0 or kind is not Refusal.KEY_REFUSED)  # good keys are refused for moments
        return _Failed(status, f"the upstream {upstream.name} did not serve this: {kind}", seen.retry_after_s, lasts)
    client = web.StreamResponse(
        status=reply.status,
        reason=reply.reason,
        headers=passed_back(reply.headers.items(), 0.0, own_login=own_login, keeps_length=True),
    )
    await client.prepare(call.request)
    try:
        while begun:
            await client.write(begun)
            begun = await reply.chunk()
        await client.write_eof()
    except Cut:
        call.request.protocol.force_close()
    return client


# Request handler
# ---------------
# The front door: what a request must pass before it may wait for its turn.
#
# guard -> our own pages | WebSocket? -> address -> who -> body -> what is asked -> which upstreams -> forward


_STOPPED_AGAIN_S = 5
Page = Callable[[web.BaseRequest], Awaitable[web.Response]]


class RequestHandler:
    """Answers every request of the gateway."""

    def __init__(self, context: RequestContext, port: int, roster: Roster, pages: Mapping[str, Page], batches: Batches) -> None:
        """`port` is the gateway's; `pages` are its own, by path, and each looks after who may see it."""
        self._context = context
        self._batches = batches
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._roster = roster
        self._pages = pages
        self._tickets = itertools.count(1)
        self._primed: set[str] = set()
        self._bodies = Bodies()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request. Whatever goes wrong here, its client gets an answer in its own language, and the log a line without secrets."""
        recognised = None
        try:
            over_unix = request.headers.get("Host") == "localhost" and _is_unix(request)
            check_browser(self._hosts, request.method, request.headers, over_unix=over_unix)
            if page := self._pages.get(request.raw_path):
                return await page(request)
            headers = {name.lower(): value for name, value in request.headers.items()}
            if refused := upgrade_refused(request.method, request.raw_path, headers):
                return _last(web.Response(status=refused[0], headers=refused[1], body=refused[2]))
            recognised = recognise(request.method, request.raw_path)
            if recognised is None:
                raise Turned(404, "no such address; only the providers' own are passed on")
            if recognised.endpoint is Endpoint.PROBE:
                return web.Response()
            with self._cut_when_stopped():
                return await self._serve(request, recognised, headers)
        except Turned as turned:
            said = f"{turned.status} {request.method} {recognised.endpoint if recognised else ''}: {turned.why}"
            if isinstance(turned, _Refused):
                self._context.log.refused(said)
            elif turned.status == 429:
                self._context.log.say_seldom(said)
            return self._answer(request, recognised, turned)
        except NightcrewError as error:
            self._context.log.say_seldom(error)
            return self._answer(request, recognised, Turned(503, f"the gateway cannot work now: {error.what}", BUSY_AGAIN_S))
        except ConnectionError:
            raise
        except Exception as error:  # noqa: BLE001 - one broken request must not end the others; it is said, not hidden
            self._context.log.say(f"a request failed: {type(error).__name__}: {error} at {_place(error)}", Level.ERROR)
            return self._answer(request, recognised, Turned(500, "the gateway failed on this request"))

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

    async def _serve(self, request: web.BaseRequest, recognised: Recognised, headers: Mapping[str, str]) -> web.StreamResponse:
        context = self._context
        arrived_at = context.clock.monotonic()
        if context.stopping:
            raise Turned(503, "the gateway is being restarted; try again", BUSY_AGAIN_S)
        if context.stopped:
            raise Turned(503, "everything is stopped (nightcrew stop-all); nightcrew thaw lets it go on", _STOPPED_AGAIN_S)
        caller = await identify(self._roster, headers, recognised.token)
        with self._bodies.room(caller.agent.name) as take:
            body = await read_body(request, take)
            if recognised.endpoint in OF_BATCHES:
                return await self._batch(request, recognised, headers, caller.agent, body)
            asked = read(recognised, headers, body)
            if any(route.work for route in context.settings.routes):
                work, why = weigh(asked, len(body), caller.agent.work, raised=caller.agent.raised)
                asked = asked._replace(work=work, work_why=why)
            chosen = self._way(asked, caller)
            await self._prime(caller.agent)
            lane, ticket = lane_of(asked, chosen), next(self._tickets)
            capped = self._is_capped(caller.agent)
            bound = bound_of(asked, len(body), capped=capped)
            call = ProxiedRequest(
                request, recognised, asked, caller.agent, body, chosen, lane, ticket, arrived_at, key_of(body), bound, capped
            )
            if context.answers is not None and not asked.free:
                return await context.answers.serve(call, take)
            return await (forward_free if asked.free else forward)(context, call)

    async def _batch(
        self, request: web.BaseRequest, recognised: Recognised, headers: Mapping[str, str], agent: Agent, body: bytes
    ) -> web.StreamResponse:
        asked = read_batch(body) if (request.method, recognised.endpoint) == ("POST", Endpoint.BATCHES) else None
        chosen = self._way(Asked(Api.ANTHROPIC, recognised.endpoint, asked.model if asked else ""), Caller(agent, own_login=False))
        await self._prime(agent)
        return await self._batches.serve(BatchCall(request, recognised, headers, agent, body, asked, chosen, self._is_capped(agent)))

    def _is_capped(self, agent: Agent) -> bool:
        return agent.strict or self._context.settings.policy.cost_per_night is not None

    def _way(self, asked: Asked, caller: Caller) -> Way:
        """Raises when nobody can serve it: it would wait in vain."""
        context = self._context
        usable = context.usable(own_login=caller.own_login)
        if not asked.model:  # a list of models
            names = tuple(one.name for one in context.settings.upstreams if one.api is asked.api and one.name in usable)
            chosen = Way(names)
        else:
            chosen = way(context.settings, asked.api, asked.model, usable, caller.agent, asked.work)
        if chosen.upstreams:
            return chosen
        every = [one.name for one in context.settings.upstreams]
        if not asked.model or not way(context.settings, asked.api, asked.model, every, caller.agent, asked.work).upstreams:
            raise Turned(404, f"no upstream in the settings serves {asked.model or 'this'} over the {asked.api} API")
        raise Turned(503, "the upstream of this model cannot be used: there is no key for it; nightcrew doctor says more")

    async def _prime(self, agent: Agent) -> None:
        """Before a task's first request the queue is told what it, and its night, took before this gateway started: caps hold over
        restarts."""
        if agent.night is not None and agent.night.run not in self._context.admission.traffic.crew.nights:
            await self.prime_nights()
        if not agent.capped or agent.name in self._primed:
            return
        spent = await asyncio.to_thread(self._context.account.ask, reading.spent, agent.name)
        if agent.name not in self._primed:  # another request of it may have been quicker
            self._primed.add(agent.name)
            self._context.admission.traffic.crew.spent(agent.name, *spent)

    async def prime_nights(self) -> None:
        """Tell the queue what each night that has not ended spent before. Raises LedgerError."""
        for night, tasks in await self._roster.nights():
            if night.run not in self._context.admission.traffic.crew.nights:
                spent = await asyncio.to_thread(self._context.account.ask, reading.at_most, tasks)
                self._context.admission.traffic.crew.night_of(night, spent)

    def _answer(self, request: web.BaseRequest, recognised: Recognised | None, turned: Turned) -> web.Response:
        if request.writer.output_size:
            request.protocol.force_close()  # an answer has begun: nothing can be said any more but that it is broken
        headers, body = api_error(recognised.api if recognised is not None else None, turned.status, turned.why, turned.retry_after_s)
        response = web.Response(status=turned.status, headers=headers, body=body)
        unread = request.can_read_body and not request.content.at_eof()
        return _last(response) if unread or isinstance(turned, _Denied) else response


def _is_unix(request: web.BaseRequest) -> bool:
    return isinstance(request.transport and request.transport.get_extra_info("sockname"), str | bytes)


def _last(response: web.Response) -> web.Response:
    """The last one on its connection: what may follow is the rest of a body, or no HTTP at all."""
    response.force_close()
    return response


def _place(error: BaseException) -> str:
    """Where in our code it happened."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace is not None else "?"
