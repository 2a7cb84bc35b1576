"""`/metrics`: the crew and its models for Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import shutil
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from supervisor import __version__
from supervisor.features.metrics import catalog
from supervisor.features.metrics import rows as metrics_rows
from supervisor.features.metrics.catalog import MOST, OTHER, Counts, Labels, Metric, MetricType, Spread, agent_name, tidy
from supervisor.features.metrics.rows import Living, Moment
from supervisor.gateway.account import queries as reading
from supervisor.gateway.account import schema
from supervisor.gateway.account.writer import Account
from supervisor.gateway.admission.types import AgentView, PoolView, TrafficView
from supervisor.host import secrets
from supervisor.host.clock import Clock
from supervisor.host.paths import Home
from supervisor.kernel.errors import NightcrewError, ToolFailed
from supervisor.store import sqlite

if TYPE_CHECKING:
    from supervisor.features.metrics.catalog import Counts


# Looks
# -----
# Looks at the ledger and the account for the page: at most one every few seconds, however often the page is asked for, in a thread,
# and in bounded steps. What a look counted is shown when it is on the disk: no counter goes back over the death of any process.


EVERY_S = 5.0
"""A page is at most so much older than its scrape."""
TOLD_S = 30.0
"""A supervisor that has said nothing for so long is gone, or hangs."""
STEPS = 20
"""Of one look; what is left then is counted by the next one."""
NAME = "metrics"
"""Of the row of the account's `memory`."""
_UNREADABLE = (NightcrewError, sqlite3.Error, ValueError, KeyError, TypeError)
Said = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What the last look found."""

    counts: Counts
    moment: Moment = field(default_factory=Moment)
    sources: Mapping[str, bool] = field(default_factory=dict)
    """Whether each could be read."""
    disk: tuple[int, int] | None = None
    """Bytes free and in all."""


class Looks:
    """Belongs to one event loop."""

    def __init__(self, root: Path, ledger: Path, account: Account, now: Callable[[], float]) -> None:
        """`root`: the state's directory; `now`: monotonic seconds."""
        self._root, self._ledger, self._account, self._now = root, ledger, account, now
        self._kept = ""
        self._found: Found | None = None
        self._looked_at = -EVERY_S
        self._look: asyncio.Task[None] | None = None
        self._trouble: NightcrewError | None = None
        self._said: Said = {}
        self._said_at = -TOLD_S

    def told(self, said: Said) -> None:
        """What the supervisor says of itself and its agents; it says so again and again."""
        self._said, self._said_at = said, self._now()

    @property
    def said(self) -> Said | None:
        """What it said last; None when that was too long ago."""
        return self._said if self._now() - self._said_at < TOLD_S else None

    async def fresh(self) -> Found:
        """What was found at most EVERY_S ago. Who asks while a look is under way waits for that one. Raises NightcrewError when no look
        has succeeded: what was counted before is not known then, and counters that begin at 0 would say that nothing was."""
        if self._look is None and (self._found is None or self._now() - self._looked_at >= EVERY_S):
            self._look = asyncio.get_running_loop().create_task(self._again())
        if self._look is not None:
            await asyncio.shield(self._look)
        if self._found is None:
            raise self._trouble or ToolFailed("nothing was counted yet", on=str(self._ledger))
        return self._found

    async def close(self) -> None:
        """Let the look under way end."""
        if self._look is not None:
            await asyncio.wait([self._look])

    async def _again(self) -> None:
        try:
            found, text = await asyncio.to_thread(self._read, self._kept, self._said)
            if text != self._kept:
                await self._account.keep(NAME, text)
                self._kept = text
            self._found = found
        except NightcrewError as error:  # it could not be written: what was shown before is shown again
            self._trouble = error
            if self._found is not None:
                self._found = replace(self._found, sources={**self._found.sources, "account": False})
        finally:
            self._looked_at, self._look = self._now(), None

    def _read(self, kept: str, said: Said) -> tuple[Found, str]:
        """In a thread."""
        counts = _counts(kept or self._account.kept(NAME))
        before = self._found.moment if self._found is not None else Moment()
        counts, moment, ledger = self._of_ledger(counts, before)
        counts, account = self._of_account(counts)
        if said:
            counts.ratchet(catalog.FS_OVERFLOWS, of=f"supervisor {said['pid']} {said['since']}", what="overflows", to=said["overflows"])
        return Found(counts, moment, {"ledger": ledger, "account": account}, _disk(self._root)), counts.to_json()

    def _of_ledger(self, counts: Counts, before: Moment) -> tuple[Counts, Moment, bool]:
        """With what is new in the ledger, or as it was when that cannot be read."""
        if not self._ledger.exists():
            return counts, Moment(), True
        trial, moment = counts.copy(), before
        try:
            with contextlib.closing(sqlite.connect_readonly(self._ledger)) as db:
                for _ in range(STEPS):
                    moment, more = metrics_rows.count(db, trial)
                    if not more:
                        break
        except _UNREADABLE:
            return counts, before, False
        return trial, moment, True

    def _of_account(self, counts: Counts) -> tuple[Counts, bool]:
        trial = counts.copy()
        try:
            with contextlib.closing(schema.connect_readonly(self._account.path)) as db:
                for _ in range(STEPS):
                    if not reading.count_ended(db, trial):
                        break
        except _UNREADABLE:
            return counts, False
        return trial, True


