"""Decide for all model traffic: who may send now, and what is charged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from supervisor.gateway.admission import bucket
from supervisor.gateway.admission.breaker import PoolHooks
from supervisor.gateway.admission.bucket import REQUESTS, Dimension
from supervisor.gateway.admission.budget import Budget, Budgets, Estimator, Never, Pot, Wait
from supervisor.gateway.admission.pool import Pool
from supervisor.gateway.admission.queue import Door, KeptPositions, ModelQueue, Route, RoutedTicket, Waits
from supervisor.gateway.admission.types import (
    EARLY_S,
    GONE,
    LATER,
    NEVER,
    NOTHING_OBSERVED,
    QUEUED,
    SENT,
    AgentView,
    Alert,
    Arrived,
    BatchEnded,
    Began,
    BreakerState,
    Command,
    End,
    Ended,
    EngineChanged,
    Event,
    Fallback,
    Interrupt,
    Journal,
    LaneKey,
    PoolKey,
    PoolView,
    Refusal,
    Refused,
    Responded,
    Send,
    Shown,
    Tick,
    Timers,
    TrafficView,
    TurnAway,
    Usage,
    Withdrawn,
)
from supervisor.kernel.format import duration
from supervisor.kernel.gateway_settings import Api, GatewaySettings, Upstream
from supervisor.kernel.states import TaskClass

if TYPE_CHECKING:
    from supervisor.gateway.admission.engine_slots import EngineSlots

# Network
# -------
# Lanes, routes and pools, made when they are first needed, and the upstreams whose key was refused.


LANES_MOST = 200
"""The most model classes that get a lane of their own, beside those in the user's settings. All others share one lane."""
OTHERS = "others"
ENGINES = LaneKey(Api.OPENAI, "engines")
"""The lane of all requests that engines serve, whatever their API and model: they share the engines' slots."""
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
        self._engines = {upstream.name for upstream in settings.upstreams if upstream.engine}
        self._stopped: set[str] = set()
        self._doubted: dict[str, float] = {}
        """Upstreams whose key was refused once, and when."""

    def route(self, key: LaneKey, names: tuple[str, ...], now: float) -> Route:
        """The route of requests of this lane for these upstreams."""
        if self._engines.intersection(names):
            key = ENGINES
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
        """One account's part of a lane; None when no upstream has that account (any more), and for an engine, which keeps nothing."""
        for upstream in self._upstreams.values():
            if upstream.account == key.account and upstream.api is key.lane.api and not upstream.engine:
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
        account = self._upstreams[name].account if name in self._upstreams else ""
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
        """Why waiting does not help the request: nobody can serve it, or all that could have reached their spend cap."""
        doors = ticket.route.doors
        if not doors:
            stopped = [name for name in ticket.route.names if name in self._stopped]
            why = f"the provider refused the key of {', '.join(stopped)}" if stopped else f"no upstream serves {ticket.event.model}"
            return TurnAway(ticket.id, 503, why)
        if all(never := [door.pool.never(ticket) for door in doors]):
            return never[0]
        for door in doors:
            if not door.pool.breakers.spend_capped or not door.pool.breakers.capped(now):
                return None
        return TurnAway(ticket.id, 402, f"the spend cap of {', '.join(door.pool.key.account for door in doors)} is reached")

    def reload(self, settings: GatewaySettings, now: float) -> None:
        """Other settings from now on; what stopped may be tried again. What is in flight goes on."""
        self._settings = settings
        self._upstreams = {upstream.name: upstream for upstream in settings.upstreams}
        self._engines = {upstream.name for upstream in settings.upstreams if upstream.engine}
        self._stopped.clear()
        self._doubted.clear()
        for lane in self.lanes.values():
            lane.reload(settings.policy)
            for account, pool in lane.pools.items():
                for upstream in settings.upstreams:
                    if upstream.account == account and upstream.api is lane.key.api:
                        pool.reload(upstream, settings.policy, now)
        self._hang_doors(now)

    def engine_changed(self, event: EngineChanged, now: float) -> None:
        """The record of an engine changed; of one that the settings do not name (any more) nobody wants to know."""
        for upstream in self._upstreams.values():
            if upstream.engine and upstream.engine.name == event.name:
                cast("EngineSlots", self._pool(self.lane(ENGINES), upstream, now)).changed(event.record)
                return

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
            if upstream and name not in self._stopped and upstream.account not in doors:
                doors[upstream.account] = Door(self._pool(route.lane, upstream, now), name)
        return tuple(doors.values())

    def _pool(self, lane: ModelQueue, upstream: Upstream, now: float) -> Pool:
        pool = lane.pools.get(upstream.account)
        if pool is None:
            key = PoolKey(upstream.account, lane.key)
            policy = self._settings.policy
            hooks = PoolHooks(self._say, lane.reprice, self._seed)
            if upstream.engine:
                from supervisor.gateway.admission.engine_slots import EngineSlots  # only where there is an engine

                pool = EngineSlots(key, upstream, upstream.engine, policy, hooks, now)
            else:
                pool = Pool(key, upstream, policy, hooks, now)
            lane.pools[upstream.account] = pool
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
        pools=tuple(_pool(network, pool, waiting, now) for pool in network.pools()),
        agents=_agents(network, list(budgets), waiting, now),
        queued={key: len(queue) for key, queue in waiting.items()},
        delay_s={key: lane.wait_s(lane.ranks[1], lane.ranks[1].cost, now) for key, lane in network.lanes.items()},
    )


