"""Lanes, routes and pools, and traffic as people see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from supervisor.gateway.admission import bucket
from supervisor.gateway.admission.breaker import PoolHooks
from supervisor.gateway.admission.bucket import REQUESTS, Dimension
from supervisor.gateway.admission.budget import Never, Pot, Wait
from supervisor.gateway.admission.pool import Pool
from supervisor.gateway.admission.queue import Door, ModelQueue, Route, RoutedTicket, Waits
from supervisor.gateway.admission.types import (
    NEVER,
    SENT,
    AgentView,
    Alert,
    Arrived,
    BreakerState,
    Command,
    Fallback,
    GatewaySettings,
    Journal,
    LaneKey,
    PoolKey,
    PoolView,
    TrafficView,
    TurnAway,
    Upstream,
)
from supervisor.kernel.states import TaskClass

if TYPE_CHECKING:
    from supervisor.gateway.admission.budget import Budget
    from supervisor.gateway.admission.pool import Pool
    from supervisor.gateway.admission.queue import ModelQueue


# Network
# -------
# Lanes, routes and pools, made when they are first needed, and the upstreams whose key was refused.


LANES_MOST = 200
"""The most model classes that get a lane of their own, beside those in the user's settings. All others share one lane."""
OTHERS = "others"
IDLE_S = 900.0
"""A lane without a request for so long, whose pools are full and at rest, is forgotten."""


class Network:
    """All lanes, routes and pools."""

    def __init__(
        self, settings: GatewaySettings, say: list[Command], hold: Callable[[RoutedTicket, Wait | Never], None], seed: float
    ) -> None:
        self.lanes: dict[LaneKey, ModelQueue] = {}
        self._routes: dict[str, list[Route]] = {}
        """By model class."""
        self._settings = settings
        self._say = say
        self._hold = hold
        self._seed = seed
        self._upstreams = {upstream.name: upstream for upstream in settings.upstreams}
        self._stopped: set[str] = set()
        self._doubted: dict[str, float] = {}
        """Upstreams whose key was refused once, and when."""

    def route(self, key: LaneKey, names: tuple[str, ...], now: float) -> Route:
        """The route of requests of this lane for these upstreams."""
        if route := self._known(key, names):
            return route
        lane = self.lane(key)
        if lane.key != key and (route := self._known(lane.key, names)):
            return route
        route = Route(lane, names)
        self._routes.setdefault(lane.key.model_class, []).append(route)
        route.doors = self._doors(route, now)
        return route

    def _known(self, key: LaneKey, names: tuple[str, ...]) -> Route | None:
        for route in self._routes.get(key.model_class, ()):  # a few, and cheaper than to hash the key
            known = route.lane.key
            if route.names == names and known.api is key.api and known.long_context == key.long_context:
                return route
        return None

    def lane(self, key: LaneKey) -> ModelQueue:
        """The queue of a lane: its own, or the one that all beyond `LANES_MOST` share."""
        lane = self.lanes.get(key)
        if lane is None and len(self.lanes) >= LANES_MOST and not any(key.model_class in one.classes for one in self._settings.upstreams):
            key = LaneKey(key.api, OTHERS, key.long_context)
            lane = self.lanes.get(key)
        if lane is None:
            lane = self.lanes[key] = ModelQueue(key, self._settings.policy, self._hold)
        return lane

    def pool(self, key: PoolKey, now: float) -> Pool | None:
        """One account's part of a lane; None when no upstream has that account (any more)."""
        for upstream in self._upstreams.values():
            if upstream.owner == key.account and upstream.api is key.lane.api:
                return self._pool(self.lane(key.lane), upstream, now)
        return None

    def pools(self) -> list[Pool]:
        """All that were ever asked for."""
        return [pool for lane in self.lanes.values() for pool in lane.pools.values()]

    def key_refused(self, ticket: RoutedTicket, detail: str, now: float) -> None:
        """The key of its upstream was refused. That is believed when a request that was sent after the first refusal is refused as well,
        and nothing was served with the key between them: providers refuse good keys for moments, and for one request alone. (A request
        that they refuse while they serve others says nothing, see `refusals`.) Until then it is tried again, and others are sent."""
        name = ticket.upstream
        if ticket.refusals and ticket.refusals.faults:
            return
        since = self._doubted.get(name)
        if since is None or self._served_since(name, since):
            self._doubted[name] = now
        elif ticket.sent_at > since:
            self._stop(name, detail, now)

    def _served_since(self, name: str, when: float) -> bool:
        account = self._upstreams[name].owner if name in self._upstreams else ""
        pools = (lane.pools.get(account) for lane in self.lanes.values())
        return any(pool is not None and pool.breakers.answered_at >= when for pool in pools)

    def _stop(self, upstream: str, detail: str, now: float) -> None:
        """Nothing goes there until the settings are loaded again. One alert, however many were refused."""
        if upstream in self._stopped:
            return
        self._stopped.add(upstream)
        said = f" ({detail})" if detail else ""
        text = f"{upstream} refuses our key{said}; nothing is sent to it until the right one is in its place and the gateway is reloaded"
        self._say.append(Alert(f"key refused {upstream}", text))
        self._hang_doors(now)

    def stopped(self, pool: Pool) -> bool:
        """Whether every upstream that leads to the pool has stopped."""
        routes = self._routes.get(pool.key.lane.model_class, ())
        return bool(routes) and not any(door.pool is pool for route in routes for door in route.doors)

    def hopeless(self, ticket: RoutedTicket, now: float) -> TurnAway | None:
        """Why waiting does not help the request: nobody serves it, or all that could have reached their spend cap."""
        doors = ticket.route.doors
        if not doors:
            stopped = [name for name in ticket.route.names if name in self._stopped]
            why = f"the provider refused the key of {', '.join(stopped)}" if stopped else f"no upstream serves {ticket.event.model}"
            return TurnAway(ticket.id, 503, why)
        for door in doors:
            if not door.pool.breakers.spend_capped or not door.pool.breakers.capped(now):
                return None
        return TurnAway(ticket.id, 402, f"the spend cap of {', '.join(door.pool.key.account for door in doors)} is reached")

    def reload(self, settings: GatewaySettings, now: float) -> None:
        """Other settings from now on; what stopped may be tried again. What is in flight goes on."""
        self._settings = settings
        self._upstreams = {upstream.name: upstream for upstream in settings.upstreams}
        self._stopped.clear()
        self._doubted.clear()
        for lane in self.lanes.values():
            lane.reload(settings.policy)
            for account, pool in lane.pools.items():
                for upstream in settings.upstreams:
                    if upstream.owner == account and upstream.api is lane.key.api:
                        pool.reload(upstream, settings.policy, now)
        self._hang_doors(now)

    def forget(self, now: float) -> None:
        """Drop what is known of agents that nothing follows from any more, and lanes that nobody uses."""
        for lane in self.lanes.values():
            for rank in lane.ranks:
                rank.forget()
        self.lanes = {key: lane for key, lane in self.lanes.items() if not lane.idle(now - IDLE_S, now)}
        for name, routes in list(self._routes.items()):
            self._routes[name] = [route for route in routes if self.lanes.get(route.lane.key) is route.lane]
            if not self._routes[name]:
                del self._routes[name]

    def _hang_doors(self, now: float) -> None:
        for routes in self._routes.values():
            for route in routes:
                route.doors = self._doors(route, now)

    def _doors(self, route: Route, now: float) -> tuple[Door, ...]:
        doors: dict[str, Door] = {}
        for name in route.names:
            upstream = self._upstreams.get(name)
            if upstream and name not in self._stopped and upstream.owner not in doors:
                doors[upstream.owner] = Door(self._pool(route.lane, upstream, now), name)
        return tuple(doors.values())

    def _pool(self, lane: ModelQueue, upstream: Upstream, now: float) -> Pool:
        pool = lane.pools.get(upstream.owner)
        if pool is None:
            key = PoolKey(upstream.owner, lane.key)
            pool = lane.pools[upstream.owner] = Pool(
                key, upstream, self._settings.policy, PoolHooks(self._say, lane.reprice, self._seed), now
            )
            lane.reprice()
        return pool


