"""`/metrics`: the gateway for Prometheus. Counters count from the gateway's start, gauges are of the moment.

Labels are bounded: `agent` is a task's name without its run, so that a job that runs every night is one agent; beyond the first 100 agents
and 50 models it is `other`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from supervisor import __version__
from supervisor.core.gateway import commands
from supervisor.core.gateway.types import BreakerState, TrafficView
from supervisor.core.states import TaskClass
from supervisor.gateway.account.rows import NEVER_SENT, REFUSED, OpenRow, SettledRow, TurnedAwayRow

CONTENT_TYPE = CONTENT_TYPE_LATEST
AGENTS_MAX = 100
MODELS_MAX = 50
OTHER = "other"
_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280)
_STATE = {BreakerState.CLOSED: 0, BreakerState.HALF_OPEN: 1, BreakerState.OPEN: 2}


class Metrics(Collector):
    """Counts requests as an account's `Listener`, and reads `view` when it is scraped. Belongs to one event loop."""

    def __init__(self, view: Callable[[], TrafficView]) -> None:
        self._view = view
        self._registry = CollectorRegistry(auto_describe=False)
        self._agents = _Bounded(AGENTS_MAX)
        self._models = _Bounded(MODELS_MAX)
        self._scopes = _Bounded(AGENTS_MAX)
        of, both = self._registry, ("agent", "model")
        self._requests = Counter("sup_llm_requests", "Sendings and refusals by status.", (*both, "code"), registry=of)
        self._tokens = Counter("sup_llm_tokens", "Tokens charged.", (*both, "type"), registry=of)
        self._cost = Counter("sup_cost_usd", "US dollars, of requests with a known price.", both, registry=of)
        self._unpriced = Counter("sup_unpriced_requests", "Requests whose model has no known price.", both, registry=of)
        self._throttled = Counter("sup_budget_throttled_seconds", "Time that requests waited for tokens.", ("agent",), registry=of)
        self._changes = Counter("sup_breaker_transitions", "Changes of breakers.", ("scope", "to"), registry=of)
        self._wait = Histogram("sup_queue_wait_seconds", "From arrival to sending.", buckets=_SECONDS, registry=of)
        self._first = Histogram("sup_llm_time_to_first_token_seconds", "From arrival to the first byte.", buckets=_SECONDS, registry=of)
        self._total = Histogram("sup_llm_request_duration_seconds", "From arrival to the end.", buckets=_SECONDS, registry=of)
        self._one = functools.cache(lambda counter, *labels: counter.labels(*labels))
        """A counter with its labels, kept at hand: the library's own look-up takes a lock and makes all its words anew."""
        of.register(self)

    def render(self) -> bytes:
        """The page, in the text format of `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    # What happens ------------------------------------------------------------------------------------------------------------------

    def settled(self, opened: OpenRow, settled: SettledRow) -> None:
        """A sending is over."""
        if settled.end == NEVER_SENT:
            return
        agent, model = self._agents.label(name(opened.agent)), self._models.label(opened.model)
        self._one(self._requests, agent, model, _code(settled.status)).inc()
        usage, cost = settled.usage, settled.cost_usd
        for kind in ("input", "output", "cache_read", "cache_write"):
            if tokens := getattr(usage, kind):
                self._one(self._tokens, agent, model, kind).inc(max(0, tokens))
        if cost is not None:
            self._one(self._cost, agent, model).inc(max(0.0, cost))
        elif usage.total:
            self._one(self._unpriced, agent, model).inc()
        if settled.end != REFUSED:
            self._timed(agent, opened.queued_ms, settled.first_byte_ms, settled.total_ms)

    def _timed(self, agent: str, queued_ms: float, first_byte_ms: float | None, total_ms: float | None) -> None:
        self._one(self._throttled, agent).inc(max(0.0, queued_ms / 1000))
        self._wait.observe(queued_ms / 1000)
        if first_byte_ms is not None:
            self._first.observe(first_byte_ms / 1000)
        if total_ms is not None:
            self._total.observe(total_ms / 1000)

    def turned_away(self, row: TurnedAwayRow) -> None:
        """We answered a request ourselves."""
        agent = self._agents.label(name(row.agent))
        self._one(self._requests, agent, self._models.label(row.lane.model_class), f"own_{row.status}").inc()
        self._one(self._throttled, agent).inc(max(0.0, row.waited_ms / 1000))
        self._wait.observe(row.waited_ms / 1000)

    def changed(self, change: commands.Journal) -> None:
        """A breaker changed."""
        self._one(self._changes, self._scopes.label(f"{change.pool}/{change.breaker}"), change.after).inc()

    # What is so now ------------------------------------------------------------------------------------------------------------------

    def collect(self) -> Iterator[Metric]:
        """The gauges, from the view of the moment."""
        view = self._view()
        yield from self._of_agents(view)
        yield from self._of_pools(view)
        info = InfoMetricFamily("sup_build", "Which nightcrew.")
        info.add_metric((), {"version": __version__})
        yield info

    def _of_agents(self, view: TrafficView) -> Iterator[Metric]:
        used = GaugeMetricFamily("sup_llm_tokens_per_minute", "Tokens charged in the last minute.", labels=("agent",))
        share = GaugeMetricFamily("sup_budget_tokens_per_minute", "What its weight gives it while all others ask.", labels=("agent",))
        depth = GaugeMetricFamily("sup_queue_depth", "Requests that wait for tokens.", labels=("priority",))
        queued, uses, shares = dict.fromkeys(TaskClass, 0), dict[str, float](), dict[str, float]()
        for agent in view.agents:
            label = self._agents.label(name(agent.name))
            queued[agent.task_class] += agent.queued
            uses[label] = uses.get(label, 0.0) + agent.used_tpm
            if agent.share_tpm is not None:
                shares[label] = shares.get(label, 0.0) + agent.share_tpm
        _fill(used, uses)
        _fill(share, shares)
        _fill(depth, {str(task_class): float(number) for task_class, number in queued.items()})
        yield from (used, share, depth)

    def _of_pools(self, view: TrafficView) -> Iterator[Metric]:
        state = GaugeMetricFamily("sup_breaker_state", "0 closed, 1 half-open, 2 open.", labels=("scope",))
        saturation = GaugeMetricFamily("sup_limit_saturation", "Part of a limit that is used or reserved.", labels=("scope", "limit"))
        left = GaugeMetricFamily("sup_limit_exhausted_in_seconds", "Forecast; absent when it does not fall.", labels=("scope",))
        for pool in view.pools:
            scope = self._scopes.label(str(pool.key))
            if scope == OTHER:
                continue
            state.add_metric((scope,), _STATE[pool.breaker])
            if pool.exhausted_in_s is not None:
                left.add_metric((scope,), pool.exhausted_in_s)
            for dimension in pool.dimensions:
                saturation.add_metric((scope, dimension.name), dimension.saturation)
        yield from (state, saturation, left)


class _Bounded:
    """The first `most` different values; every later one is `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most:
            return OTHER
        self._known.add(value)
        return value


def name(agent: str) -> str:
    """A task's name without its run."""
    return agent.partition("/")[2] or agent


def _code(status: int | None) -> str:
    return str(status) if status is not None else "none"


def _fill(family: GaugeMetricFamily, values: dict[str, float]) -> None:
    for label, value in values.items():
        family.add_metric((label,), value)