def _exhausted_in_s(pool: Pool, dimension: Dimension, now: float) -> float | None:
    spending = pool.pace.rate(dimension.index, now)
    return bucket.exhausted_in_s(dimension.upstream, pool.unsettled(dimension.index), spending, now)


def _pool(network: Network, pool: Pool, queues: Mapping[LaneKey, list[RoutedTicket]], now: float) -> PoolView:
    breaker = pool.breakers.worst()
    state, why = breaker.state, breaker.why
    opens = pool.breakers.ready_at(now) if state is BreakerState.OPEN else NEVER
    waiting = network.lanes[pool.key.lane].waiting
    if network.stopped(pool) and not pool.state:
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
        waiting=sum(any(door.pool is pool for door in ticket.route.doors) for ticket in queues[pool.key.lane]),
        engine=str(pool.state),
    )


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


# Memory
# ------
# What the gateway knows of its limits, carried over a restart.


def pools(network: Network) -> list[dict[str, Any]]:
    """JSON: each pool's key, margin, and limits with their capacities."""
    return [
        {
            "account": pool.key.account,
            "api": str(pool.key.lane.api),
            "model_class": pool.key.lane.model_class,
            "long_context": pool.key.lane.long_context,
            **pool.learned(),
        }
        for pool in network.pools()
    ]


def recall_pools(network: Network, learned: object, now: float) -> None:
    """Give pools what they knew. Entries that are not understood, and accounts that are gone, are left out."""
    for entry in learned if isinstance(learned, list) else ():
        try:
            lane = LaneKey(Api(entry["api"]), str(entry["model_class"]), bool(entry["long_context"]))
            pool = network.pool(PoolKey(str(entry["account"]), lane), now)
            if pool is not None:
                pool.recall(entry, now)
        except (KeyError, TypeError, ValueError):
            continue


def restore(network: Network, crew: Budgets, charges: Iterable[tuple[PoolKey, float, Usage, str]], now: float) -> None:
    """Charge what was spent before now to pools and agents: (pool, seconds ago, usage, agent; "" for none)."""
    by_pool: defaultdict[PoolKey, list[tuple[float, Usage]]] = defaultdict(list)
    for key, age_s, usage, agent in sorted(charges, key=lambda charge: -charge[1]):
        age_s = max(0.0, age_s)
        by_pool[key].append((age_s, usage))
        if agent and (pool := network.pool(key, now)):
            crew.took(agent, pool.limited_input(usage) + max(0, usage.output), now - age_s)
    for key, spent in by_pool.items():
        if pool := network.pool(key, now):
            pool.restore(spent, now)


# Traffic
# -------
# Decides for all model traffic: who may send now, to which account, what is charged for it, and who is told to come back.
#
# `handle` takes one event and gives the commands that follow from it; `wakes_at` says when to send the next `Tick`. Nothing here
# knows a clock, a socket or a random number. The requests of each model wait in `queue.py`, behind the caps of `budget.py`, for the
# accounts in `pool.py`.
#
# A ticket is QUEUED, then SENT (reserved), perhaps LATER (it failed and waits to queue again), then GONE. A hold budget counts from
# its arrival; when it is over the client gets 429 with Retry-After and its place is kept. Nobody is turned away for waiting while
# it is SENT.


