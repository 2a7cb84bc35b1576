"""Decide for all model traffic: who may send now, and what is charged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from supervisor.gateway.admission import network
from supervisor.gateway.admission.budget import Budget, Budgets, Estimator, Never, Wait
from supervisor.gateway.admission.network import Fallbacks, Network
from supervisor.gateway.admission.queue import Door, KeptPositions, ModelQueue, Route, RoutedTicket
from supervisor.gateway.admission.types import (
    EARLY_S,
    GONE,
    LATER,
    NEVER,
    NOTHING_OBSERVED,
    QUEUED,
    SENT,
    Api,
    Arrived,
    BatchEnded,
    Began,
    Command,
    End,
    Ended,
    Event,
    GatewaySettings,
    LaneKey,
    PoolKey,
    Refusal,
    Refused,
    Responded,
    Send,
    Tick,
    Timers,
    TrafficView,
    TurnAway,
    Usage,
    Withdrawn,
)
from supervisor.kernel.format import duration

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
# knows a clock, a socket or a random number. The parts, from the request's side:
#
#     traffic         tickets, timers, and what becomes of a request     model_queue     the queue of one model class, over several pools
#     kept_positions  of requests that come back                         fair_queue      the requests of one task class
#     budget, pot     agents' own caps, and those that they share        pool            one account's limits and reservations
#     estimate        what a request will take                           breaker_policy  refusals: breakers, margin, parking
#     forecast        what the provider will have left soon
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
            Ended: self._ended,
            Refused: self._refused,
            Withdrawn: lambda event, now: self._ended(Ended(event.ticket, End.CLIENT_GONE, None), now),
            BatchEnded: self._batch_ended,
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
        return network.view(self.network, self.crew.budgets.values(), self.tickets.values(), max(now, self._now))

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
            if not ticket.input_known:
                before = ticket.input + ticket.output
                ticket.pool.input_known(ticket, event.usage, now)
                self.estimator.saw_input(ticket.event, ticket.guess.habit, ticket.pool.key.account, event.usage, now)
                self._charge_more(ticket, before, now, over=False)
                self._ask_again([ticket.budget], now)
            self._pump(ticket.lane, now)

    def _ended(self, event: Ended, now: float) -> None:
        ticket = self._sent(event.ticket)
        if ticket is None:
            self._withdraw(event.ticket, now)
            return
        ticket.pool.breakers.ended(ticket, event.end, now)
        if event.observed is not NOTHING_OBSERVED:
            ticket.pool.responded(ticket, event.observed, now)
        self._settle(ticket, event, now)
        self._over(ticket)
        ticket.budget.close(ticket, event.cost_usd, event.tokens, now)
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

    def _send(self, ticket: RoutedTicket, door: Door, now: float) -> None:
        ticket.where = SENT
        ticket.note_sent(now)
        ticket.upstream, ticket.pool = door.upstream, (pool := door.pool)
        pool.send(ticket, now)
        ticket.budget.open(ticket, now)
        ticket.lane.went(ticket, now)
        expected = self.estimator.expected(ticket.event, ticket.guess, pool.key.account)
        self._say.append(Send(ticket.id, door.upstream, ticket.attempt, ticket.probe, ticket.event.fell_back, expected))

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
