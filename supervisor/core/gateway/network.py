"""Lanes, routes and pools, made when they are first needed, and the upstreams whose key was refused."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.core.gateway.breaker_policy import PoolHooks
from supervisor.core.gateway.commands import Alert, Command, TurnAway
from supervisor.core.gateway.model_queue import Door, ModelQueue, Route, RoutedTicket
from supervisor.core.gateway.pool import Pool
from supervisor.core.gateway.pot import Never, Wait
from supervisor.core.gateway.settings import GatewaySettings, Upstream
from supervisor.core.gateway.types import LaneKey, PoolKey

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