def _counts(kept: str) -> Counts:
    """What was kept; of what cannot be read the counters begin anew, which Prometheus takes for a restart."""
    if not kept:
        return Counts()
    try:
        return Counts.from_json(kept)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Counts()


def _disk(root: Path) -> tuple[int, int] | None:
    try:
        found = shutil.disk_usage(root)
    except OSError:
        return None
    return found.free, found.total


# Gauges
# ------
# What is so now, as (labels, value) by metric: of the ledger, of the supervisor and of the queue at the gateway.


SCOPES_MAX = 100
_ENDING = ("stopping", "collecting")
Caps = Mapping[str, Any]
"""As the status page has them."""


class Gauges:
    """Of one page. Values of the same labels are added up."""

    def __init__(self) -> None:
        self.values: dict[str, dict[Labels, float]] = defaultdict(dict)
        self._agents: set[str] = set()
        for metric, fixed in catalog.PRESET_GAUGES.items():
            self.values[metric.name] = dict.fromkeys(fixed, 0.0)

    def add(self, metric: Metric, *labels: str, value: float) -> None:
        """Add to what is there."""
        family, key = self.values[metric.name], tuple(map(tidy, labels))
        family[key] = family.get(key, 0.0) + value

    def agent(self, task: str) -> str:
        """The label of a task's agent; of a page with too many it is `other`."""
        name = agent_name(task)
        if name in self._agents or len(self._agents) < MOST["agent"]:
            self._agents.add(name)
            return name
        return OTHER


def of_page(found: Found, said: Said | None, view: TrafficView, caps: Caps, wall: float) -> Mapping[str, Mapping[Labels, float]]:
    """By the name of each metric. `wall`: seconds since 1970."""
    gauges = Gauges()
    _crew(gauges, found.moment)
    _agents(gauges, found.moment.living, said or {})
    _supervisor(gauges, said, wall)
    _queue(gauges, view)
    _pools(gauges, view.pools[:SCOPES_MAX])
    _budgets(gauges, caps)
    for source, up in found.sources.items():
        gauges.add(catalog.SOURCE_UP, source, value=float(up))
    if found.disk is not None:
        gauges.add(catalog.DISK_FREE, value=found.disk[0])
        gauges.add(catalog.DISK_SIZE, value=found.disk[1])
    gauges.add(catalog.BUILD, __version__, value=1.0)
    return gauges.values


# The crew -------------------------------------------------------------------------------------------------------------------------------


def _crew(gauges: Gauges, moment: Moment) -> None:
    for metric, numbers in ((catalog.TASKS, moment.tasks), (catalog.LEASES, moment.leases), (catalog.WAITS, moment.waits)):
        for name, number in numbers.items():
            gauges.add(metric, name, value=number)
    gauges.add(catalog.NIGHTS_OPEN, value=moment.nights)


