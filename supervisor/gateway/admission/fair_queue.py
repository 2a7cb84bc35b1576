"""Start-time fair queueing over agents, and agents whose turns wait too long."""

from __future__ import annotations

import statistics
from collections.abc import Hashable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

from supervisor.gateway.admission.types import QUEUED, Ticket

# Latency
# -------
# Raises agents whose turns wait much longer than the others' of their class: their weight is multiplied, by RAISE_MOST at most.
# Pure.
#
# Shares are by tokens, so an agent with long prompts waits longer for each turn than one with short ones. A turn's wait counts from
# its arrival, or from when its agent was last sent one: who sends many at once waits for itself. It is measured times the agent's
# weight: who has half the weight is meant to wait twice as long.


HALF_LIFE_S = 300.0
"""What was measured so long ago counts half."""
LOOK_S = 10.0
"""Between two comparisons."""
FEW = 3.0
"""So many turns of an agent, and so many agents, are needed for a comparison."""
MUCH = 2.0
"""An agent is raised when its turns wait longer than this times the median of its class."""
LEAST_S = 5.0
"""A shorter wait raises nobody."""
RAISE_MOST = 1.5
"""An agent at its bound takes half as much again as its share: so many times as much is what the others can lose to it."""


@dataclass(slots=True)
class Waits:
    """One agent's. Sums that halve every HALF_LIFE_S, as of `at`."""

    at: float
    sent_at: float = float("-inf")
    seconds: float = 0.0
    weighed: float = 0.0
    turns: float = 0.0
    raised: float = 1.0

    def fade(self, now: float) -> None:
        """Bring the sums to `now`."""
        left = 0.5 ** (max(0.0, now - self.at) / HALF_LIFE_S)
        self.seconds, self.weighed, self.turns, self.at = self.seconds * left, self.weighed * left, self.turns * left, now

    @property
    def mean_s(self) -> float:
        """How long its turns wait."""
        return self.seconds / self.turns if self.turns else 0.0


class Latency:
    """The agents of one class in one queue. `now` is monotonic seconds."""

    __slots__ = ("_look_at", "agents", "median_s")

    def __init__(self) -> None:
        self.agents: dict[str, Waits] = {}
        self.median_s = 0.0
        """Of what the agents' turns wait at weight 1, when it was last compared."""
        self._look_at = float("-inf")

    def raised(self, agent: str) -> float:
        """By what its weight is multiplied, 1 to RAISE_MOST."""
        waits = self.agents.get(agent)
        return waits.raised if waits is not None else 1.0

    def sent(self, agent: str, arrived_at: float, weight: float, now: float, *, counts: bool = True) -> None:
        """A turn of the agent was sent. Without `counts` its wait says nothing of the queue: it was sent again, or its own cap held it."""
        waits = self.agents.get(agent)
        if waits is None:
            waits = self.agents[agent] = Waits(now)
        if counts:
            seconds = max(0.0, now - max(arrived_at, waits.sent_at))
            waits.fade(now)
            waits.seconds, waits.weighed, waits.turns = waits.seconds + seconds, waits.weighed + seconds * weight, waits.turns + 1
        waits.sent_at = now
        if now >= self._look_at:
            self._look(now)

    def _look(self, now: float) -> None:
        """Compare all. Who has not been sent anything for long is forgotten."""
        self._look_at = now + LOOK_S
        for waits in self.agents.values():
            waits.fade(now)
        self.agents = {name: waits for name, waits in self.agents.items() if waits.turns > 1 / 16 or now - waits.sent_at < HALF_LIFE_S}
        known = [waits for waits in self.agents.values() if waits.turns >= FEW]
        self.median_s = statistics.median(_weighed_s(waits) for waits in known) if len(known) >= FEW else float("inf")
        bound = max(MUCH * self.median_s, LEAST_S)
        for waits in self.agents.values():
            enough = waits.turns >= FEW
            waits.raised = min(RAISE_MOST, max(1.0, _weighed_s(waits) / bound)) if enough else 1.0


def _weighed_s(waits: Waits) -> float:
    return waits.weighed / waits.turns


# Fair queue
# ----------
# One class's queue in a lane: start-time fair queueing over its agents (Goyal, Vin, Cheng 1996).
#
# A request's start tag is the class's virtual clock, or its agent's finish tag when that is later; its finish tag is that plus its
# cost over the agent's weight. The smallest start tag goes first, and the clock is the start tag of the last one that went. So an
# agent that asks for much is far ahead of the clock and waits, one that asked for little is not, and idle time is nobody's credit.
#
# Requests of one agent that could go to the same upstreams are a flow. The heap of a route holds one entry for each flow, its first
# request; entries that are out of date are thrown away when they come up.


T = TypeVar("T", bound=Ticket)


class Flow(Generic[T]):
    """An agent's waiting requests for one route, first tag first."""

    __slots__ = ("aside", "entry", "live", "route", "shown", "waiting", "weight")

    def __init__(self, route: Hashable) -> None:
        self.route = route
        self.waiting: list[tuple[float, int, int, T]] = []
        self.live = 0
        self.weight = 0.0
        self.shown = -1
        """Ticket of its valid entry in the route's heap; -1: it has none."""
        self.entry = -1
        """Number of that entry: older ones are out of date."""
        self.aside = False
        """The agent's own cap holds it back, so it has no entry."""

    def first(self) -> T | None:
        """The next request; those that are gone are dropped."""
        waiting = self.waiting
        while waiting and waiting[0][3].where != QUEUED:
            heappop(waiting)
        return waiting[0][3] if waiting else None


