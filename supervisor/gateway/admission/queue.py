"""Who is next: fair queueing over agents, and the queue of each model with its routes."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeAlias, TypeVar

from supervisor.gateway.admission.breaker import STEP_BACK_S
from supervisor.gateway.admission.bucket import INPUT, NAMES, OUTPUT, REQUESTS, TOKENS
from supervisor.gateway.admission.budget import Budget, Guess, Never, Wait
from supervisor.gateway.admission.pool import Pool
from supervisor.gateway.admission.types import EARLY_S, NEVER, QUEUED, Arrived, LaneKey, Ticket, TurnAway
from supervisor.kernel.gateway_settings import Policy
from supervisor.kernel.states import TaskClass

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


# Model queue
# -----------
# One fair queue for requests that the same accounts could serve: which request goes next, and to which account.
#
# In order: interactive before normal before batch, in a class the smallest start tag. The first in order takes any pool that has
# room for it (the one that holds its cached prompt when that has room, else the one with the most); when none has, it *claims*
# those that it waits for, and nobody behind it may use them: a big request is never overtaken by small ones until it starves.
# Requests that could go to different upstreams (their `Route`) claim different pools, so one route never blocks another.
#
# What the classes above take while one waits is credited to it at `batch_share`, and from time to time its first request is first
# of all.
#
# A request that claims a pool and whose client goes away, told to come back or by itself, has its need *saved* in that pool until
# the client should have returned and `AWAY_S` more: who comes after it is sent only when as much stays in the bucket. So the bucket
# fills for it as if it waited, what comes above its need is used meanwhile, and a client that never returns costs at most what the
# full bucket cannot take until then. A need that the bucket gains within as long a wait as the client's last one is not saved:
# claiming it again is enough.


INTERACTIVE, NORMAL, BATCH = range(3)
_NORMAL, _BATCH = TaskClass.NORMAL, TaskClass.BATCH
AROUND_S = 900.0
"""Headroom is kept for interactive agents until so long after their last request; a crew without them uses the whole bucket."""
FLOOR_S = 15.0
"""A lower class goes first once its credit is worth this many seconds of the rate: a person's few requests in a row are not interrupted."""
ASKS_S = 30.0
"""A class counts as asking for so long after it last waited: an agent with one request at a time does not wait while that is served."""
RETRY_AFTER_S = (1, 60)
"""Claude Code waits out 60 s and gives up at 61 (measured)."""
AWAY_S = 10.0
"""What a client that left (by itself, or told to come back) needs is saved for so much longer: the providers' SDKs retry within 8 s."""
CANCELLED_S = 1.0
"""No client has a shorter time limit of its own: one that leaves sooner was cancelled and will not come back."""
LEAST_WAIT_S = 0.001
"""The shortest timer. What is due sooner counts as due now."""
REQUEST_TOKENS = 1000.0
"""What a request counts as where only requests are limited."""


@dataclass(frozen=True, slots=True)
class Door:
    """One way to one pool."""

    pool: Pool
    upstream: str


class RoutedTicket(Ticket):
    """A ticket, and where it waits, who pays for it, and where it was sent."""

    __slots__ = ("budget", "lane", "pool", "rank")

    route: Route

    def __init__(self, event: Arrived, route: Route, rank: ClassRank, budget: Budget, guess: Guess, now: float) -> None:
        super().__init__(event, route.lane.key.api, route, budget.weight * rank.latency.raised(event.agent.name), guess, now)
        self.lane = route.lane
        self.rank = rank
        self.budget = budget
        self.pool: Pool
        """Only while it is sent."""

    def note_sent(self, now: float) -> None:
        """It is sent: count the attempt, and how long its agent's turn waited."""
        self.attempt += 1
        budget, counts = self.budget, self.attempt == 1 and not self.budget.was_held
        self.rank.latency.sent(budget.agent.name, self.arrived_at, budget.weight, now, counts=counts)
        budget.was_held = False

    def pause_s(self, wait_s: float, now: float) -> float:
        """Seconds until it queues again after a refusal; `wait_s` is what its pool asks for. 0 when another pool may serve it at once."""
        refusals, trouble = self.refusals, self.pool.breakers
        if refusals is None:
            return wait_s
        if any(door.pool.breakers.calm and door.pool.key.account not in refusals.by for door in self.route.doors):
            return 0.0
        refusals.by = {self.pool.key.account}
        if refusals.faults or (refusals.count > 1 and self.lane.waiting):  # whoever is alone is the probe itself
            ready = trouble.ready_at(now)
            opens = ready if ready < NEVER else now
            wait_s = max(wait_s, opens - now + min(STEP_BACK_S, 2.0**refusals.count))
        return wait_s