def _agents(gauges: Gauges, living: Iterable[Living], said: Said) -> None:
    asks = {one["task"]: str(one["state"]) for one in said.get("asks", ())}
    states: Counter[str] = Counter()
    for one in living:
        agent, state = gauges.agent(one.task), _state(one, asks, said.get("states", {}))
        states[state] += 1
        gauges.add(catalog.AGENT_STATE, agent, state, value=1.0)
        if one.measured.samples:
            gauges.add(catalog.MEMORY, agent, value=one.measured.memory)
            gauges.add(catalog.PROCESSES, agent, value=one.measured.processes)
        if one.measured.peak_gpu_memory is not None:
            gauges.add(catalog.GPU_MEMORY, agent, value=one.measured.peak_gpu_memory)
        if one.measured.gpu_utilisation is not None:
            gauges.add(catalog.GPU_USE, agent, value=one.measured.gpu_utilisation)
    for state, number in states.items():
        gauges.add(catalog.AGENTS, state, value=number)


def _state(one: Living, asks: Mapping[str, str], states: Mapping[str, str]) -> str:
    """What its agent does, where that is known; else how far the attempt has come."""
    if one.state in _ENDING:
        return "ending"
    if one.task in asks:
        return asks[one.task]
    if one.paused:
        return "paused"
    return "starting" if one.state == "launching" else states.get(one.task, "running")


# The supervisor -------------------------------------------------------------------------------------------------------------------------


def _supervisor(gauges: Gauges, said: Said | None, wall: float) -> None:
    gauges.add(catalog.SUPERVISOR_UP, value=float(said is not None))
    if said is None:
        return
    asked = [float(one["since"]) for one in said["asks"]]
    gauges.add(catalog.HUMANS_ASKED, value=len(asked))
    gauges.add(catalog.HUMAN_OLDEST, value=max(0.0, wall - min(asked)) if asked else 0.0)
    gauges.add(catalog.SLOTS, value=said["slots"])
    gauges.add(catalog.SLOTS_USED, value=said["slots_used"])
    gauges.add(catalog.TICK, value=said["tick_s"])
    gauges.add(catalog.ALERTS, value=said["alerts"])
    if said["predicted_wait_s"] is not None:
        gauges.add(catalog.PREDICTED_WAIT, value=said["predicted_wait_s"])
    for metric, facts in ((catalog.CARRIES, said["carries"]), (catalog.PRESSURE, said["pressure"])):
        for resource, number in facts.items():
            gauges.add(metric, resource, value=number)


# The gateway ----------------------------------------------------------------------------------------------------------------------------


def _queue(gauges: Gauges, view: TrafficView) -> None:
    for agent in view.agents:
        _agent(gauges, agent)
    for lane in sorted(view.queued, key=str)[:SCOPES_MAX]:
        gauges.add(catalog.QUEUE_DELAY, str(lane), value=view.delay_s.get(lane, 0.0))


def _agent(gauges: Gauges, agent: AgentView) -> None:
    label = gauges.agent(agent.name)
    gauges.add(catalog.QUEUE_DEPTH, str(agent.task_class), value=agent.queued)
    gauges.add(catalog.TOKENS_PER_MINUTE, label, value=agent.used_tpm)
    if agent.share_tpm is not None:
        gauges.add(catalog.SHARE, label, value=agent.share_tpm)


def _pools(gauges: Gauges, pools: Iterable[PoolView]) -> None:
    for pool in pools:
        scope = str(pool.key)
        gauges.add(catalog.BREAKER, scope, value=catalog.BREAKER_VALUES[pool.breaker])
        gauges.add(catalog.IN_FLIGHT, scope, value=pool.in_flight)
        if pool.exhausted_in_s is not None:
            gauges.add(catalog.EXHAUSTED, scope, value=pool.exhausted_in_s)
        for dimension in pool.dimensions:
            gauges.add(catalog.SATURATION, scope, dimension.name, value=dimension.saturation)
            gauges.add(catalog.OUTSIDE, scope, dimension.name, value=dimension.outside_per_minute)
            if dimension.limit_per_minute is not None:
                gauges.add(catalog.LIMIT, scope, dimension.name, value=dimension.limit_per_minute)


def _budgets(gauges: Gauges, caps: Caps) -> None:
    if caps.get("cost_per_night") is not None:
        gauges.add(catalog.BUDGET_CAP, "crew", value=caps["cost_per_night"])
        gauges.add(catalog.BUDGET_SPENT, "crew", value=caps["night_usd"] or 0.0)
    for night in caps.get("nights", {}).values():
        if night["cap"] is not None:
            gauges.add(catalog.BUDGET_CAP, "night", value=night["cap"])
            gauges.add(catalog.BUDGET_SPENT, "night", value=night["usd"])
            gauges.add(catalog.BUDGET_RESERVED, "night", value=night["reserved"])