class FairQueue(Generic[T]):
    """The requests that wait in one class of one lane."""

    __slots__ = ("_entries", "_finish", "_flows", "_heads", "asked_at", "cost", "count", "grace_s", "latency", "owed", "virtual", "weight")

    def __init__(self) -> None:
        self.virtual = 0.0
        self.count = 0
        self.cost = 0.0
        """Of all that wait."""
        self.weight = 0.0
        """Of all agents that wait."""
        self.owed = 0.0
        """Credit: cost that it may take before the higher classes."""
        self.grace_s = 0.0
        """Grace period: its credit must be worth so many seconds of the rate, beside the request's cost."""
        self.asked_at = float("-inf")
        """When it, or a class below it, last waited or was sent."""
        self.latency = Latency()
        self._finish: dict[str, float] = {}
        self._flows: dict[tuple[str, Hashable], Flow[T]] = {}
        self._heads: dict[Hashable, list[tuple[float, int, int, Flow[T]]]] = {}
        self._entries = 0

    @property
    def mean(self) -> float:
        """Cost of a request that waits; 0 when none does."""
        return self.cost / self.count if self.count else 0.0

    def asks(self, now: float, still_s: float, grace_s: float) -> None:
        """Whether it has requests. When it had none for so long, its credit is gone and its grace period begins anew."""
        if now - self.asked_at > still_s:
            self.owed, self.grace_s = 0.0, grace_s
        self.asked_at = now

    def stamp(self, ticket: T) -> None:
        """Give it its tags."""
        name = ticket.event.agent.name
        finish = self._finish.get(name, 0.0)
        ticket.start = start = finish if finish > self.virtual else self.virtual
        self._finish[name] = start + ticket.cost / ticket.weight

    def charge(self, ticket: T, cost: float) -> None:
        """It costs so much more (or less) than its tag says, so the agent's next requests start later (or sooner)."""
        name = ticket.event.agent.name
        self._finish[name] = self._finish.get(name, 0.0) + cost / ticket.weight

    def put(self, ticket: T) -> None:
        """Queue it at its tag."""
        key = ticket.event.agent.name, ticket.route
        flow = self._flows.get(key)
        if flow is None:
            flow = self._flows[key] = Flow(ticket.route)
        if not flow.live:
            flow.weight = ticket.weight
            self.weight += flow.weight
        flow.live += 1
        self.count += 1
        self.cost += ticket.cost
        heappush(flow.waiting, (ticket.start, ticket.order, ticket.id, ticket))
        self._show(flow)

    def remove(self, ticket: T) -> None:
        """It does not wait here any more; its `where` is no longer QUEUED."""
        flow = self._flows[ticket.event.agent.name, ticket.route]
        flow.live -= 1
        self.count -= 1
        self.cost = self.cost - ticket.cost if self.count else 0.0
        if not flow.live:
            self.weight = self.weight - flow.weight if self.count else 0.0
        self._show(flow)

    def first(self, route: Hashable) -> T | None:
        """The request with the smallest tag among those that no cap of their own holds back."""
        heads = self._heads.get(route)
        while heads:
            _, _, entry, flow = heads[0]
            if entry == flow.entry:
                return flow.first()
            heappop(heads)
        return None

    def routes(self) -> list[Hashable]:
        """All that anybody ever waited for."""
        return list(self._heads)

    def set_aside(self, ticket: T) -> Flow[T]:
        """Take the flow out of the order until `back`: the agent's own cap holds it back."""
        flow = self._flows[ticket.event.agent.name, ticket.route]
        flow.aside = True
        self._show(flow)
        return flow

    def back(self, flow: Flow[T]) -> None:
        """Put the agent's flow back into the order."""
        flow.aside = False
        self._show(flow)

    def wait_cost(self, ticket: T) -> float:
        """About how much is sent before it: the virtual clock must reach its tag, and moves by cost over the sum of waiting weights."""
        return max(0.0, ticket.start - self.virtual) * self.weight

    def forget(self) -> None:
        """Drop agents that wait for nothing and are not ahead of the clock: they would get the same tag anew."""
        self._flows = {key: flow for key, flow in self._flows.items() if flow.live}
        self._finish = {name: tag for name, tag in self._finish.items() if tag > self.virtual}
        self._heads = {route: heads for route, heads in self._heads.items() if heads}

    def _show(self, flow: Flow[T]) -> None:
        """Keep the flow's entry in its route's heap in step with its first request."""
        ticket = flow.first()
        if ticket is None or flow.aside:
            flow.shown = flow.entry = -1
        elif ticket.id != flow.shown:
            self._entries += 1
            flow.shown, flow.entry = ticket.id, self._entries
            heappush(self._heads.setdefault(flow.route, []), (ticket.start, ticket.order, self._entries, flow))
