"""The gateway, put together, from ready to gone."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from supervisor.features.audit.rules import MOST, PRUNED
from supervisor.features.metrics.page import Live, Metrics
from supervisor.gateway import lifecycle, provider_keys
from supervisor.gateway.account import charges
from supervisor.gateway.account import queries as reading
from supervisor.gateway.account.charges import OpenRow, Prices
from supervisor.gateway.account.queries import Figures, Window
from supervisor.gateway.account.writer import Account, BatchBook
from supervisor.gateway.admission import traffic as memory
from supervisor.gateway.admission.traffic import Traffic
from supervisor.gateway.admission.types import Alert, LaneKey, NightCap, Tick, TrafficView, Usage
from supervisor.gateway.lifecycle import Reading, read
from supervisor.gateway.pages import CREW, METRICS, NOW, PAST, PING, RELOAD, STATUS, STOP, caps, status
from supervisor.gateway.provider_keys import Form, Handler, Keyring, Log, Redactor
from supervisor.gateway.proxy.batches import Batches, BatchKeeper
from supervisor.gateway.proxy.forward import Admission, RequestContext
from supervisor.gateway.proxy.front import Page, RequestHandler, Roster
from supervisor.gateway.proxy.upstreams import Timeouts, Upstreams
from supervisor.gateway.replay import Recorder
from supervisor.gateway.wire.headers import carried
from supervisor.host import attempt_tokens, secrets, unix_sockets
from supervisor.host.audit_log import Audit
from supervisor.host.clock import Clock, SystemClock, moment
from supervisor.host.paths import Home
from supervisor.kernel.audit import log_format
from supervisor.kernel.errors import NightcrewError, Refused, ToolFailed
from supervisor.kernel.format import duration
from supervisor.kernel.gateway_settings import Api, GatewaySettings
from supervisor.kernel.pressure import Slept, between
from supervisor.kernel.states import TaskClass

# Gateway
# -------
# The gateway, put together: the only place that builds its objects. `main` makes a process of it; tests run it in theirs.


DRAIN_S = 10.0
"""Streams in flight have so long when the gateway stops."""
_NIGHT_S = 12 * 3600.0
_RESTORED_S = 120.0
"""What was charged in this time before the start is told to the queue: two minutes of refill are more than any bucket holds."""
_NOTED_S = 1.0
"""What is seen of the requests under way is written down so often: of what a killed gateway had seen, the last second is lost."""
_STOP_LOOK_S = 0.25
"""Between two looks whether a person has stopped everything."""
_SLEEP_LOOK_S = 1.0
_CHORES_EVERY = 30
"""Notes between two rounds of the other chores."""
_PRUNED_EVERY = 120
"""Rounds between two prunings of the account: an hour."""
_IDLE_S = 120.0
"""A connection on which no whole request came for so long is closed: one that is kept alive, and one that sends a header a minute."""
_LINGER_S = 2.0
"""The rest of a body that was refused is read and thrown away for so long, so that its sender sees the answer."""
_HEADERS_MAX = 100
_FIELD_MAX = 16 * 2**10


@dataclass(frozen=True, slots=True)
class Place:
    """The home, the settings file and the clock of one gateway."""

    home: Home
    config: Path
    clock: Clock
    timeouts: Timeouts = Timeouts()  # noqa: RUF009 - it is frozen


class Gateway:
    """Belongs to one event loop."""

    def __init__(self, place: Place, settings: GatewaySettings) -> None:
        """Raises Refused when the secret can be read by others."""
        self._place = place
        self._redactor = Redactor()
        self._secret = secrets.own(place.home.secret)
        self._audit = Audit(place.home.audit, self._secret, place.clock, "gateway")
        form = Form(log_format(os.environ))
        self.log = Log(place.home.gateway_log, self._redactor, place.clock, audit=self._audit, form=form)
        self.settings = settings
        self._account = Account(place.home.gateway_account, place.clock.wall)
        self._metrics = Metrics(place.home, self._account, Live(self._view, self._caps), place.clock)
        self._book = BatchBook(self._account)
        self._roster = Roster(place.home.ledger, self._secret, place.clock.monotonic)
        self._upstreams = Upstreams(place.timeouts)
        self._logging = Handler(self.log)
        self.stop_asked = asyncio.Event()
        self.on_reload: Callable[[], None] = lambda: None
        """Is called once other settings hold."""

    async def start(self, listeners: list[socket.socket], port: int) -> None:
        """Answer at `listeners`, one of which has the TCP `port`. Raises LedgerError or DiskFull when the account cannot be written."""
        logging.getLogger().addHandler(self._logging)
        self.context = self._assemble()
        self._follow_engines()
        self._keep_answers(self.settings)
        own = StatusRoutes(self.context, self._secret, port, self._metrics, stop=self.stop_asked.set, reload=self.reload)
        keeper = BatchKeeper(self.context, self._book)
        front = RequestHandler(self.context, port, self._roster, own.pages(), Batches(self.context, keeper))
        nights: list[tuple[NightCap, list[str]]] = []
        with contextlib.suppress(NightcrewError):  # no ledger yet; a night is told of again before its first request
            await front.prime_nights()
            nights = await self._roster.nights()
        keeper.restore(nights)
        server = web.Server(
            front.handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_IDLE_S,
            lingering_time=_LINGER_S,
            max_headers=_HEADERS_MAX,
            max_field_size=_FIELD_MAX,
            max_line_size=_FIELD_MAX,
            logger=logging.getLogger("nightcrew.gateway"),
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=DRAIN_S)
        await self._runner.setup()
        for listener in listeners:
            await self.listen(listener)
        self._chores = asyncio.gather(self._do_chores(), self._obey_the_sentinel(), self._notice_sleep(), self._look_at_batches(keeper))

    async def listen(self, listener: socket.socket) -> None:
        """Answer at one more."""
        await web.SockSite(self._runner, listener).start()

    async def close(self) -> None:
        """Take nothing new, give the streams `DRAIN_S` to end, then cut them; write everything down."""
        self.context.stopping = True
        self._chores.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._chores
        if self.context.engines is not None:
            self.context.engines.close()
        self.context.admission.close()
        await self._runner.cleanup()
        await self._metrics.close()
        self._remember()
        await self._upstreams.close()
        for placement in self.context.placements.values():
            placement.close()
        await self._roster.close()
        await self._account.close()
        logging.getLogger().removeHandler(self._logging)

    async def reload(self) -> None:
        """Take the settings and keys as they are now; streams and queues stay. Raises ConfigError, and then nothing has changed."""
        settings = await asyncio.to_thread(read, self._place.config, self._place.home.keys)
        keyring = await asyncio.to_thread(provider_keys.read_all, self._place.home, settings.upstreams)
        self._learn_secrets(keyring)
        self.context.prices = Prices.load(self._place.home.prices, settings.prices)
        self.settings = self.context.settings = settings
        self.context.keyring, self.context.recorder = keyring, self._recorder(settings, keyring)
        self._keep_answers(settings)
        self.context.admission.reload(settings)
        self._follow_engines()
        self._say_problems(keyring)
        await asyncio.to_thread(self._note_keys, keyring)
        self.on_reload()
        self.log.say(f"settings read again: {_names(settings)}")

    # Parts --------------------------------------------------------------------------------------------------------------------------

    def _assemble(self) -> RequestContext:
        """Everything that needs the account, which is opened here: what a gateway before this one left open is charged now."""
        home, clock, settings = self._place.home, self._place.clock, self.settings
        keyring = provider_keys.read_all(home, settings.upstreams)
        self._learn_secrets(keyring)
        prices = Prices.load(home.prices, settings.prices)
        crashed = self._account.start(prices.cost)
        self._book.start()
        if crashed:
            self.log.say(f"{len(crashed)} requests were under way when the last gateway died; they are charged what was expected of them")
        traffic = self._traffic()
        self._account.recosted = lambda agent, usd, tokens, surplus: traffic.crew.recost(agent, usd, tokens, clock.monotonic(), surplus)
        admission = Admission(traffic, self._account, self.log, clock.monotonic)
        self._say_problems(keyring)
        self._note_keys(keyring)
        return RequestContext(
            settings,
            keyring,
            admission,
            self._account,
            self._upstreams,
            prices,
            self.log,
            clock,
            self._recorder(settings, keyring),
            sentinel=home.sentinel,
            engines_dir=home.engines,
        )

    def _keep_answers(self, settings: GatewaySettings) -> None:
        """Keep answers from now on, or none. Requests under way go on as they began."""
        before = self.context.answers
        if settings.cache is None:
            self.context.answers = None
        elif before is None or before.shelf.settings != settings.cache:
            from supervisor.gateway.proxy.answers import Answers, Shelf  # most gateways keep none

            self.context.answers = Answers(self.context, Shelf(self._place.home.answers, self._secret, settings.cache))

    def _recorder(self, settings: GatewaySettings, keyring: Keyring) -> Recorder | None:
        if not settings.record:
            return None
        return Recorder(self._place.home.recordings, self._account.recorded, self._place.clock, keyring.keys.values())

    def _follow_engines(self) -> None:
        """Know the engines of the settings, where there are any."""
        if self.context.engines is not None:
            self.context.engines.close()
            self.context.engines = None
        if any(upstream.engine is not None for upstream in self.settings.upstreams):
            from supervisor.gateway.engines import Engines  # late: most gateways have none

            self.context.engines = Engines(self._place.home, self.settings, self.context.admission)

    def _remembered(self) -> dict[str, Any]:
        """What was learned before; it only saves time, so that it cannot be read must not keep the gateway from starting."""
        try:
            return self._account.recall()
        except (NightcrewError, ValueError) as error:
            self.log.say(f"what was learned is forgotten: {type(error).__name__}")
            return {}

    def _traffic(self) -> Traffic:
        """The queue, with what it learned before and what was charged just now."""
        clock = self._place.clock
        now = clock.monotonic()
        traffic = Traffic(self.settings, now, seed_jitter=clock.wall() % 1)
        traffic.recall(self._remembered(), now)
        memory.restore(traffic.network, traffic.crew, self._account.ask(reading.recent, clock.wall(), _RESTORED_S), now)
        if self.settings.policy.cost_per_night is not None:
            traffic.crew.night.spent.add(self._account.ask(reading.spent_since, clock.wall() - _NIGHT_S), now)
        return traffic

    def _learn_secrets(self, keyring: Keyring) -> None:
        for key in keyring.keys.values():
            self._redactor.add(key)

    def _say_problems(self, keyring: Keyring) -> None:
        for name, problem in keyring.problems.items():
            self.log.say(f"the upstream {name} cannot be used: {problem.line()}")
            self._account.alert(Alert(f"key of {name}", problem.line()))

    def _note_keys(self, keyring: Keyring) -> None:
        """Which were read; which one each request used, its row says."""
        used = {
            "of": ", ".join(sorted(name for name, key in keyring.keys.items() if key)),
            "not usable": ", ".join(sorted(keyring.problems)),
        }
        with contextlib.suppress(NightcrewError):  # a full disk must not stop the traffic
            self._audit.note("keys read", {name: text for name, text in used.items() if text})

    def _view(self) -> TrafficView:
        return self.context.admission.traffic.view(self._place.clock.monotonic())

    def _caps(self) -> Mapping[str, Any]:
        return caps(self.context.admission.traffic.crew, self._place.clock.monotonic())

    # Chores -------------------------------------------------------------------------------------------------------------------------

    async def _do_chores(self) -> None:
        """Do what is due now and then. A failure is logged, and tried again the next time."""
        for count in range(1 << 62):
            await asyncio.sleep(_NOTED_S)
            try:
                self._account.note()
                self.context.prices.refresh()
                if (count + 1) % _CHORES_EVERY:
                    continue
                self._remember()
                await self._metrics.fresh()
                if count // _CHORES_EVERY % _PRUNED_EVERY == 0:
                    await self._prune(self.settings.keep_days * 86400)
            except NightcrewError as error:
                self.log.say_seldom(error)

    async def _look_at_batches(self, keeper: BatchKeeper) -> None:
        """See to batches for which no agent asks any more. A failure is logged, and tried again the next time."""
        while True:
            await asyncio.sleep(self._place.timeouts.batches_s)
            try:
                if not self.context.stopped:
                    await keeper.look()
            except NightcrewError as error:
                self.log.say_seldom(error)

    async def _obey_the_sentinel(self) -> None:
        """Cut every request that is under way when a person stops everything: `RequestHandler` takes no more of them then."""
        while True:
            await asyncio.sleep(_STOP_LOOK_S)
            if self.context.under_way and self.context.stopped:
                self.log.say(f"everything was stopped: {len(self.context.under_way)} requests are cut")
                for task in self.context.under_way:
                    task.cancel()

    async def _notice_sleep(self) -> None:
        """Let what was parked go on when its time passed while the machine slept."""
        before = moment(self._place.clock)
        while True:
            await asyncio.sleep(_SLEEP_LOOK_S)
            now = moment(self._place.clock)
            for slept in (found for found in between(before, now) if isinstance(found, Slept)):
                self.log.say(f"the machine slept for {duration(slept.seconds)}")
                self.context.admission.tell(Tick(slept.seconds))
            before = now

    async def _prune(self, older_than_s: float) -> None:
        rows = await asyncio.to_thread(self._account.prunable, older_than_s)
        if rows:  # said first: what is missing without that was taken away by somebody else
            said = [(PRUNED, {"rows": rows[first : first + MOST]}) for first in range(0, len(rows), MOST)]
            await asyncio.to_thread(self._audit.note_all, said)
        await self._account.prune(older_than_s)

    def _remember(self) -> None:
        self._account.remember(self.context.admission.traffic.learned())


def _names(settings: GatewaySettings) -> str:
    return ", ".join(upstream.name for upstream in settings.upstreams) or "no upstream"


# Listen
# ------
# Where the gateway listens: 127.0.0.1 and a UNIX socket, and nothing else.


HOST = "127.0.0.1"
WAIT_S = 2.0
"""How long a port may still be held by the gateway before this one."""
_BACKLOG = 1024
_LOOK_S = 0.05


def on_port(port: int, pause: Callable[[float], None] = time.sleep) -> socket.socket:
    """A listening socket on 127.0.0.1; 0 takes a free port. Raises Refused when another process has it for longer than 2 s."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return _bound(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise _taken(port, error) from error
        pause(_LOOK_S)