ClassRank: TypeAlias = FairQueue[RoutedTicket]


class Route:
    """The pools that requests with the same list of upstreams may use, one door each, in the user's order."""

    __slots__ = ("doors", "lane", "names")

    def __init__(self, lane: ModelQueue, names: tuple[str, ...]) -> None:
        self.lane = lane
        self.names = names
        self.doors: tuple[Door, ...] = ()


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a request in the dimension that limits it, as tokens of the lane's main dimension."""

    request: float
    input: float
    output: float
    total: float
    rate: float = 0.0
    """Cost a second that all pools give together; 0: not known."""

    def of(self, tokens_in: float, tokens_out: float) -> float:
        """At least one token."""
        cost, other = self.request, tokens_in * self.input
        if other > cost:
            cost = other
        other = tokens_out * self.output
        if other > cost:
            cost = other
        other = (tokens_in + tokens_out) * self.total
        return other if other > cost else cost


@dataclass(frozen=True, slots=True)
class Away:
    """A request whose client is away, and until when its need is saved."""

    ticket: RoutedTicket
    until: float


class ModelQueue:
    """Mutable. `wake` is when the first request in the queue may go by time alone (infinite: when something happens)."""

    def __init__(self, key: LaneKey, policy: Policy, hold: Callable[[RoutedTicket, Wait | Never], None]) -> None:
        """`hold` is told of a request that its agent's caps hold back, and takes it (or its flow) out of the queue."""
        self.key = key
        self._hold = hold
        self.pools: dict[str, Pool] = {}
        self.ranks: tuple[ClassRank, ...] = (FairQueue(), FairQueue(), FairQueue())
        self.wake = NEVER
        self._claims: dict[str, RoutedTicket] = {}
        """Account -> the request that waited for it when `next` last looked."""
        self._away: dict[str, Away] = {}
        self._headroom_until = self._met_at = -NEVER
        self.reload(policy)
        self.waiting = 0
        """How many wait in all classes."""
        self.price = Price(1.0, 0.0, 0.0, 1.0)
        """By the limits as they are now."""

    def reload(self, policy: Policy) -> None:
        """Another policy from now on."""
        share = min(max(policy.batch_share, 0.0), 0.5)
        self._credit = share / (1 - share)
        self._headroom = policy.headroom

    def reprice(self) -> None:
        """A limit changed."""
        self.price = _price(self.pools.values())

    def wait_s(self, rank: ClassRank, cost: float, now: float) -> float:
        """Seconds until `cost` of its own class, and all that waits in higher classes, is sent; counted from when the first may be sent."""
        above = sum(other.cost for other in self.ranks[: self.ranks.index(rank)])
        rate = self.price.rate
        starts = [pool.breakers.ready_at(now) for pool in self.pools.values()] if self.wake == NEVER else [self.wake]
        start = min(starts, default=now)
        return (0.0 if start == NEVER else max(0.0, start - now)) + ((above + cost) / rate if rate else 0.0)

    def come_back(self, ticket: RoutedTicket, why: str, now: float, ahead: float | None = None) -> TurnAway:
        """The 429 for a request. `ahead`: the cost of all that is sent before it; None: estimated from its tag."""
        if waited := self._waited_for(ticket):
            wait = min(pool.ready_at(ticket, self.leaves(ticket.rank, now), now) for pool in waited) - now
        else:
            wait = self.wait_s(ticket.rank, ticket.rank.wait_cost(ticket) if ahead is None else ahead, now)
        least, most = RETRY_AFTER_S
        return TurnAway(ticket.id, 429, why, most if wait >= most else max(least, math.ceil(wait)))

    # Clients that are away ----------------------------------------------------------------------------------------------------------

    def save(self, ticket: RoutedTicket, back_at: float, now: float) -> None:
        """Its client is away and should be back by then: save what it needs, if it was next, in the pool where it would fit first."""
        waited_s = now - ticket.arrived_at
        if waited_s >= CANCELLED_S and (waited := self._waited_for(ticket)):
            pool = min(waited, key=lambda pool: pool.ready_at(ticket, self.leaves(ticket.rank, now), now))
            amounts = pool.amounts(ticket)
            needs = (min(amounts[one.index], one.bucket.capacity) - waited_s * one.bucket.rate for one in pool.dimensions)
            if max(needs, default=0.0) > 0:
                self._away[pool.key.account] = Away(ticket, back_at + AWAY_S)
        self.wake = min(self.wake, now + LEAST_WAIT_S)

    def returned(self, ticket: RoutedTicket) -> None:
        """The client of this ticket is back: nothing is saved for it any more."""
        self._away = {account: away for account, away in self._away.items() if away.ticket is not ticket}

    def _waited_for(self, ticket: RoutedTicket) -> list[Pool]:
        return [self.pools[account] for account, first in self._claims.items() if first is ticket]

    def _saved_until(self, pool: Pool, ticket: RoutedTicket, now: float) -> float | None:
        """Until when it must leave alone what is saved in the pool for a client that is away; None: it may take what it needs."""
        away = self._away.get(pool.key.account)
        if away is None or now >= away.until or self._place(ticket) <= self._place(away.ticket):
            return None
        leave, ours, theirs = self.leaves(away.ticket.rank, now), pool.amounts(ticket), pool.amounts(away.ticket)
        when, owed = now, pool.owed(now)
        for dimension in pool.dimensions:
            capacity, need = dimension.bucket.capacity, ours[dimension.index]
            need += min(theirs[dimension.index] + leave * capacity, capacity)
            when = max(when, dimension.fits_at(need, 0.0, owed._replace(with_it=owed.output + need), now) if need <= capacity else NEVER)
        return min(away.until, when) if when > now else None

    def _place(self, ticket: RoutedTicket) -> tuple[int, float, int]:
        return self.ranks.index(ticket.rank), ticket.start, ticket.order

    # Who goes next ------------------------------------------------------------------------------------------------------------------

    def next(self, now: float) -> tuple[RoutedTicket, Door] | None:
        """The request to send now. None: nobody may go, and `wake` is when to look again."""
        self.wake = NEVER
        claimed = self._claims = dict[str, RoutedTicket]()
        for rank, share in self._order(now):
            for ticket in self._firsts(rank, now):
                door = self.choose(ticket, share, now, claimed)
                if door:
                    return ticket, door
                self._claim(ticket, share, claimed, now)
            if len(claimed) == len(self.pools):
                break
        return None

    def victim(self, now: float) -> Ticket | None:
        """The request to interrupt for an interactive one that `next` found no room for; None: nobody is."""
        for ticket in self._claims.values():
            doors = ticket.route.doors if ticket.rank is self.ranks[INTERACTIVE] else ()
            if victim := next((found for door in doors if (found := door.pool.victim(now))), None):
                return victim
        return None

    def idle(self, since: float, now: float) -> bool:
        """Whether it may be forgotten: no request came since then, nothing waits, and a new queue would decide the same."""
        return self._met_at < since and not self.waiting and all(pool.idle(now) for pool in self.pools.values())

    def counts_cached(self, account: str) -> bool:
        """Whether what that account has cached counts against its limit like anything else."""
        pool = self.pools.get(account)
        return pool is not None and pool.upstream.cached_counts

    def leaves(self, rank: ClassRank, now: float) -> float:
        """The part of the bucket that a class leaves to interactive agents, when there are any."""
        return 0.0 if rank is self.ranks[INTERACTIVE] or now >= self._headroom_until else self._headroom

    def meet(self, task_class: TaskClass, now: float) -> ClassRank:
        """Note that a request of that class arrived; gives the class's queue."""
        self._met_at = now
        if task_class is _NORMAL:
            return self.ranks[NORMAL]
        if task_class is _BATCH:
            return self.ranks[BATCH]
        self._headroom_until = now + AROUND_S
        return self.ranks[INTERACTIVE]

    def choose(self, ticket: RoutedTicket, share: float, now: float, claimed: Container[str] = ()) -> Door | None:
        """The pool that may serve it now: the one that holds its cached prompt, else the one with the most room."""
        doors = ticket.route.doors
        if len(doors) == 1:
            door = doors[0]
            return door if door.pool.key.account not in claimed and self._fits(door.pool, ticket, share, now) else None
        fitting = [door for door in doors if door.pool.key.account not in claimed and self._fits(door.pool, ticket, share, now)]
        home, refused = ticket.guess.home, ticket.refusals.by if ticket.refusals else set[str]()

        def merit(door: Door) -> tuple[bool, bool, float, int]:
            pool = door.pool
            return pool.key.account not in refused, pool.key.account == home, pool.headroom(now), -pool.in_flight

        return max(fitting, key=merit, default=None)

    def _fits(self, pool: Pool, ticket: RoutedTicket, share: float, now: float) -> bool:
        return pool.fits(ticket, share, now) and not (self._away and self._saved_until(pool, ticket, now))

    def went(self, ticket: RoutedTicket, now: float) -> None:
        """It was sent: advance the virtual clock, and credit the lower classes that wait."""
        rank = ticket.rank
        if ticket.start > rank.virtual:  # a retry or a kept place has an old tag, and the clock does not go back
            rank.virtual = ticket.start
        interactive, normal, batch = self.ranks
        if rank is batch or batch.count:
            batch.asks(now, ASKS_S, FLOOR_S)
            normal.asks(now, ASKS_S, FLOOR_S)
        elif rank is normal or normal.count:
            normal.asks(now, ASKS_S, FLOOR_S)
        if rank is not interactive:
            self._pay(normal, ticket.cost)
        if rank is batch:
            self._pay(batch, ticket.cost)
        elif self.waiting:
            self._owe(normal if rank is interactive else batch, ticket.cost * self._credit, now)

    def _owe(self, rank: ClassRank, cost: float, now: float) -> None:
        """Credit this class for what a higher class used; nothing accrues while it asks for nothing."""
        if now - rank.asked_at <= ASKS_S:
            waiting = self.ranks[self.ranks.index(rank) :]
            most = 2 * FLOOR_S * self.price.rate + max(below.mean for below in waiting) if any(below.count for below in waiting) else 0.0
            rank.owed = max(rank.owed, min(rank.owed + cost, max(most, FLOOR_S * self.price.rate)))

    def _pay(self, rank: ClassRank, cost: float) -> None:
        """Pay down its credit by `cost`, and shorten its next grace period by half of that."""
        if rank.owed and self.price.rate:
            rank.grace_s = max(0.0, rank.grace_s - cost / 2 / self.price.rate)
        rank.owed = max(0.0, rank.owed - cost)

    def _order(self, now: float) -> list[tuple[ClassRank, float]]:
        """The classes in the order in which they may send now, each with the part of the bucket that it must leave."""
        interactive, normal, batch = self.ranks
        lower = [(rank, self.leaves(rank, now)) for rank in (normal, batch) if rank.count]
        if len(lower) == 2 and self._is_due(batch, batch):
            lower.reverse()
        if not interactive.count:
            return lower
        if lower and self._is_due(normal, lower[0][0]):
            return [(lower[0][0], 0.0), (interactive, 0.0), *lower[1:]]
        return [(interactive, 0.0), *lower]

    def _is_due(self, creditor: ClassRank, rank: ClassRank) -> bool:
        return creditor.owed >= rank.mean + creditor.grace_s * self.price.rate

    def _firsts(self, rank: ClassRank, now: float) -> list[RoutedTicket]:
        """The first request of each route of a class, smallest tag first, past agents that their own caps hold back."""
        firsts = []
        for route in rank.routes():
            while (ticket := rank.first(route)) is not None:
                verdict = ticket.budget.verdict(ticket, now) if ticket.budget.capped else None
                if verdict is None:
                    firsts.append(ticket)
                    break
                self._hold(ticket, verdict)
        if len(firsts) > 1:
            firsts.sort(key=lambda ticket: (ticket.start, ticket.order))
        return firsts

    def _claim(self, ticket: RoutedTicket, share: float, claimed: dict[str, RoutedTicket], now: float) -> None:
        for door in ticket.route.doors:
            pool = door.pool
            if pool.key.account not in claimed:
                saved = self._saved_until(pool, ticket, now) if self._away else None
                self.wake = min(self.wake, max(pool.ready_at(ticket, share, now), saved or 0.0, now + LEAST_WAIT_S))
                if pool.breakers.calm or pool.breakers.lets(now):
                    claimed[pool.key.account] = ticket


