"""The gateway as the supervisor keeps it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from supervisor import __version__
from supervisor.config import gateway, user
from supervisor.gateway import lifecycle, pages
from supervisor.gateway.admission.bucket import INPUT, NAMES, OUTPUT, TOKENS
from supervisor.gateway.admission.types import BreakerState, Refusal
from supervisor.gateway.lifecycle import ProcessWatch
from supervisor.host import processes
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel.audit import Said, log_format
from supervisor.kernel.errors import ConfigError, NightcrewError, NotRunning, TimedOut, ToolFailed, one_line
from supervisor.kernel.events import Event, NightsSpent, ProviderChanged, TrafficChanged
from supervisor.kernel.gateway_settings import GatewaySettings, Upstream
from supervisor.kernel.names import Identity
from supervisor.kernel.night import NightSpent
from supervisor.kernel.schedule import spent_by_nights
from supervisor.server import gateway_process, prices
from supervisor.server.gateway_report import GatewayReport
from supervisor.server.wakeups import was_set

# Gateway problems
# ----------------
# The problems in the gateway's status that a person must mend, in the words that both `doctor` and the supervisor use.
#
# Only what waiting does not mend by itself, or has not for a minute: a limit that was reached is the gateway's daily work.


UNSERVED_S = 60.0
"""So long an upstream may serve nothing before a person hears of it: shorter outages happen every night and mend themselves."""
DEAD_S = 10.0
"""So long no provider may serve anything before tasks are kept from starting: the breaker opens for less than that at a hiccup."""
_UNSERVED = (*map(str, (Refusal.OVERLOADED, Refusal.SERVER_ERROR, Refusal.UNREACHABLE)), "streams are cut")
RELOAD = "nightcrew gateway reload"


class GatewayProblems:
    """The problems of one gateway, from one look to the next."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._unserved_since: dict[str, float] = {}
        self.now: dict[str, str] = {}
        """What is wrong as of the last look, by what stays the same while its words change."""
        self.dead = ""
        """Why no provider that is in use serves anything, and has not for `DEAD_S`; empty: one does."""

    def look(self, status: dict[str, Any], settings: GatewaySettings, now: float) -> list[str]:
        """What is wrong now and was not at the look before. `now` is monotonic seconds."""
        failing = unserved(status)
        self._unserved_since = {account: self._unserved_since.get(account, now) for account in failing}
        self.dead = self._all_dead(status, failing, now)
        found = {said: said for said in standing(self._home, status, settings)}
        for account, words in failing.items():
            if now - self._unserved_since[account] >= UNSERVED_S:
                found[account] = f"{words} for a minute; requests wait until it does: nightcrew gateway status"
        before, self.now = self.now, found
        told = set(before) | (set(failing) if self.dead else set())  # that nothing is served at all is told as an outage
        return [said for key, said in found.items() if key not in told]

    def _all_dead(self, status: dict[str, Any], failing: dict[str, str], now: float) -> str:
        """An account is dead that cannot be reached, or that serves none of its lanes; one that nobody asks has no word."""
        asked = [pool for pool in status["pools"] if pool["breaker"] is not None]
        serve = {pool["account"] for pool in asked if not (str(pool["breaker_why"]).startswith(_UNSERVED) and _is_open(pool))}
        unreached = {pool["account"] for pool in asked if str(pool["breaker_why"]).startswith(Refusal.UNREACHABLE) and _is_open(pool)}
        if not failing or serve - unreached or any(now - since < DEAD_S for since in self._unserved_since.values()):
            return ""
        return "; ".join(words for _, words in sorted(failing.items()))


def standing(home: Home, status: dict[str, Any], settings: GatewaySettings) -> list[str]:
    """What only a person can mend: an upstream without its key, with one that is refused, or with no money left."""
    said = [one_line(str(problem)) for problem in status["problems"]]
    said += [f"{upstream.name} refuses its key: {next_step(home, upstream)}" for upstream in refused(status, settings)]
    capped = {pool["account"] for pool in _open(status) if pool["breaker_why"].startswith(Refusal.SPEND_CAP)}
    said += [f"{account} has reached its spend cap: raise it at the provider" for account in sorted(capped)]
    return list(dict.fromkeys(said))