# Fallback
# --------
# When a cheaper model answers a batch request in place of the one that it asks for.
#
# A route names the fallback. It answers while every breaker of the model that was asked is open (until one lets a probe through:
# that is the model's own again), and while the crew's night has spent `Policy.fallback_at` of its cap. It does not while its own
# breaker is not closed, where it shares the limit of the model that was asked, where it is known to cost as much, or where a cap
# holds and its price is not known.


class Fallbacks:
    """Decides by the breakers and the night as they are."""

    def __init__(self, network: Network, night: Pot, part: float) -> None:
        self._network = network
        self._night = night
        self._was_near = False
        self.part = part
        """`Policy.fallback_at`."""

    def of(self, event: Arrived, now: float) -> Arrived:
        """The request as it is to be answered now: by its fallback, or (the same object) as it came."""
        other = event.fallback
        if other is None or event.agent.task_class is not TaskClass.BATCH:
            return event
        doors = self._network.route(event.lane, event.upstreams, now).doors
        near = self._near(now)
        if not near and any(door.pool.breakers.lets(now) for door in doors):
            return event
        open_ones = self._usable(other, doors, now)
        if not open_ones or not self._is_cheaper(event, other, must_be=near):
            return event
        names = tuple(door.upstream for door in open_ones)
        return replace(event, lane=other.lane, model=other.model, upstreams=names, bound_usd=other.bound_usd, fallback=None, fell_back=True)

    def moved(self, tickets: Iterable[RoutedTicket], said: Iterable[Command], now: float) -> list[tuple[RoutedTicket, Arrived]]:
        """Those of `tickets` that wait and are to be answered by their fallbacks from now on, once a breaker has opened (as `said`
        says) or the night's cap has come near."""
        before, self._was_near = self._was_near, self._near(now)
        opened = any(isinstance(one, Journal) and one.after is BreakerState.OPEN for one in said)
        if not opened and (before or not self._was_near):
            return []
        waiting = [ticket for ticket in tickets if ticket.where != SENT and ticket.event.fallback is not None]
        return [(ticket, event) for ticket in waiting if (event := self.of(ticket.event, now)) is not ticket.event]

    def _near(self, now: float) -> bool:
        cap = self._night.cap
        return cap is not None and self._night.spent.sum(now) >= self.part * cap

    def _usable(self, other: Fallback, asked: Iterable[Door], now: float) -> list[Door]:
        """Ways to the fallback whose breakers are closed and whose limit is its own."""
        theirs = {door.pool.key for door in asked}
        doors = self._network.route(other.lane, other.upstreams, now).doors
        return [door for door in doors if door.pool.breakers.calm and door.pool.key not in theirs]

    def _is_cheaper(self, event: Arrived, other: Fallback, *, must_be: bool) -> bool:
        """`must_be`: that is what it is for; else it only must not be known to cost as much."""
        if other.bound_usd is None:
            no_cap = event.agent.night is None and (event.agent.cost_max is None or event.agent.cost_assumed)
            return not must_be and no_cap and self._night.cap is None
        return event.bound_usd is None or other.bound_usd < event.bound_usd


# Views
# -----
# Traffic as people see it. Reads only.


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
    return bucket.exhausted_in_s(dimension.upstream, pool.unsettled(dimension.index), spending, now)


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
