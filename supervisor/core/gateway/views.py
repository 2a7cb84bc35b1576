"""Traffic as people see it. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from supervisor.core.gateway import forecast
from supervisor.core.gateway.bucket import NEVER
from supervisor.core.gateway.dimension import REQUESTS, Dimension
from supervisor.core.gateway.latency import Waits
from supervisor.core.gateway.model_queue import RoutedTicket
from supervisor.core.gateway.ticket import SENT
from supervisor.core.gateway.types import AgentView, BreakerState, LaneKey, PoolView, TrafficView

if TYPE_CHECKING:
    from supervisor.core.gateway.budget import Budget
    from supervisor.core.gateway.model_queue import ModelQueue
    from supervisor.core.gateway.network import Network
    from supervisor.core.gateway.pool import Pool

ACTIVE_S = 60.0


def view(network: Network, budgets: Iterable[Budget], tickets: Iterable[RoutedTicket], now: float) -> TrafficView:
    """Everything at `now`. Costs a sort of all that wait."""
    waiting: dict[LaneKey, list[RoutedTicket]] = {key: [] for key in network.lanes}
    for ticket in tickets:
        if ticket.where != SENT:
            waiting[ticket.lane.key].append(ticket)
    return TrafficView(
        pools=tuple(_pool(network, pool, now) for pool in network.pools()),
        agents=_agents(network, list(budgets), waiting, now),
        queued={key: len(queue) for key, queue in waiting.items()},
        delay_s={key: _delay_s(lane, now) for key, lane in network.lanes.items()},
    )


def _exhausted_in_s(pool: Pool, dimension: Dimension, now: float) -> float | None:
    spending = pool.pace.rate(dimension.index, now)
    return forecast.exhausted_in_s(dimension.upstream, pool.unsettled(dimension.index), spending, now)


def _pool(network: Network, pool: Pool, now: float) -> PoolView:
    breaker = pool.breakers.worst()
    state, why = breaker.state, breaker.why
    opens = pool.breakers.ready_at(now) if state is BreakerState.OPEN else NEVER
    waiting = network.lanes[pool.key.lane].waiting
    if network.stopped(pool):
        state, why, opens = BreakerState.OPEN, "key refused", NEVER
    elif opens <= now:
        opens, why = NEVER, f"{why}; {'its limit must refill before one request tries' if waiting else 'the next request tries'}"
    exhausted = [
        seconds
        for dimension in pool.dimensions
        if (pool.in_flight or waiting) and (seconds := _exhausted_in_s(pool, dimension, now)) is not None
    ]
    return PoolView(
        key=pool.key,
        breaker=state,
        breaker_why=why,
        exhausted_in_s=min(exhausted, default=None),
        opens_in_s=None if opens == NEVER else opens - now,
        in_flight=pool.in_flight,
        dimensions=pool.views(now),
        windows=pool.windows(now),
    )


def _delay_s(lane: ModelQueue, now: float) -> float:
    normal = lane.ranks[1]
    return lane.wait_s(normal, normal.cost, now)


def _agents(network: Network, budgets: list[Budget], waiting: dict[LaneKey, list[RoutedTicket]], now: float) -> tuple[AgentView, ...]:
    places: dict[str, int] = {}
    since: dict[str, float] = {}
    for key, queue in waiting.items():
        ranks = network.lanes[key].ranks
        queue.sort(key=lambda ticket: (ranks.index(ticket.rank), ticket.start, ticket.order))
        for place, ticket in enumerate(queue, 1):
            name = ticket.budget.agent.name
            places[name] = min(place, places.get(name, place))
            since[name] = min(ticket.arrived_at, since.get(name, now))
    active = {budget.agent.name for budget in budgets if budget.in_flight or budget.queued or now - budget.seen_at <= ACTIVE_S}
    weights = sum(budget.agent.weight for budget in budgets if budget.agent.name in active)
    tokens = _tokens_per_minute(network, now)
    turns: dict[str, list[Waits]] = {}
    for lane in network.lanes.values():
        for name, waits in ((name, waits) for rank in lane.ranks for name, waits in rank.latency.agents.items()):
            turns.setdefault(name, []).append(waits)
    return tuple(
        AgentView(
            name=budget.agent.name,
            task_class=budget.agent.task_class,
            used_tpm=budget.recent.sum(now),
            share_tpm=tokens * budget.agent.weight / weights if tokens and budget.agent.name in active else None,
            cap_tpm=budget.agent.tpm_max,
            cost_usd=budget.money.spent if budget.cost_known else None,
            in_flight=budget.in_flight,
            queued=budget.queued,
            place=places.get(budget.agent.name),
            waiting_s=now - since.get(budget.agent.name, now),
            turn_wait_s=max((one.mean_s for one in turns.get(budget.agent.name, ())), default=0.0),
            raised=max((one.raised for one in turns.get(budget.agent.name, ())), default=1.0),
        )
        for budget in budgets
    )


def _tokens_per_minute(network: Network, now: float) -> float:
    """Tokens per minute that all pools allow; of several limits of a pool the largest counts."""
    return sum(
        max((60 * max(0.0, one.bucket.rate - one.outside(now)) for one in pool.dimensions if one.index != REQUESTS), default=0.0)
        for pool in network.pools()
    )