def refused(status: dict[str, Any], settings: GatewaySettings) -> list[Upstream]:
    """Those whose key the provider did not take. One that is in the settings no more is not among them."""
    accounts = {pool["account"] for pool in _open(status) if pool["breaker_why"].startswith(Refusal.KEY_REFUSED)}
    return [upstream for upstream in settings.upstreams if upstream.account in accounts]


def unserved(status: dict[str, Any]) -> dict[str, str]:
    """Account -> what its provider does not serve now and why, which may be over in a second; one lane stands for all that fail."""
    failing = [pool for pool in _open(status) if pool["breaker_why"].startswith(_UNSERVED)]
    return {pool["account"]: one_line(f"{pool['account']} has not served {pool['lane']} ({pool['breaker_why']})") for pool in failing}


def next_step(home: Home, upstream: Upstream) -> str:
    """What gives an upstream its key."""
    source = upstream.key
    if source.kind == "command":
        return f"let {one_line(source.argv[0])} print the right one, then {RELOAD}"
    if source.kind == "client":
        return "log in again in the agent's own client"
    return f"put the key into {source.value or home.keys / f'{upstream.name}.key'} (mode 600), then {RELOAD}"


def _open(status: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return filter(_is_open, status["pools"])


def _is_open(pool: dict[str, Any]) -> bool:
    """Whether its breaker is not closed. Pools of which only the account knows have none."""
    return pool["breaker"] not in (None, BreakerState.CLOSED)


# Models
# ------
# The settings file as it is now: what the gateway and new agents are told follows it, and what needs a restart is named.


STILL_S = 0.2
"""A file is read once it has not changed for this long: an editor may truncate it before it writes."""

_Stamp = tuple[tuple[str, int, int, int], ...]


class Models:
    """One supervisor's view of the settings. May be asked from any thread."""

    def __init__(self, home: Home, file: Path) -> None:
        """Raises ConfigError as every file does."""
        self.home = home
        self.file = file.absolute()
        self.alert: Callable[[str], None] = lambda _: None
        """Is told, from the thread that asks, of a file that cannot be read any more, and of changes that need a restart."""
        self._lock = threading.Lock()
        self._stamp = self._look()
        self.at_start = user.read(self.file)
        self._newest = self.at_start
        self._settings = gateway.settings(self.at_start, home.keys)
        self.version = 0
        """Grows whenever the settings or a key may have changed."""

    def now(self, *, at_once: bool = False) -> GatewaySettings:
        """Return the gateway's settings; if the file became unreadable, those of before. Costs a few `stat` while nothing changed.

        `at_once`: do not wait until the file has stood still for STILL_S; for a person who says that the file is ready.
        """
        with self._lock:
            stamp = self._look()
            if stamp != self._stamp and (at_once or _stands_still(stamp)):
                self._stamp = stamp
                self._read()
            return self._settings

    def outdated(self) -> list[str]:
        """Return a sentence for each process that must be restarted to take up what changed, and for each key that nothing uses."""
        found = [user.words(keys)] if (keys := user.restart_needed(self.at_start, self._newest)) else []
        record, port = lifecycle.read_record(self.home), self._settings.port
        found += self._unused()
        return [*found, *([user.PORT_WORDS] if port and record is not None and port != record.port else [])]

    def _unused(self) -> list[str]:
        """Name each kept key that no upstream of the file can use. Without any upstream in the file all kept keys are used."""
        apis = {upstream.api for upstream in self._settings.upstreams}
        kept = [api for api in gateway.HOMES if api not in apis and (self.home.keys / f"{api}.key").is_file()] if apis else []
        why = f"{self.file} names upstreams, and none for"
        return [f"no agent uses {self.home.keys / f'{api}.key'}: {why} {api}; add [upstream.{api}]" for api in kept]

    def _read(self) -> None:
        try:
            newest = user.read(self.file)
        except ConfigError as error:
            self.alert(f"the settings cannot be read; new agents get those of before: {error.line()}")
            return
        self._newest, self._settings = newest, gateway.settings(newest, self.home.keys)
        self.version += 1
        for sentence in self.outdated():
            self.alert(sentence)

    def _look(self) -> _Stamp:
        """Changes when the settings file or a key may have changed."""
        try:
            keys = sorted(self.home.keys.iterdir())
        except OSError:
            keys = []
        return tuple(map(_stamp, (self.file, self.home.keys, *keys)))


def _stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return (str(path), 0, 0, 0)
    return (str(path), found.st_mtime_ns, found.st_size, found.st_ino)


def _stands_still(stamp: _Stamp) -> bool:
    """Return whether the files last changed some time ago. A time in the future comes from another clock and does not count as a change."""
    return not 0 <= time.time_ns() - max(each[1] for each in stamp) < STILL_S * 1e9


# Gateway
# -------
# The gateway as the daemon keeps it: started when the settings name an upstream, found again by a later daemon, started anew when
# it dies or hangs. When to do what is decided in `supervisor/gateway/lifecycle.py`.
#
# Nothing waits for it: this is a task beside the loop, and what may block is done in a thread of its own. The gateway's flock keeps
# two daemons from having two.


LOOK_S = 2.0
"""Between two questions to a gateway that answers; its death is seen at once where the kernel has pidfds."""
SILENT_S, STARTING_S = 0.5, 0.05
QUESTION_S = 3.0
FIGURES_S = 10.0
"""Between two times that it is told how the crew is."""
AGAIN_S = 3600.0
"""After a price table that could not be written."""
WANTED_LOOK_S = 1.0
"""Between two looks whether a gateway is wanted."""
T = TypeVar("T")
Figures = Callable[[], Awaitable[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Load:
    """What its status says of its work."""

    busy: bool
    """A request is queued or being served."""
    traffic: TrafficChanged
    nights: Mapping[str, NightSpent] = field(default_factory=dict)


class Gateway:
    """One daemon's gateway. `run` it as a task of the daemon's event loop."""

    def __init__(
        self, models: Models, clock: Clock, tell: Callable[[Event], None], say: Callable[[Said], None], figures: Figures | None = None
    ) -> None:
        """`tell` is given `TrafficChanged` events, `say` what a person should know; `figures`: what it is told for its page of metrics."""
        self._home = models.home
        self._models = models
        self._settings_file = models.file
        self._clock = clock
        self._tell = tell
        self._say = say
        self._watch = ProcessWatch()
        self._thread = ThreadPoolExecutor(1, "gateway")
        self._child: subprocess.Popen[bytes] | None = None
        self._followed: Identity | None = None
        self._exit_fd = -1
        self._stopped_by_us = False
        self._told = TrafficChanged(0.0)
        self._knows_load = False
        """Whether the one that runs now has said how busy it is."""
        self._told_dead = False
        self._complaints = GatewayProblems(self._home)
        self._wake = asyncio.Event()
        self._figures = figures
        self._figured_at = -FIGURES_S
        self._version = models.version
        """Version of the settings that the gateway has read."""

    # What others ask ---------------------------------------------------------------------------------------------------------------

    @property
    def why_not(self) -> str:
        """Why no agent can reach a model now; empty when it can."""
        if self._watch.ready:
            return "" if self._knows_load else "the gateway has not said yet how busy it is"
        if self._watch.failing:
            return "the gateway does not stay up"
        return "the gateway is being started" if self._followed is None or self._watch.starting else "the gateway does not answer"

    @property
    def word(self) -> GatewayReport:
        """A report on the gateway, as of the last look."""
        return GatewayReport(tuple(self._complaints.now.values()), self._told.delay_s, self._told.parked, died=self._watch.young_deaths > 0)

    # The watch -----------------------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep one running until cancelled; it goes on without us then."""
        try:
            while True:
                await self._turn()
                await was_set(self._wake, self._pause())
                self._wake.clear()
        finally:
            self._unfollow()
            self._thread.shutdown(wait=False)
            if self._child is not None:
                self._child.returncode = 0  # it outlives us on purpose: Popen would warn of it

    async def _turn(self) -> None:
        try:
            who = await self._in_thread(self._find)
            if who != self._followed:
                self._follow(who)
            if who is None:
                await self._restart()
            else:
                await self._question(who)
        except NightcrewError as error:
            self._say(error)
        except Exception as error:  # noqa: BLE001 - whatever one look raises, the next one must come: without it nothing would start again
            self._say(one_line(f"the gateway's watch failed: {type(error).__name__}: {error}"))

    def _pause(self) -> float:
        now = self._clock.monotonic()
        if self._followed is None:
            return max(STARTING_S, self._watch.may_start_at - now)
        if self._watch.ready:
            return LOOK_S
        return STARTING_S if self._watch.starting else SILENT_S

    async def _in_thread(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    # Life and death -------------------------------------------------------------------------------------------------------------------

    def _find(self) -> Identity | None:
        """The gateway that lives: the one that says so in its record, or the one that we started and that is not ready yet."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        found = gateway_process.running(self._home)
        if found is not None:
            return found.identity
        return processes.identity(self._child.pid) if self._child is not None else None

    async def _restart(self) -> None:
        now = self._clock.monotonic()
        if now < self._watch.may_start_at:
            return
        self._version = self._models.version
        self._child = await self._in_thread(gateway_process.spawn, self._home, self._settings_file, os.environ)
        self._watch.started(now)
        self._follow(processes.identity(self._child.pid))

    def _follow(self, who: Identity | None) -> None:
        """From now on it is this one, and the one before is gone."""
        before, self._followed, self._figured_at = self._followed, who, -FIGURES_S
        self._unfollow()
        if before is not None and not processes.alive(before):
            self._died()
        if who is not None and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # gone already, or the kernel has none: the next look sees it
                self._exit_fd = os.pidfd_open(who.pid)
                asyncio.get_running_loop().add_reader(self._exit_fd, self._exited)

    def _exited(self) -> None:
        self._unfollow()
        self._wake.set()

    def _unfollow(self) -> None:
        if self._exit_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._exit_fd)
            os.close(self._exit_fd)
            self._exit_fd = -1

    def _died(self) -> None:
        self._knows_load = False
        if self._stopped_by_us:
            self._stopped_by_us, self._watch = False, ProcessWatch()
            return
        served = self._watch.ready
        self._watch.died(self._clock.monotonic())
        self._publish(TrafficChanged(0.0))
        self._tell_if_dead("")  # whoever comes next has asked nobody yet
        words = gateway_process.last_words(self._home)
        if self._watch.failing:
            self._say(f"the gateway does not stay up, and nothing new starts until it does: {one_line(words) or 'it said nothing'}")
        elif served:
            self._say("the gateway died; it is started again, and requests that it held are sent again by their clients")

    # Questions ------------------------------------------------------------------------------------------------------------------------

    async def _question(self, who: Identity) -> None:
        asked_at = self._clock.monotonic()
        failing = self._watch.failing
        try:
            answer = await self._in_thread(self._ask, pages.PING)
        except (NotRunning, TimedOut, ToolFailed):
            answer = {}
        now = self._clock.monotonic()
        if answer.get("pid") == who.pid:
            if self._watch.answered(now):
                await self._became_ready(failing)
            await self._take_up()
            await self._look_at_load(who)
            await self._tell_figures()
        elif self._watch.unanswered(asked_at, now):
            self._say("the gateway did not answer any more and was killed")
            processes.send(who, signal.SIGKILL)

    def _ask(self, page: str, *, post: bool = False, timeout_s: float = QUESTION_S) -> dict[str, Any]:
        return pages.ask(self._home, page, post=post, timeout_s=timeout_s)

    async def _became_ready(self, failed_before: bool) -> None:
        if failed_before:
            self._say("the gateway runs again")
        if self._child is None:  # an earlier daemon started it: our settings may be others
            await self._in_thread(lambda: self._ask(pages.RELOAD, post=True, timeout_s=pages.RELOAD_S))

    async def _take_up(self) -> None:
        """Have the gateway read settings and keys that changed."""
        await self._in_thread(self._models.now)
        if self._version != self._models.version:
            self._version = self._models.version
            await self._in_thread(lambda: self._ask(pages.RELOAD, post=True, timeout_s=pages.RELOAD_S))

    async def _look_at_load(self, who: Identity) -> None:
        status = await self._in_thread(self._ask, pages.NOW)
        settings = await self._in_thread(self._models.now)
        load = _load(status)
        self._publish(load.traffic)
        if load.nights:
            self._tell(NightsSpent(load.nights))
        if not self._knows_load:
            self._knows_load = True
            self._tell(self._told)  # wakes the loop: what waited for the gateway can start
        for complaint in self._complaints.look(status, settings, self._clock.monotonic()):
            self._say(f"the gateway: {complaint}")
        self._tell_if_dead(self._complaints.dead)
        if not load.busy and self._is_outdated(who):
            self._stopped_by_us, self._watch = True, ProcessWatch()
            await self._in_thread(lambda: self._ask(pages.STOP, post=True))

    async def _tell_figures(self) -> None:
        now = self._clock.monotonic()
        if self._figures is None or now - self._figured_at < FIGURES_S:
            return
        self._figured_at = now
        figures = await self._figures()
        with contextlib.suppress(NightcrewError):  # it is another version, or dies just now: its page does without
            await self._in_thread(lambda: pages.fetch(self._home, pages.CREW, body=figures, timeout_s=QUESTION_S))

    def _is_outdated(self, who: Identity) -> bool:
        """Return whether another version started the gateway, or one with another settings file or log format."""
        record = lifecycle.read_record(self._home)
        other = record is not None and (record.version, record.log_format) != (__version__, log_format(os.environ))
        return other or not processes.runs(who.pid, "--config", str(self._settings_file))

    def _publish(self, traffic: TrafficChanged) -> None:
        """Send `TrafficChanged`, unless nothing changed."""
        if replace(traffic, delay_s=self._told.delay_s) != self._told or abs(traffic.delay_s - self._told.delay_s) >= 1.0:
            self._told = traffic
            self._tell(traffic)

    def _tell_if_dead(self, why: str) -> None:
        if bool(why) != self._told_dead:
            self._told_dead = bool(why)
            self._tell(ProviderChanged(why))


class GatewayKeeper:
    """Keeps a gateway running while the settings name an upstream or allow its metrics to be scraped. It follows changes of the settings: a
    supervisor that began without a gateway starts one when an upstream is added."""

    def __init__(self, models: Models, clock: Clock, made: Callable[[], Gateway], are_agents_alive: Callable[[], bool]) -> None:
        self._models = models
        self._home = models.home
        self._clock = clock
        self._made = made
        self._are_agents_alive = are_agents_alive
        self._gateway: Gateway | None = None

    def why_not(self) -> str:
        """Return why no agent can reach a model now; empty if it can, and where no gateway is needed."""
        if not self._models.now().upstreams:
            return ""
        return self._gateway.why_not if self._gateway is not None else "the gateway is being started"

    def word(self) -> GatewayReport | None:
        """Return the report of the last look; None where no gateway is needed."""
        if not self._models.now().upstreams:
            return None
        return self._gateway.word if self._gateway is not None else GatewayReport()

    def read_settings(self) -> list[str]:
        """Read the settings file as it is now. Return a sentence for each process that must be restarted to take it up."""
        self._models.now(at_once=True)
        return self._models.outdated()

    async def run(self, say: Callable[[Said], None]) -> None:
        """Keep it until cancelled; the gateway goes on without us then."""
        while True:
            while not self._is_wanted():
                await asyncio.sleep(WANTED_LOOK_S)
            self._gateway = self._made()
            works = [asyncio.create_task(work) for work in (self._gateway.run(), self._keep_prices(say))]
            try:
                while self._is_wanted():
                    await asyncio.sleep(WANTED_LOOK_S)
            finally:
                for work in works:
                    work.cancel()
                await asyncio.wait(works)
            self._gateway = None
            await asyncio.to_thread(gateway_process.stop, self._home)

    def _is_wanted(self) -> bool:
        """Agents that were sent to a gateway keep it after its last upstream is gone."""
        if self._models.now().upstreams or self._home.metrics_token.exists():
            return True
        return self._are_agents_alive() and (self._gateway is not None or gateway_process.running(self._home) is not None)

    async def _keep_prices(self, say: Callable[[Said], None]) -> None:
        while not self._models.now().upstreams:
            await asyncio.sleep(WANTED_LOOK_S)
        await refresh_prices(self._home, self._clock, say)


async def refresh_prices(home: Home, clock: Clock, say: Callable[[Said], None]) -> None:
    """Keep the gateway's price table younger than REFRESH_S, until cancelled."""
    thread = ThreadPoolExecutor(1, "prices")
    try:
        while True:
            try:
                left_s = _fresh_for_s(home.prices, clock.wall())
                if left_s <= 0.0:
                    await asyncio.get_running_loop().run_in_executor(thread, prices.refresh, home.prices)
                    left_s = prices.REFRESH_S
            except NightcrewError as error:
                say(error)
                left_s = AGAIN_S
            await asyncio.sleep(left_s)
    finally:
        thread.shutdown(wait=False)


def _fresh_for_s(table: Path, now: float) -> float:
    """Seconds for which the table is still good; 0 for one from the future."""
    try:
        age_s = now - table.stat().st_mtime
    except OSError:
        return 0.0
    return prices.REFRESH_S - age_s if age_s >= 0.0 else 0.0


def _load(status: dict[str, Any]) -> Load:
    """How busy the gateway is. In use is what was asked within the account's window (five minutes), is in flight or waits. Pools of which
    only the account knows have no breaker now."""
    caps = status.get("caps", {})
    lanes, pools = status["lanes"], [pool for pool in status["pools"] if pool["breaker"] is not None]
    used = {pool["lane"] for pool in pools if pool["in_flight"] or (pool["figures"] or {"requests": 0})["requests"]}
    parked = bool(pools) and all(any(window["spent"] for window in pool["windows"]) for pool in pools)
    asked = [pool for pool in pools if pool["lane"] in used] or pools
    closed = asked[0].get("breaker_why", "") if asked and all(pool["breaker"] == BreakerState.OPEN for pool in asked) else ""
    busy = any(lane["queued"] for lane in lanes) or any(pool["in_flight"] for pool in pools)
    delay_s = round(min(_delay_s(lanes, used), 1e6), 1)
    return Load(busy, TrafficChanged(delay_s, parked, "" if parked else closed, _tpm(asked), _night(caps)), spent_by_nights(caps))


def _delay_s(lanes: Iterable[Mapping[str, Any]], used: Collection[str]) -> float:
    """The delay of the least busy provider among those in use; a provider's is that of its busiest lane in use.

    Nobody knows which provider a task will ask before it has asked. So a task is held back only where each that the crew uses is busy:
    to start one agent too many costs a wait, while to hold back one whose provider is idle wastes the night. Within a provider it is the
    busiest lane that counts, because an agent asks a small model beside its large one, whose lane is always free.
    """
    delays: dict[str, float] = {}
    for lane in lanes:
        if lane["queued"] or lane["lane"] in used:
            provider = str(lane["lane"]).partition("/")[0]
            delays[provider] = max(delays.get(provider, 0.0), float(lane["delay_s"] or 0.0))
    return min(delays.values(), default=0.0)


def _night(caps: Mapping[str, Any]) -> float | None:
    """The part of the night's cap that is spent, in hundredths; None without a cap, and from a gateway of another version."""
    cap, spent = caps.get("cost_per_night"), caps.get("night_usd")
    return None if not cap or spent is None else round(spent / cap, 2)


def _tpm(pools: Iterable[dict[str, Any]]) -> float | None:
    """Tokens per minute that these pools give together; None when one of them has no limit that is known."""
    found = [_pool_tpm({each["name"]: each["limit_per_minute"] for each in pool.get("dimensions", ())}) for pool in pools]
    return None if not found or None in found else sum(filter(None, found))


def _pool_tpm(limits: Mapping[str, float | None]) -> float | None:
    """Of input and output apart the sum: an agent that uses one more than the other meets its limit sooner, and then waits for it."""
    apart = [limits.get(NAMES[index]) for index in (INPUT, OUTPUT)]
    return limits.get(NAMES[TOKENS]) or (None if None in apart else sum(filter(None, apart)))
