"""What is so now, as (labels, value) by metric: of the ledger, of the supervisor and of the queue at the gateway."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from supervisor import __version__
from supervisor.core.gateway.types import AgentView, PoolView, TrafficView
from supervisor.core.metrics import catalog
from supervisor.core.metrics.catalog import Metric
from supervisor.core.metrics.counts import MOST, OTHER, Labels, agent_name, tidy
from supervisor.gateway.metrics.looks import Found, Said
from supervisor.ledger.counting import Living, Moment

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