def _price(pools: Iterable[Pool]) -> Price:
    limits = [0.0] * len(NAMES)
    for pool in pools:
        for dimension in pool.dimensions:
            limits[dimension.index] += dimension.limit
    main = limits[INPUT] or limits[TOKENS] or limits[OUTPUT] or limits[REQUESTS] * REQUEST_TOKENS
    if not main:
        return Price(1.0, 0.0, 0.0, 1.0)
    request, tokens_in, tokens_out, total = (main / limit if limit else 0.0 for limit in limits)
    return Price(max(1.0, request), tokens_in, tokens_out, total, main / 60)


# Kept positions
# --------------
# Positions kept for requests that were told to come back, or whose clients gave up waiting: the same body regains its tag.


@dataclass(frozen=True, slots=True)
class KeptPosition:
    """One kept position. Its cost stays charged to its agent until the request comes back, or until `until`."""

    ticket: RoutedTicket
    rank: ClassRank
    until: float


class KeptPositions:
    """All kept positions, by the digest of agent and body; each is kept for the same time."""

    def __init__(self, kept_s: float) -> None:
        self.kept_s = kept_s
        self.kept: dict[str, KeptPosition] = {}
        """By digest."""
        self._in_order: deque[tuple[str, KeptPosition]] = deque()

    @property
    def next_end(self) -> float:
        """When the first one expires; infinite when none is kept."""
        return self._in_order[0][1].until if self._in_order else float("inf")

    def keep(self, ticket: RoutedTicket, now: float, back_in_s: float = 0.0) -> None:
        """Keep its place, and save what it needs until its client should be back; or give its cost back to its agent when it cannot be
        known again."""
        key = ticket.event.body_key
        if not key:
            ticket.rank.charge(ticket, -ticket.cost)
            return
        self._drop(self.kept.get(key))
        place = KeptPosition(ticket, ticket.rank, now + self.kept_s)
        self.kept[key] = place
        self._in_order.append((key, place))
        ticket.lane.save(ticket, now + min(back_in_s, self.kept_s), now)

    def take(self, ticket: RoutedTicket) -> bool:
        """Give it the position that was kept for its body: the old tag; only what it costs more is charged. False: none was kept."""
        place = self.kept.get(ticket.event.body_key)
        if place is None or place.rank is not ticket.rank:
            return False
        del self.kept[ticket.event.body_key]
        ticket.start, ticket.order = place.ticket.start, place.ticket.order
        ticket.rank.charge(ticket, ticket.cost - place.ticket.cost)
        ticket.lane.returned(place.ticket)
        return True

    def expire(self, now: float) -> None:
        """Drop positions whose time is over, and give their cost back."""
        while self._in_order and self._in_order[0][1].until <= now + EARLY_S:
            key, place = self._in_order.popleft()
            if self.kept.get(key) is place:
                del self.kept[key]
                self._drop(place)

    def _drop(self, place: KeptPosition | None) -> None:
        if place is not None:
            place.rank.charge(place.ticket, -place.ticket.cost)