def on_path(path: Path) -> socket.socket:
    """A listening UNIX socket that only its owner can open, in place of whatever is at `path`. Raises ToolFailed."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    draft = path.with_name(f".{path.name}")  # put in place when it is private: for no moment can others open it
    try:
        draft.unlink(missing_ok=True)
        listener.bind(str(draft))
        draft.chmod(0o600)
        listener.listen(_BACKLOG)
        draft.rename(path)
    except OSError as error:
        listener.close()
        raise ToolFailed("cannot listen", on=str(path), why=error.strerror or str(error)) from error
    return listener


def _bound(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the one before may still linger
        listener.bind((HOST, port))
        listener.listen(_BACKLOG)
        if listener.getsockname()[0] != HOST:
            raise Refused("will not listen", on=str(listener.getsockname()[0]), why="it is not this machine alone")
    except BaseException:
        listener.close()
        raise
    return listener


def _taken(port: int, error: OSError) -> Refused:
    holder = _holder(port)
    return Refused(
        "cannot listen",
        on=f"{HOST}:{port}",
        why=f"pid {holder} has it" if holder else error.strerror or str(error),
        kept="nothing was started",
        hint=f"end that process, or set another port under [gateway] (now {port})",
    )


def _holder(port: int) -> int | None:
    """Who listens there, as far as we may see: other users' processes are hidden from us."""
    import psutil  # a tenth of a gateway's start, and seldom needed

    try:
        found = (one.pid for one in psutil.net_connections("tcp4") if one.status == psutil.CONN_LISTEN and tuple(one.laddr)[1:] == (port,))
        return next((pid for pid in found if pid), None)
    except (psutil.Error, OSError):
        return None