SWEEP_S = 600.0
"""How often unused lanes, agents and positions are dropped."""
_SERVED, _REJECTED = End.SERVED, End.REJECTED  # looked up once: Python 3.11 needs 90 ns for the member of an enum


class Traffic:
    """The whole of it. `now` is monotonic seconds; one that goes back counts as the last one."""

    def __init__(self, settings: GatewaySettings, now: float, *, seed_jitter: float = 0.0) -> None:
        """`seed_jitter`, 0 to 1, moves the retries of one gateway away from those of another."""
        self.crew = Budgets(settings.policy.cost_per_night)
        self.tickets: dict[int, RoutedTicket] = {}
        """All that have not ended."""
        self.waiting = 0
        """How many of them are QUEUED or LATER."""
        self.estimator = Estimator()
        self._say: list[Command] = []
        self.network = Network(settings, self._say, self._hold, seed_jitter)
        self._fallbacks = Fallbacks(self.network, self.crew.night, settings.policy.fallback_at)
        self._policy = settings.policy
        self._places = KeptPositions(settings.policy.place_kept_s)
        self._now = now
        self._sweep_at = now + SWEEP_S
        self._deadlines: Timers[int] = Timers()  # numbers of tickets: most end long before
        self._later: Timers[RoutedTicket] = Timers()
        self._held: Timers[Budget] = Timers()
        self._alarm = NEVER
        """Nothing is due before this."""
        self._acts: dict[type[Event], Callable[[Any, float], None]] = {
            Arrived: self._arrived,
            Responded: self._responded,
            Began: self._began,
            Shown: self._shown,
            Ended: self._ended,
            Refused: self._refused,
            Withdrawn: lambda event, now: self._ended(Ended(event.ticket, End.CLIENT_GONE, None), now),
            BatchEnded: self._batch_ended,
            EngineChanged: self._engine_changed,
            Tick: lambda event, now: self._ring(now, event.slept_s),
        }

    def handle(self, event: Event, now: float) -> list[Command]:
        """What follows from the event. Never raises on any order of events; tickets that are not known (any more) are passed over."""
        if now < self._now:
            now = self._now
        self._now = now
        if now + EARLY_S >= self._alarm or now >= self._sweep_at:
            self._ring(now)
        self._acts[type(event)](event, now)
        for ticket, moved in self._fallbacks.moved(self.tickets.values(), self._say, now):
            self._leave(ticket, GONE)
            ticket.rank.charge(ticket, -ticket.cost)
            self._over(ticket)
            self._enter(moved, now, ticket)
        said, self._say[:] = self._say.copy(), ()
        return said

    def wakes_at(self, now: float) -> float | None:
        """When `Tick` is due, in monotonic seconds; not before `now`. None: only an event changes anything."""
        return None if self._alarm == NEVER else max(self._alarm, now)

    def view(self, now: float) -> TrafficView:
        """Everything at this moment, for people."""
        return view(self.network, self.crew.budgets.values(), self.tickets.values(), max(now, self._now))

    # Before and after a restart -----------------------------------------------------------------------------------------------------

    def learned(self) -> dict[str, Any]:
        """JSON for `recall`: limits, margins, what requests are like."""
        return {"pools": pools(self.network), "estimates": self.estimator.learned()}

    def recall(self, learned: Mapping[str, Any], now: float) -> None:
        """Take over what `learned` gave before a restart; what is not understood is left out."""
        recall_pools(self.network, learned.get("pools"), max(now, self._now))
        self.estimator.recall(learned.get("estimates"), max(now, self._now))

    def reload(self, settings: GatewaySettings, now: float) -> list[Command]:
        """Other settings from now on. Requests in flight and learned limits stay; upstreams whose key was refused are tried again."""
        now = self._now = max(now, self._now)
        self._policy = settings.policy
        self.crew.cap_night(settings.policy.cost_per_night)
        self._fallbacks.part = settings.policy.fallback_at
        self._places.kept_s = settings.policy.place_kept_s
        self.network.reload(settings, now)
        self._turn_away_hopeless(now)
        return self.handle(Tick(), now)

    # Events -------------------------------------------------------------------------------------------------------------------------

    def _arrived(self, event: Arrived, now: float) -> None:
        if event.ticket not in self.tickets:
            self._enter(self._fallbacks.of(event, now), now)

    def _enter(self, event: Arrived, now: float, came_as: RoutedTicket | None = None) -> None:
        """A new ticket, or one that came as another and goes on with its time and its count."""
        agent = event.agent
        route = self.network.route(event.lane, event.upstreams, now)
        lane = route.lane
        guess = self.estimator.guess(event, now)
        if guess.home and lane.counts_cached(guess.home):
            guess.warm = guess.input
        ticket = RoutedTicket(event, route, lane.meet(agent.task_class, now), self.crew.meet(agent, now), guess, now)
        ticket.deadline = now + (self._policy.patient_hold_s if agent.patient else self._policy.hold_s)
        if came_as is not None:
            ticket.arrived_at, ticket.deadline, ticket.attempt = came_as.arrived_at, came_as.deadline, came_as.attempt
        ticket.cost = lane.price.of(guess.warm, guess.output)
        if self._let_in(ticket, now):
            self.tickets[event.ticket] = ticket
            self._admit_or_queue(ticket, now)

    def _responded(self, event: Responded, now: float) -> None:
        if ticket := self._sent(event.ticket):
            ticket.pool.breakers.answered(ticket, now)
            ticket.pool.responded(ticket, event.observed, now)
            self._pump(ticket.lane, now)

    def _began(self, event: Began, now: float) -> None:
        if ticket := self._sent(event.ticket):
            ticket.pool.breakers.answered(ticket, now)
            if ticket.withheld:
                ticket.decodes_since = now
            if event.usage is not None and not ticket.input_known:
                before = ticket.input + ticket.output
                ticket.pool.input_known(ticket, event.usage, now)
                self.estimator.saw_input(ticket.event, ticket.guess.habit, ticket.pool.key.account, event.usage, now)
                self._charge_more(ticket, before, now, over=False)
                self._ask_again([ticket.budget], now)
            self._pump(ticket.lane, now)

    def _shown(self, event: Shown, _: float) -> None:
        if ticket := self._sent(event.ticket):
            ticket.withheld = False
            ticket.decodes_since = None

    def _ended(self, event: Ended, now: float) -> None:
        ticket = self._sent(event.ticket)
        if ticket is None:
            self._withdraw(event.ticket, now)
            return
        ticket.pool.breakers.ended(ticket, event.end, now)
        if event.observed is not NOTHING_OBSERVED:
            ticket.pool.responded(ticket, event.observed, now)
        self._settle(ticket, event, now)
        ticket.budget.engine_s += event.engine_s
        ticket.budget.close(ticket, event.cost_usd, event.tokens, now)
        if event.end is End.INTERRUPTED:
            self._again(ticket, str(event.end), 0.0, now)
        else:
            self._over(ticket)
        self._ask_again(self.crew.freed(ticket.budget, ticket), now)
        if ticket.lane.waiting:
            self._pump(ticket.lane, now)

    def _refused(self, event: Refused, now: float) -> None:
        ticket = self._sent(event.ticket)
        if ticket is None:
            return
        ticket.budget.take_back(ticket)
        wait, why = ticket.pool.refused(ticket, event, now), event.why
        if why is Refusal.KEY_REFUSED:
            self.network.key_refused(ticket, event.detail, now)
        self._again(ticket, str(why), wait, now)
        if why is Refusal.SPEND_CAP or why is Refusal.KEY_REFUSED:
            self._turn_away_hopeless(now)
        self._ask_again(self.crew.freed(ticket.budget, ticket), now)
        self._pump(ticket.lane, now)

    def _batch_ended(self, event: BatchEnded, now: float) -> None:
        budget = self.crew.close_batch(event, now)
        self._ask_again(self.crew.freed(budget, event.batch), now)

    def _engine_changed(self, event: EngineChanged, now: float) -> None:
        self.network.engine_changed(event, now)
        self._turn_away_hopeless(now)
        for lane in self.network.lanes.values():
            self._pump(lane, now)

    # A request's way ----------------------------------------------------------------------------------------------------------------

    def _let_in(self, ticket: RoutedTicket, now: float) -> bool:
        """Give it its tags and let it queue. False: it was turned away."""
        if refused := self.network.hopeless(ticket, now):
            self._say.append(refused)
        elif ticket.budget.capped and isinstance(never := ticket.budget.by_totals(ticket, now), Never):
            self._say.append(TurnAway(ticket.id, 402, never.why))
        elif self._places.kept and self._places.take(ticket):
            return True
        elif self.waiting < self._policy.queue_max or self._make_room(ticket, now):
            ticket.rank.stamp(ticket)
            return True
        return False

    def _make_room(self, ticket: RoutedTicket, now: float) -> bool:
        """Turn away the newest request of the agent that has most of them waiting; false: that is this one."""
        why = f"the gateway's queue is full ({self.waiting} requests wait)"
        if ticket.budget.queued >= (most := self.crew.most_waiting()):
            self._say.append(ticket.lane.come_back(ticket, why, now, ticket.rank.cost))
            return False
        loser = max((one for one in self.tickets.values() if one.where != SENT and one.budget.queued == most), key=lambda one: one.id)
        self._turn_away(loser, loser.lane.come_back(loser, why, now), now)
        return True

    def _admit_or_queue(self, ticket: RoutedTicket, now: float) -> None:
        lane = ticket.lane
        if not lane.waiting and not ticket.budget.capped and (door := lane.choose(ticket, lane.leaves(ticket.rank, now), now)):
            self._send(ticket, door, now)
            return
        self._queue(ticket)
        if lane.waiting == 1 or ticket.rank.first(ticket.route) is ticket:  # nothing changes for those before it
            self._pump(lane, now)

    def _queue(self, ticket: RoutedTicket) -> None:
        ticket.where = QUEUED
        ticket.rank.put(ticket)
        ticket.lane.waiting += 1
        self._wait(ticket)

    def _wait(self, ticket: RoutedTicket) -> None:
        self.waiting += 1
        ticket.budget.queued += 1
        self._plan(self._deadlines, ticket.deadline, ticket.id)

    def _leave(self, ticket: RoutedTicket, where: int) -> None:
        """It does not wait any more."""
        was, ticket.where = ticket.where, where
        self.waiting -= 1
        ticket.budget.queued -= 1
        if was == QUEUED:
            ticket.lane.waiting -= 1
            ticket.rank.remove(ticket)

    def _pump(self, lane: ModelQueue, now: float) -> None:
        """Send all that may go."""
        if not lane.waiting:
            lane.wake = NEVER
            return
        while chosen := lane.next(now):
            ticket, door = chosen
            self._leave(ticket, SENT)
            self._send(ticket, door, now)
        self._at(lane.wake)
        if lane.key is ENGINES and (victim := lane.victim(now)):
            victim.interrupts += 1
            victim.interrupted = True
            victim.decodes_since = None
            self._say.append(Interrupt(victim.id))

    def _send(self, ticket: RoutedTicket, door: Door, now: float) -> None:
        ticket.where = SENT
        ticket.note_sent(now)
        ticket.upstream, ticket.pool = door.upstream, (pool := door.pool)
        pool.send(ticket, now)
        ticket.budget.open(ticket, now)
        ticket.lane.went(ticket, now)
        expected = self.estimator.expected(ticket.event, ticket.guess, pool.key.account)
        self._say.append(Send(ticket.id, door.upstream, ticket.attempt, ticket.probe, ticket.event.fell_back, ticket.withheld, expected))

    def _settle(self, ticket: RoutedTicket, event: Ended, now: float) -> None:
        usage, pool, before = event.usage, ticket.pool, ticket.input + ticket.output
        tokens_in, tokens_out = ticket.input, ticket.output
        if event.end is _REJECTED:
            tokens_in = tokens_out = 0.0
        elif usage is not None:
            tokens_in, tokens_out = pool.limited_input(usage), float(usage.output) if usage.output > 0 else 0.0
            if not ticket.input_known:
                self.estimator.saw_input(ticket.event, ticket.guess.habit, pool.key.account, usage, now)
            if event.end is _SERVED:
                ticket.guess.habit.saw_output(tokens_out)
                pool.served(ticket, tokens_out, now)
        pool.settle(ticket, tokens_in, tokens_out, now)
        self._charge_more(ticket, before, now, over=True)

    def _charge_more(self, ticket: RoutedTicket, before: float, now: float, *, over: bool) -> None:
        """Its input or output differs from `before`: correct its agent's budget and tags."""
        ticket.budget.correct(ticket, now, over=over)
        if ticket.input + ticket.output == before:
            return
        cost = ticket.lane.price.of(ticket.input, ticket.output)
        ticket.rank.charge(ticket, cost - ticket.cost)
        ticket.cost = cost

    def _again(self, ticket: RoutedTicket, why: str, wait_s: float, now: float) -> None:
        """It was refused: put it back to the front of its queue, after a pause where one is needed."""
        if refused := self.network.hopeless(ticket, now) or (ticket.refusals and ticket.refusals.too_many(ticket.id, why)):
            self._turn_away(ticket, refused)
        elif now >= ticket.deadline:
            self._turn_away(ticket, ticket.lane.come_back(ticket, f"the upstream would not serve it in time: {why}", now), now)
        elif wait_s := ticket.pause_s(wait_s, now):
            ticket.where = LATER
            self._wait(ticket)
            self._plan(self._later, now + wait_s, ticket)
        else:
            self._queue(ticket)

    def _withdraw(self, number: int, now: float) -> None:
        ticket = self.tickets.get(number)
        if ticket is not None:
            self._leave(ticket, GONE)
            self._places.keep(ticket, now)
            self._at(self._places.next_end)
            self._over(ticket)
            self._pump(ticket.lane, now)

    def _turn_away(self, ticket: RoutedTicket, command: TurnAway, now: float | None = None) -> None:
        """Answer it ourselves. With `now` its place is kept."""
        if ticket.where != SENT:
            self._leave(ticket, GONE)
        if now is None:
            ticket.rank.charge(ticket, -ticket.cost)
        else:
            self._places.keep(ticket, now, command.retry_after_s or 0)
            self._at(min(self._places.next_end, ticket.lane.wake))
        self._over(ticket)
        self._say.append(command)

    def _over(self, ticket: RoutedTicket) -> None:
        ticket.where = GONE
        del self.tickets[ticket.id]

    def _sent(self, number: int) -> RoutedTicket | None:
        ticket = self.tickets.get(number)
        return ticket if ticket is not None and ticket.where == SENT else None

    # Those that do not get through --------------------------------------------------------------------------------------------------

    def _hold(self, ticket: RoutedTicket, verdict: Wait | Never) -> None:
        """Its agent's caps hold it back."""
        if isinstance(verdict, Never):
            self._turn_away(ticket, TurnAway(ticket.id, 402, verdict.why))
            return
        budget = ticket.budget
        budget.hold(ticket.rank, ticket.rank.set_aside(ticket))
        if verdict.until is not None:
            self._plan(self._held, verdict.until, budget)
        if verdict.pot is not None:
            verdict.pot.held.append(budget)

    def _ask_again(self, budgets: list[Budget], now: float) -> None:
        """Let the agents whose caps may have room queue again."""
        for budget in budgets:
            held, budget.held = budget.held, []
            for rank, flow in held:
                rank.back(flow)
            for lane in {cast(Route, flow.route).lane for _, flow in held}:
                self._pump(lane, now)

    def _turn_away_hopeless(self, now: float) -> None:
        for ticket in [ticket for ticket in self.tickets.values() if ticket.where != SENT]:
            if refused := self.network.hopeless(ticket, now):
                self._turn_away(ticket, refused)

    # Timers -------------------------------------------------------------------------------------------------------------------------

    def _plan(self, timers: Timers[Any], when: float, what: RoutedTicket | Budget | int) -> None:
        timers.at(when, what)
        self._at(when)

    def _at(self, when: float) -> None:
        if when < self._alarm:
            self._alarm = when

    def _ring(self, now: float, slept_s: float = 0.0) -> None:
        """Do all that is due, then set the one alarm for the next."""
        for pool in self.network.pools() if slept_s else ():
            pool.woke(slept_s)
        for ticket in self._later.due(now):
            if ticket.where == LATER:
                self._leave(ticket, QUEUED)
                self._queue(ticket)
        self._ask_again(list(self._held.due(now)), now)
        for lane in self.network.lanes.values():
            self._pump(lane, now)
        for number in self._deadlines.due(now):
            if (late := self.tickets.get(number)) and late.where != SENT:
                why = f"no turn came within {duration(now - late.arrived_at)}"
                self._turn_away(late, late.lane.come_back(late, why, now), now)
        self._places.expire(now)
        if now >= self._sweep_at:
            self._sweep(now)
        lanes = (lane.wake for lane in self.network.lanes.values())
        self._alarm = min(self._later.next(), self._held.next(), self._deadlines.next(), self._places.next_end, *lanes)

    def _sweep(self, now: float) -> None:
        self._sweep_at = now + SWEEP_S
        self.crew.forget(now)
        self.estimator.forget(now)
        self.network.forget(now)