# Page
# ----
# Counters, histograms and gauges as text, in Prometheus' format: labels are escaped by its own library.
#
# What had another name in the release before is served under that too, and says so.


CONTENT_TYPE = CONTENT_TYPE_LATEST
Values = Mapping[str, Mapping[Labels, float]]


def render(counts: Counts, gauges: Values) -> bytes:
    """The page."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Page(counts, gauges))
    return generate_latest(registry)


class _Page(Collector):
    def __init__(self, counts: Counts, gauges: Values) -> None:
        self._counts, self._gauges = counts, gauges

    def collect(self) -> Iterator[Family]:
        """Every metric that has a value, then those with an old name under that."""
        metrics = list(catalog.every())
        yield from (family for metric in metrics if (family := self._family(metric, metric.name, metric.help)).samples)
        for metric in metrics:
            if metric.old:
                words = f"Deprecated: the name is {metric.name} now, and this one goes with the next release."
                if (family := self._family(metric, metric.old, words)).samples:
                    yield family

    def _family(self, metric: Metric, name: str, words: str) -> Family:
        match metric.type:
            case MetricType.COUNTER:
                values = {**dict.fromkeys(metric.fixed, 0.0), **self._counts.values.get(metric.name, {})}
                return _filled(CounterMetricFamily(name, words, labels=metric.labels), values)
            case MetricType.GAUGE:
                return _filled(GaugeMetricFamily(name, words, labels=metric.labels), self._gauges.get(metric.name, {}))
            case MetricType.HISTOGRAM:
                return self._histogram(metric, name, words)

    def _histogram(self, metric: Metric, name: str, words: str) -> Family:
        family = HistogramMetricFamily(name, words, labels=metric.labels)
        spreads = self._counts.spreads.get(metric.name, {})
        for labels in dict.fromkeys([*metric.fixed, *spreads]):
            spread = spreads.get(labels) or Spread([0] * (len(metric.buckets) + 1))
            family.add_metric(labels, _cumulated(metric.buckets, spread), spread.total)
        return family


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[Labels, float]) -> Family:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _cumulated(bounds: tuple[float, ...], spread: Spread) -> list[tuple[str, float]]:
    total, found = 0, []
    for bound, number in zip([*map(str, bounds), "+Inf"], spread.buckets, strict=True):
        total += number
        found.append((bound, float(total)))
    return found


# Metrics
# -------
# The page and who may see it. It costs the requests of agents next to nothing: what is counted is read by a thread, and the page is
# made by one, at most once a second.


SHOWN_S = 1.0
"""A page is given again for so long, whoever asks."""


@dataclass(frozen=True, slots=True)
class Live:
    """How the page asks what is so now at the gateway."""

    view: Callable[[], TrafficView]
    caps: Callable[[], Caps]


class Metrics(Looks):
    """Belongs to one event loop."""

    def __init__(self, home: Home, account: Account, live: Live, clock: Clock) -> None:
        super().__init__(home.root, home.ledger, account, clock.monotonic)
        self._live, self._token, self._clock = live, home.metrics_token, clock
        self._page = b""
        self._made_at = -SHOWN_S
        self._lock = asyncio.Lock()

    def may_scrape(self, sent: str) -> bool:
        """Whether it is the token of the file as it is now; nobody's while there is none, or others can read it."""
        try:
            own = secrets.key(self._token)
        except NightcrewError:
            return False
        return hmac.compare_digest(sent.encode("utf-8", "replace"), own.encode())

    async def render(self) -> bytes:
        """The page, in the text format of `page.CONTENT_TYPE`. Raises NightcrewError as `Looks.fresh` does."""
        async with self._lock:
            if self._clock.monotonic() - self._made_at >= SHOWN_S:
                found = await self.fresh()
                now = of_page(found, self.said, self._live.view(), self._live.caps(), self._clock.wall())
                self._page = await asyncio.to_thread(render, found.counts, now)
                self._made_at = self._clock.monotonic()
        return self._page