# Running
# -------
# The gateway from ready to gone, once the process is prepared.


_STOPS = (signal.SIGTERM, signal.SIGINT)


def run(home: Home, config: Path, reading: Reading, complaints: list[str]) -> None:
    """Serve until SIGTERM, SIGINT or a stop. `complaints` go to the log. Raises what keeps it from starting."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(Place(home, config, SystemClock()), reading, complaints))


async def _serve(place: Place, reading: Reading, complaints: list[str]) -> None:
    gateway = Gateway(place, reading.result())
    # A port that the settings name is taken as it is; otherwise the one of before, because agents that outlived it still send there.
    tcp = on_port(gateway.settings.port or lifecycle.kept_port(place.home))
    port = int(tcp.getsockname()[1])
    unix = on_path(place.home.gateway_socket)
    _listen(gateway.stop_asked)
    await gateway.start([tcp, unix], port)
    for complaint in complaints:
        gateway.log.say(complaint)
    gateway.log.say(f"ready on {HOST}:{port}")
    record = lifecycle.record_of(port, gateway.settings.upstreams, place.clock)
    lifecycle.write_record(place.home, record)  # last: whoever reads it finds all the rest

    def note_upstreams() -> None:
        if record["upstreams"] != (now := lifecycle.upstream_names(gateway.settings.upstreams)):
            record["upstreams"] = now
            lifecycle.write_record(place.home, record)

    gateway.on_reload = note_upstreams
    _be_silent()
    # What was imported and built stays for ever: looking through it again cost the streams 50 to 190 ms at each full collection.
    gc.collect()
    gc.freeze()

    async def bind() -> None:
        await gateway.listen(on_path(place.home.gateway_socket))

    kept = asyncio.get_running_loop().create_task(unix_sockets.keep(place.home.gateway_socket, bind, gateway.log.say))
    await gateway.stop_asked.wait()
    kept.cancel()
    gateway.log.say("stopping")
    place.home.gateway_socket.unlink(missing_ok=True)
    await gateway.close()
    gateway.log.say("stopped")
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)


def _listen(stop_asked: asyncio.Event) -> None:
    """A stop that is asked for by a signal. The loop's own handlers bring the default back when it closes: asked once more, a gateway that
    has ended well would be killed."""
    loop = asyncio.get_running_loop()

    def heard(number: int, frame: object) -> None:  # noqa: ARG001 - what a handler gets
        loop.call_soon_threadsafe(stop_asked.set)

    for number in _STOPS:
        signal.signal(number, heard)


def _be_silent() -> None:
    """From here on everything is said to the log, which is clean of secrets; what a library prints goes nowhere."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


# Status
# ------
# The gateway's own pages. They are for the user's own programs, which can read the secret: no agent's token opens them.


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
            if not found or not (attempt_tokens.is_admin(self._secret, found[0]) or also(found[0])):
                agent = any(text.startswith(attempt_tokens.PREFIX) for text in found)
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
            wall = self._context.clock.wall()
            seconds = min(_WINDOW_S, max(1.0, wall - self._since))
            self._window = await asyncio.to_thread(self._context.account.ask, reading.window, wall, seconds)
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
        known: dict[str, Any] = {"accounts": sorted({upstream.account for upstream in context.settings.upstreams})}
        if context.answers is not None:
            known["cache"] = context.answers.shape()
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
